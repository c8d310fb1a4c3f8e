"""The decisions of one consumer: hand-out, commits, transactions and its lease.

It imports `lvq_kafka.core.ledger` and its dependencies.
"""
