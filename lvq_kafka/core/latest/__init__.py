"""The newest value of each key, and the progress of a reader in finding it.

It imports `lvq_kafka.core.queue` and its dependencies.
"""
