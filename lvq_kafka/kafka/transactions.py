"""The transactions of a producer: bounded in time, and told what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread

from confluent_kafka import KafkaError, KafkaException, Producer

from lvq_kafka.errors import AuthenticationFailed, LVQError, StateError, TransportError
from lvq_kafka.kafka.connect import Health
from lvq_kafka.kafka.deliveries import Deliveries
from lvq_kafka.kafka.errors import kafka_error
from lvq_kafka.kafka.member import KafkaMember
from lvq_kafka.ports import Commit, GroupMember

__all__ = ["Transactions"]

_TIMEOUT = 60.0
_OPEN_TIMEOUT = 30.0
_SLICE = 0.5  # seconds; after that it is looked whether the broker refuses us, which the call itself does not tell
_GRACE = 1.0  # seconds that a call may take longer than it was told to
_ARRIVAL = 5.0  # seconds in which what an abort comes after can arrive
_REPORTS = 5.0  # seconds for the reports of what an abort has withdrawn


class Transactions:
    """What a producer with a transactional id does besides appending.

    Args:
        explain: the library's error for one of the client's, met while doing what is said.
    """

    def __init__(
        self,
        transactional_id: str,
        client: Producer,
        deliveries: Deliveries,
        health: Health,
        explain: Callable[[KafkaError, str], LVQError],
    ) -> None:
        self._id = transactional_id
        self._client = client
        self._deliveries = deliveries
        self._health = health
        self._explain = explain
        self._stuck = False
        self.is_open = False
        """Whether one is open, as far as this side knows."""
        self.withdrawn = "its transaction failed"
        """Why records are gone that were handed over and not stored."""

    def start(self) -> None:
        """Fence off an earlier producer with this id, and have its transaction ended."""
        doing, deadline = f"open the transactional id {self._id!r}", time.monotonic() + _OPEN_TIMEOUT
        while True:
            try:
                self._call(doing, self._client.init_transactions, _SLICE)
            except TransportError as error:
                passing = error.retriable or isinstance(error, AuthenticationFailed)  # another broker may let us in
                # The call may have ended just before the client was refused; the next one then says why.
                refused = self._health.refused and isinstance(error, AuthenticationFailed)
                if not passing or refused or time.monotonic() > deadline:
                    raise
            else:
                return

    def begin(self) -> None:
        """See `LogWriter.begin_transaction`."""
        self._call("begin a transaction", lambda _: self._client.begin_transaction())
        self.is_open = True
        self.withdrawn = "its transaction failed"

    def send_offsets(self, member: GroupMember, offsets: Mapping[int, Commit], timeout: float | None) -> None:
        """See `LogWriter.send_offsets`."""
        if not isinstance(member, KafkaMember):
            raise StateError("The group member belongs to another log.")
        positions, metadata = member.transaction_offsets(offsets)
        self._call(
            "add a commit to the transaction",
            # librdkafka 2.16 can wait for a coordinator that is gone for ever, whatever timeout it is given (its
            # issues 5456 and 5511); so it is left to wait by itself.
            lambda left: self._leave_behind(
                lambda: self._client.send_offsets_to_transaction(positions, metadata, left), left + _GRACE
            ),
            timeout,
        )

    def commit(self, timeout: float | None) -> None:
        """See `LogWriter.commit_transaction`."""
        deadline = _deadline(timeout)
        # The client would flush too, and there raise SystemError where a report says that we were fenced off.
        self._deliveries.drain(deadline - time.monotonic())
        self._call("commit the transaction", self._client.commit_transaction, deadline - time.monotonic())
        self.is_open = False

    def abort(self, timeout: float | None) -> None:
        """See `LogWriter.abort_transaction`."""
        self.withdrawn = "its transaction was aborted"
        deadline = _deadline(timeout)
        # What is under way is let arrive. The client would abort a transaction that the broker does not know of yet,
        # since it refuses all partitions while the one before completes; that is an error it never recovers from.
        self._deliveries.drain(min(_ARRIVAL, deadline - time.monotonic()))
        self._call("abort the transaction", self._client.abort_transaction, deadline - time.monotonic())
        self.is_open = False
        self._deliveries.drain(_REPORTS)

    def _call(self, doing: str, call: Callable[[float], object], timeout: float | None = None) -> None:
        """Make a transactional call, again for as long as the client says that it may be repeated."""
        deadline = _deadline(timeout)
        while True:
            if self._stuck:
                raise TransportError(
                    f"Cannot {doing}: the client does not return from adding a commit to it.",
                    code="_TIMED_OUT",
                    hint="Close this producer and open a new one: with the same transactional id it ends what is open.",
                )
            try:
                call(max(0.001, deadline - time.monotonic()))
            except TimeoutError:
                continue  # to say so
            except (KafkaException, SystemError) as exception:
                error = kafka_error(exception)
                if error is None:
                    raise TransportError(f"Cannot {doing}: the client broke off.", code="_FAIL") from exception
                if error.retriable() and time.monotonic() < deadline:
                    continue
                if error.code() == KafkaError._STATE and not error.fatal():
                    raise StateError(f"Cannot {doing}: {error.str()}.") from None
                raise self._explain(error, doing) from None
            return

    def _leave_behind(self, call: Callable[[], object], timeout: float) -> None:
        """Make a call that may never return, and wait for it only so long. Then nothing else can be called either.

        Raises:
            TimeoutError: it has not returned in time.
        """
        outcome: Future[None] = Future()

        def make() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001  # for whoever waits
                outcome.set_exception(error)
            else:
                outcome.set_result(None)

        self._stuck = True
        Thread(target=make, name=f"lvq-offsets-{self._id}", daemon=True).start()
        try:
            outcome.result(timeout)
        finally:
            self._stuck = not outcome.done()


def _deadline(timeout: float | None) -> float:
    return time.monotonic() + (_TIMEOUT if timeout is None else timeout)
