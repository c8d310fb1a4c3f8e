"""The options of a queue: its definition, its topic's settings, its messages' headers.

It imports `lvq_kafka.core.log`, `lvq_kafka.core.timing` and `lvq_kafka.core.text`.
"""
