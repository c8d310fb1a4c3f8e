"""Delivery reports, and the threads that poll the client for them.

The client delivers reports only inside its own ``poll``, and takes the GIL again for each report. Polling on one thread
while another one sends therefore slows both down (measured: to half the rate). So there are two pollers, which stay out
of each other's way. The background thread polls so that nobody has to call ``poll`` or ``flush`` to learn an outcome.
While a sender is busy, that thread only keeps the time and sets `due` when a poll is needed: the next send then does
it. Callbacks always run on the background thread, never inside a send, whose caller may hold a lock.

The background thread also notices when an append has been undecided for too long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import repeat, starmap
from operator import length_hint
from typing import ClassVar, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lvq_kafka.cluster import Receipt
from lvq_kafka.cluster.receipts import AwaitableReceipt, check_callback, undecided
from lvq_kafka.core.facts import Position
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.errors import DeliveryUnknown, StateError, TransportError
from lvq_kafka.kafka.ages import Ages, Cohort
from lvq_kafka.kafka.error_mapping import kafka_error
from lvq_kafka.kafka.produce_errors import ProduceErrors

__all__ = ["Deliveries", "KafkaReceipt"]

logger = logging.getLogger("lvq_kafka.producer")

_IDLE = 0.5  # seconds between polls with nothing in flight: for the client's log, errors and token refreshes
_POLL = 0.05  # seconds a poll waits for a report; the first one ends it
_CROWD = 32  # records in flight from which a sender counts as busy
_TICK = 0.003  # seconds between the polls of a busy sender; if it misses one, the background thread takes over
_MOST = 2**62  # appends of one client
_KEPT_FAILURES = 1000  # one is enough to make flush and close raise; a broken cluster must not fill the memory

_Watcher = threading.Event | Callable[[Receipt], object]


class Deliveries:
    """The delivery reports of one client.

    Args:
        client: the producer that makes them.
        limit: how long an append may be undecided, in seconds; None for no limit.
        errors: makes the library's errors for failed deliveries.
        give_up: called on the background thread when an append has been undecided for longer.
    """

    def __init__(
        self,
        client: Producer,
        limit: float | None,
        errors: ProduceErrors,
        give_up: Callable[[], None],
    ) -> None:
        self.receipt: type[KafkaReceipt] = type("KafkaReceipt", (KafkaReceipt,), {"__slots__": (), "_deliveries": self})
        """The class of this client's receipts; the caller sets a receipt's cohort."""
        self.make_receipt: Callable[[], KafkaReceipt] = self.receipt
        """Makes the receipt of the next append."""
        self.failures = 0
        """The number of failed appends."""
        self._uncounted: repeat[tuple[()]] | None = None
        self.ages = Ages(limit, lambda: errors.losses)
        """The age of undecided appends; for the background thread, except for `Ages.current`."""
        self.parked = False
        """True while the background thread waits for `wake` because nothing is in flight."""
        self.due = False
        """True when the next send should `poll`, which also shows that somebody is sending."""
        self.watchers: dict[KafkaReceipt, list[_Watcher]] = {}
        """The watchers to notify of each receipt's outcome."""
        self._client = client
        self._errors = errors
        self._give_up = give_up
        self._lock = threading.Lock()
        self._failures: dict[KafkaReceipt, TransportError] = {}
        self._callbacks: deque[tuple[Callable[[Receipt], object], Receipt]] = deque()
        self._nudge = threading.Event()
        self._quiet = threading.Condition()
        self._flushing = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="lvq-kafka-deliveries", daemon=True)
        self._thread.start()

    def count(self) -> None:
        """Count appends from now on, by the receipts that are made.

        Python counts them without running any code, so this takes 15 ns for each; and nothing as long as nobody asks.
        """
        if self._uncounted is None:
            self._uncounted = repeat((), _MOST)
            self.make_receipt = starmap(self.receipt, self._uncounted).__next__

    @property
    def counted(self) -> int:
        """The number of appends since `count`."""
        return 0 if self._uncounted is None else _MOST - length_hint(self._uncounted)

    @property
    def undecided(self) -> int:
        """The number of undecided appends; and of the client's own events, until it is polled."""
        client: Producer | None = getattr(self, "_client", None)  # gone once it has stopped
        return 0 if client is None else len(client)

    @property
    def fatal(self) -> KafkaError | None:
        """The error that made the client unusable, if any."""
        return self._errors.fatal

    # ------------------------------------------------------------ for senders and waiters

    def poll(self, timeout: float) -> None:
        """Poll on the sending thread."""
        self.due = False
        if threading.current_thread() is self._thread:  # in a callback: no other thread keeps the time
            self._keep_time()
        self._poll_client(timeout)

    def wake(self) -> None:
        """Make the background thread poll, whatever it is doing."""
        self._nudge.set()

    def wait_for(self, receipt: KafkaReceipt, timeout: float | None) -> None:
        """Wait until a receipt is decided.

        Raises:
            OutcomeUnknown: it was not decided in time.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        event = threading.Event()
        if not self.watch(receipt, event):
            return
        self.wake()
        while not self._wait(event, min(1.0, deadline - time.monotonic())):
            if (self._stopping or not len(self._client)) and not receipt.done():
                _lose(receipt)
                return
            if time.monotonic() >= deadline:
                raise undecided(timeout)

    def _wait(self, event: threading.Event, timeout: float) -> bool:
        if threading.current_thread() is self._thread:  # in a callback: no other thread polls
            self._keep_time()
            self._poll_client(min(_POLL, max(0.0, timeout)))
            return event.is_set()
        return event.wait(timeout)

    def drain(self, timeout: float | None) -> int:
        """Wait until every append is decided and every callback has returned.

        Returns:
            the number of undecided appends.

        Raises:
            StateError: called from a callback.
        """
        if threading.current_thread() is self._thread:
            raise StateError("A callback cannot flush or close.", hint="Call it on the thread that sends.")
        with self._quiet:
            self._flushing += 1
            self.wake()
            try:
                self._quiet.wait_for(self._done, timeout)
            finally:
                self._flushing -= 1
        return 0 if self._stopping else self._undecided()

    def _undecided(self) -> int:
        """Return how many appends are undecided.

        The client includes its own events in the count until it is polled.
        """
        left = len(self._client)
        while left and (self._poll_client(0) or len(self._client) < left):  # or the background thread has polled it
            left = len(self._client)
        return left

    def wait_decided(self, timeout: float, quiet: float | None = None) -> bool:
        """Poll on the background thread, without callbacks, until every append is decided.

        Returns False on timeout, or when none was decided for ``quiet`` seconds.
        """
        now = time.monotonic()
        deadline, left, progress = now + timeout, len(self._client), now
        while left and not self._stopping:
            if now >= deadline or (quiet is not None and now >= progress + quiet):
                return False
            self._poll_client(min(_POLL, deadline - now))
            now, before, left = time.monotonic(), left, len(self._client)
            if left < before:
                progress = now
        return True

    def left_behind(self) -> None:
        """Replace all locks: this is a forked child."""
        self.due, self._stopping = False, True
        self._lock, self._quiet = threading.Lock(), threading.Condition()

    def stop(self) -> None:
        """End the background thread and let go of the client. All appends must be decided."""
        self._stopping = True
        self.wake()
        self._thread.join()
        for receipt in list(self.watchers):  # an interrupt hit its report: do not leave waiters hanging
            _lose(receipt)
            self.notify(receipt)
        self._call_back()
        self.due = False
        del self._client

    # ------------------------------------------------------------ for receipts

    def failed(self, receipt: KafkaReceipt, error: KafkaError, message: Message) -> TransportError:
        """Keep a failure until somebody has seen it."""
        cohort = receipt.outcome
        answered = type(cohort) is not Cohort or cohort.losses == self._errors.losses
        failure = self._errors.of_delivery(error, message, answered=answered)
        self.failures += 1
        if len(self._failures) < _KEPT_FAILURES:
            self._failures[receipt] = failure
        return failure

    def noticed(self, receipt: KafkaReceipt) -> None:
        """Drop a failure that somebody has seen."""
        self._failures.pop(receipt, None)

    def pop_failures(self) -> list[TransportError]:
        """Return the failures that nobody has seen, each once."""
        failures, self._failures = self._failures, {}
        return list(failures.values())

    def watch(self, receipt: KafkaReceipt, watcher: _Watcher) -> bool:
        """Register for an outcome; return False if it is already known."""
        with self._lock:
            if self._stopping and not receipt.done():
                _lose(receipt)
            if receipt.done():
                return False
            self.watchers.setdefault(receipt, []).append(watcher)
        if receipt.done():  # decided meanwhile, by a thread that may not have seen the watcher
            self.notify(receipt)
        return True

    def notify(self, receipt: KafkaReceipt) -> None:
        """Notify the watchers of a receipt, each once.

        Waiting threads are woken at once; callbacks run on the background thread.
        """
        if receipt not in self.watchers:
            return
        with self._lock:
            watchers = self.watchers.pop(receipt, ())
        for watcher in watchers:
            if isinstance(watcher, threading.Event):
                watcher.set()
            else:
                self._callbacks.append((watcher, receipt))

    # ------------------------------------------------------------ the background thread

    def _run(self) -> None:
        while not self._stopping:
            self._rest()
            self._serve()

    def _rest(self) -> None:
        self.parked = True
        if self._done():  # checked after parking: an append checks `parked` after handing over its record
            self._nudge.wait(_IDLE)
        self.parked = False
        self._nudge.clear()

    def _serve(self) -> None:
        while not self._done():
            self._keep_time()
            self.due = True
            self._poll(_POLL if len(self._client) else 0)
            if not self.due and len(self._client) >= _CROWD:
                self._stand_by()
        self._poll(0)
        self._keep_time()  # a connection that was lost while nothing was under way

    def _done(self) -> bool:
        return self._stopping or not (len(self._client) or self._callbacks)

    def _keep_time(self) -> None:
        if self.ages.overdue():
            self._give_up()

    def _poll_client(self, timeout: float) -> int:
        """Poll the client and return the number of events served."""
        try:
            return self._client.poll(timeout)
        except KafkaException as exception:
            # The client raises a fatal error (fenced, sequence lost) here instead of calling error_cb. From now on
            # every other call raises it, too, and is the one to report it, since it knows what it was doing.
            self._errors.fatal = kafka_error(exception)
        except Exception:  # from stats_cb and the like: not for the thread that happens to send or wait
            logger.exception("A callback of the Kafka client failed.")
        return 0

    def _poll(self, timeout: float) -> None:
        self._poll_client(timeout)
        self._call_back()
        if self._flushing and self._done():
            with self._quiet:
                self._quiet.notify_all()

    def _stand_by(self) -> None:
        """Leave polling to the senders until none is busy or somebody waits for a receipt."""
        while not (self.due or self._nudge.is_set()) and len(self._client) >= _CROWD:
            self._keep_time()
            self.due = True
            self._nudge.wait(_TICK)
            self._call_back()
        self._nudge.clear()

    def _call_back(self) -> None:
        while self._callbacks:
            callback, receipt = self._callbacks[0]
            try:
                callback(receipt)
            except Exception:
                logger.exception("A callback of a receipt failed.")
            self._callbacks.popleft()  # only now: a flush waits until the callback has returned


def _lose(receipt: KafkaReceipt) -> None:
    """Mark the outcome of a receipt as lost.

    An interrupt (Ctrl-C) hit its report, or it was sent while another thread closed the producer.
    """
    receipt.outcome = DeliveryUnknown("The outcome of a send was lost: it may have been stored.", code="_DESTROY")


class KafkaReceipt(AwaitableReceipt):
    """`Receipt` of an append to Kafka.

    One is made for each record, so making one costs next to nothing: its only slot holds its cohort until the outcome
    is known (see `Ages`), its writer is an attribute of its class (each writer has its own subclass), and its waiters
    are kept elsewhere.
    """

    __slots__ = ("outcome",)

    _deliveries: ClassVar[Deliveries]
    outcome: Cohort | tuple[str, int, int | None] | TransportError
    """The cohort while undecided; the caller that creates the receipt sets it."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Handle the delivery report; the client calls this."""
        if error is None:
            self.outcome = (message.topic(), message.partition(), message.offset())  # type: ignore[assignment]
        else:
            self.outcome = self._deliveries.failed(self, error, message)
        if self._deliveries.watchers:
            self._deliveries.notify(self)

    def result(self, timeout: float | None = None) -> Position:
        """See `Receipt.result`."""
        outcome = self._await(timeout)
        if isinstance(outcome, tuple):
            return _position(outcome)
        raise outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        """See `Receipt.exception`."""
        outcome = self._await(timeout)
        return None if isinstance(outcome, tuple) else outcome

    def done(self) -> bool:
        """See `Receipt.done`."""
        return type(self.outcome) is not Cohort

    @property
    def position(self) -> Position | None:
        """See `Receipt.position`."""
        outcome = self.outcome
        return _position(outcome) if type(outcome) is tuple else None

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """See `Receipt.add_done_callback`.

        Runs on the writer's own thread, or here if the outcome is known.
        """
        check_callback(callback)
        if not self._deliveries.watch(self, callback):
            callback(self)

    def _await(self, timeout: float | None) -> tuple[str, int, int | None] | TransportError:
        if not self.done():
            self._deliveries.wait_for(self, waiting(timeout))
        outcome = cast("tuple[str, int, int | None] | TransportError", self.outcome)
        if not isinstance(outcome, tuple):
            self._deliveries.noticed(self)
        return outcome

    def __repr__(self) -> str:
        if not self.done():
            return "<Receipt on its way>"
        return f"<Receipt {_position(self.outcome) if isinstance(self.outcome, tuple) else repr(self.outcome)}>"


def _position(outcome: tuple[str, int, int | None]) -> Position:
    topic, partition, offset = outcome
    return Position(topic, partition, -1 if offset is None else offset)  # None: a retry the broker had already stored
