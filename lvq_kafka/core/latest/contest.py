"""The contest of a key's records in several partitions (R14).

Where writers place messages by key, a key has a home partition, and a record in it wins against those in others. Where
they place them by group, no partition is the key's home. Otherwise the latest record wins, by append time, partition
and offset.
"""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.message_groups import Placement

__all__ = ["is_home", "winner"]


def is_home(key: bytes, partition: int, partitions: int, placement: Placement) -> bool:
    """Return whether a record of this key in this partition wins against those in all others."""
    return placement == "key" and home_partition(key, partitions) == partition


def winner(key: bytes, rivals: Mapping[int, Record], partitions: int, placement: Placement) -> Record:
    """Return the current record of a key, given its newest record in each partition."""
    if placement == "key" and len(rivals) > 1:
        home = rivals.get(home_partition(key, partitions))
        if home is not None:
            return home
    return max(rivals.values(), key=lambda record: (record.timestamp, record.partition))
