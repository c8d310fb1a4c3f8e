"""A queue's state of consumption, seen and changed from outside of its consumers."""
