"""Senders of ``qpid.messaging``."""

from __future__ import annotations

from threading import Condition
from typing import Any

from lvq_kafka.cluster import Receipt
from lvq_kafka.compat.qpid_messaging.constants import UNLIMITED, Constant
from lvq_kafka.compat.qpid_messaging.exceptions import InsufficientCapacity, LinkClosed, SendError, Timeout
from lvq_kafka.compat.qpid_messaging.link_session import LinkSession
from lvq_kafka.compat.qpid_messaging.message import Message
from lvq_kafka.compat.qpid_messaging.standing_in import raised_as
from lvq_kafka.compat.qpid_messaging.translation import to_queue_message
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.errors import DeliveryUnknown, OutcomeUnknown
from lvq_kafka.queue import LastValueQueue

__all__ = ["Sender"]


class Sender:
    """Sends messages to a queue. `Session.sender` makes it.

    ``capacity`` is the number of messages that may be undecided at a time, or `UNLIMITED`.
    """

    def __init__(
        self,
        session: LinkSession,
        target: str,
        queue: LastValueQueue[bytes],
        subject: str | None,
        capacity: int | Constant = UNLIMITED,
        durable: bool | None = None,
    ) -> None:
        self.session = session
        self.target = target
        self.capacity = capacity
        self.durable = durable
        self.closed = False
        self._subject = subject
        self._producer = queue.producer()
        self._definition = queue.definition
        self._undecided = 0
        self._decided = Condition()

    def send(self, object: Any, sync: bool = True, timeout: float | None = None) -> None:
        """Send a message, or a content, which becomes one.

        Args:
            sync: wait until it is stored on all in-sync replicas. Otherwise `sync` of the sender or the session does,
                and raises what went wrong.
            timeout: seconds for room in the capacity, and for the storing.

        Raises:
            LinkClosed: the sender was closed.
            EncodeError: the content, a property or a field has no wire form.
            InsufficientCapacity: there was no room in the capacity in time.
            TargetCapacityExceeded: the queue's limits leave no room (R12).
            SendError: the queue does not take such a message, as one with a ``ttl``; or it was not stored.
            Timeout: it is not known in time whether it is stored. It may still be.
        """
        if self.closed:
            raise LinkClosed(text=f"The sender to {self._definition.name} was closed.")
        message = object if isinstance(object, Message) else Message(object)
        if message.ttl and self._definition.ttl is None:
            raise SendError(
                text=f"The message has a ttl, and messages of {self._definition.name} do not expire (R22).",
                hint="Declare the queue with ttl: true among the arguments of x-declare in its address.",
            )
        record = to_queue_message(message, self._definition, self._subject)
        with raised_as(SendError):
            timeout = waiting(timeout)
        self._await_room(timeout)
        with raised_as(SendError):
            try:
                receipt = self._producer.send(record)
            except BaseException:
                self._one_less()
                raise
            receipt.add_done_callback(self._one_less)
            if sync:
                self._await(receipt, timeout)

    def _await_room(self, timeout: float | None) -> None:
        """Wait for room, and take it."""
        with self._decided:
            if not self._decided.wait_for(self.available, timeout):
                raise InsufficientCapacity(text=f"{self._undecided} messages are undecided, as many as the capacity.")
            self._undecided += 1

    def _one_less(self, receipt: Receipt | None = None) -> None:
        with self._decided:
            self._undecided -= 1
            self._decided.notify_all()

    def _await(self, receipt: Receipt, timeout: float | None) -> None:
        try:
            receipt.result(timeout)
        except DeliveryUnknown:
            raise
        except OutcomeUnknown as late:
            raise Timeout(str(late)) from late

    def unsettled(self) -> int:
        """Return the number of messages that are not known to be stored."""
        return self._undecided

    def available(self) -> int | Constant:
        """Return the number of messages for which the capacity has room, or `UNLIMITED`."""
        return UNLIMITED if isinstance(self.capacity, Constant) else max(0, self.capacity - self._undecided)

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all messages are stored.

        Raises:
            SendError: one was not. Others are not affected.
            Timeout: some are not known to be after ``timeout`` seconds. They may still be stored.
        """
        with raised_as(SendError):
            try:
                self._producer.flush(timeout)
            except DeliveryUnknown:
                raise
            except OutcomeUnknown as late:
                raise Timeout(str(late)) from late

    def close(self, timeout: float | None = None) -> None:
        """Close the sender, after its messages are stored. Raises what `sync` raises."""
        if self.closed:
            return
        try:
            self.sync(timeout)
        finally:
            self.closed = True
            self.session._forget(self)
            with raised_as(SendError):
                self._producer.close(timeout)
