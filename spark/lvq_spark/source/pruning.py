"""Which partitions can hold the keys that are asked for, where every writer is known to use one partitioner."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from lvq_kafka.core.keys import home_partition
from lvq_kafka.core.mismatch import KeyMismatchPolicy
from lvq_kafka.errors import ConfigError

__all__ = ["Partitioner", "homes"]

Partitioner = Literal["murmur2_random", "consistent_random"]
"""By librdkafka's names: what Java's clients and the producers of this library do, and librdkafka's own default."""

_HOMES: Mapping[Partitioner, Callable[[bytes, int], int]] = {
    "murmur2_random": home_partition,
    "consistent_random": lambda key, partitions: zlib.crc32(key) % partitions,
}


def homes(
    keys: Collection[bytes], partitioner: Partitioner, partitions: int, *, key_mismatch: KeyMismatchPolicy
) -> set[int]:
    """The partitions where these keys lie.

    Raises:
        ConfigError: a key is not what the partition goes by.
    """
    if key_mismatch == "header":
        raise ConfigError(
            "lvq.partitioner tells where record keys lie, and here a header is the key.",
            options=["lvq.partitioner", "lvq.keyMismatch"],
            hint="Leave lvq.partitioner out: all partitions are read for the keys then.",
        )
    if partitioner == "consistent_random" and b"" in keys:  # to librdkafka an empty key is none, and lies anywhere
        return set(range(partitions))
    return {_HOMES[partitioner](key, partitions) for key in keys}
