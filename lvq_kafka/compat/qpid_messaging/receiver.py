"""Receivers of ``qpid.messaging``."""

from __future__ import annotations

from lvq_kafka.compat.qpid_messaging.constants import Constant
from lvq_kafka.compat.qpid_messaging.exceptions import Empty, FetchError, LinkClosed
from lvq_kafka.compat.qpid_messaging.link_session import LinkSession
from lvq_kafka.compat.qpid_messaging.message import Message
from lvq_kafka.compat.qpid_messaging.sources import Source
from lvq_kafka.compat.qpid_messaging.standing_in import raised_as
from lvq_kafka.core.text.validation import waiting

__all__ = ["Receiver"]

_ALL = 0xFFFF_FFFF


class Receiver:
    """Fetches messages from a queue. `Session.receiver` makes it.

    ``capacity`` is the number of messages that `available` counts up to; only a receiver with one can be the
    `Session.next_receiver`. A message is the newest of its key when it is fetched.
    """

    def __init__(
        self,
        session: LinkSession,
        source: str,
        reads: Source,
        capacity: int | Constant = 0,
        *,
        settles_at_once: bool = False,
    ) -> None:
        self.session = session
        self.source = source
        self.capacity = capacity
        self.closed = False
        self._reads = reads
        self._settles_at_once = settles_at_once

    def fetch(self, timeout: float | None = None) -> Message:
        """Return the next message. The session has to acknowledge it, unless it was browsed.

        Args:
            timeout: seconds to wait for one; None for as long as it takes. With 0, it returns a message if the queue
                holds one.

        Raises:
            Empty: there is none, not even one that was stored just before the call.
            LinkClosed: the receiver was closed.
            DecodeError: the content is not what the message's type says. The next call goes on. In a queue that is
                consumed, the message stays in the queue, for receivers after this one.
            FetchError: the queue cannot be read, or ``timeout`` is not a number.
        """
        self._check_open()
        with raised_as(FetchError):
            taken = self._reads.fetch(waiting(timeout))
            if taken is None:
                self._check_open()
                raise Empty(text=f"There is no message in {self.source}.")
            self.session._hold(self, taken, settle=self._settles_at_once)
            return taken.message

    def available(self) -> int:
        """Return the number of messages that can be fetched at once, up to the capacity.

        It is 0 only if there is none, and counts those, too, that wait until an older value is acknowledged (G13).

        Raises:
            FetchError: the queue cannot be read.
        """
        most = _ALL if isinstance(self.capacity, Constant) else self.capacity
        with raised_as(FetchError):
            return 0 if self.closed else self._reads.waiting(most)

    def unsettled(self) -> int:
        """Return the number of acknowledged messages whose acknowledgement is not durable yet."""
        return self.session._unsettled(self)

    def close(self, timeout: float | None = None) -> None:
        """Close the receiver. Messages that it fetched can still be acknowledged."""
        if not self.closed:
            self.closed = True
            self._reads.drop_ahead()
            self.session._forget(self)

    def _read_to_end(self) -> None:
        with raised_as(FetchError):
            self._reads.read_to_end()

    def _stop(self) -> None:
        with raised_as(FetchError):
            self._reads.close()

    def _check_open(self) -> None:
        if self.closed:
            raise LinkClosed(text=f"The receiver of {self.source} was closed.")
