"""Tools of all drivers: event loops, clocks, forks, exits, retries, warnings.

It imports `lvq_kafka.core`.
"""
