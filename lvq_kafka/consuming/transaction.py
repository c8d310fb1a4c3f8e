"""Consume and produce atomically: messages leave a queue as their results become visible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self

from lvq_kafka.cluster import GroupMember, LogWriter
from lvq_kafka.codecs import V
from lvq_kafka.consuming.acquiring import Acquiring
from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.delivery import Delivery, items_of
from lvq_kafka.consuming.sessions import OpenSession
from lvq_kafka.consuming.settlement import Decision, Durable, JointSettlement, Settlement
from lvq_kafka.consuming.settlers import DirectSettler
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.consumer.commits import Answer, Flight
from lvq_kafka.core.consumer.consumer_transaction import LedgerStep, Undecided
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.text.validation import instance
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import AlreadySettled, LockLost, LVQError, OutcomeUnknown, StateError, TransportError
from lvq_kafka.producing.producer import Producer
from lvq_kafka.runtime.forking import Bound

__all__ = ["Transaction"]

_PATIENCE = 60.0  # seconds; default wait for the commit in flight before a transaction, and for its other steps
# Broker errors for a member that the group has removed, or that does not know its newest assignment yet.
_PUT_OUT = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"})


class _TransactionSettler(DirectSettler):
    """Settles the deliveries of a transaction: acks and rejections stay pending until its end."""

    defers = True

    def __init__(self, shared: SharedState, dead_letters: DeadLetters, writer: LogWriter) -> None:
        super().__init__(shared, dead_letters)
        self._writer = writer
        self.open = False
        self.left: dict[Item, LedgerStep] = {}
        """Messages acked or rejected in the transaction, and the step each takes when it commits."""
        self.decision = Decision()

    def start(self) -> None:
        """Mark the transaction as open."""
        self.open = True
        self.decision = Decision()

    def ack(self, item: Item) -> Settlement:
        """See `Delivery.ack`."""
        self._leave(item, Ledger.commit)
        return Settlement(self._shared, item, self.decision)

    def ack_many(self, items: Sequence[Item]) -> Settlement:
        """See `Transaction.ack_many`."""

        def leave(ledger: Ledger, item: Item) -> None:
            ledger.leave(item)
            self.left[item] = Ledger.commit

        self.require_open()
        self._shared.apply_many(leave, items)
        return JointSettlement(self._shared, items, self.decision)

    def reject(self, item: Item, reason: str) -> Settlement:
        """See `Delivery.reject`. The dead letter is part of the transaction."""
        self._leave(item, Ledger.bury)
        try:
            self._dead_letters.post_with(self._writer, item, reason)
        except BaseException:
            del self.left[item]
            self._shared.apply(Ledger.give_back, item)
            raise
        self._dead_letters.log_rejection(item, reason)
        return Settlement(self._shared, item, self.decision)

    def _leave(self, item: Item, step: LedgerStep) -> None:
        self.require_open()
        self._shared.apply(Ledger.leave, item)
        self.left[item] = step

    def require_open(self) -> None:
        """Raise `StateError` if the transaction is not open."""
        if not self.open:
            raise StateError("The transaction is not open.", hint="Use it inside `with consumer.transaction(...)`.")


class Transaction(Bound, Generic[V]):
    """A transaction of a consumer and a producer; see `Consumer.transaction`.

    Everything acked in it, everything the producer sends meanwhile, and the consumer's progress commit together or not
    at all. If the transaction aborts, messages acked in it are redelivered unless a newer value has arrived. Messages
    acquired in it but not settled are returned either way.

    Not thread-safe: use it from one thread.
    """

    def __init__(
        self,
        acquiring: Acquiring[V],
        shared: SharedState,
        dead_letters: DeadLetters,
        producer: Producer[Any],
        member: Callable[[], GroupMember],
        *,
        timeout: float | None,
        session: OpenSession | None = None,
    ) -> None:
        self._acquiring = acquiring
        self._session = session
        self._shared = shared
        self._producer = producer
        self._member = member
        self._timeout = timeout
        self._settler = _TransactionSettler(shared, dead_letters, producer.writer)
        self._deliveries: list[Delivery[V]] = []

    # ---------------------------------------------------------------- within the block

    def acquire(self, timeout: float | None = None) -> Delivery[V] | None:
        """Like `Consumer.acquire`, as part of the transaction."""
        taken = self.acquire_many(1, timeout)
        return taken[0] if taken else None

    def acquire_many(self, most: int, timeout: float | None = None) -> list[Delivery[V]]:
        """Like `Consumer.acquire_many`, as part of the transaction."""
        self._settler.require_open()
        deliveries = self._acquiring.acquire(most, timeout, self._settler, self._session)
        self._deliveries += deliveries
        return deliveries

    def ack_many(self, deliveries: Iterable[Delivery[V]]) -> Settlement:
        """Like `Consumer.ack_many`, for deliveries of this transaction. Durable once it commits.

        Raises:
            StateError: the transaction is not open, or a delivery is not part of it.
            AlreadySettled, LockLost: as in `Consumer.ack_many`.
        """
        return self._settler.ack_many(items_of(deliveries, self._settler))

    def enlist(self, delivery: Delivery[V]) -> Delivery[V]:
        """Add a delivery acquired earlier from the consumer to the transaction, and return it.

        Raises:
            StateError: the transaction is not open, or the delivery belongs to another consumer.
        """
        self._settler.require_open()
        instance("delivery", delivery, Delivery, "Enlist acquired deliveries.")
        self._deliveries.append(delivery.into(self._settler))
        return delivery

    # ---------------------------------------------------------------- lifecycle

    def __enter__(self) -> Self:
        shared = self._shared
        shared.check_transaction()
        with shared as core:
            core.yielding.attempt(shared.clock(), core.settled)
        try:
            self._open()
        except BaseException:
            with shared as core:
                core.yielding.failed(shared.clock())
            raise
        with shared as core:
            core.yielding.begun(shared.clock(), core.settled)
        return self

    def _open(self) -> None:
        patience = _PATIENCE if self._timeout is None else self._timeout
        deadline = time.monotonic() + patience
        try:
            # The writer goes first: it ends any open transaction, so the group can then report its outcome.
            self._producer.writer.begin_transaction(patience)
        except TransportError as error:
            self._shared.report("transacting", error)
            raise
        try:
            self._shared.open_transaction(max(0.0, deadline - time.monotonic()))
        except BaseException:
            self._producer.writer.abort_transaction(self._timeout)
            raise
        self._settler.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._settler.open = False
        try:
            if error is None:
                self._commit()
            else:
                self._abort(error)
        finally:
            for delivery in self._deliveries:
                with suppress(LockLost, AlreadySettled):
                    delivery.release()
            self._deliveries.clear()

    def _commit(self) -> None:
        flight, left = None, self._settler.left
        try:
            self._producer.flush_transaction(self._timeout)
            if left:
                flight = self._shared.prepare_commit(left, _PATIENCE if self._timeout is None else self._timeout)
            if flight is not None:
                self._producer.writer.send_offsets(self._member(), self._shared.offsets(flight), self._timeout)
        except BaseException as error:
            self._abort(error, flight)
            if isinstance(error, TransportError) and error.code in _PUT_OUT:
                raise LockLost(
                    f"The transaction is aborted, because partitions are moving to other consumers: {error}",
                    hint="Its messages come again, here or elsewhere.",
                ) from error
            raise
        try:
            self._producer.writer.commit_transaction(self._timeout)
        except BaseException as error:
            self._commit_failed(error, flight)
            raise
        self._end(flight, Answer.STORED, None)

    def _commit_failed(self, error: BaseException, flight: Flight[Durable] | None) -> None:
        """Abort if possible; otherwise the outcome is unknown until the group reports it.

        Until then, handing the messages out again, or committing anything, could undo the transaction's commit.
        """
        if self._abort_producer(error):
            self._end(flight, Answer.UNKNOWN, _aborted(error))
            return
        unknown = OutcomeUnknown(
            f"It is not known whether the transaction on {self._shared.topic} committed: {error}",
            hint="The consumer continues once the group reports the outcome, at the latest when the next transaction "
            "begins.",
        )
        self._shared.report("transacting", unknown)
        if flight is None:
            self._end(flight, Answer.UNKNOWN, unknown)
        else:
            left, self._settler.left = self._settler.left, {}
            outcomes = {True: None, False: _aborted(error), None: unknown}
            decision = self._settler.decision
            with self._shared as core:
                core.leave_undecided(Undecided(flight, left, lambda committed: decision.make(outcomes[committed])))
        raise unknown from error

    def _abort(self, error: BaseException, flight: Flight[Durable] | None = None) -> None:
        self._abort_producer(error)
        too_large = isinstance(error, TransportError) and error.code == "OFFSET_METADATA_TOO_LARGE"
        self._end(flight, Answer.TOO_LARGE if too_large else Answer.UNKNOWN, _aborted(error))

    def _abort_producer(self, error: BaseException) -> bool:
        try:
            self._producer.writer.abort_transaction(self._timeout)
        except LVQError as another:
            if getattr(another, "code", "") != "_FENCED":  # the producer that fenced it has aborted it
                error.add_note(f"The transaction could not be aborted either: {another}")
            return False
        finally:
            self._producer.writer.pop_failures()  # sends withdrawn by the abort are not failures
        return True

    def _end(self, flight: Flight[Durable] | None, answer: Answer, failure: LVQError | None) -> None:
        """End the transaction: it committed if ``failure`` is None."""
        left, self._settler.left = self._settler.left, {}
        steps = [(step if failure is None else Ledger.give_back, item) for item, step in left.items()]
        with self._shared as core:
            core.end_transaction(steps, flight, answer, self._shared.clock())
        # Even if partitions have moved, the transaction's outcome is final: durable, or never.
        self._settler.decision.make(failure)


def _aborted(error: BaseException) -> LockLost:
    """Return the error for waiters on messages of a transaction aborted because of ``error``."""
    aborted = LockLost(
        "The transaction in which the message was settled was aborted.",
        hint="The message stays in the queue and comes again, here or elsewhere, unless a newer value replaces it.",
    )
    aborted.__cause__ = error
    return aborted
