"""The commits of a group: those that its brokers acknowledged, and those that they have in their log."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.facts import Position
from lvq_kafka.kafka.kafka_groups import commit_of
from lvq_kafka.kafka.member import KafkaMember
from tests.waiting import eventually

__all__ = ["CommitHistory", "Noted", "around", "stored_commits", "why_taken_back"]

_COMMITS = "__consumer_offsets"
_OFFSET_KEYS = (0, 1)  # versions of the keys of commits; others are keys of groups
_TEXT = re.compile(rb"lvq1\.[A-Za-z0-9_-]*")
_AROUND = 8  # commits to print before and after one


class Noted(NamedTuple):
    """A commit of one partition."""

    at: float
    """Seconds since the epoch: when the answer came, or when the coordinator wrote it."""
    partition: int
    map: CommitMap

    def __str__(self) -> str:
        said = self.map
        return f"{self.at:.3f} partition {self.partition} sequence {said.sequence} base {said.base} runs {said.runs}"


class CommitHistory:
    """Notes the commits that brokers acknowledge to the members in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._acknowledged: dict[str, list[Noted]] = {}  # by group
        commit, on_commit = KafkaMember.commit, KafkaMember._on_commit

        def commit_and_note(member: KafkaMember, commits: Mapping[int, Commit]) -> None:
            commit(member, commits)
            self._note(member, commits)

        def note_and_answer(member: KafkaMember, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
            stored = [one for one in partitions if one.error is None and error is None]
            self._note(member, {one.partition: commit_of(one) for one in stored})
            on_commit(member, error, partitions)

        monkeypatch.setattr(KafkaMember, "commit", commit_and_note)
        monkeypatch.setattr(KafkaMember, "_on_commit", note_and_answer)

    def _note(self, member: KafkaMember, commits: Mapping[int, Commit]) -> None:
        noted = self._acknowledged.setdefault(member._client.group, [])
        for partition, commit in commits.items():
            noted.append(Noted(time.time(), partition, CommitMap.decode(commit.offset, commit.metadata)))

    def acknowledged(self, group: str, partition: int) -> list[Noted]:
        """Return the commits that brokers acknowledged, in the order of the answers."""
        return [one for one in self._acknowledged.get(group, ()) if one.partition == partition]


def stored_commits(servers: str, group: str, topic: str, partition: int) -> list[Noted]:
    """Return the commits in the brokers' log, in its order. Nothing there is compacted within a test."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "commit-history",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(_COMMITS, 10).topics[_COMMITS].partitions
    consumer.assign([TopicPartition(_COMMITS, one, 0) for one in partitions])
    found: list[Noted] = []
    ended: set[int | None] = set()

    def at_the_end() -> bool:
        for message in consumer.consume(10_000, 0.1):
            if message.error() is not None:
                ended.add(message.partition())
            elif _key(message.key()) == (group, topic, partition) and (value := message.value()) is not None:
                found.append(Noted(message.timestamp()[1] / 1000, partition, _map(value)))
        return len(ended) == len(partitions)

    eventually(at_the_end, 60)
    consumer.close()
    return found


def _key(data: bytes | str | None) -> tuple[str, str, int] | None:
    """Parse the key of a commit: version, group, topic, partition."""
    assert isinstance(data, bytes)
    if struct.unpack(">h", data[:2])[0] not in _OFFSET_KEYS:
        return None
    group, rest = _text(data[2:])
    topic, rest = _text(rest)
    return group, topic, struct.unpack(">i", rest[:4])[0]


def _map(data: bytes | str) -> CommitMap:
    """Parse the value of a commit: version, offset and, in a place that depends on the version, the text."""
    assert isinstance(data, bytes)
    (offset,) = struct.unpack(">q", data[2:10])
    text = _TEXT.search(data)
    assert text is not None, data
    return CommitMap.decode(offset, text[0].decode())


def _text(data: bytes) -> tuple[str, bytes]:
    end = 2 + struct.unpack(">h", data[:2])[0]
    return data[2:end].decode(), data[end:]


def why_taken_back(position: Position, came_at: float, acknowledged: list[Noted], stored: list[Noted]) -> str:
    """Return why a message that was durably done came again; empty if nothing in the brokers' log explains it.

    Args:
        came_at: when it came again.
        acknowledged: what brokers acknowledged for its partition.
        stored: what is in their log.
    """
    promises = [one.map for one in acknowledged if one.at <= came_at and one.map.done(position.offset)]
    if not promises:
        return ""
    promise, before = promises[0], [one.map for one in stored if one.at <= came_at]
    if promise not in before:
        return "brokers acknowledged a commit that their log does not have"
    later = before[before.index(promise) + 1 :]
    if any(one.sequence < promise.sequence and not one.done(position.offset) for one in later):
        return "a commit that was sent before it was stored after it"
    return ""


def around(offset: int, commits: list[Noted]) -> str:
    """Return the first commits that call a message done, and those before them."""
    first = next((index for index, one in enumerate(commits) if one.map.done(offset)), len(commits))
    return "\n".join(f"  {one}" for one in commits[max(0, first - _AROUND) : first + _AROUND])
