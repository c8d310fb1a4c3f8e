"""Feed a queue from a topic, selected before values replace each other (R29)."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Self, get_args

from lvq_kafka.cluster import Cluster, Commit, LogReader, Receipt, TopicDescription
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.producer.feed_rules import FeedRules, LeftOut
from lvq_kafka.core.queue.definition import QueueDefinition, check_name
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.validation import choice
from lvq_kafka.declared.group_checks import Start
from lvq_kafka.errors import (
    ConfigError,
    DeliveryFailed,
    FeedPositionLost,
    LVQError,
    MessageTooLarge,
    OutcomeUnknown,
    QueueFull,
    StateError,
    TopicRecreated,
    TransportError,
    UnencodableKey,
)
from lvq_kafka.producing.producer import Message, Producer
from lvq_kafka.runtime.forking import Bound
from lvq_kafka.selectors.of_queues import queue_selector

__all__ = ["Feed", "FeedStats", "feed_name"]

logger = logging.getLogger("lvq_kafka.feed")

_BATCH, _BATCH_BYTES = 5_000, 8 * 2**20  # of a transaction, at most, but for the last portion that is read
_POLL = 0.2  # seconds
_TOPIC = 5.0  # seconds between two checks of the source: its identity, and its partitions
_RENEWAL = 3600.0  # seconds; brokers forget what is committed for a group without members after a week by default
_PATIENCE = 30.0  # seconds for each step of a transaction
_PAUSES = (0.1, 5.0)  # seconds before another attempt, at first and at most
_ATTEMPTS = 5  # attempts in a row, after errors that are not known to pass

_UNFIT = (ConfigError, MessageTooLarge, UnencodableKey)
"""Errors about one message, which its producer refuses."""


@dataclass(frozen=True, slots=True)
class FeedStats:
    """The numbers of messages of a feed so far, in transactions known to be committed.

    ``read`` is the sum of the others.
    """

    read: int = 0
    """Messages of the source."""
    fed: int = 0
    """Messages written to the queue."""
    unselected: int = 0
    """Messages that do not meet the queue's selector."""
    unreadable: int = 0
    """Messages of which the key, or what the selector asks for, could only be in a body that is no JSON object."""
    refused: int = 0
    """Messages that the queue cannot have: without a key, for example, or too large."""


def feed_name(source: str, queue: str) -> str:
    """Return the transactional id of a feed, and the group that keeps its position."""
    return f"lvq-feed.{source}:{queue}"


class Feed(Bound):
    """Forwards the messages of a topic to a queue, each exactly once (R29).

    Each message gets the fields of its JSON body that the queue asks for as headers: the key, and what the selector
    reads. Headers that it has already stay. If it then meets the queue's selector, it is written to the queue's topic.
    The value stays as it is, and so do the other headers. So the selector acts before a value replaces another one. A
    delete has no body: its headers have to name the key, and to meet the selector.

    A message that the queue cannot have is left out, counted in `stats`, and the first of each kind is logged with the
    remedy. It never stops the feed.

    Messages, and the position in the source, are committed together, in one transaction at a time. A feed that was
    interrupted, or killed, goes on where its last transaction ended. Opening another feed of the same source and queue
    ends the one before, which fails with the code ``"_FENCED"``.

    ::

        with queue.feed("trades") as feed:
            feed.run()

    Args:
        cluster: the cluster that holds both topics.
        definition: the queue.
        source: the topic to read.
        open_producer: opens a producer of the queue, for bytes, with this transactional id. It is closed with the feed.
        start: where to start if the feed has no position, or lost it; see `LastValueQueue.feed`.

    Raises:
        ConfigError: the source is the queue's own topic, or the definition's selector cannot be read.
        MissingExtra: the queue has a selector, and the extra ``selectors`` is not installed.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        source: str,
        open_producer: Callable[[str], Producer[bytes]],
        *,
        start: Start | None = None,
    ) -> None:
        check_name("topic", source)
        if source == definition.topic:
            raise ConfigError(
                f"{source} is the topic of the queue {definition.name} itself.",
                options=["source"],
                hint="Feed it from another topic.",
            )
        if start is not None:
            choice("start", start, get_args(Start))
        self._cluster = cluster
        self._definition = definition
        self._source = source
        self._start = start
        self._group = feed_name(source, definition.name)
        self._rules = _rules(definition)
        self._counts: Counter[str] = Counter()
        self._stop = Event()
        self._failures = 0  # in a row
        self._trouble = ""
        self._said: set[str] = set()
        self._topic = TopicDescription(source, "", 0, 0)
        self._topic_at = self._renewed_at = -math.inf
        self._progress = Progress({})
        self._ends: Mapping[int, int] | None = None
        self._producer = open_producer(self._group)

    @property
    def stats(self) -> FeedStats:
        """The numbers of messages so far."""
        return FeedStats(**self._counts)

    def run(self, *, until_end: bool = False) -> FeedStats:
        """Feed until `stop` is called, or up to the end that the source has now; return the stats.

        It waits for a cluster that is away, and for room in a queue with limits (R12), with a logged warning. It is for
        one thread; in asyncio, call it with `asyncio.to_thread`.

        Args:
            until_end: return when everything is fed that the source holds now, without waiting for open transactions.

        Raises:
            FeedPositionLost: it is not known where to start, or what follows there is gone.
            TopicNotFound, TopicRecreated: the source does not exist, or is another topic than before.
            DataLoss: the source has lost what is still to be fed.
            TransportError: the cluster refuses; or another feed has taken over (code ``"_FENCED"``).
        """
        self._ends = None
        while not self._stop.is_set():
            try:
                self._feed(until_end=until_end)
                break
            except (TransportError, OutcomeUnknown, QueueFull) as error:
                self._wait_out(error)
        return self.stats

    def stop(self) -> None:
        """Make `run` return after the transaction that is open. Any thread may call it."""
        self._stop.set()

    def close(self) -> None:
        """Stop, and close the producer."""
        self.stop()
        self._producer.close(_PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._producer.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<Feed of {self._definition.name} from {self._source}>"

    # ---------------------------------------------------------------- reading

    def _feed(self, *, until_end: bool) -> None:
        """Feed from the committed position, until stopped or at the end."""
        writer = self._producer.writer
        writer.begin_transaction(_PATIENCE)  # this decides the outcome of the transaction before, if it is unknown
        writer.abort_transaction(_PATIENCE)
        self._progress, self._renewed_at = Progress({}), -math.inf
        self._progress = Progress(self._positions())
        if until_end and self._ends is None:
            self._ends = self._cluster.logs.end_offsets(self._source, stable=True)
        with closing(self._cluster.reader(self._source, self._progress.positions)) as reader:
            while not (self._stop.is_set() or (self._ends is not None and self._progress.reached(self._ends))):
                self._check_topic(reader)
                records, positions = _gathered(reader)
                before = self._progress.positions
                moved = {p: offset for p, offset in positions.items() if offset > before.get(p, -1)}
                if moved:
                    self._transact(records, moved)
                elif time.monotonic() - self._renewed_at >= _RENEWAL:
                    self._transact(records, dict(before))

    def _positions(self) -> dict[int, int]:
        """Return where to read each partition from, and commit that.

        Raises:
            FeedPositionLost: that is not known, and the caller has not said where to start.
        """
        self._topic, self._topic_at = self._cluster.topics.describe(self._source), time.monotonic()
        commits = self._cluster.groups.committed(self._group, self._source)
        starts = self._cluster.logs.start_offsets(self._source)
        ends = self._cluster.logs.end_offsets(self._source)
        known = _known_partitions(commits)
        positions, lost = {}, {}
        for partition, first in starts.items():
            commit = commits.get(partition)
            if commit is None:
                positions[partition] = first  # a new partition, or a new feed
                if partition < known:
                    lost[partition] = "the position has expired"
            else:
                positions[partition] = commit.offset
                if _topic_of(commit) not in ("", self._topic.id):
                    lost[partition] = "the position is that of another topic of this name"
                elif not first <= commit.offset <= ends[partition]:
                    lost[partition] = f"offset {commit.offset} is not between {first} and {ends[partition]}"
        if not commits and (
            self._start is not None or any(self._cluster.logs.end_offsets(self._definition.topic).values())
        ):
            lost = dict.fromkeys(starts, "no position is known, and the topic of the queue is not empty")
        if lost:
            positions |= self._new_positions(lost, starts)
        if positions != {partition: commit.offset for partition, commit in commits.items()}:
            self._transact([], positions)
        return positions

    def _new_positions(self, lost: Mapping[int, str], starts: Mapping[int, int]) -> dict[int, int]:
        if self._start is None:
            why = "; ".join(f"partition {partition}: {reason}" for partition, reason in lost.items())
            raise FeedPositionLost(
                f"It is not known how far {self._definition.name} was fed from {self._source}: {why}.",
                queue=self._definition.name,
                topic=self._source,
                partitions=sorted(lost),
                hint="Say where to start: `start='earliest'` feeds again what the source still has, `start='latest'` "
                "only what comes from now on.",
            )
        latest = self._start == "latest"
        chosen = self._cluster.logs.end_offsets(self._source, stable=True) if latest else starts
        return {partition: chosen[partition] for partition in lost}

    def _check_topic(self, reader: LogReader) -> None:
        """Check from time to time the identity of the source, and read partitions that were added."""
        if time.monotonic() - self._topic_at < _TOPIC:
            return
        topic, self._topic_at = self._cluster.topics.describe(self._source), time.monotonic()
        if topic.id != self._topic.id:
            raise TopicRecreated(
                f"The topic {self._source} was re-created while {self._definition.name} was fed from it.",
                topic=self._source,
                hint="Start the feed again, and say where: `start='earliest'` or `start='latest'`.",
            )
        if topic.partitions > self._topic.partitions:
            self._topic = topic
            starts = self._cluster.logs.start_offsets(self._source)
            added = {p: offset for p, offset in starts.items() if p not in self._progress.positions}
            self._transact([], self._progress.positions | added)
            reader.assign(added)

    # ---------------------------------------------------------------- writing

    def _transact(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """Write what the queue takes of these records, and the positions after them.

        That takes one transaction; or more, if a message is too large for the topic, or there is no room for all of
        them: which one it is, and how many have room, shows only in a transaction, and that is aborted then.
        """
        try:
            self._try_twice(records, positions)
        except (MessageTooLarge, QueueFull) as error:
            if len(records) > 1:
                half = len(records) // 2
                self._transact(records[:half], {record.partition: record.offset + 1 for record in records[:half]})
                self._transact(records[half:], positions)
            elif isinstance(error, MessageTooLarge):
                self._leave_out(records[0], error)
                self._try_twice([], positions, Counter(read=1, refused=1))
            else:
                raise

    def _try_twice(
        self, records: Sequence[Record], positions: Mapping[int, int], left_out: Counter[str] | None = None
    ) -> None:
        """Try a transaction once more if its messages had no fault of their own.

        After a transaction in which a message was refused, the client fails the next one, too.
        """
        try:
            self._try_transaction(records, positions, left_out)
        except DeliveryFailed as error:
            if not error.retriable:
                raise
            self._try_transaction(records, positions, left_out)

    def _try_transaction(
        self, records: Sequence[Record], positions: Mapping[int, int], left_out: Counter[str] | None = None
    ) -> None:
        """Write these records, and the positions after them, in one transaction.

        Raises:
            MessageTooLarge: the topic takes no messages as large as one of them.
            QueueFull: there is no room for all of them.
        """
        if time.monotonic() - self._renewed_at >= _RENEWAL:
            positions, self._renewed_at = self._progress.positions | dict(positions), time.monotonic()
        text = f"{self._topic.id}/{self._topic.partitions}"
        commits = {partition: Commit(offset, text) for partition, offset in positions.items()}
        counts = Counter(read=len(records)) if left_out is None else left_out
        receipts: list[Receipt] = []
        try:
            with self._producer.transaction(_PATIENCE):
                for record in records:
                    self._forward(record, counts, receipts)
                self._producer.flush_transaction(_PATIENCE)
                self._producer.writer.send_offsets_of(self._group, self._source, commits, _PATIENCE)
        except (TransportError, StateError) as error:
            # Of a transaction that has failed, the client says only that nothing can be added to it any longer.
            raise _cause(receipts) or error from None
        self._progress.advance(positions)
        self._counts += counts
        self._failures = 0
        if self._trouble:
            self._trouble = ""
            logger.warning("%s is fed from %s again", self._definition.name, self._source)

    def _forward(self, record: Record, counts: Counter[str], receipts: list[Receipt]) -> None:
        message = self._rules.message_of(record)
        if isinstance(message, LeftOut):
            counts["refused" if message.reason == "keyless" else message.reason] += 1
            if message.told:
                self._leave_out(record, message)
            return
        key = message.key if self._definition.key_header is None else None
        try:
            if message.value is not None:
                receipts.append(self._producer.send(Message(message.value, message.headers, key=key)))
            else:
                receipts.append(self._producer.delete(message.key or b"", message.headers))
        except _UNFIT as error:
            counts["refused"] += 1
            self._leave_out(record, error)
        else:
            counts["fed"] += 1

    def _leave_out(self, record: Record, why: LeftOut | LVQError) -> None:
        """Log why a record is left out, if it is the first of its kind."""
        kind, told = (why.reason, why.told) if isinstance(why, LeftOut) else (type(why).__name__, str(why))
        if kind not in self._said:
            self._said.add(kind)
            place = f"{self._source}/{record.partition}/{record.offset}"
            logger.warning(
                "the message at %s is left out of %s: %s Further ones are only counted.",
                place,
                self._definition.name,
                told,
            )

    # ---------------------------------------------------------------- trouble

    def _wait_out(self, error: LVQError) -> None:
        """Wait before the next attempt, or raise the error if another one makes no sense."""
        self._failures += 1
        passes = not isinstance(error, TransportError) or error.retriable
        final = isinstance(error, PermissionError | ValueError) or getattr(error, "code", "") == "_FENCED"
        if final or not (passes or self._failures < _ATTEMPTS):
            raise error
        if self._trouble != str(error):
            self._trouble = str(error)
            logger.warning("feeding %s from %s waits: %s", self._definition.name, self._source, error)
        first, most = _PAUSES
        self._stop.wait(min(most, first * 2 ** min(self._failures, 10)))


def _rules(definition: QueueDefinition) -> FeedRules:
    selector, keys = queue_selector(definition), QueueRules.of(definition).keys
    return FeedRules(keys) if selector is None else FeedRules(keys, selector.reads, selector.matches)


def _cause(receipts: Sequence[Receipt]) -> Exception | None:
    """Return the error of a message that is too large, or else the first error.

    One that is too large fails others with it.
    """
    errors = [error for receipt in receipts if receipt.done() and (error := receipt.exception(0)) is not None]
    too_large = [error for error in errors if isinstance(error, MessageTooLarge)]
    return next(iter(too_large + errors), None)


def _gathered(reader: LogReader) -> tuple[list[Record], dict[int, int]]:
    """Return the records for the next transaction, and the positions after them."""
    fetch = reader.poll(_POLL)
    records, positions, size = list(fetch.batch), dict(fetch.positions), fetch.batch.size
    while len(fetch.batch) and len(records) < _BATCH and size < _BATCH_BYTES:
        fetch = reader.poll(0)
        records += fetch.batch
        positions |= fetch.positions
        size += fetch.batch.size
    return records, positions


def _topic_of(commit: Commit) -> str:
    """Return the id of a commit's topic; an empty text if a tool has set it, which is trusted."""
    return commit.metadata.rpartition("/")[0]


def _known_partitions(commits: Mapping[int, Commit]) -> int:
    """Return how many partitions the source had at the last commit."""
    said = [text for commit in commits.values() if (text := commit.metadata.rpartition("/")[2]).isdecimal()]
    return max([*map(int, said), *(partition + 1 for partition in commits)], default=0)
