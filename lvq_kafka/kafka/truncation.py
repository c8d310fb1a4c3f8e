"""Detect truncated logs by the leader epochs that a log keeps with its records (KIP-320)."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing

from confluent_kafka import TopicPartition

from lvq_kafka.cluster import LogEnd
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.reader import FETCH_DEFAULTS, READ_RULES, MessagePump

__all__ = ["check_uncut", "overwritten"]

_GROUP = "lvq-epochs"  # the client requires one, but joins none
_TURN = 0.1  # seconds; errors that the client reports outside of messages are seen only between polls
_LITTLE = {"fetch.wait.max.ms": 10, "fetch.message.max.bytes": 1, "queued.min.messages": 1}


def check_uncut(config: ClientConfig, topic: str, ends: Mapping[int, LogEnd], timeout: float) -> None:
    """See `lvq_kafka.cluster.Logs.check_uncut`.

    Before the client reads on from an offset of an epoch, it asks the leader where that epoch ended. So reading
    whatever comes next, even the end of the log, asks that question.
    """
    with closing(_RecordLookup(config, topic, timeout)) as looks:
        looks.first(ends)


def overwritten(
    config: ClientConfig, topic: str, starts: Mapping[int, int], ends: Mapping[int, LogEnd], timeout: float
) -> dict[int, int]:
    """See `lvq_kafka.cluster.Logs.overwritten`.

    Each end has to lie in its log, and not at its start. The client asks where an epoch ended, but does not report the
    answer. So the records themselves are checked.
    """
    found: dict[int, int] = {}
    searches = {partition: _search(starts[partition], end) for partition, end in ends.items()}
    came: Mapping[int, LogEnd | None] = dict.fromkeys(ends)
    with closing(_RecordLookup(config, topic, timeout)) as looks:
        while searches:
            wanted: dict[int, LogEnd] = {}
            for partition, search in list(searches.items()):
                try:
                    wanted[partition] = LogEnd(search.send(came[partition]), -1)
                except StopIteration as stop:
                    del searches[partition]
                    if stop.value is not None:
                        found[partition] = stop.value
            came = looks.first(wanted) if wanted else {}
    return found


def _search(start: int, end: LogEnd) -> Generator[int, LogEnd | None, int | None]:
    """Find the first record below an end that is of a later epoch.

    The record right below the end, or the one before it, is nearly always of an epoch that was read. So search from
    there in growing steps, and bisect only if the log was cut.

    Yields an offset and is sent the offset and epoch of the first record at or after it, or None if there is none.
    """
    below, above, step, later = start - 1, end.offset, 1, None
    while above - below > 1:
        at = max(start, end.offset - step) if below < start else (below + above) // 2
        came = yield at
        if came is not None and came.leader_epoch <= end.leader_epoch:
            below = came.offset
        else:
            above, later = at, came
            step *= 2
    return later.offset if later is not None and later.offset < end.offset else None


class _RecordLookup:
    """Lookup of the first record at or after given offsets."""

    def __init__(self, config: ClientConfig, topic: str, timeout: float) -> None:
        self._topic = topic
        self._deadline = time.monotonic() + timeout
        health = Health(config.bootstrap_servers, config.properties)
        self._consumer = open_consumer(config, health, {**READ_RULES, **_LITTLE, "group.id": _GROUP}, FETCH_DEFAULTS)
        self._pump = MessagePump(self._consumer, topic, health, groupless=True, late=True)

    def first(self, places: Mapping[int, LogEnd]) -> dict[int, LogEnd | None]:
        """Return offset and epoch of the first record at or after each place; None without one.

        A new client may ask a broker first that is gone, report that none answers, and then ask the others.

        Raises:
            DataLoss: a log was cut below a place that names an epoch.
            TransportError: the cluster refuses, or has not answered in time.
        """
        self._consumer.assign([TopicPartition(self._topic, p, at, leader_epoch=of) for p, (at, of) in places.items()])
        seen: dict[int, LogEnd | None] = {}
        trouble: TransportError | None = None
        while len(seen) < len(places):
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise trouble or TransportError(
                    f"Cannot tell whether topic {self._topic!r} was truncated: no answer about partitions "
                    f"{sorted(places.keys() - seen.keys())}.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="Check that the leaders of these partitions can be reached, or allow more time.",
                )
            try:
                fetch = self._pump.poll(min(left, _TURN))
            except TransportError as error:
                if not error.retriable:
                    raise
                trouble = error
                continue
            for message in fetch.batch.entries():
                epoch = message.leader_epoch()
                seen.setdefault(message.partition(), LogEnd(message.offset(), -1 if epoch is None else epoch))
            for partition in fetch.positions:
                seen.setdefault(partition, None)
        return seen

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
