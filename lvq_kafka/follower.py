"""A background reader that keeps the latest values of a topic, and says how far it is.

Views and browsers are built on it. It knows records, not decoded values.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition, Event, Thread
from typing import Literal

from lvq_kafka.core.conflation import ConflatedKeys
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.progress import Progress, Shortfall, describe
from lvq_kafka.core.records import Fetch, RecordBatch
from lvq_kafka.errors import (
    CatchUpTimeout,
    Closed,
    DataLoss,
    LVQError,
    ReaderFailed,
    StateError,
    TopicNotFound,
    TopicRecreated,
    TransportError,
)
from lvq_kafka.forking import left_behind, tell_of_forks
from lvq_kafka.ports import Log, LogReader, TopicDescription

__all__ = ["Follower", "State", "Subscription"]

State = Literal["catching-up", "caught-up", "blocked", "disconnected", "failed", "closed"]
"""How a reader is.

- ``catching-up``: it has not yet read what the log held when it was opened.
- ``blocked``: it has read all it may; an open transaction hides the rest of what the log held then.
- ``caught-up``: it has, and follows.
- ``disconnected``: it cannot reach the cluster, tries on by itself, and may be stale meanwhile.
- ``failed``: it has stopped for good; ``failure`` says why.
- ``closed``: it was closed.
"""

log = logging.getLogger("lvq_kafka.follower")

_POLL = 0.1  # seconds; bounds how long close() waits for the reader thread
_PATIENCE = 0.5  # seconds after which one who still waits has the topic looked at
_ABSENCE = 3.0  # seconds that a topic may be gone: to create it anew somebody has to delete it first
_QUESTION = 10.0  # seconds that a question to the cluster may take for one who waits for the answer
_LOOK = 5.0  # the same for a look at the topic; a frozen cluster is called lost after it, and close() may wait for it
_MARKERS = 0.4  # seconds in which the markers of a transaction that is decided reach all its partitions
_BRISK = 0.1  # seconds in which nothing that was just written can have been replaced, closed off and compacted away


class Subscription:
    """Keys that changed, conflated, for one listener of a follower."""

    def __init__(self, follower: Follower, pending: ConflatedKeys) -> None:
        self._follower = follower
        self.pending = pending
        self.wakers: list[Callable[[], None]] = []

    def close(self) -> None:
        """Be told nothing more."""
        self._follower._drop(self)


class Follower:
    """Reads all partitions of a topic into a `LatestValues`, from a thread of its own, until it is closed.

    A second thread looks at the topic from outside: whether it is still the same one, whether partitions were added,
    where its log ends. That keeps every look-up off the reading path, and tells a quiet topic from a lost cluster.

    When it has to start over, since the topic was created anew or cut short, ``table`` stays what it was until what is
    read meanwhile is complete: nobody is shown a value that is older than one shown before, or a gap (G2).

    Args:
        log: where the topic lies.
        definition: the queue, for its topic and its key header.
        since: positions to start from, asked once; None for the start of the log. A topic that is created anew is read
            from its start.
        screen: looks at each batch before it is folded, and may change its values.
        metadata_interval: seconds between two looks at the topic.
    """

    def __init__(
        self,
        log: Log,
        definition: QueueDefinition,
        *,
        since: Callable[[Log, str], Mapping[int, int]] | None = None,
        screen: Callable[[RecordBatch], None] | None = None,
        metadata_interval: float = 5.0,
    ) -> None:
        self.topic = definition.topic
        self.changed = Condition()
        self.failure: Exception | None = None
        self._log = log
        self._definition = definition
        self._since = since
        self._screen = screen
        self._metadata_interval = metadata_interval
        self._subscriptions: list[Subscription] = []
        self._goals: list[Callable[[], bool]] = []
        self._stop = Event()
        self._look = Event()
        self._threads: list[Thread] = []
        self._reading_trouble: LVQError | None = None
        self._looking_trouble: LVQError | None = None
        self._gone: LVQError | None = None
        self._gone_since = 0.0
        self._heard = time.monotonic()
        self.table = LatestValues()
        self._reading = self.table  # what is read into: the table, or what will take its place
        self._topic_id = ""
        self._caught_up = False
        self._settled = False
        self._starts: Mapping[int, int] = {}
        self._targets: Mapping[int, int] = {}
        self._ends: Mapping[int, int] = {}
        self._stable: Mapping[int, int] = {}

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Take a look at the topic and begin to read; does nothing when that was done before.

        Raises:
            TopicNotFound: there is no such topic.
            TransportError: the cluster cannot be reached or refuses.
        """
        if self._threads:
            return
        described = self._log.describe_topic(self.topic)
        self._from = dict(self._since(self._log, self.topic)) if self._since is not None else {}
        self._open(described)
        self._threads = [
            Thread(target=self._guard, args=(self._read,), name=f"lvq-read-{self.topic}", daemon=True),
            Thread(target=self._guard, args=(self._observe,), name=f"lvq-observe-{self.topic}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        tell_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self.changed = Condition()
        self.failure = self.failure or left_behind(f"The reader of {self.topic}")

    def close(self) -> None:
        """Stop reading. Waits for the threads; safe to call more than once."""
        self._stop.set()
        self._look.set()
        self._wake_all()
        for thread in self._threads:
            thread.join(timeout=15.0)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._stop.is_set()

    def _open(self, described: TopicDescription) -> None:
        """Begin at the beginning: an empty table, a reader on all partitions, the log's end of now as the target."""
        starts = dict(self._log.start_offsets(self.topic))
        starts |= {p: max(offset, starts.get(p, 0)) for p, offset in self._from.items()}
        ends = self._log.end_offsets(self.topic)
        stable = self._log.end_offsets(self.topic, stable=True)
        table = LatestValues(
            described.partitions,
            key_header=self._definition.key_header,
            key_mismatch=self._definition.key_mismatch,
            topic=self.topic,
            tombstone_memory=self._tombstone_memory(),
        )
        table.advance(starts)
        reader = self._log.reader(self.topic, starts)
        with self.changed:
            self._described = described
            self._starts, self._targets, self._ends, self._stable = starts, ends, ends, stable
            self._caught_up = self._settled = self._aimed_twice = self._aim_again = False
            self._gone = None
            self._heard = time.monotonic()
            self._reading = table
            if not self._threads:
                self._show()
            self._reader: LogReader = reader
            self._note_progress()

    def _tombstone_memory(self) -> int:
        try:
            return int(self._log.topic_config(self.topic).get("delete.retention.ms", 86_400_000))
        except (LVQError, ValueError):
            return 86_400_000  # Kafka's default, where this user may not ask

    # ---------------------------------------------------------------- reading thread

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:  # noqa: BLE001  # a dead reader must say so, whatever killed it
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop for good because of an error."""
        if not self._stop.is_set():
            log.error("reading %s has failed: %s", self.topic, error)
        with self.changed:
            self.failure = self.failure or error
        self._look.set()
        self._wake_all()

    def _read(self) -> None:
        try:
            while not self._stop.is_set() and self.failure is None:
                self._step()
        finally:
            self._reader.close()

    def _step(self) -> None:
        try:
            if self._gone is not None:
                self._start_over(self._gone)
            elif self._described.partitions > self._reading.partitions:
                self._grow(self._described.partitions)
            elif self._aim_again:
                self._take_new_targets()
            else:
                fetch = self._reader.poll(_POLL)
                if fetch.positions:
                    self._take(fetch)
        except (TopicNotFound, DataLoss) as error:
            self._lose(error)
        except TransportError as error:
            if not error.retriable:
                raise
            self._reading_trouble = self._lost_touch(error, self._reading_trouble)
            self._stop.wait(_POLL)

    def _take_new_targets(self) -> None:
        """Having reached the end that the log had at the start, read on to the one it has now, before all is well.

        A value below the first end that was replaced meanwhile may have been compacted away before it was read; what
        replaced it is committed, and lies below the second end.
        """
        stable = self._log.end_offsets(self.topic, stable=True)
        with self.changed:
            self._targets = self._stable = stable
            self._aimed_twice, self._aim_again = True, False
            self._note_progress()
            wakers = self._wakers()
        for wake in wakers:
            wake()

    def _take(self, fetch: Fetch) -> None:
        if self._screen is not None:
            self._screen(fetch.batch)
        with self.changed:
            keys = self._reading.apply(fetch.batch)
            self._reading.advance(fetch.positions)
            self._reading_trouble = None
            if not self.starting_over:
                self._tell(keys)
            self._note_progress()
            wakers = self._wakers()
        for wake in wakers:
            wake()

    def _note_progress(self) -> None:
        """Wake who waits for this; nobody else, since a wake-up takes the interpreter from the reading thread."""
        if not self._caught_up and self._reached(self._targets):
            self._caught_up = self._aimed_twice
            self._aim_again = not self._aimed_twice
            if self._caught_up:
                self._show()
        if self._subscriptions or any(done() for done in self._goals):
            self.changed.notify_all()

    def _reached(self, targets: Mapping[int, int]) -> bool:
        return Progress(self._reading.positions).reached(targets)

    def _show(self) -> None:
        """Show what was read; after starting over, tell what is another now than before."""
        before, after = self.table, self._reading
        self.table, self._topic_id = after, self._described.id
        if before is not after and self._subscriptions:
            self._tell([key for key in before.keys("in-place") if key not in after])
            self._tell([key for key in after.keys("tail") if after.record(key) != before.record(key)])

    def _tell(self, keys: list[bytes]) -> None:
        for subscription in self._subscriptions:
            subscription.pending.changed(keys)

    def _wakers(self) -> list[Callable[[], None]]:
        return [wake for subscription in self._subscriptions for wake in subscription.wakers]

    def _wake_all(self) -> None:
        """Wake everybody who waits, in threads and in event loops."""
        with self.changed:
            self.changed.notify_all()
            wakers = self._wakers()
        for wake in wakers:
            wake()

    def _grow(self, partitions: int) -> None:
        starts = self._log.start_offsets(self.topic)
        added = {partition: starts.get(partition, 0) for partition in range(self._reading.partitions, partitions)}
        log.info("%s has %d partitions now; reading the %d new ones", self.topic, partitions, len(added))
        self._reader.assign(added)
        with self.changed:
            keys = self._reading.grow(partitions)
            self._reading.advance(added)
            if not self.starting_over:
                self._tell(keys)
        self._wake_all()

    def _lose(self, error: LVQError) -> None:
        """Take note that what is read is gone. The reading thread, which owns the reader, sees to it at its next step.

        Until then this reader may be stale, which it says.
        """
        with self.changed:
            if self._gone is None:
                self._gone_since = time.monotonic()
            self._gone = self._reading_trouble = error
            self.changed.notify_all()

    def _start_over(self, error: LVQError) -> None:
        """The topic, or what this reader was about to read of it, is gone: build anew what can be built (R18)."""
        try:
            described = self._log.describe_topic(self.topic)
        except TopicNotFound as gone:
            if time.monotonic() - self._gone_since < _ABSENCE:
                self._stop.wait(_POLL)
                return
            raise TopicRecreated(
                f"The topic {self.topic} was deleted while it was being read.",
                topic=self.topic,
                hint="Declare the queue again and open a new reader.",
            ) from gone
        log.warning("reading %s from its start again: %s", self.topic, error)
        if described.id != self._described.id:
            self._from = {}
        self._reader.close()
        self._open(described)
        self._reading_trouble = None
        self._wake_all()

    def _lost_touch(self, error: TransportError, before: LVQError | None) -> LVQError:
        if before is None:
            log.warning("lost touch with the cluster while reading %s: %s", self.topic, error)
        return error

    # ---------------------------------------------------------------- observing thread

    def _observe(self) -> None:
        while True:
            self._look.wait(self._metadata_interval)
            self._look.clear()  # before the question whether to stop, or that news could get lost
            if self._stop.is_set() or self.failure is not None:
                return
            try:
                self._look_at_topic()
            except TopicNotFound as error:
                self._lose(error)
            except TransportError as error:
                if not error.retriable:
                    raise
                self._looking_trouble = self._lost_touch(error, self._looking_trouble)

    def _look_at_topic(self) -> None:
        described = self._log.describe_topic(self.topic, timeout=_LOOK)
        if self._is_another(described):
            return
        ends = self._log.end_offsets(self.topic, timeout=_LOOK)
        stable = self._log.end_offsets(self.topic, stable=True, timeout=_LOOK)
        with self.changed:
            if described.id != self._described.id:
                return  # the reading thread has found a new topic meanwhile, which these are not of
            self._described, self._ends, self._stable = described, ends, stable
            self._heard = time.monotonic()
            self._looking_trouble = None
            if self._gone is None:
                self._reading_trouble = None  # nothing comes from a quiet topic that could tell of its recovery
            self.changed.notify_all()

    def _is_another(self, described: TopicDescription) -> bool:
        """Whether this is not the topic that is being read; then it will be."""
        with self.changed:
            another = described.id != self._described.id
            if another:
                self._lose(TopicRecreated(f"The topic {self.topic} was created anew.", topic=self.topic))
        return another

    # ---------------------------------------------------------------- asking

    @property
    def state(self) -> State:
        """How this reader is."""
        if self._stop.is_set():
            return "closed"
        if self.failure is not None:
            return "failed"
        if self._trouble is not None:
            return "disconnected"
        if self._caught_up:
            return "caught-up"
        shortfalls = self.shortfalls()
        return "blocked" if shortfalls and all(shortfall.blocked for shortfall in shortfalls) else "catching-up"

    @property
    def _trouble(self) -> LVQError | None:
        return self._reading_trouble or self._looking_trouble

    @property
    def topic_id(self) -> str:
        """The id of the topic that the table was read from."""
        return self._topic_id

    @property
    def starting_over(self) -> bool:
        """Whether the table is what it was before the topic was created anew or cut short."""
        return self._reading is not self.table

    @property
    def caught_up(self) -> bool:
        """Whether the table holds all that the log held at the start."""
        return self._caught_up

    @property
    def complete(self) -> bool:
        """Whether it is caught up, or as far as open transactions let it be (see `wait_caught_up`)."""
        return self._caught_up or self._settled

    @property
    def lag(self) -> dict[int, int]:
        """Offsets between this reader and the end of the log, by partition, as of the last look at the topic."""
        positions = self._reading.positions
        return {p: max(0, end - positions.get(p, 0)) for p, end in sorted(self._ends.items())}

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets read and offsets to read in all until caught up."""
        positions = self._reading.positions
        total = sum(max(0, end - self._starts.get(p, 0)) for p, end in self._targets.items())
        done = sum(
            min(positions.get(p, 0), end) - self._starts.get(p, 0)
            for p, end in self._targets.items()
            if end > self._starts.get(p, 0)
        )
        return done, total

    @property
    def silence(self) -> float:
        """Seconds since the ends of all partitions were last known: without lag, how stale this reader may be."""
        return time.monotonic() - self._heard

    def shortfalls(self, targets: Mapping[int, int] | None = None) -> list[Shortfall]:
        """What is missing to a target (default: to caught up), and what holds it up."""
        # A target may lie beyond the end of the log, which no transaction is to blame for.
        hiding = {p: stable for p, stable in self._stable.items() if stable < self._ends.get(p, stable)}
        return Progress(self._reading.positions).shortfalls(self._targets if targets is None else targets, hiding)

    @property
    def blocked(self) -> list[Shortfall]:
        """The partitions in which an open transaction hides what follows, as of the last look at the topic."""
        return [shortfall for shortfall in self.shortfalls(self._ends) if shortfall.blocked]

    def check(self) -> None:
        """Raise when nothing more will come.

        Raises:
            Closed, ReaderFailed: it was closed, or has stopped because of an error.
            StateError: it was not started.
        """
        if self._stop.is_set():
            raise Closed(f"The reader of {self.topic} is closed.")
        if not self._threads:
            raise StateError(f"The reader of {self.topic} was not started.", hint="Open it, by `with` for example.")
        if self.failure is not None:
            raise ReaderFailed(
                f"Reading {self.topic} has stopped: {self.failure}", hint="Open a new one when the cause is mended."
            ) from self.failure

    def wait_caught_up(self, timeout: float | None = None, *, or_blocked: bool = False) -> None:
        """Wait until all that the log held at the start has been read; with ``or_blocked`` stop at open transactions.

        A commit is acknowledged before its markers are in all partitions, so a transaction counts as open only when it
        still is after a moment. What was committed until then is read, for the reason of `_take_new_targets`.

        Raises:
            CatchUpTimeout: names each partition that lacks something, and why.
            Closed, ReaderFailed: as `check`.
        """
        blocked_since: float | None = None
        allowed: Mapping[int, int] | None = None

        def done() -> bool:
            nonlocal blocked_since, allowed
            if self._caught_up or not or_blocked:
                return self._caught_up
            if blocked_since is None:
                blocked_since = time.monotonic() if self.state == "blocked" else None
            elif allowed is None:
                allowed = self._stable if self._heard > blocked_since + _MARKERS else None
            self._settled = allowed is not None and self._reached(allowed)
            return self._settled

        self._wait(done, timeout, "catch up", None)

    def barrier(self, timeout: float | None = None) -> dict[int, int]:
        """Wait until everything that was acknowledged before this call has been applied (G7). Returns that cut.

        Raises:
            CatchUpTimeout: names each partition that lacks something, and why.
            Closed, ReaderFailed: as `check`.
        """
        self.check()
        deadline = _deadline(timeout)
        # A topic that was created anew may be longer than what was read of the one before.
        described = self._log.describe_topic(self.topic, timeout=_for_a_question(deadline))
        self._is_another(described)
        targets = self._log.end_offsets(self.topic, timeout=_for_a_question(deadline))
        self.wait_for(targets, _left(deadline), topic_id=described.id)
        return targets

    def wait_for(
        self, targets: Mapping[int, int], timeout: float | None = None, *, topic_id: str | None = None
    ) -> None:
        """Wait until each partition has been read up to its offset, or what has replaced the records below it.

        Raises:
            CatchUpTimeout: names each partition that lacks something, and why.
            TransportError: the cluster cannot be asked for the end of the log.
            Closed, ReaderFailed: as `check`.
        """

        def reached() -> bool:
            return topic_id in (None, self._described.id) and not self.starting_over and self._reached(targets)

        deadline, begun, following = _deadline(timeout), time.monotonic(), self._caught_up
        self._wait(reached, timeout, "reach the end", targets)
        if not following or time.monotonic() - begun > _BRISK:
            # As when catching up: of what has replaced a record that was compacted away nothing may be read yet.
            second = self._log.end_offsets(self.topic, stable=True, timeout=_for_a_question(deadline))
            self._wait(lambda: self._reached(second), _left(deadline), "reach the end", second)

    def _wait(
        self, done: Callable[[], bool], timeout: float | None, aim: str, targets: Mapping[int, int] | None
    ) -> None:
        deadline = _deadline(timeout)
        next_look = time.monotonic() + _PATIENCE
        with self.changed:
            self._goals.append(done)
            try:
                while True:
                    self.check()
                    if done():
                        return
                    left = _left(deadline)
                    if left == 0:
                        break
                    until_look = next_look - time.monotonic()
                    if until_look <= 0:
                        self._look.set()  # is it the topic that keeps us waiting?
                        next_look, until_look = time.monotonic() + _PATIENCE, _PATIENCE
                    self.changed.wait(until_look if left is None else min(left, until_look))
            finally:
                self._goals.remove(done)
            shortfalls = self.shortfalls(targets)
            trouble = self._trouble
        reason = str(trouble) if trouble else describe(shortfalls)
        blocked = any(shortfall.blocked for shortfall in shortfalls)
        raise CatchUpTimeout(
            f"The reader of {self.topic} did not {aim} within {timeout:g} s: {reason}.",
            shortfalls=shortfalls,
            hint="Commit or abort that transaction, or wait for its timeout."
            if blocked
            else "Allow more time, or look at the cluster.",
        )

    # ---------------------------------------------------------------- listeners

    @contextmanager
    def locked(self) -> Iterator[LatestValues]:
        """The table, which no batch is applied to meanwhile."""
        with self.changed:
            yield self.table

    def subscribe(self, dump: Callable[[LatestValues], Iterable[bytes]] | None = None) -> Subscription:
        """Be told of every key that changes from now on, after the keys that ``dump`` chooses of the table of now."""
        with self.changed:
            subscription = Subscription(self, ConflatedKeys(dump(self.table) if dump is not None else ()))
            self._subscriptions.append(subscription)
        return subscription

    def _drop(self, subscription: Subscription) -> None:
        with self.changed:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
            self.changed.notify_all()


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _for_a_question(deadline: float | None) -> float:
    """How long a question to the cluster may take."""
    left = _left(deadline)
    return _QUESTION if left is None else min(left, _QUESTION)
