"""Home partitions for a column of keys, by the partitioner of the topic's writers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_spark.scan.arrays import binary

__all__ = ["JAVA", "Partitioner", "check_homes", "home_partitions"]

Partitioner = Literal["murmur2_random", "consistent_random", "fnv1a_random"]
"""The partitioners, by librdkafka's names.

Java's clients and this library's producers use the first. The second (CRC32) is librdkafka's own default, and so that
of most producers in Python, Go and .NET; the third (FNV-1a) is Sarama's.
"""

JAVA: Partitioner = "murmur2_random"

_Hashes = npt.NDArray[np.uint32]


def home_partitions(keys: pa.Array, partitions: int, partitioner: Partitioner = JAVA) -> npt.NDArray[np.int64]:
    """Return the home partition of each key; keys of equal length are hashed together.

    Args:
        keys: a binary array, as `lvq_spark.scan.arrays.binary` makes it. A null has the home of the empty key.
        partitions: the topic's partition count.
        partitioner: the partitioner of the topic's writers.
    """
    _, offsets_buffer, data_buffer = keys.buffers()
    ends = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    lengths = np.diff(ends)
    homes = np.empty(len(keys), np.int64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        text = data[ends[rows][:, None] + np.arange(length)]
        homes[rows] = _HASHES[partitioner](text) % np.uint32(partitions)
    return homes


def check_homes(
    keys: Sequence[bytes | None], topic: str, partition: int, partitions: int, partitioner: Partitioner
) -> None:
    """Check that all keys are at home in a partition.

    None, for a record without a key, is at home everywhere.

    Raises:
        ConfigError: a key is not at home. The error names another partitioner if all keys are at home by that one.
    """
    there = [key for key in keys if key is not None]
    away = _away(there, partition, partitions, partitioner)
    if not len(away):
        return
    key = there[int(away[0])]
    [home] = home_partitions(binary([key]), partitions, partitioner).tolist()
    fits = [other for other in _HASHES if not len(_away(there, partition, partitions, other))]
    raise ConfigError(
        f"The key {quoted(key)} lies in partition {partition} of {topic}, but its home by the partitioner "
        f"{partitioner} is {home}: it may have a value there as well.",
        options=["lvq.strays", "lvq.partitioner"],
        hint=_FITS.format(n=len(there), name=fits[0]) if fits else _FITS_NOT,
    )


_FITS = (
    "All {n} keys checked lie where {name} puts them: if every writer of the topic has always used that partitioner, "
    "set lvq.partitioner to {name}. Otherwise read with lvq_spark.snapshot, which needs no partitioner."
)
_FITS_NOT = (
    "Read with lvq_spark.snapshot, which merges a key's values from several partitions, or set lvq.strays to pass if "
    "every writer of the topic puts a key into the same partition."
)


def _away(keys: Sequence[bytes], partition: int, partitions: int, partitioner: Partitioner) -> npt.NDArray[np.intp]:
    """Return the indexes of the keys that are not at home."""
    away: npt.NDArray[np.bool_] = home_partitions(binary(keys), partitions, partitioner) != partition
    if partitioner == "consistent_random":  # which takes an empty key for none, and puts it anywhere
        away &= np.fromiter(map(bool, keys), np.bool_)
    return np.flatnonzero(away)


# ---------------------------------------------------------------- the hash of each row of bytes

_SEED, _MULTIPLIER = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def _murmur2(rows: npt.NDArray[np.uint8]) -> _Hashes:
    length = rows.shape[1]
    hashes = np.full(len(rows), _SEED ^ np.uint32(length), np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    for at in range(words.shape[1]):
        word = words[:, at] * _MULTIPLIER
        word ^= word >> np.uint32(24)
        hashes = (hashes * _MULTIPLIER) ^ (word * _MULTIPLIER)
    if whole < length:
        for at in range(whole, length):
            hashes ^= rows[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    return hashes & np.uint32(0x7FFFFFFF)


def _crc32(rows: npt.NDArray[np.uint8]) -> _Hashes:
    return np.fromiter(map(zlib.crc32, rows), np.uint32)


def _fnv1a(rows: npt.NDArray[np.uint8]) -> _Hashes:
    hashes = np.full(len(rows), 0x811C9DC5, np.uint32)
    for at in range(rows.shape[1]):
        hashes = (hashes ^ rows[:, at]) * np.uint32(0x01000193)
    return np.where(hashes >> np.uint32(31), np.uint32(0) - hashes, hashes)  # the absolute value, as a signed number


_HASHES: Mapping[Partitioner, Callable[[npt.NDArray[np.uint8]], _Hashes]] = {
    "murmur2_random": _murmur2,
    "consistent_random": _crc32,
    "fnv1a_random": _fnv1a,
}
