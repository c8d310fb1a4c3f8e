"""Non-destructive reading: views, browsers, and the follower that they are built on."""
