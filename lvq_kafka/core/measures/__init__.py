"""Metrics of readers, consumers, producers and queues: the tables, and their names.

The tables are the only place where metrics are listed; each reads what `stats` and `status` have.
"""
