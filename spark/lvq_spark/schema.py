"""The columns of a snapshot, as Spark takes them."""

from __future__ import annotations

__all__ = ["SCHEMA"]

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns of a snapshot: names, order and types are those of Spark's Kafka connector, without ``timestampType``."""
