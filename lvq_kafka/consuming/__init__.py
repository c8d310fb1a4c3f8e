"""Consuming a queue: acquire, settle, commit. docs/protocol.md explains how."""
