"""The rules for what a producer may send (R12).

It imports `lvq_kafka.core.queue` and what that imports.
"""
