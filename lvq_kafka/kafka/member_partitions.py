"""A member's assigned partitions: where reading starts, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, TopicPartition

from lvq_kafka.cluster import GroupListener
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import BrokerUnavailable, OffsetsPending
from lvq_kafka.kafka.kafka_groups import commit_of
from lvq_kafka.kafka.member_client import MemberClient
from lvq_kafka.kafka.offset_fetch import why_pending
from lvq_kafka.kafka.reader import MessagePump
from lvq_kafka.runtime.retrying import patiently

__all__ = ["MemberPartitions"]

_COMMITTED_TIMEOUT = 5.0  # seconds for one request
_PENDING_TIMEOUT = 0.3  # seconds for one that waits for a transaction: it blocks everything else
_ASK_AGAIN = 1.0  # seconds until the next such request
_PATIENCE = 5.0  # seconds over all attempts; then the error is reported, and the next poll tries again


class MemberPartitions:
    """The partitions of a member, as its listener knows them.

    Nothing outside of them is ever committed: a broker accepts a member's commits for partitions that it lost long ago,
    as long as it is a member again.
    """

    def __init__(self, client: MemberClient, pump: MessagePump, listener: GroupListener) -> None:
        self.owned: set[int] = set()
        self._client = client
        self._pump = pump
        self._listener = listener
        self._doing = f"read the commits of group {client.group!r}"
        self._waiting: set[int] = set()  # assigned by the group, but not owned yet: reading could not start
        self._paused: set[int] = set()  # those, and ones revoked before reading started: the client reads none
        self._ended: set[int] = set()  # given up since the current poll began
        self._restarted: dict[int, int] = {}  # of those, the ones assigned again, and where they start
        self._pending = False  # whether a transaction holds the commits of waiting partitions
        self._ask_at = 0.0  # when to ask for those commits again

    def assign(self, consumer: Consumer, partitions: list[int]) -> None:
        """Start reading partitions, where the listener wants to."""
        try:
            starts = self._starts(partitions)
        except Exception:
            # The client assigns them anyway, and by itself would read from the commits. So give it an offset, and
            # pause. The offset must not be the logical end: the client would look that up and, if the answer comes
            # late, go on from there although they have been reassigned (seen with librdkafka 2.16.0).
            self._waiting.update(partitions)
            self._paused.update(partitions)
            consumer.incremental_assign(self._at(dict.fromkeys(partitions, 0)))
            consumer.pause(self._these(partitions))
            raise
        self._assign_from(consumer, starts)

    def retry(self) -> None:
        """Start reading the partitions for which that has failed, if it is time to."""
        if self._waiting and time.monotonic() >= self._ask_at:
            consumer = self._client.get()
            starts = self._starts(sorted(self._waiting))
            consumer.incremental_unassign(self._these(self._waiting))
            self._waiting.clear()
            self._assign_from(consumer, starts)

    def start_poll(self) -> None:
        """Start to note which partitions are given up, and which of them come back."""
        self._ended.clear()
        self._restarted.clear()

    def owned_part(self, fetch: Fetch) -> Fetch:
        """Return what a poll has fetched of the partitions that are owned at its end.

        In one call, the client can return records, and then call back. If a partition was revoked, its records are for
        its next owner. If it was also assigned again, they may be of either assignment: so it is read again.
        """
        again = {p: start for p, start in self._restarted.items() if p in fetch.positions}
        if again:
            consumer = self._client.get()
            consumer.incremental_unassign(self._these(again))
            consumer.incremental_assign(self._at(again))
        mine = self.owned - again.keys()
        if mine.issuperset(fetch.positions):
            return fetch
        batch = fetch.batch.pick([row for row, p in enumerate(fetch.batch.partitions) if p in mine])
        rest = ({p: one for p, one in each.items() if p in mine} for each in (fetch.positions, fetch.epochs))
        return Fetch(batch, *rest)

    def revoke(self, partitions: Collection[int]) -> None:
        """Give up partitions; the listener may still commit for them."""
        self._waiting.difference_update(partitions)
        going = sorted(self.owned.intersection(partitions))
        try:
            if going:
                self._listener.revoked(going)
        finally:
            self._end(going)

    def lose(self, partitions: Collection[int]) -> None:
        """Notice that partitions are lost."""
        self._waiting.difference_update(partitions)
        gone = sorted(self.owned.intersection(partitions))
        self._end(gone)
        if gone:
            self._listener.lost(gone)

    def _end(self, partitions: Collection[int]) -> None:
        self.owned.difference_update(partitions)
        self._ended.update(partitions)
        for partition in partitions:
            self._restarted.pop(partition, None)

    def _assign_from(self, consumer: Consumer, starts: Mapping[int, int]) -> None:
        consumer.incremental_assign(self._at(starts))
        if paused := self._paused.intersection(starts):
            consumer.resume(self._these(paused))
            self._paused -= paused
        self.owned.update(starts)
        self._restarted |= {p: start for p, start in starts.items() if p in self._ended}
        self._pump.mend(starts)

    def _starts(self, partitions: list[int]) -> Mapping[int, int]:
        """Return where the listener wants to start, given the group's commits."""
        found = patiently(lambda: self._ask_for_commits(partitions), _PATIENCE, unless=(OffsetsPending,))
        for partition in found:
            if partition.error is not None:
                raise self._client.explain(partition.error, self._doing)
        commits = {partition.partition: commit_of(partition) for partition in found if partition.offset >= 0}
        return self._listener.assigned(partitions, commits)

    def _ask_for_commits(self, partitions: list[int]) -> list[TopicPartition]:
        timeout = _PENDING_TIMEOUT if self._pending else _COMMITTED_TIMEOUT
        asked = self._these(partitions)
        try:
            found: list[TopicPartition] = self._client.ask(self._doing, lambda client: client.committed(asked, timeout))
        except BrokerUnavailable as error:
            why = why_pending(self._client.config, self._client.group, asked, known=self._pending)
            self._pending = why is not None
            if why is None:
                raise
            self._ask_at = time.monotonic() + _ASK_AGAIN
            raise why from error
        self._pending = False
        return found

    def _these(self, partitions: Collection[int]) -> list[TopicPartition]:
        return [TopicPartition(self._client.topic, partition) for partition in partitions]

    def _at(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._client.topic, partition, offset) for partition, offset in offsets.items()]
