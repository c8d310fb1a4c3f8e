"""The messages between two brokers: received from one, and not yet settled there.

They are sent in the order in which they arrived, and settled in that order. So if a bridge dies, the other broker has
the rest of the messages again, from the first that was not settled: none of them is missing, and a value that comes a
second time is followed by the newer values of its key that came after it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lvq_kafka.producing.producer import Message

__all__ = ["Arrival", "Window"]


@dataclass(slots=True, eq=False)
class Arrival:
    """A message that has arrived."""

    tag: int
    """The number of its delivery, which no other has while the process lives."""
    size: int
    """In bytes."""
    message: Message[bytes] | None
    """The message to send; None if there is none, or the destination will never take it."""
    stored: bool = False
    """True once the destination has it."""

    @property
    def decided(self) -> bool:
        """True once it may be settled."""
        return self.stored or self.message is None


class Window:
    """The messages that have arrived and are not settled, in order.

    Args:
        most: the number of messages that it holds.
        most_bytes: the number of bytes from which on it asks for no more.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._arrivals: deque[Arrival] = deque()
        self._unsent: deque[Arrival] = deque()
        self._failed: set[Arrival] = set()
        self.in_flight = 0
        """The number of messages that were sent, and are undecided."""
        self.bytes = 0
        """The size of the messages that it holds."""

    def __len__(self) -> int:
        return len(self._arrivals)

    def room(self, granted: int) -> int:
        """Return the number of messages to ask for, beyond those that were ``granted``."""
        return 0 if self.bytes >= self._most_bytes else max(0, self._most - len(self._arrivals) - granted)

    def add(self, arrival: Arrival) -> None:
        """Add a message that has arrived."""
        self._arrivals.append(arrival)
        self.bytes += arrival.size
        if not arrival.decided:
            self._unsent.append(arrival)

    @property
    def next(self) -> Arrival | None:
        """The next message to send.

        There is none from a failure on, until all that were sent are decided, and `retry` is called.
        """
        return self._unsent[0] if self._unsent and not self._failed else None

    def send(self) -> None:
        """Note that the next message was sent."""
        self._unsent.popleft()
        self.in_flight += 1

    def leave_out(self) -> None:
        """Note that the destination will never take the next message."""
        self._unsent.popleft().message = None

    def decide(self, arrival: Arrival, *, stored: bool, retry: bool = False) -> None:
        """Note what became of a message that was sent.

        Args:
            stored: whether the destination has it.
            retry: whether it should be sent again if not.
        """
        self.in_flight -= 1
        if stored:
            arrival.stored = True
        elif retry:
            self._failed.add(arrival)
        else:
            arrival.message = None

    @property
    def must_retry(self) -> bool:
        """True if a message has failed, and all others that were sent are decided."""
        return bool(self._failed) and not self.in_flight

    def retry(self) -> None:
        """Send again what has failed, and all that came after it.

        Messages after it may have been stored. They are repeated, since a value must not follow a newer one of its key.
        """
        failed, self._failed = self._failed, set()
        first = next((at for at, arrival in enumerate(self._arrivals) if arrival in failed), None)
        if first is not None:
            again = [arrival for arrival in list(self._arrivals)[first:] if arrival.message is not None]
            for arrival in again:
                arrival.stored = False
            self._unsent = deque(again)

    def pop_decided(self) -> list[Arrival]:
        """Remove and return the messages that are decided, up to the first that is not."""
        settled = []
        while self._arrivals and self._arrivals[0].decided:
            arrival = self._arrivals.popleft()
            self.bytes -= arrival.size
            settled.append(arrival)
        return settled

    def forget(self) -> None:
        """Forget all messages, since the other broker will deliver them again.

        Those that were sent may still be stored.
        """
        self.bytes = 0
        self._arrivals.clear()
        self._unsent.clear()
