"""Force a real broker to compact a topic now: a fraction of a second, for tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.runtime.retrying import patiently

if TYPE_CHECKING:
    from lvq_kafka.kafka import KafkaCluster

__all__ = ["DELETES_STAY", "FORCED_COMPACTION", "force_compaction"]

FORCED_COMPACTION: Mapping[str, str] = {
    "segment.ms": "1",  # every append closes the previous segment, and only closed segments are cleaned
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}
"""Topic settings that make a broker compact everything it may, at once."""

DELETES_STAY: Mapping[str, str] = {"delete.retention.ms": "86400000"}
"""Override of `FORCED_COMPACTION` for tests with live readers.

With 0, readers must treat each hole as a delete they missed.
"""

_RETENTION = "delete.retention.ms"
_CLEANER = {"log.cleaner.backoff.ms": "100"}  # how long an idle cleaner sleeps; 15 s by default
_FILLER = b"\xfflvq-filler-%d"
_ROUND = 0.4  # seconds until the next filler; a round takes 0.1 s on an idle machine


def force_compaction(
    cluster: KafkaCluster | str, topic: str, *, drop_tombstones: bool = False, timeout: float = 30.0
) -> None:
    """Compact the topic to one record per key, and with ``drop_tombstones`` to no deletes.

    Only records below the log end at the time of the call count. The topic keeps the settings `FORCED_COMPACTION`,
    except for ``delete.retention.ms``: with 0, readers must treat every hole as a delete they missed. It is 0 only
    while ``drop_tombstones`` needs that, and is restored afterwards. A broker decides how long to keep a delete when
    its cleaner first meets it: a delete that an earlier compaction kept stays for ``delete.retention.ms`` from then on,
    and ``drop_tombstones`` cannot remove it. One delete of an unused key remains at the end of each partition.

    Args:
        cluster: the cluster, or its bootstrap servers.
        topic: a topic whose ``cleanup.policy`` is ``compact``, alone or with ``delete``.
        drop_tombstones: remove deletes too. Otherwise existing deletes stay.
        timeout: the limit in seconds. An idle machine takes 0.1 to 0.3.

    Raises:
        TimeoutError: the broker did not finish in time; the error lists the remaining records.
        TopicNotFound: the topic does not exist.
    """
    if isinstance(cluster, str):
        from lvq_kafka.kafka import KafkaCluster

        cluster = KafkaCluster(cluster)
        try:
            return force_compaction(cluster, topic, drop_tombstones=drop_tombstones, timeout=timeout)
        finally:
            cluster.close()
    deadline = time.monotonic() + timeout
    cluster.brokers.alter_config(_CLEANER, timeout=timeout)
    retention = {_RETENTION: cluster.topics.config(topic, timeout=timeout)[_RETENTION]}
    settings = FORCED_COMPACTION if drop_tombstones else {**FORCED_COMPACTION, **retention}
    cluster.topics.alter_config(topic, settings, timeout=timeout)
    try:
        _compact(cluster, topic, drop_tombstones, deadline, timeout)
    finally:
        if drop_tombstones:
            cluster.topics.alter_config(topic, retention, timeout=timeout)


def _compact(cluster: KafkaCluster, topic: str, drop_tombstones: bool, deadline: float, timeout: float) -> None:
    ends = cluster.logs.end_offsets(topic, timeout=timeout)
    look = partial(_left_over, cluster, topic, ends, drop_tombstones)
    while True:
        _roll(cluster, topic, len(ends), timeout)
        # Removing a delete takes two rounds: the first removes what it deletes, the second the delete itself. To keep
        # deletes, run exactly one round.
        round_end = min(deadline, time.monotonic() + _ROUND) if drop_tombstones else deadline
        while (left := patiently(look, timeout)) and time.monotonic() < round_end:
            time.sleep(0.02)
        if not left:
            return
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"The broker has not compacted topic {topic!r} within {timeout:g} s; these of its records are left "
                f"(partition, offset): {left[:20]}."
            )


def _roll(cluster: KafkaCluster, topic: str, partitions: int, timeout: float) -> None:
    """Append a record to each partition, so that all earlier records lie in closed segments."""
    time.sleep(0.003)  # segment.ms
    writer = cluster.writer()
    try:
        for partition in range(partitions):
            number = next(n for n in range(10_000) if home_partition(_FILLER % n, partitions) == partition)
            writer.append(topic, _FILLER % number, None).result(timeout)
    finally:
        writer.close(timeout)


def _left_over(cluster: KafkaCluster, topic: str, ends: Mapping[int, int], tombstones: bool) -> list[tuple[int, int]]:
    """Return the records below ``ends`` that compaction must still remove.

    Each is a pair of partition and offset.
    """
    positions = cluster.logs.start_offsets(topic)
    reader = cluster.reader(topic, positions)
    newest: dict[tuple[int, bytes | None], tuple[int, bool]] = {}
    left: list[tuple[int, int]] = []
    try:
        while any(positions[partition] < end for partition, end in ends.items()):
            fetch = reader.poll(1.0)
            positions.update(fetch.positions)
            for record in fetch.batch:
                if record.offset < ends[record.partition]:
                    before = newest.get((record.partition, record.key))
                    if before is not None:
                        left.append((record.partition, before[0]))
                    newest[record.partition, record.key] = (record.offset, record.value is None)
    finally:
        reader.close()
    if tombstones:
        left += [(partition, offset) for (partition, _), (offset, deletes) in newest.items() if deletes]
    return sorted(left)
