"""The times from which and until which a message counts (R10, R11).

It imports `lvq_kafka.core.text`.
"""
