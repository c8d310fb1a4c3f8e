"""The offsets of a topic's logs, and the deletion of their records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import OFFSET_INVALID, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from lvq_kafka.cluster import LogEnd, Logs
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.topic_metadata import TopicMetadata, on_topic
from lvq_kafka.kafka.truncation import check_uncut, overwritten
from lvq_kafka.kafka.witnesses import Witnesses
from lvq_kafka.runtime.overriding import override

__all__ = ["KafkaLogs"]

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


class KafkaLogs(Logs):
    """The logs of a Kafka cluster."""

    def __init__(self, config: ClientConfig, requests: AdminRequests, metadata: TopicMetadata) -> None:
        self._config = config
        self._requests = requests
        self._ask = requests.ask
        self._metadata = metadata
        self._witnesses = Witnesses(config, requests)

    def close(self) -> None:
        """Let go of the connections."""
        self._witnesses.close()

    @override
    def start_offsets(self, topic: str, *, timeout: float = 10.0) -> dict[int, int]:
        return self._offsets(topic, _EARLIEST, timeout)

    @override
    def end_offsets(
        self, topic: str, *, stable: bool = False, partitions: int | None = None, timeout: float = 10.0
    ) -> dict[int, int]:
        return self._offsets(topic, _LATEST, timeout, stable=stable, partitions=partitions)

    @override
    def stable_ends(self, topic: str, *, partitions: int | None = None, timeout: float = 10.0) -> dict[int, LogEnd]:
        return self._ends(topic, _LATEST, timeout, stable=True, partitions=partitions)

    @override
    def offsets_at(self, topic: str, timestamp: int, *, timeout: float = 10.0) -> dict[int, int]:
        found = self._offsets(topic, OffsetSpec.for_timestamp(timestamp), timeout)
        if min(found.values()) < 0:
            ends = self.end_offsets(topic, timeout=timeout)
            found = {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}
        return found

    @override
    def delete_before(self, topic: str, offsets: Mapping[int, int], *, timeout: float = 10.0) -> dict[int, int]:
        deadline = time.monotonic() + timeout
        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        answers = self._metadata.ask_leaders(
            topic,
            lambda _: self._ask(
                lambda client, left: client.delete_records(
                    asked, request_timeout=left, operation_timeout=left
                ).values(),
                f"delete records of topic {topic!r}",
                deadline,
                topic=topic,
                needs=on_topic(topic, "Delete"),
                passing=frozenset(),
            ),
            deadline,
        )
        return {one.partition: answer.low_watermark for one, answer in zip(asked, answers, strict=True)}

    @override
    def check_uncut(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> None:
        self._requests.check_open()
        check_uncut(self._config, topic, ends, timeout)

    @override
    def overwritten(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> dict[int, int]:
        deadline = time.monotonic() + timeout
        starts = self.start_offsets(topic, timeout=timeout)
        stable = self.end_offsets(topic, stable=True, timeout=timeout)
        there = {partition: end._replace(offset=min(end.offset, stable[partition])) for partition, end in ends.items()}
        below = {partition: end for partition, end in there.items() if starts[partition] < end.offset}
        return overwritten(self._config, topic, starts, below, deadline - time.monotonic()) if below else {}

    def newest_timestamp(self, topic: str, choose: Callable[[int], int], timeout: float) -> int:
        """Return the greatest record timestamp (ms) of one partition.

        ``choose`` picks the partition, given their number.
        """
        deadline = time.monotonic() + timeout

        def ask(partitions: int) -> int:
            wanted = {TopicPartition(topic, choose(partitions)): _NEWEST}
            [answer] = self._ask(
                lambda client, left: client.list_offsets(wanted, request_timeout=left).values(),
                f"read the times of topic {topic!r}",
                deadline,
                topic=topic,
                needs=on_topic(topic, "Describe"),
                passing=frozenset(),
                harmless=True,
                answered=lambda answer: answer.offset != OFFSET_INVALID,
            )
            return int(answer.timestamp)

        return self._metadata.ask_leaders(topic, ask, deadline)

    def _offsets(
        self, topic: str, spec: OffsetSpec, timeout: float, *, stable: bool = False, partitions: int | None = None
    ) -> dict[int, int]:
        """Return each partition's offset for an `OffsetSpec`; -1 where there is none."""
        found = self._ends(topic, spec, timeout, stable=stable, partitions=partitions)
        return {partition: end.offset for partition, end in found.items()}

    def _ends(
        self, topic: str, spec: OffsetSpec, timeout: float, *, stable: bool, partitions: int | None
    ) -> dict[int, LogEnd]:
        """Return each partition's offset for an `OffsetSpec`, with its leader epoch.

        Both come from one answer. ``partitions`` is their number, if known; if there are fewer, the topic is described.
        """
        deadline = time.monotonic() + timeout
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED

        def ask(requests: AdminRequests, those: Sequence[int]) -> dict[int, LogEnd]:
            return self._list_offsets(requests, topic, those, spec, isolation, deadline)

        def ask_all(count: int) -> dict[int, LogEnd]:
            if spec is not _LATEST:  # only the end of a log is older than it seems when its leader is cut off
                return ask(self._requests, range(count))
            found = self._witnesses.ask(topic, range(count), ask, deadline)
            return {partition: found[partition] for partition in range(count)}

        return self._metadata.ask_leaders(topic, ask_all, deadline, partitions)

    def _list_offsets(
        self,
        requests: AdminRequests,
        topic: str,
        partitions: Sequence[int],
        spec: OffsetSpec,
        isolation: IsolationLevel,
        deadline: float,
    ) -> dict[int, LogEnd]:
        wanted = {TopicPartition(topic, partition): spec for partition in partitions}
        answers = requests.ask(
            lambda client, left: client.list_offsets(wanted, isolation_level=isolation, request_timeout=left).values(),
            f"read the offsets of topic {topic!r}",
            deadline,
            topic=topic,
            needs=on_topic(topic, "Describe"),
            passing=frozenset(),
            harmless=True,
            # When no broker answers, the client (2.16.0) reports success and this offset, which is below the end of any
            # log.
            answered=lambda answer: answer.offset != OFFSET_INVALID,
        )
        ends = (LogEnd(answer.offset, -1 if answer.leader_epoch is None else answer.leader_epoch) for answer in answers)
        return {partition.partition: end for partition, end in zip(wanted, ends, strict=True)}
