"""The newest value of each key, and how far a reader is with finding it.

It imports `lvq_kafka.core.queue` and what that imports.
"""
