"""The rules of a last value queue: pure code without client, thread or clock.

Everything the readers, the consumer, the CLI and Spark share lives here once. A driver feeds it what it read and the
time it is, and asks what follows.
"""
