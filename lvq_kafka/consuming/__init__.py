"""Consuming a queue: acquire, settle, commit. CONSUMING.md explains how."""
