"""The rules of a last value queue: pure code without client, thread or clock.

It is shared by the readers, the consumer, the CLI and Spark. A driver feeds it records and the current time, and asks
for the consequences.
"""
