"""Consuming a queue: acquire, settle, commit. CONSUMING.md tells how."""
