"""The rules of a last value queue: pure code without client, thread or clock.

Readers, consumers, the CLI and Spark share it. A driver passes it records and the current time, and asks for the
consequences.
"""
