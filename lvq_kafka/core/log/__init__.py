"""The records of a partition's log, their keys, and how far they were read.

It imports `lvq_kafka.core.text`.
"""
