"""Admission of messages to queues with limits, by their producers (R12)."""
