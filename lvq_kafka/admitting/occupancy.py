"""The occupancy of a queue with limits, as one of its producers follows it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from threading import Event, Lock, RLock, Thread
from weakref import ref

from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import BYTES
from lvq_kafka.core.facts import Depth
from lvq_kafka.core.latest.pending_keys import ConflatedKeys
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.producer.admission import Admission, Send
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.queue.standard import StandardFilter
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import BrokerUnavailable, LVQError, ReaderFailed
from lvq_kafka.reading.consumed_filter import ConsumedFilter, Learned, is_transient
from lvq_kafka.reading.follower import Follower
from lvq_kafka.reading.record_filters import ValueFilter, ValuesToSizes, in_turn
from lvq_kafka.reading.selection import Selection
from lvq_kafka.selectors.of_queues import queue_selector

__all__ = ["Occupancy"]

_CATCH_UP = 60.0  # seconds to read what is in the queue
_REFRESH = 1.0  # seconds between two questions to the group while no one waits
_ANSWER = 10.0  # seconds to read to the end, before a message is refused
_STALE = 30.0  # seconds without news after which nothing is admitted
_PAUSES = 4  # times as long as counting took, at least, until the group is asked again while no one needs to know
_TIMES = frozenset({TTL_HEADER, NOT_BEFORE_HEADER})  # that may mean something once the queue is altered
_SOME = 1000  # keys that are checked in one go, less than 1 ms


class Occupancy:
    """The keys and sizes of the messages in a queue.

    They come from a follower and from the commits of the queue's group.

    Args:
        cluster: the cluster that holds the queue.
        definition: the queue.
        limits: its limits.
        consumed: whether it has a group that consumes it.
        watch: notices alterations of the queue.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        limits: Limits,
        *,
        consumed: bool,
        watch: RegistryWatch | None = None,
    ) -> None:
        self._definition = definition
        self._group = ConsumedFilter(cluster, definition, definition.group, "refuse") if consumed else None
        self._admission = Admission(limits)
        self._changes = ConflatedKeys()
        self._sizes = _Numbers()
        self._topic_id = ""
        self._news = 0  # the `ConsumedFilter.news` that was counted
        self._as_of = 0.0
        self._took = 0.0  # seconds to count what the group had consumed, at the last time
        self._asking = Lock()
        self._trouble: Exception | None = None
        self._stop = Event()
        selector = queue_selector(definition)
        selection = None if selector is None else Selection(definition.topic, BYTES, selector)
        rules = QueueRules.of(definition, None if selector is None else selector.matches)
        group = self._group
        self._follower = Follower(
            cluster,
            rules,
            since=None if group is None else lambda cluster, topic: group.bases,
            record_filter=in_turn(
                None if definition.conflate else StandardFilter(),
                None if selection is None else ValueFilter(rules.keys, selection),
                ValuesToSizes(_TIMES if watch is not None else rules.times.headers, definition.key_header),
            ),
            by_value=selection is not None,
            watch=watch,
        )
        self._shared = self._follower.shared

    @property
    def lock(self) -> RLock:
        """Held for `admit`, and for what becomes of a send."""
        return self._shared.lock

    @property
    def depth(self) -> Depth:
        """The depth of the queue, the producer's own sends included. Hold the lock."""
        return self._admission.depth

    def open(self) -> None:
        """Start following, and read what is in the queue.

        Raises:
            TopicNotFound: there is no such topic.
            QueueNotDeclared, TopicRecreated, CommitMapRefused: it is unknown what was consumed (R17).
            CatchUpTimeout: the end of the log was not reached in time.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        try:
            self._ask()
            self._follower.start()
            self._follower.waiter.caught_up(_CATCH_UP, or_blocked=True)
            self._ask()
            self._follower.waiter.caught_up(_CATCH_UP, or_blocked=True)
            with self.lock:
                self._shared.notifier.subscribe(self._changes)
                self._update()
        except ReaderFailed as failed:
            self.close()
            raise failed.reason from failed.reason.__cause__
        except BaseException:
            self.close()
            raise
        if self._group is not None:
            name = f"lvq-limits-{self._definition.topic}"
            Thread(target=_keep_asking, args=(ref(self), self._stop), name=name, daemon=True).start()

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        self._follower.close()

    # ---------------------------------------------------------------- sends; the lock is held

    def adopt(self, limits: Limits | None) -> None:
        """Judge by other limits from now on, or by none."""
        self._admission.adopt(limits)

    def admit(self, key: bytes, size: int | None) -> Send | None:
        """Count a message that is about to be sent, or return None if there is no room.

        Raises:
            Closed, ReaderFailed: the queue is no longer followed.
            BrokerUnavailable: it is unknown how full it is.
        """
        self._update()
        admission = self._admission
        if size is not None and not admission.counts(key):
            self._check_news()
            if self._reads_again or not admission.has_room(size):
                return None
        return admission.send(key, size)

    def stored(self, send: Send, partition: int, offset: int) -> None:
        """Note where a send is stored."""
        self._admission.stored(send, partition, offset)

    def failed(self, send: Send) -> None:
        """Note that a send was not stored, or that it is unknown."""
        self._admission.failed(send)

    def within(self, part: float) -> bool:
        """Return whether the depth is at most this part of the limits."""
        return self._admission.within(part)

    def _update(self) -> None:
        """Count what the follower has read since the last time."""
        shared, catch_up = self._shared, self._shared.catch_up
        if not catch_up.open:
            catch_up.check()
        if shared.timed:
            shared.pass_all_time()
        values, admission = catch_up.values, self._admission
        if catch_up.topic_id != self._topic_id:  # also at first
            admission.forget()
            self._topic_id = catch_up.topic_id
            self._count_all()
        elif self._changes:
            self._count(values.table, self._changes.pop_all())
        admission.read(values.progress.positions)

    @property
    def _reads_again(self) -> bool:
        """True while the queue is read from further back, as after a reset.

        Until then, its depth is unknown.
        """
        catch_up = self._shared.catch_up
        return catch_up.rewinding or catch_up.starting_over

    def _count_all(self) -> None:
        self._changes.pop_all()
        table = self._shared.catch_up.values.table
        self._count(table, table.keys("in-place"))

    def _count(self, table: NewestRecords, keys: Sequence[bytes]) -> None:
        """Count the newest messages of these keys, which are all different."""
        there = table.newest(keys)
        if len(there) < len(keys):
            self._admission.remove(key for key in keys if key not in table)
        if self._group is not None and (done := self._group.rows_done(there)):
            self._remove(_keys_of(there)[row] for row in done)
            there = there.without(done)
        sizes: list[bytes] = there.values  # type: ignore[assignment]  # as the filter has put them
        self._admission.show(_keys_of(there), list(map(self._sizes.__getitem__, sizes)))

    def _remove(self, consumed: Iterable[bytes]) -> None:
        keys = list(consumed)
        self._admission.remove(keys)
        if keys and not self._definition.conflate:
            self._shared.catch_up.values.forget_returned(keys)

    def _check_news(self) -> None:
        """Raise if what is known is too old to judge by."""
        silence = self._shared.clock() - self._shared.catch_up.heard
        if self._group is not None:
            silence = max(silence, time.monotonic() - self._as_of)
        if silence > _STALE:
            why = self._shared.catch_up.trouble or self._trouble or "the cluster does not answer"
            raise BrokerUnavailable(
                f"It is unknown how full the queue {self._definition.name} is, since {silence:.0f} s: {why}",
                code="_TIMED_OUT",
                retriable=True,
                hint="Check whether the brokers can be reached.",
            )

    # ---------------------------------------------------------------- what was consumed; without the lock

    def read_to_end(self) -> None:
        """Learn what was stored, deleted and consumed before this call.

        Raises:
            CatchUpTimeout: the end of the log was not reached in time.
            Closed, ReaderFailed: the queue is no longer followed.
            QueueNotDeclared, TopicRecreated, CommitMapRefused: it is no longer known what was consumed (R17).
            TransportError: the cluster cannot be asked.
        """
        self._follower.waiter.barrier(_ANSWER, stable=True)
        self.ask(0.0)
        if self._reads_again:  # something was taken back
            self._follower.waiter.barrier(_ANSWER, stable=True)

    def ask(self, patience: float) -> None:
        """Ask what was consumed, unless that was asked in the last ``patience`` seconds.

        In a long queue, that takes time, and with patience it waits in proportion. Raises what `read_to_end` raises.
        """
        since = time.monotonic() - (patience and max(patience, min(_PAUSES * self._took, _STALE / 3)))
        with self._asking:
            if self._as_of < since:  # otherwise another thread has asked while this one waited
                try:
                    self._ask()
                except LVQError as error:
                    self._trouble = error
                    if not is_transient(error):
                        self._follower.fail(error)
                    raise

    def _ask(self) -> None:
        group, begun = self._group, time.monotonic()
        if group is None:
            return
        learned: Learned = "overtaken"
        while learned == "overtaken":
            answer = group.ask()
            with self.lock:
                learned = group.learn(answer)
                if learned == "taken back":
                    self._read_again(group)
        self._as_of, self._trouble = begun, None
        if self._news != group.news:
            self._news = group.news
            counting = time.monotonic()
            self._remove_consumed(group)
            self._took = time.monotonic() - counting

    def _read_again(self, group: ConsumedFilter) -> None:
        """Count again what is no longer consumed, as after a reset. The lock is held."""
        self._update()
        self._count_all()
        self._shared.rewind(group.bases)

    def _remove_consumed(self, group: ConsumedFilter) -> None:
        """Remove what was consumed, in parts, so that no sender waits for the lock for long."""
        with self.lock:
            shown = self._admission.shown
        for at in range(0, len(shown), _SOME):
            with self.lock:
                there = self._shared.catch_up.values.table.newest(shown[at : at + _SOME])
                self._remove(_keys_of(there)[row] for row in group.rows_done(there))
        with self.lock:
            self._shared.notifier.changed.notify_all()

    def wait(self, timeout: float) -> None:
        """Wait for a change, with the lock held, for ``timeout`` seconds at most."""
        self._shared.notifier.changed.wait(timeout)


class _Numbers(dict[bytes, int]):
    """The numbers that texts stand for: one object for each, in place of one for each message."""

    def __missing__(self, text: bytes) -> int:
        number = self[text] = int(text)
        return number


def _keys_of(batch: RecordBatch) -> list[bytes]:
    return batch.keys  # type: ignore[return-value]  # a table has no record without a key


def _keep_asking(occupancy: ref[Occupancy], stop: Event) -> None:
    """Ask periodically what was consumed, until the occupancy is closed, collected or fails."""
    while not stop.wait(_REFRESH):
        there = occupancy()
        if there is None:
            return
        try:
            there.ask(_REFRESH / 2)
        except LVQError as error:  # senders learn of it
            if not is_transient(error):
                return
        del there
