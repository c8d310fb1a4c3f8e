"""The contents of a run's topics at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing

from lvq_kafka.consuming.letters import DLQ_COUNT, DLQ_REASON, DLQ_SOURCE
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import Record, header_value
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.kafka import KafkaCluster
from tests.torture.dead_letters import DeadLetter
from tests.torture.feed import Place, Sent
from tests.torture.judge import Output
from tests.torture.lifetimes import ExpiryLetter
from tests.torture.settling import RejectedError

__all__ = ["expiry_letters", "letters", "lost", "newest", "output", "undecided"]


def newest(cluster: KafkaCluster, topic: str) -> tuple[dict[Place, Sent], int]:
    """Return the log's last message of each key, and the number of records that it holds."""
    newest: dict[str, tuple[Place, Sent]] = {}
    kept = 0
    for record in _records(cluster, topic):
        kept += 1
        key = (record.key or b"").decode()
        newest[key] = (record.partition, record.offset), (key, None if record.value is None else record.value.decode())
    return dict(newest.values()), kept


def everything(cluster: KafkaCluster, topic: str) -> dict[Place, Sent]:
    """Return all messages of a topic that is not compacted."""
    return {
        (record.partition, record.offset): (
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
        )
        for record in _records(cluster, topic)
    }


def lost(stored: Mapping[Place, Sent], newest: Mapping[Place, Sent]) -> list[Place]:
    """Return acknowledged messages that are neither there nor replaced: the broker lost them."""
    at = {key: place for place, (key, _) in newest.items()}
    return [
        place
        for place, (key, value) in stored.items()
        if value is not None and (place not in newest if key is None else at.get(key, (0, -1))[1] < place[1])
    ]


def output(cluster: KafkaCluster, topic: str) -> list[Output]:
    """Return the visible results of transforming processes."""
    made = []
    for record in _records(cluster, topic):
        life, number, partition, offset, content = json.loads(record.value or b"")
        made.append(Output(life, number, (partition, offset), (record.key or b"").decode(), content))
    return made


def letters(cluster: KafkaCluster, topic: str) -> list[DeadLetter]:
    """Return all visible dead letters."""
    behind = time.time() - time.monotonic()
    letters = []
    for record in _records(cluster, topic):
        source, count, reason = (
            (header_value(record.headers, name) or b"").decode() for name in (DLQ_SOURCE, DLQ_COUNT, DLQ_REASON)
        )
        _, partition, offset = Position.parse(source)
        key, value = (record.key or b"").decode(), (record.value or b"").decode()
        letters.append(
            DeadLetter(
                (partition, offset),
                key,
                value,
                int(count),
                reason.removeprefix(f"{RejectedError.__name__}: "),
                record.timestamp / 1000 - behind,
            )
        )
    return letters


def expiry_letters(cluster: KafkaCluster, topic: str) -> list[ExpiryLetter]:
    """Return all records of the expiry topic."""
    letters = []
    for record in _records(cluster, topic):
        source, reason = ((header_value(record.headers, name) or b"").decode() for name in (DLQ_SOURCE, DLQ_REASON))
        _, partition, offset = Position.parse(source)
        key, value = (record.key or b"").decode(), (record.value or b"").decode()
        mortal = header_value(record.headers, TTL_HEADER) is not None
        letters.append(ExpiryLetter((partition, offset), key, value, reason, record.timestamp, mortal))
    return letters


def undecided(cluster: KafkaCluster, topic: str) -> dict[int, tuple[int, int]]:
    """Return where open transactions begin and where the log ends, for partitions with open transactions."""
    stable, ends = cluster.logs.end_offsets(topic, stable=True), cluster.logs.end_offsets(topic)
    return {partition: (stable[partition], end) for partition, end in ends.items() if stable[partition] < end}


def _records(cluster: KafkaCluster, topic: str) -> Iterator[Record]:
    """Yield all committed records, by partition in the order of the log."""
    positions, ends = (
        cluster.logs.start_offsets(topic),
        cluster.logs.end_offsets(topic, stable=True),
    )  # open transactions may remain
    found: dict[int, list[Record]] = {partition: [] for partition in ends}
    with closing(cluster.reader(topic, positions)) as reader:
        while any(positions[partition] < end for partition, end in ends.items()):
            fetch = reader.poll(1.0)
            positions.update(fetch.positions)
            for record in fetch.batch:
                found[record.partition].append(record)
    for records in found.values():
        yield from records
