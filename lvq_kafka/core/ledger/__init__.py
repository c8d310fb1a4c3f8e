"""The ledger: who may have which message of a consumer's partitions (G9, G10, G13).

It imports `lvq_kafka.core.waiting`, `lvq_kafka.core.latest` and their dependencies.
"""
