"""Reading without taking: views, browsers, and the follower beneath them."""
