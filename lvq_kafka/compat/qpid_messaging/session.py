"""Sessions of ``qpid.messaging``: their links, and the messages that they hold.

Where messages are grouped, each receiver is a session in the sense of R36.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

from lvq_kafka.compat.qpid_messaging.constants import REJECTED, RELEASED, UNLIMITED, Constant
from lvq_kafka.compat.qpid_messaging.exceptions import (
    Detached,
    Empty,
    FetchError,
    InvalidOption,
    MalformedAddress,
    NontransactionalSession,
    ResolutionError,
    SessionClosed,
    SessionError,
    Timeout,
)
from lvq_kafka.compat.qpid_messaging.message import Disposition, Message
from lvq_kafka.compat.qpid_messaging.receiver import Receiver
from lvq_kafka.compat.qpid_messaging.sender import Sender
from lvq_kafka.compat.qpid_messaging.sources import Browsed, Consumers, Source, Taken
from lvq_kafka.compat.qpid_messaging.standing_in import raised_as
from lvq_kafka.consuming.consumer_options import refuse_selecting
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.declared.addressed import check_asserted
from lvq_kafka.dialects.address import Address
from lvq_kafka.dialects.address_forms import parse_address
from lvq_kafka.errors import AlreadySettled, ConfigError, LockLost, LVQError, OutcomeUnknown
from lvq_kafka.queue import LastValueQueue

__all__ = ["Session"]

_LOOK = 0.02  # seconds between looks for the next receiver
_MANY = 1024  # acknowledgements not known to be durable, before the session looks which are


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A message that is not acknowledged yet."""

    message: Message
    receiver: Receiver
    delivery: Delivery[bytes]


class SessionConnection(Protocol):
    """A connection as its sessions see it."""

    _consumers: Consumers | None
    """Its consumers while it is open."""

    def _forget(self, session: Any) -> None:
        """Drop a session that was closed."""


class Session:
    """Sends and receives messages. `Connection.session` makes it.

    Several threads may use it.
    """

    def __init__(self, connection: SessionConnection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.transactional = False
        self.closed = False
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self._lock = RLock()
        self._fetched_ones: list[_Fetched] = []
        self._done: WeakSet[Message] = WeakSet()  # browsed, or settled when they were fetched
        self._settling: deque[tuple[Receiver, Settlement]] = deque()
        self._retired: list[Receiver] = []  # closed, with messages that can still be acknowledged

    def __repr__(self) -> str:
        return f"<Session {self.name}>"

    # ---------------------------------------------------------------- senders and receivers

    def sender(self, target: str, *, capacity: int | Constant = UNLIMITED, durable: bool | None = None) -> Sender:
        """Return a new sender to the queue of an address.

        The address says whether a missing queue is declared. If it has a subject, that is the subject of messages
        without one.

        Args:
            capacity: the number of messages that may be undecided at a time.
            durable: has no effect: each message is durable.

        Raises:
            MalformedAddress, InvalidOption: the address is wrong, or asks for what no queue has.
            NotFound: there is no such queue, and the address does not create it for senders.
            AssertionFailed: the queue is not as the address asserts.
            ResolutionError: the queue cannot be used.
            SessionClosed, Detached: the session was closed, or its connection is not open.
        """
        consumers = self._attached()
        address = _parsed(target)
        with raised_as(ResolutionError):
            # In an address of `at`, a subject is for receivers.
            plain = target if address.subject is None else str(replace(address, subject=None))
            queue = LastValueQueue.at(plain, cluster=consumers.cluster)
            sender = Sender(self, target, queue, address.subject, capacity, durable)
        with self._lock:
            self.senders.append(sender)
        return sender

    def receiver(self, source: str, *, capacity: int | Constant = 0) -> Receiver:
        """Return a new receiver of the queue of an address.

        It browses if the mode of the address is ``browse`` or the queue is never consumed, and else consumes.

        Args:
            capacity: the number of messages that `Receiver.available` counts up to.

        Raises: what `sender` raises.
        """
        consumers = self._attached()
        address = _parsed(source)
        with raised_as(ResolutionError):
            reads = _source(address, source, consumers)
            receiver = Receiver(self, source, reads, capacity, settles_at_once=address.reliability == "unreliable")
        with self._lock:
            self.receivers.append(receiver)
        return receiver

    def next_receiver(self, timeout: float | None = None) -> Receiver:
        """Return a receiver with a capacity from which a message can be fetched at once.

        Args:
            timeout: seconds to wait for one; None for as long as it takes.

        Raises:
            Empty: there is none in time.
            FetchError: ``timeout`` is not a number.
        """
        with raised_as(FetchError):
            deadline = _deadline(timeout)
        while (receiver := self._ready()) is None:
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left > 0:
                time.sleep(left)  # the receivers' queues have no common signal to wait for
                continue
            for receiver in self._with_capacity():
                receiver._read_to_end()
            receiver = self._ready()
            if receiver is None:
                raise Empty(text="No receiver with a capacity has a message.")
            break
        with self._lock, suppress(ValueError):  # the others have their turn first, the next time
            self.receivers.remove(receiver)
            self.receivers.append(receiver)
        return receiver

    def _with_capacity(self) -> list[Receiver]:
        self._attached()
        with self._lock:
            return [receiver for receiver in self.receivers if receiver.capacity]

    def _ready(self) -> Receiver | None:
        return next((receiver for receiver in self._with_capacity() if receiver.available()), None)

    # ---------------------------------------------------------------- acknowledging

    def acknowledge(
        self, message: Message | None = None, disposition: Disposition | None = None, sync: bool = True
    ) -> None:
        """Acknowledge a message, or all that the session holds: they leave their queues.

        Args:
            disposition: what becomes of them instead, such as ``Disposition(RELEASED)``. A rejected message leaves its
                queue, too, and is written nowhere else; the log has its reason.
            sync: wait until that is durable: nobody gets them again (G11). Otherwise it is within moments, and at the
                latest when the session is closed.

        Raises:
            SessionError: the session holds no such message, or a message went, or may have gone, to another consumer
                meanwhile. The others are acknowledged.
            SessionClosed: the session was closed.
        """
        self._check_open()
        settle = _settling(disposition)
        chosen = self._let_go(message)
        settled, failures = [], []
        for one in chosen:
            try:
                if (settlement := settle(one.delivery)) is not None:
                    settled.append((one.receiver, settlement))
            except LVQError as error:
                failures.append(error)
        with self._lock:
            if len(self._settling) >= _MANY:  # to ask for them makes their commit urgent
                self._settling = deque(one for one in self._settling if not one[1].done())
            self._settling.extend(settled)
        self._retire()
        with raised_as(SessionError):
            if failures:
                failed = f"{len(failures)} of {len(chosen)} messages could not be acknowledged"
                raise SessionError(text=f"{failed}: {failures[0]}") from failures[0]
            if sync:
                _await(settled, None)

    def _let_go(self, message: Message | None) -> list[_Fetched]:
        """Return the messages to acknowledge, which the session holds no longer."""
        with self._lock:
            if message is None:
                chosen, self._fetched_ones = self._fetched_ones, []
                return chosen
            for place, one in enumerate(self._fetched_ones):
                if one.message is message:
                    return [self._fetched_ones.pop(place)]
            if message in self._done:
                return []
        raise SessionError(
            text="The session does not hold this message.", hint="It was acknowledged already, or fetched elsewhere."
        )

    def commit(self, timeout: float | None = None) -> NoReturn:
        """Raise `NontransactionalSession`: no session is transactional here."""
        raise NontransactionalSession(text="The session is not transactional.")

    def rollback(self, timeout: float | None = None) -> NoReturn:
        """Raise `NontransactionalSession`: no session is transactional here."""
        raise NontransactionalSession(text="The session is not transactional.")

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all messages are stored, and all acknowledgements durable.

        Raises:
            SendError: a message was not stored.
            SessionError: a message went to another consumer before it was durably acknowledged; or ``timeout`` is not a
                number.
            Timeout: it is not all known after ``timeout`` seconds.
        """
        with raised_as(SessionError):
            deadline = _deadline(timeout)
        for sender in list(self.senders):
            sender.sync(_left(deadline))
        with self._lock:
            settled = list(self._settling)
            self._settling.clear()
        with raised_as(SessionError):
            _await(settled, deadline)

    def close(self, timeout: float | None = None) -> None:
        """Close the session, after `sync`.

        Messages that are not acknowledged go back to their queues. Raises what `sync` raises, and is closed all the
        same.
        """
        if self.closed:
            return
        self.closed = True
        with ExitStack() as last:
            last.callback(self.connection._forget, self)
            last.callback(self._end)
            links: list[Sender | Receiver] = [*self.receivers, *self.senders]
            for link in links:
                last.callback(link.close, timeout)
            self.sync(timeout)

    # ---------------------------------------------------------------- for senders and receivers

    def _hold(self, receiver: Receiver, taken: Taken, *, settle: bool) -> None:
        with self._lock:
            if taken.delivery is not None and not settle:
                self._fetched_ones.append(_Fetched(taken.message, receiver, taken.delivery))
                return
            self._done.add(taken.message)
            if taken.delivery is not None:
                self._settling.append((receiver, taken.delivery.ack()))

    def _unsettled(self, receiver: Receiver) -> int:
        with self._lock:
            return sum(of is receiver and not settlement.done() for of, settlement in self._settling)

    def _forget(self, link: Sender | Receiver) -> None:
        """Drop a link that was closed. A receiver's messages can still be acknowledged."""
        with self._lock:
            if isinstance(link, Sender):
                self.senders = [sender for sender in self.senders if sender is not link]
                return
            self.receivers = [receiver for receiver in self.receivers if receiver is not link]
            self._retired.append(link)
        self._retire()

    def _retire(self) -> None:
        """Stop reading for receivers that were closed, and whose messages are all acknowledged."""
        with self._lock:
            busy = {id(one.receiver) for one in self._fetched_ones}
            over = [receiver for receiver in self._retired if id(receiver) not in busy]
            self._retired = [receiver for receiver in self._retired if id(receiver) in busy]
        for receiver in over:
            receiver._stop()

    def _end(self) -> None:
        with self._lock:
            fetched, self._fetched_ones = self._fetched_ones, []
        for one in fetched:
            with suppress(AlreadySettled, LockLost):
                one.delivery.release()
        self._retire()

    def _check_open(self) -> None:
        if self.closed:
            raise SessionClosed(text="The session was closed.")

    def _attached(self) -> Consumers:
        """Return the consumers of the connection.

        Raises:
            SessionClosed, Detached: the session was closed, or its connection is not open.
        """
        self._check_open()
        consumers = self.connection._consumers
        if consumers is None:
            raise Detached(text="The connection is not open.", hint="Open it first: connection.open().")
        return consumers


def _parsed(address: str) -> Address:
    """Parse an address.

    Raises:
        MalformedAddress, InvalidOption: it is wrong.
    """
    try:
        return parse_address(address)
    except ConfigError as error:
        kind = MalformedAddress if error.options == ("address",) else InvalidOption
        raise kind(text=str(error)) from error


def _source(address: Address, text: str, consumers: Consumers) -> Source:
    """Return what a receiver of an address reads."""
    queue = LastValueQueue.at(text, cluster=consumers.cluster)
    if address.mode == "browse" or queue.definition.non_destructive:
        browser = queue.browser()  # may declare the queue
        return Browsed(browser, queue.definition, consumers.cluster.now)

    def check() -> None:
        try:
            refuse_selecting(address.selection)
        except ConfigError as error:
            raise address.placed(error) from None
        check_asserted(queue.definition, address, "receiver")

    return consumers.source(queue, check)


def _settling(disposition: object) -> Callable[[Delivery[bytes]], Settlement | None]:
    """Return what settles a message as a disposition says.

    Raises:
        SessionError: there is no such disposition.
    """
    if disposition is None:
        return lambda delivery: delivery.ack()
    if isinstance(disposition, Disposition) and disposition.type is RELEASED:
        return lambda delivery: delivery.release()
    if isinstance(disposition, Disposition) and disposition.type is REJECTED:
        reason = str(disposition.options.get("text") or "")
        return lambda delivery: delivery.reject(reason)
    raise SessionError(text=f"{disposition} is not a disposition.", hint="Its type is REJECTED or RELEASED.")


def _await(settled: Iterable[tuple[Receiver, Settlement]], deadline: float | None) -> None:
    """Wait until messages are durably settled.

    Raises:
        Timeout: some are not known to be in time.
        LVQError: one is not, and never will be; the first of them.
    """
    first: LVQError | None = None
    for _, settlement in settled:
        try:
            settlement.result(_left(deadline))
        except OutcomeUnknown as late:
            raise Timeout(str(late)) from late
        except LVQError as error:
            first = first or error
    if first is not None:
        raise first


def _deadline(timeout: float | None) -> float | None:
    """Return the end of a timeout by the monotonic clock; None for no end.

    Raises:
        ConfigError: it is not a number.
    """
    limit = waiting(timeout)
    return None if limit is None else time.monotonic() + limit


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
