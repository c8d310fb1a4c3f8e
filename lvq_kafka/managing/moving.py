"""Move messages between queues. Each leaves the one exactly when it is in the other."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter

from lvq_kafka.cluster import Cluster, Commit, LogWriter
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.keys import Key, chosen_keys
from lvq_kafka.core.log.records import header_value
from lvq_kafka.core.queue.definition import QueueDefinition, time_rule
from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.waiting.pending import Deletion
from lvq_kafka.declared.group_checks import at_work, means_at_work
from lvq_kafka.errors import (
    BrokerUnavailable,
    ConfigError,
    LVQError,
    MissingKey,
    OutcomeUnknown,
    QueueError,
    TopicNotFound,
    TransportError,
)
from lvq_kafka.managing import management
from lvq_kafka.managing.backlog import Backlog, QueueSnapshot, read_backlog, snapshot_queue
from lvq_kafka.managing.management import Change, idle, signed, store
from lvq_kafka.producing.group_placement import GroupPlacement

__all__ = ["move"]

logger = logging.getLogger("lvq_kafka.management")

_BATCH = 5_000  # messages per transaction
_JOIN = 30.0  # seconds to wait for all partitions
_POLL = 0.1  # seconds
_UNDECIDED = frozenset({"_TIMED_OUT", "_FAIL"})  # codes of a commit that the client gave up waiting for

_Parts = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def move(
    cluster: Cluster,
    source: QueueDefinition,
    target_cluster: Cluster,
    target: QueueDefinition,
    keys: Iterable[Key] | None = None,
    *,
    atomic: bool = True,
    timeout: float = 60.0,
) -> Change:
    """Move messages. See `lvq_kafka.queue.LastValueQueue.move`."""
    wanted = chosen_keys(keys)
    one_cluster = _same_cluster(cluster, target_cluster, target.topic)
    if one_cluster and source.topic == target.topic:
        raise ConfigError(
            f"The queues {source.name} and {target.name} share a topic, so its messages are in both.",
            options=["destination"],
            hint="To remove messages from one of them, purge it.",
        )
    if atomic and not one_cluster:
        raise ConfigError(
            f"The queue {target.name} is on another cluster, and no transaction spans two.",
            options=["atomic"],
            hint="Use atomic=False; a message can then end up in both queues if something fails in between.",
        )
    moving = _Moving(source, target, wanted, timeout)
    idle(cluster, source)
    return moving.in_transactions(cluster) if atomic else moving.at_least_once(cluster, target_cluster)


def _same_cluster(cluster: Cluster, other: Cluster, topic: str) -> bool:
    if cluster is other:
        return True
    there = other.topics.describe(topic)
    try:
        return cluster.topics.describe(topic).id == there.id
    except TopicNotFound:
        return False


class _Moving:
    def __init__(
        self, source: QueueDefinition, target: QueueDefinition, wanted: frozenset[bytes] | None, timeout: float
    ) -> None:
        self._source = source
        self._target = target
        self._wanted = wanted
        self._timeout = timeout
        self._patience = waiting(timeout)
        self._due_times = time_rule(source).due_times()

    def in_transactions(self, cluster: Cluster) -> Change:
        """Move batch by batch, each in a transaction, as the queue's only consumer."""
        member = _SoleMember(cluster, self._source)
        try:
            member.join()
            snapshot = snapshot_queue(cluster, self._source)
            loaded = snapshot.maps()
            backlog, items = self._read(cluster, snapshot, loaded)
            now = dict(loaded)
            moved = 0
            writer = cluster.writer(transactional_id=f"lvq.move.{self._source.name}")
            try:
                append = self._appending(writer, cluster)
                for batch in _batches(items):
                    member.check()
                    claims = backlog.claim(set(batch))
                    touched = {item.partition for item in batch}
                    maps = signed(snapshot, {p: replace(claims[p], sequence=now[p].sequence) for p in touched})
                    self._transact(writer, append, member, batch, snapshot.commits_of(maps))
                    backlog.remove(batch)
                    now |= maps
                    moved += len(batch)
            except LVQError as error:
                error.add_note(f"{moved} of {len(items)} messages had been moved by then.")
                raise
            finally:
                writer.close(0)
        finally:
            member.close()
        return Change(loaded, now, moved)

    def at_least_once(self, cluster: Cluster, target_cluster: Cluster) -> Change:
        """Write all messages, then mark them as consumed."""
        snapshot = snapshot_queue(cluster, self._source)
        loaded = snapshot.maps()
        backlog, items = self._read(cluster, snapshot, loaded)
        maps = signed(snapshot, backlog.claim(set(items)))
        writer = target_cluster.writer()
        try:
            self._append(writer, self._appending(writer, target_cluster), items)
            after = store(cluster, snapshot, maps)
        except LVQError as error:
            error.add_note(f"Some or all of {len(items)} messages are in {self._target.name} and in the queue.")
            raise
        finally:
            writer.close(0)
        return Change(loaded, after, len(items))

    def _read(
        self, cluster: Cluster, snapshot: QueueSnapshot, loaded: Mapping[int, CommitMap]
    ) -> tuple[Backlog, list[Item]]:
        """Return the backlog and the messages to move, all of which fit into the commit map."""
        wanted = self._wanted
        backlog = read_backlog(
            cluster, snapshot, loaded, keep=lambda key: wanted is None or key in wanted, timeout=self._timeout
        )
        messages = backlog.messages
        if QueueRules.of(self._source).placement == "group":  # of a key in several partitions, the latest counts (R14)
            messages = sorted(messages, key=attrgetter("timestamp", "partition"))
        items = _with_something_below(
            item for item in messages + backlog.scheduled if wanted is None or item.key in wanted
        )
        going = set(items)
        self._check_delays([item for item in backlog.scheduled if item in going], cluster.now())
        self._note_ranks(items)
        backlog.leave(items)
        without_room = len(items) - len(backlog.fitting(items, management.MOST_TEXT))
        if without_room:
            raise QueueError(
                f"{without_room} of {len(items)} messages of {self._source.name} lie too far apart for one commit map.",
                queue=self._source.name,
                hint="Move fewer keys at a time, or all of them at once.",
            )
        return backlog, items

    def _check_delays(self, scheduled: Sequence[Item], now: float) -> None:
        """Check that the other queue lets these messages wait for as long as this one does.

        Raises:
            QueueError: it does not.
        """
        allowed = self._target.max_delay
        early = sum(allowed is None or self._due(item) > (now + allowed) * 1000 for item in scheduled)
        if early:
            longest = "none may be scheduled there" if allowed is None else f"its max_delay is {allowed:g} s"
            raise QueueError(
                f"{early} of the messages of {self._source.name} are scheduled, and would count too early in "
                f"{self._target.name}: {longest}.",
                queue=self._target.name,
                hint="Wait until they are due, name the keys to move, or move to a queue whose max_delay is longer.",
            )

    def _note_ranks(self, items: Sequence[Item]) -> None:
        """Log that messages have a rank here which does not count in the other queue.

        They keep its header.
        """
        header = self._source.rank_header
        if header is None or header == self._target.rank_header:
            return
        ranked = sum(header_value(item.headers or (), header) is not None for item in items)
        if ranked:
            logger.warning(
                "moving from %s to %s: %d of %d messages have a rank in the header %s, which does not count there: the "
                "order of that queue is %s",
                *(self._source.name, self._target.name, ranked, len(items), header, self._target.order),
            )

    def _due(self, item: Item) -> int:
        assert self._due_times is not None
        return self._due_times.due(item.timestamp, item.headers)

    def _headers(self, item: Item) -> Sequence[tuple[str, bytes | None]]:
        """Return a message's headers in its new queue, where it is due when it is here."""
        headers = item.headers or ()
        if self._due_times is None or header_value(headers, NOT_BEFORE_HEADER) is None:
            return headers
        others = [pair for pair in headers if pair[0] != NOT_BEFORE_HEADER]
        return others if self._target.max_delay is None else [*others, (NOT_BEFORE_HEADER, b"%d" % self._due(item))]

    def _transact(
        self,
        writer: LogWriter,
        append: Callable[..., object],
        member: _SoleMember,
        batch: Sequence[Item],
        commits: Mapping[int, Commit],
    ) -> None:
        writer.begin_transaction()
        try:
            self._append(writer, append, batch)
            writer.send_offsets(member.member, commits, self._patience)
        except BaseException as error:
            with suppress(LVQError):  # then the transaction times out; raise the original error
                writer.abort_transaction()
            if isinstance(error, TransportError) and means_at_work(error):
                raise at_work(self._source.name) from None
            raise
        try:
            writer.commit_transaction(self._patience)
        except TransportError as error:
            if not error.retriable and error.code not in _UNDECIDED:
                with suppress(LVQError):
                    writer.abort_transaction()
                raise
            raise OutcomeUnknown(
                f"It is not known whether a batch of {len(batch)} messages was moved: {error}",
                hint="It is in one queue, not in both. Check again once the cluster has recovered, and move the rest.",
            ) from error

    def _appending(self, writer: LogWriter, cluster: Cluster) -> Callable[..., object]:
        """Return the way to append where the producers of the other queue would."""
        target = self._target
        if target.groups is None or target.groups.placement == "key":
            return writer.append
        return GroupPlacement(writer, cluster, target.topic, target.groups).append

    def _append(self, writer: LogWriter, append: Callable[..., object], items: Sequence[Item]) -> None:
        for key, value, headers in [self._record(item) for item in items]:  # build all records before sending the first
            append(self._target.topic, key, value, headers)
        undecided = writer.flush(self._patience)
        failures = writer.pop_failures()
        if failures:
            raise failures[0]
        if undecided:
            raise BrokerUnavailable(
                f"{undecided} messages for {self._target.topic} were not acknowledged within {self._timeout:g} s.",
                code="_TIMED_OUT",
                retriable=True,
                hint="Check whether the brokers can be reached, and try again.",
            )

    def _record(self, item: Item) -> _Parts:
        """Return a message's record in its new queue: unchanged, except for the key it has there."""
        target, headers = self._target, self._headers(item)
        value = None if isinstance(item, Deletion) else item.value
        unkeyed = header_value(headers, UNKEYED_HEADER) is not None
        if not target.conflate:
            return self._standard_record(item, headers, unkeyed=unkeyed)
        if item.key is not None and not unkeyed and target.key_header in (None, self._source.key_header):
            return item.key, value, headers
        named = None if target.key_header is None else header_value(headers, target.key_header)
        if named is not None:
            return named, value, headers
        if target.keyless == "refuse":
            raise MissingKey(
                f"The message at {self._source.topic}/{item.partition}/{item.offset} has no key for {target.name}, "
                "which accepts no messages without one.",
                hint="Name the keys to move, and omit this one.",
            )
        if unkeyed and item.key is not None:
            return item.key, value, headers
        return f"{UNKEYED_HEADER}:{uuid.uuid4().hex}".encode(), value, [*headers, (UNKEYED_HEADER, b"1")]

    def _standard_record(self, item: Item, headers: Sequence[tuple[str, bytes | None]], *, unkeyed: bool) -> _Parts:
        """Return a message's record in a standard queue, where a key is optional."""
        headers = [pair for pair in headers if pair[0] != UNKEYED_HEADER]
        value = None if isinstance(item, Deletion) else item.value  # there, a delete means nothing
        if self._target.key_header is not None:
            return header_value(headers, self._target.key_header), value, headers
        return None if unkeyed else item.key, value, headers


class _SoleMember:
    """The only member of a queue's group. It holds all partitions at their ends.

    Its only purpose is to commit.
    """

    def __init__(self, cluster: Cluster, definition: QueueDefinition) -> None:
        self._cluster = cluster
        self._definition = definition
        self._all = set(range(cluster.topics.describe(definition.topic).partitions))
        self._held: set[int] = set()
        self._parted = False  # True if any partition was revoked or lost since `join`, even if it is back
        self.member = cluster.member(definition.group, definition.topic, self)

    def join(self) -> None:
        """Wait until all partitions are assigned.

        Raises:
            QueueError: others have joined, too.
        """
        deadline = time.monotonic() + _JOIN
        while self._held != self._all:
            if time.monotonic() > deadline:
                raise at_work(self._definition.name)
            try:
                self.member.poll(_POLL)
            except TransportError as error:
                if not error.retriable:
                    raise
            except TopicNotFound:  # a lagging broker may report this
                self._cluster.topics.describe(self._definition.topic)
        self._parted = False

    def check(self) -> None:
        """Check that all partitions have been held throughout.

        While a partition was away, others may have consumed from it and left.

        Raises:
            QueueError: others have joined.
        """
        self.member.poll(0)
        if self._parted or self._held != self._all:
            raise at_work(self._definition.name)

    def close(self) -> None:
        """Leave the group."""
        self.member.close()

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        """See `GroupListener.assigned`."""
        self._held.update(partitions)
        ends = self._cluster.logs.end_offsets(self._definition.topic, stable=True)
        return {partition: ends[partition] for partition in partitions}

    def revoked(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.revoked`."""
        self._part(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.lost`."""
        self._part(partitions)

    def _part(self, partitions: Sequence[int]) -> None:
        self._parted = True
        self._held.difference_update(partitions)


def _with_something_below(items: Iterable[Item]) -> list[Item]:
    """Return these messages without the deletes that have nothing to delete.

    Those would delete in the other queue.
    """
    lanes: set[tuple[int, bytes | int]] = set()
    found: list[Item] = []
    for item in items:
        if not isinstance(item, Deletion):
            lanes.add((item.partition, item.lane))
        if (item.partition, item.lane) in lanes:
            found.append(item)
    return found


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for begin in range(0, len(items), _BATCH):
        yield items[begin : begin + _BATCH]
