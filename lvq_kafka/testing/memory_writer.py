"""Writers on the in-memory cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import get_ident
from typing import cast

from lvq_kafka.cluster import Commit, GroupMember, LogWriter, Receipt
from lvq_kafka.cluster.receipts import AwaitableReceipt, check_callback, undecided
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Headers
from lvq_kafka.core.measures.measured import ProducerFacts
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.errors import Closed, DeliveryFailed, DeliveryUnknown, MessageTooLarge, StateError, TransportError
from lvq_kafka.runtime.aio import may_wait
from lvq_kafka.runtime.overriding import override
from lvq_kafka.testing.memory_member import MemoryMember
from lvq_kafka.testing.memory_partition import TransactionState
from lvq_kafka.testing.memory_state import ClusterState, no_answer, record_size, refused

__all__ = ["MemoryWriter"]

CLIENT_LIMIT = 1_048_588
"""The maximum message size of Kafka writers by default, in bytes (``message.max.bytes``)."""

BUFFER_LIMIT = 100_000
"""The number of undecided messages that the Kafka client buffers by default.

That is its ``queue.buffering.max.messages``.
"""


_TIMEOUT = 60.0  # seconds for an unfinished transaction to end before the next one begins
_DELIVERIES = (DeliveryFailed, DeliveryUnknown)


class _MemoryReceipt(AwaitableReceipt):
    """`Receipt` over a standard future."""

    def __init__(self) -> None:
        self.future: Future[Position] = Future()
        self.asked = False  # whether the caller learns of a failure from this receipt; see LogWriter.pop_failures

    def result(self, timeout: float | None = None) -> Position:
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        return self.future.result()

    def exception(self, timeout: float | None = None) -> Exception | None:
        try:
            failure = self.future.exception(waiting(timeout))
        except TimeoutError:
            raise undecided(timeout) from None
        self.asked = True
        return cast("Exception | None", failure)

    def done(self) -> bool:
        return self.future.done()

    @property
    def position(self) -> Position | None:
        known = self.future.done() and self.future.exception() is None
        return self.future.result() if known else None

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        check_callback(callback)
        self.future.add_done_callback(lambda _: callback(self))

    def __repr__(self) -> str:
        if not self.done():
            return "<Receipt on its way>"
        return f"<Receipt {self.position or repr(self.future.exception())}>"


@dataclass(slots=True)
class _PendingAppend:
    """An append that waits for its outcome."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    receipt: _MemoryReceipt


class MemoryWriter(LogWriter):
    """`LogWriter` on the in-memory cluster.

    An append is decided before the call returns. During an outage it is buffered, as in the Kafka client, and decided
    in order at `MemoryCluster.reconnect`.
    """

    def __init__(self, cluster: ClusterState, transactional_id: str | None, max_block: float | None) -> None:
        self._state = cluster
        self._max_block = max_block
        self._transactional_id = transactional_id
        self._in_transaction = False
        self._appends = 0  # in this transaction
        self._ending: TransactionState | None = None  # the end of a transaction whose answer was lost
        self._failure: TransportError | None = (
            None  # of an append in the open transaction, which can then only be aborted
        )
        self._closed = False
        self._waiting: list[_PendingAppend] = []
        self._notifier: int | None = None  # the thread that resolves receipts, after an outage
        self._failed: list[tuple[_MemoryReceipt, TransportError]] = []
        self._counts = False
        self._sent = self._failures = 0
        with cluster.changed:
            self._producer = cluster.new_producer(transactional_id)
            cluster.outbox.append(self._send_waiting)

    @override
    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int = -1,
    ) -> Receipt:
        place = None if partition < 0 else partition
        append = _PendingAppend(topic, key, value, tuple(headers or ()), place, _MemoryReceipt())
        if record_size(append.key, append.value, append.headers) > CLIENT_LIMIT:
            raise MessageTooLarge(
                f"The message for key {quoted(key_text(key or b''))} is larger than the {CLIENT_LIMIT} bytes that the "
                "client takes.",
                key=key,
                code="MSG_SIZE_TOO_LARGE",
                hint="Send less, or store the value elsewhere.",
            )
        with self._state.changed:
            self._sent += self._counts
            self._require_open()
            if self._transactional_id is not None:
                self._require_transaction()
                self._appends += 1
            if not self._state.connected:
                self._await_room()
                self._waiting.append(append)
                return append.receipt
            outcome = self._decide(append)
        if isinstance(outcome, TransportError) and not isinstance(outcome, _DELIVERIES):
            raise outcome  # a receipt reports deliveries only
        _resolve(append.receipt, outcome)  # outside the lock: callbacks may call anything
        return append.receipt

    @override
    def flush(self, timeout: float | None = None) -> int:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        with self._state.changed:
            while (self._waiting or self._notifier not in (None, get_ident())) and self._state.wait(deadline):
                pass
            return len(self._waiting)

    @override
    def pop_failures(self) -> list[TransportError]:
        with self._state.changed:
            failed, self._failed = self._failed, []
        return [error for receipt, error in failed if not receipt.asked]

    @override
    def count_appends(self) -> None:
        self._counts = True

    @property
    @override
    def facts(self) -> ProducerFacts:
        with self._state.changed:
            return ProducerFacts(self._sent, len(self._waiting), self._failures)

    @override
    def begin_transaction(self, timeout: float | None = None) -> None:
        deadline = time.monotonic() + (_TIMEOUT if timeout is None else timeout)
        with self._state.changed:
            self._require_open()
            if self._transactional_id is None:
                raise StateError("This writer has no transactional id.", hint="Ask for writer(transactional_id=...).")
            self._require_current()
            if self._ending is not None:
                while not self._state.connected and self._state.wait(deadline):
                    pass
                if self._in_transaction:
                    self._end_transaction("begin_transaction", self._ending)
                self._ending = None
            if self._in_transaction:
                raise StateError("A transaction is already open.", hint="Commit or abort it first.")
            self._state.enter("begin_transaction")
            self._in_transaction = True
            self._appends = 0

    @override
    def send_offsets(self, member: GroupMember, offsets: Mapping[int, Commit], timeout: float | None = None) -> None:
        if not isinstance(member, MemoryMember):
            raise StateError("The group member belongs to another cluster.")
        with self._state.changed:
            self._require_transaction()
            self._state.enter("send_offsets")
            member.store(offsets, self._producer)

    @override
    def send_offsets_of(
        self, group: str, topic: str, offsets: Mapping[int, Commit], timeout: float | None = None
    ) -> None:
        with self._state.changed:
            self._require_transaction()
            self._state.enter("send_offsets")
            self._state.group(group).store(topic, offsets, self._producer)

    @override
    def commit_transaction(self, timeout: float | None = None) -> None:
        if self.flush(timeout):
            raise TransportError("Not every append of the transaction was decided.", code="_TIMED_OUT", retriable=True)
        if self._failure is not None:
            raise TransportError(
                "An append of this transaction failed.", code="_STATE", hint="Abort the transaction."
            ) from self._failure
        self._end_transaction("commit_transaction", TransactionState.COMMITTED)

    @override
    def abort_transaction(self, timeout: float | None = None) -> None:
        if self._ending is TransactionState.COMMITTED:
            raise TransportError("The commit is in flight.", code="_CONFLICT", retriable=True)
        self._end_transaction("abort_transaction", TransactionState.ABORTED)

    @property
    @override
    def uncommitted(self) -> int | None:
        return self._appends if self._in_transaction else None

    @override
    def close(self, timeout: float | None = None) -> int:
        """Flush, abort an open transaction unless there is no connection, and close."""
        undecided = self.flush(timeout)
        with self._state.changed:
            if not self._closed:
                self._closed = True
                self._state.outbox.remove(self._send_waiting)
                if self._in_transaction and self._state.connected:
                    self._state.end_transaction(self._producer, TransactionState.ABORTED)
            withdrawn, self._waiting = self._waiting, []
        for append in withdrawn:
            _resolve(append.receipt, self._unanswered(append))
        return undecided

    @property
    @override
    def has_room(self) -> bool:
        return self._state.connected or len(self._waiting) < BUFFER_LIMIT

    def _await_room(self) -> None:
        deadline = float("inf") if self._max_block is None else time.monotonic() + self._max_block
        while not self.has_room:
            if not may_wait():
                raise TransportError("The local buffer is full.", code="_QUEUE_FULL", retriable=True)
            if not self._state.wait(deadline):
                raise TransportError(
                    f"The local buffer has been full for {self._max_block:g} s.", code="_QUEUE_FULL", retriable=True
                )

    def _end_transaction(self, operation: str, state: TransactionState) -> None:
        with self._state.changed:
            self._require_transaction()
            try:
                self._state.enter(operation)
            except TransportError as error:
                if error.retriable:
                    self._ending = state
                raise
            self._in_transaction = False
            self._failure = self._ending = None
            self._state.end_transaction(self._producer, state)
            if not self._state.answers(operation):
                self._ending = state
                raise no_answer(operation)

    def _send_waiting(self) -> Callable[[], None]:
        """Store what an outage held up, holding the lock.

        Return the callable that resolves the receipts.
        """
        decided = [(append.receipt, self._decide(append)) for append in self._waiting]
        self._waiting.clear()
        self._notifier = get_ident()

        def notify() -> None:
            try:
                for receipt, outcome in decided:
                    _resolve(receipt, outcome)
            finally:
                with self._state.changed:
                    self._notifier = None
                    self._state.changed.notify_all()

        return notify

    def _decide(self, append: _PendingAppend) -> Position | TransportError:
        producer = self._producer if self._in_transaction else None
        try:
            self._state.enter("append")
            position = self._state.store(
                append.topic, append.key, append.value, append.headers, partition=append.partition, producer=producer
            )
            if not self._state.answers("append"):
                raise self._unanswered(append)
            return position
        except TransportError as raised:
            error = raised.with_traceback(None)  # its frames hold the producer, which must not outlive its user
            if self._in_transaction:
                self._failure = error
            if isinstance(error, _DELIVERIES):
                self._failed.append((append.receipt, error))
                self._failures += 1
            return error

    def _unanswered(self, append: _PendingAppend) -> TransportError:
        """Return the error of an append without an answer.

        An append in a transaction counts as failed: nobody sees it without a commit.
        """
        key = quoted(key_text(append.key or b""))
        if self._in_transaction:
            return refused(append.key, "_TIMED_OUT", f"No answer came for the message for key {key}.")
        return DeliveryUnknown(
            f"Cannot tell whether the message for key {key} in {append.topic!r} was stored: no answer came.",
            key=append.key,
            code="_TIMED_OUT",
            hint="Send the key's current value again.",
        )

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("This writer is closed.")

    def _require_current(self) -> None:
        if self._transactional_id is not None and self._state.producers[self._transactional_id] != self._producer:
            raise TransportError(
                f"A newer writer with the transactional id {self._transactional_id!r} has fenced this one off.",
                code="_FENCED",
                hint="Use a transactional id in one process at a time.",
            )

    def _require_transaction(self) -> None:
        self._require_open()
        self._require_current()
        if not self._in_transaction:
            raise StateError("No transaction is open.", hint="Call begin_transaction first.")


def _resolve(receipt: _MemoryReceipt, outcome: Position | TransportError) -> None:
    if isinstance(outcome, TransportError):
        receipt.future.set_exception(outcome)
    else:
        receipt.future.set_result(outcome)
