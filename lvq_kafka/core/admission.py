"""Admission to a queue with limits, as its producers decide it (R12).

A key counts once. Its newest message says how much, and the producer's own sends are newer than what a follower shows
until that follower has read past them. Until then they count, whether or not the cluster has answered: so a producer
alone never exceeds a limit, and several exceed it by what the others have under way at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

from lvq_kafka.core.limits import Depth, Limits

__all__ = ["Admission", "Send"]

Done = Callable[[int, int], bool]


class Send:
    """A message or delete of this producer that its follower has not read yet.

    Args:
        key: its key.
        size: its size in bytes; None for a delete.
    """

    __slots__ = ("key", "size")

    def __init__(self, key: bytes, size: int | None) -> None:
        self.key = key
        self.size = size


class Admission:
    """The contents of a queue, this producer's own sends included, and its room.

    The caller passes on what a follower reads (`show`, `remove`, then `read`), news of what the group has consumed
    (`remove_consumed`), and what becomes of each `send`. Not thread-safe.

    Args:
        limits: those of the queue, with the policy ``"reject"`` or ``"block"``.
        done: returns whether the group has consumed the message at a partition and offset.
    """

    def __init__(self, limits: Limits, done: Done) -> None:
        self._limits = limits
        self._done = done
        self._messages = self._bytes = 0
        self._shown: dict[bytes, tuple[int, int, int]] = {}  # partition, offset, size of what waits or is in work
        self._sends: dict[bytes, list[Send]] = {}  # in the order of sending
        self._stored: dict[int, list[tuple[int, int, Send]]] = {}  # by partition, a heap of offset, number, send
        self._positions: dict[int, int] = {}
        self._number = 0
        self._held_back = False

    @property
    def depth(self) -> Depth:
        """The depth of the queue."""
        return Depth(self._messages, self._bytes)

    # ---------------------------------------------------------------- what the follower and the group say

    def show(self, key: bytes, partition: int, offset: int, size: int) -> bool:
        """Note the newest message of a key, as the follower has it.

        Return whether it counts, since it is not consumed.
        """
        if self._done(partition, offset):
            self.remove(key)
            return False
        before = self._size(key)
        self._shown[key] = partition, offset, size
        self._count(before, self._size(key))
        return True

    def remove(self, key: bytes) -> None:
        """Note that a key has no message, as the follower has it: deleted, expired, or consumed."""
        if key in self._shown:
            before = self._size(key)
            del self._shown[key]
            self._count(before, self._size(key))

    def read(self, positions: Mapping[int, int]) -> None:
        """Note how far the follower has read, by partition; it has shown all below.

        Own sends below count no longer as such. Those of an aborted transaction were never shown.
        """
        self._positions.update(positions)
        for partition in list(self._stored):
            stored, position = self._stored[partition], positions.get(partition, 0)
            while stored and stored[0][0] < position:
                self._drop(heappop(stored)[2])
            if not stored:
                del self._stored[partition]

    @property
    def shown(self) -> list[bytes]:
        """The keys of what waits or is in work, as the follower and the group have it."""
        return list(self._shown)

    def remove_consumed(self, keys: Iterable[bytes]) -> list[bytes]:
        """Remove those of these keys whose message was consumed, and return them.

        Show again those that no longer are, as after a reset.
        """
        shown, done = self._shown, self._done
        gone = [key for key in keys if (there := shown.get(key)) is not None and done(there[0], there[1])]
        for key in gone:
            self.remove(key)
        return gone

    def forget(self) -> None:
        """Forget what was shown, and where sends are stored: the topic is another one."""
        for key in list(self._shown):
            self.remove(key)
        for stored in self._stored.values():
            for _, _, send in stored:
                self._drop(send)
        self._stored.clear()
        self._positions.clear()

    # ---------------------------------------------------------------- own sends

    def counts(self, key: bytes) -> bool:
        """Return whether the queue has a message of this key, so that the next one is an update."""
        return self._size(key) is not None

    def admits(self, key: bytes, size: int | None) -> bool:
        """Return whether the queue has room for a message.

        A delete (None) needs none, nor does an update.

        Once full, a queue with the policy ``"block"`` has none until its depth is down to the part ``resume``.
        """
        if size is None or self.counts(key):
            return True
        limits = self._limits
        if limits.policy == "reject":
            return not limits.exceeded_by(Depth(self._messages + 1, self._bytes + size))
        self._held_back = not self.within(limits.resume or 1.0) if self._held_back else self._reached()
        return not self._held_back

    def within(self, part: float) -> bool:
        """Return whether the depth is at most this part of the limits."""
        messages, size = self._limits.messages, self._limits.bytes
        return (messages is None or self._messages <= part * messages) and (size is None or self._bytes <= part * size)

    def send(self, key: bytes, size: int | None) -> Send:
        """Count a message that is being sent from now on."""
        before = self._size(key)
        send = Send(key, size)
        self._sends.setdefault(key, []).append(send)
        self._count(before, size)
        return send

    def stored(self, send: Send, partition: int, offset: int) -> None:
        """Note where a send is stored: it counts as such until the follower has read it."""
        if offset < self._positions.get(partition, 0):
            self._drop(send)
        else:
            self._number += 1
            heappush(self._stored.setdefault(partition, []), (offset, self._number, send))

    def failed(self, send: Send) -> None:
        """Note that a send was not stored, or may have been: then the follower will show it."""
        self._drop(send)

    # ---------------------------------------------------------------- inside

    def _drop(self, send: Send) -> None:
        before, sends = self._size(send.key), self._sends[send.key]
        sends.remove(send)
        if not sends:
            del self._sends[send.key]
        self._count(before, self._size(send.key))

    def _size(self, key: bytes) -> int | None:
        """Return the size of a key's newest message; None if it has none."""
        if sends := self._sends.get(key):
            return sends[-1].size
        shown = self._shown.get(key)
        return None if shown is None else shown[2]

    def _count(self, before: int | None, after: int | None) -> None:
        self._messages += (after is not None) - (before is not None)
        self._bytes += (after or 0) - (before or 0)

    def _reached(self) -> bool:
        """Return whether a limit is reached.

        The message before may have crossed that of bytes, as in Broker-J.
        """
        messages, size = self._limits.messages, self._limits.bytes
        return (messages is not None and self._messages >= messages) or (size is not None and self._bytes >= size)
