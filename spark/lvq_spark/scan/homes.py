"""Which keys of a partition are at home there: Java's murmur2, over a column of keys at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["home_partitions"]

_SEED, _MULTIPLIER = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def home_partitions(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """The home of each key, as `lvq_kafka.core.keys.home_partition` has it; keys of one length are hashed together.

    Args:
        keys: a binary array, as `lvq_spark.scan.arrays.binary` makes it: for a null the empty key's home is told.
        partitions: the topic's partition count.
    """
    _, offsets_buffer, data_buffer = keys.buffers()
    ends = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    lengths = np.diff(ends)
    homes = np.empty(len(keys), np.int64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        text = data[ends[rows][:, None] + np.arange(length)]
        homes[rows] = (_murmur2(text) & np.uint32(0x7FFFFFFF)) % partitions
    return homes


def _murmur2(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The hash of each row of bytes."""
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
    return hashes
