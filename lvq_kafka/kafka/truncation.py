"""Whether a log still has what it had: by the epochs of its leaders, which it keeps with its records (KIP-320)."""

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

_GROUP = "lvq-epochs"  # the client wants one, and joins none
_TURN = 0.1  # seconds; what the client reports beside its messages is heard only in between
_LITTLE = {"fetch.wait.max.ms": 10, "fetch.message.max.bytes": 1, "queued.min.messages": 1}


def check_uncut(config: ClientConfig, topic: str, ends: Mapping[int, LogEnd], timeout: float) -> None:
    """See `lvq_kafka.cluster.Cluster.check_uncut`.

    The client asks the leader where an epoch ended before it reads on from an offset of that epoch. So a look at what
    comes next, be it the end, is the question.
    """
    with closing(_RecordLookup(config, topic, timeout)) as looks:
        looks.first(ends)


def overwritten(
    config: ClientConfig, topic: str, starts: Mapping[int, int], ends: Mapping[int, LogEnd], timeout: float
) -> dict[int, int]:
    """See `lvq_kafka.cluster.Cluster.overwritten`. Each end has to lie in its log, and not at its start.

    Where an epoch ended the client asks for itself, and does not say. So the records are looked at.
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

    Nearly always the record below the end is of an epoch that was read, or the one below that: so it is looked from
    there in growing steps, and by halves only where the log was cut.

    Yields offsets, and is sent offset and epoch of the first record from there on, or None where there is none.
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
    """Looks at what comes first from certain offsets on."""

    def __init__(self, config: ClientConfig, topic: str, timeout: float) -> None:
        self._topic = topic
        self._deadline = time.monotonic() + timeout
        health = Health(config.bootstrap_servers, config.properties)
        self._consumer = open_consumer(config, health, {**READ_RULES, **_LITTLE, "group.id": _GROUP}, FETCH_DEFAULTS)
        self._pump = MessagePump(self._consumer, topic, health, groupless=True, late=True)

    def first(self, places: Mapping[int, LogEnd]) -> dict[int, LogEnd | None]:
        """Offset and epoch of the first record from each place on; None where there is none.

        Raises:
            DataLoss: a log was cut below the place, where that names an epoch.
        """
        self._consumer.assign([TopicPartition(self._topic, p, at, leader_epoch=of) for p, (at, of) in places.items()])
        seen: dict[int, LogEnd | None] = {}
        while len(seen) < len(places):
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TransportError(
                    f"Cannot see whether topic {self._topic!r} was cut: no answer about partitions "
                    f"{sorted(places.keys() - seen.keys())}.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="Check that the leaders of these partitions can be reached, or allow more time.",
                )
            fetch = self._pump.poll(min(left, _TURN))
            for message in fetch.batch.entries():
                epoch = message.leader_epoch()
                seen.setdefault(message.partition(), LogEnd(message.offset(), -1 if epoch is None else epoch))
            for partition in fetch.positions:
                seen.setdefault(partition, None)
        return seen

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
