"""The messages that are not done, their life, and which is next (R20, R36).

It imports `lvq_kafka.core.queue`, its dependencies, and `lvq_kafka.core.commit_map`.
"""
