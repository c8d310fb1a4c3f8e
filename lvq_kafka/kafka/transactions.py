"""A producer's transactions: bounded in time, and resolved when an end goes unanswered."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from lvq_kafka.cluster import Commit, GroupMember
from lvq_kafka.core.facts import Right
from lvq_kafka.errors import AuthenticationFailed, LVQError, StateError, TransportError
from lvq_kafka.kafka.connect import Health
from lvq_kafka.kafka.deliveries import Deliveries
from lvq_kafka.kafka.error_mapping import kafka_error
from lvq_kafka.kafka.member import KafkaMember
from lvq_kafka.kafka.threads import in_thread

__all__ = ["Transactions"]

logger = logging.getLogger("lvq_kafka.producer")

_TIMEOUT = 60.0
_OPEN_TIMEOUT = 30.0
_SLICE = 0.5  # seconds; then check whether the broker refuses us, which the call itself does not report
_GRACE = 1.0  # seconds that a call may exceed its timeout
_ARRIVAL = 5.0  # seconds for requests sent before an abort to arrive
_PAUSES = (0.01, 0.5)  # seconds between two attempts, at first and at most
_REPORTS = 5.0  # seconds for the reports of records that an abort has purged


class _Ending(Enum):
    COMMIT = "commit"
    ABORT = "abort"


class Transactions:
    """The transactional part of a producer.

    A transaction whose end was not answered is ended before the next one begins. Within its timeout its own client does
    that, and learns whether a newer writer has fenced it off. Afterwards the broker has aborted the transaction and
    fenced this client itself, so a new client replaces it; the same happens when the client is unusable.

    Args:
        explain: returns the library's error for one of the client's, given what it was doing and the rights that this
            takes beyond writing.
        replace: drops the client, and returns a new one and its delivery reports.
        lasts: seconds after which the broker aborts a transaction (``transaction.timeout.ms``).
    """

    def __init__(
        self,
        transactional_id: str,
        client: Producer,
        deliveries: Deliveries,
        health: Health,
        explain: Callable[[KafkaError, str, Sequence[Right]], LVQError],
        replace: Callable[[], tuple[Producer, Deliveries]],
        lasts: float,
    ) -> None:
        self._id = transactional_id
        self._client = client
        self._deliveries = deliveries
        self._health = health
        self._explain = explain
        self._replace = replace
        self._lasts = lasts
        self._losses = 0  # connections lost when a transaction began
        self._begun_at = -math.inf
        self._ending: _Ending | None = None  # the end that has not been answered
        self._spent = ""  # why this client begins no more transactions
        self._started = False  # whether the broker knows this client
        self._fenced: TransportError | None = None
        self._stuck = False
        self.is_open = False
        """True while a transaction is open, as far as this side knows."""
        self.appends = 0
        """The number of records in this transaction."""
        self.withdrawn = "its transaction failed"
        """The reason why records that were handed over have been dropped."""

    def start(self, timeout: float = _OPEN_TIMEOUT) -> None:
        """Fence off an earlier producer with this id, and have its transaction ended."""
        doing, deadline = f"open the transactional id {self._id!r}", time.monotonic() + timeout
        while not self._started:
            try:
                self._call(doing, self._client.init_transactions, _SLICE)
            except TransportError as error:
                passing = error.retriable or isinstance(error, AuthenticationFailed)  # another broker may let us in
                # The call may have ended just before the refusal; the next one then reports the reason.
                refused = self._health.refused and isinstance(error, AuthenticationFailed)
                if not passing or refused or time.monotonic() > deadline:
                    raise
            else:
                self._started = True

    def begin(self, timeout: float | None = None) -> None:
        """See `LogWriter.begin_transaction`."""
        deadline = _deadline(timeout)
        if self._fenced is not None:
            raise self._fenced
        if self._stuck:
            self._spent = "it does not return from adding a commit to a transaction"
        elif self._ending is not None and not self._spent:
            self._resume(self._ending, deadline)
        self._deliveries.poll(0)  # collects what the client reports about its connections
        if self._health.losses != self._losses and self._begun_at > -math.inf and not self._spent:
            # Requests in flight may arrive in the next transaction, and count for it: offsets, even its end. A new
            # client has another epoch, and the broker rejects requests of the old one.
            self._spent = "it lost a connection, and requests in flight may arrive in the next transaction"
        if self._spent:
            self._renew(deadline)
        self._losses = self._health.losses
        self._call("begin a transaction", lambda _: self._client.begin_transaction(), deadline - time.monotonic())
        self._begun_at = time.monotonic()
        self.is_open = True
        self.appends = 0
        self.withdrawn = "its transaction failed"

    def send_offsets(self, member: GroupMember, offsets: Mapping[int, Commit], timeout: float | None) -> None:
        """See `LogWriter.send_offsets`."""
        if not isinstance(member, KafkaMember):
            raise StateError("The group member belongs to another cluster.")
        positions, metadata = member.transaction_offsets(offsets)
        self.send_positions(positions, metadata, member.needs, timeout)

    def send_positions(
        self,
        positions: list[TopicPartition],
        metadata: object,
        needs: Sequence[Right],
        timeout: float | None,
    ) -> None:
        """Make a commit part of the open transaction.

        Args:
            positions: what is committed.
            metadata: the identity of the member that commits, or that of none.
            needs: the rights that this takes beyond writing.
            timeout: seconds to wait for the answer.
        """
        client = self._client
        self._call(
            "add a commit to the transaction",
            # librdkafka 2.16 can wait forever for a coordinator that is down, whatever timeout it is given (issues 5456
            # and 5511); so it waits on a thread of its own.
            lambda left: self._leave_behind(
                lambda: client.send_offsets_to_transaction(positions, metadata, left), left + _GRACE
            ),
            timeout,
            needs,
        )

    def commit(self, timeout: float | None) -> None:
        """See `LogWriter.commit_transaction`."""
        deadline = _deadline(timeout)
        # The client would flush, too, but raises SystemError there if a report says that we were fenced off.
        self._deliveries.drain(deadline - time.monotonic())
        self._end(_Ending.COMMIT, deadline)

    def abort(self, timeout: float | None) -> None:
        """See `LogWriter.abort_transaction`."""
        if self._ending is _Ending.COMMIT:
            raise TransportError(
                "Cannot abort the transaction: its commit is in flight.",
                code="_CONFLICT",
                retriable=True,
                hint="The next transaction begins when it is decided.",
            )
        self.withdrawn = "its transaction was aborted"
        deadline = _deadline(timeout)
        # Let requests in flight arrive. Otherwise the client may abort a transaction that the broker does not know yet,
        # because it refuses all partitions while the previous one completes; the client never recovers from that error.
        self._deliveries.drain(min(_ARRIVAL, deadline - time.monotonic()))
        self._end(_Ending.ABORT, deadline)
        self._deliveries.drain(_REPORTS)

    # ------------------------------------------------------------ unanswered ends

    def _end(self, ending: _Ending, deadline: float) -> None:
        """Commit or abort. If no answer comes in time, the client continues by itself."""
        call = self._client.commit_transaction if ending is _Ending.COMMIT else self._client.abort_transaction
        try:
            self._call(f"{ending.value} the transaction", call, deadline - time.monotonic())
        except TransportError as error:
            if not self._stuck and (error.retriable or ending is _Ending.ABORT):
                self._ending = ending
            raise
        self.is_open = False
        self._ending = None

    def _resume(self, ending: _Ending, deadline: float) -> None:
        """Complete an unanswered end, or find that this client cannot."""
        if self._is_overdue:
            self._spent = f"its last transaction could not be {ending.value}ed in time"
            return
        try:
            self._end(ending, deadline)
        except TransportError as error:
            if error.retriable or self._fenced is not None:
                raise
            self._spent = str(error)
        except StateError as error:
            self._spent = str(error)

    def _renew(self, deadline: float) -> None:
        """Continue with a new client, which ends what the previous one left open."""
        if self._started or self._deliveries.fatal is not None:
            logger.warning("the producer %r continues with a new client: %s", self._id, self._spent)
            self._started = self._stuck = False
            self._client, self._deliveries = self._replace()
        self.start(max(0.0, deadline - time.monotonic()))
        self._spent, self._ending, self.is_open = "", None, False

    @property
    def _is_overdue(self) -> bool:
        """True when the broker may have aborted the transaction on its own."""
        return time.monotonic() - self._begun_at > self._lasts

    # ------------------------------------------------------------ calls

    def _call(
        self,
        doing: str,
        call: Callable[[float], object],
        timeout: float | None = None,
        needs: Sequence[Right] = (),
    ) -> None:
        """Make a transactional call, repeating it while the client calls its error retriable."""
        deadline = _deadline(timeout)
        pause = _PAUSES[0]
        while True:
            if self._stuck:
                raise TransportError(
                    f"Cannot {doing}: the client does not return from adding a commit to it.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="The next transaction begins with a new client, which ends this one.",
                )
            try:
                call(max(0.001, deadline - time.monotonic()))
            except TimeoutError:
                continue  # the next turn reports that it is stuck
            except (KafkaException, SystemError) as exception:
                error = kafka_error(exception)
                if error is None:
                    raise TransportError(f"Cannot {doing}: the client gave up.", code="_FAIL") from exception
                if error.retriable() and time.monotonic() + pause < deadline:
                    # Some errors come at once, and the client keeps memory for each.
                    time.sleep(pause)
                    pause = min(2 * pause, _PAUSES[1])
                    continue
                raise self._failure(error, doing, needs) from None
            return

    def _failure(self, error: KafkaError, doing: str, needs: Sequence[Right]) -> LVQError:
        if error.code() == KafkaError._STATE and not error.fatal():
            return StateError(f"Cannot {doing}: {error.str()}.")
        failure = self._explain(error, doing, needs)
        if isinstance(failure, TransportError):
            if failure.code == "_FENCED" and not self._is_overdue:
                self._fenced = failure
            elif error.fatal() or failure.code == "_FENCED":
                self._spent = str(failure)
        return failure

    def _leave_behind(self, call: Callable[[], object], timeout: float) -> None:
        """Make a call that may never return, and wait at most ``timeout`` seconds for it.

        If it does not return in time, nothing else can be called, either.

        Raises:
            TimeoutError: it has not returned in time.
        """
        self._stuck = True
        outcome = in_thread(call, f"lvq-offsets-{self._id}")
        try:
            outcome.result(timeout)
        finally:
            self._stuck = not outcome.done()


def _deadline(timeout: float | None) -> float:
    return time.monotonic() + (_TIMEOUT if timeout is None else timeout)
