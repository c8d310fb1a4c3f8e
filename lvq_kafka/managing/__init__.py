"""A queue's progress, inspected and changed from outside its consumers."""
