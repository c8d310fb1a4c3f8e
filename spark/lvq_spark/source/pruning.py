"""Partitions that can hold the requested keys, if all writers use a known partitioner."""

from __future__ import annotations

from collections.abc import Collection

from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.errors import ConfigError
from lvq_spark.scan.arrays import binary
from lvq_spark.scan.home_partition import Partitioner, home_partitions

__all__ = ["homes"]


def homes(
    keys: Collection[bytes], partitioner: Partitioner, partitions: int, *, key_mismatch: KeyMismatchPolicy
) -> set[int]:
    """Return the partitions where these keys lie.

    Raises:
        ConfigError: the partitioner does not go by these keys, since a header decides them.
    """
    if key_mismatch == "header":
        raise ConfigError(
            "lvq.partitioner says where record keys lie, but here a header is the key.",
            options=["lvq.partitioner", "lvq.keyMismatch"],
            hint="Omit lvq.partitioner: all partitions are then read for the keys.",
        )
    if partitioner == "consistent_random" and b"" in keys:  # to librdkafka an empty key is none, and lies anywhere
        return set(range(partitions))
    return set(home_partitions(binary(list(keys)), partitions, partitioner).tolist())
