"""The harness of the contract suite: cluster faults and common steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from lvq_kafka.cluster import Cluster, Commit, GroupMember, LogReader
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import TransportError
from tests.waiting import eventually

COMPACTED = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}

NOTHING_COMES = 0.3
"""Seconds that a test waits to see that nothing comes."""


class Faults(Protocol):
    """Events inside a cluster."""

    def compact(self, topic: str, *, drop_tombstones: bool = False) -> None:
        """Compact the log; return when all removable records are gone."""

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset."""

    def expel(self, member: GroupMember) -> None:
        """Remove a member from its group, as if its session had timed out. The member notices later."""


def put(cluster: Cluster, topic: str, *pairs: tuple[str, str | None]) -> list[Position]:
    """Append keys and values (None deletes); wait until they are stored."""
    writer = cluster.writer()
    receipts = [writer.append(topic, k.encode(), None if v is None else v.encode()) for k, v in pairs]
    positions = [receipt.result(10) for receipt in receipts]
    writer.close()
    return positions


def pairs(records: Iterable[Record]) -> list[tuple[str, str | None]]:
    """Return keys and values as text."""
    return [(key_text(r.key or b""), None if r.value is None else r.value.decode()) for r in records]


def settled(cluster: Cluster, topic: str) -> dict[int, int]:
    """Wait until all transaction markers are written; return the end offsets."""

    def same() -> dict[int, int] | None:
        ends = cluster.logs.end_offsets(topic)
        return ends if ends == cluster.logs.end_offsets(topic, stable=True) else None

    return eventually(same) or {}


def follow(reader: LogReader | GroupMember, until: Mapping[int, int], timeout: float = 15.0) -> list[Record]:
    """Poll until the positions reach ``until``; return the records. Retry after retriable errors."""
    records: list[Record] = []
    positions: dict[int, int] = {}

    def reached() -> bool:
        try:
            fetch = reader.poll(0.1)
        except TransportError as error:
            if not error.retriable:
                raise
            return False
        records.extend(fetch.batch)
        for partition, position in fetch.positions.items():
            assert position >= positions.get(partition, 0), "a position never moves back"
            positions[partition] = position
        return all(positions.get(partition, -1) >= end for partition, end in until.items())

    if until:
        eventually(reached, timeout)
    assert {p: positions[p] for p in until} == dict(until)
    return records


def read_all(cluster: Cluster, topic: str) -> list[Record]:
    """Read all records up to the last stable offset."""
    reader = cluster.reader(topic, cluster.logs.start_offsets(topic))
    try:
        return follow(reader, cluster.logs.end_offsets(topic, stable=True))
    finally:
        reader.close()


def stays_at(reader: LogReader | GroupMember, positions: Mapping[int, int]) -> bool:
    """Return whether, for a while, no record comes and no position changes."""
    fetch = reader.poll(NOTHING_COMES)
    return not len(fetch.batch) and fetch.positions.items() <= positions.items()


def polls_without_error(reader: LogReader) -> None:
    """Poll once. Tests use it to wait until a poll raises."""
    reader.poll(0.2)


class Listener:
    """A `GroupListener` that keeps a diary. It starts each partition at its commit, or at 0."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.commits: dict[int, Commit] = {}
        self.diary: list[tuple[str, tuple[int, ...]]] = []
        self.on_revoke: Callable[[Sequence[int]], object] = lambda partitions: None

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        self.held.update(partitions)
        self.commits.update(commits)
        self.diary.append(("assigned", tuple(partitions)))
        return {partition: commits[partition].offset if partition in commits else 0 for partition in partitions}

    def revoked(self, partitions: Sequence[int]) -> None:
        self.on_revoke(partitions)
        self.held.difference_update(partitions)
        self.diary.append(("revoked", tuple(partitions)))

    def lost(self, partitions: Sequence[int]) -> None:
        self.held.difference_update(partitions)
        self.diary.append(("lost", tuple(partitions)))


def poll_until(condition: Callable[[], object], *members: GroupMember, timeout: float = 30.0) -> None:
    """Poll the members in turn until the condition holds. Discard their records."""

    def step() -> object:
        for member in members:
            member.poll(0.02)
        return condition()

    eventually(step, timeout)
