"""Producers: messages on their way to a topic, and the partition that a group gives them."""
