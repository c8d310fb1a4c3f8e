"""The rules for the messages that a producer may send (R12).

It imports `lvq_kafka.core.queue` and its dependencies.
"""
