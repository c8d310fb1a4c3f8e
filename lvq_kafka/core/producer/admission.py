"""Admission to a queue with limits, as its producers decide it (R12).

A key counts once, by the size of its newest message. The producer's own sends are newer than the messages that its
follower shows, until the follower has read past them. Until then they count, whether or not the cluster has answered.
So a single producer never exceeds a limit, but for the message that may cross a limit of bytes where producers block.
Several exceed it at most by the sends that the others have in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import compress
from math import inf

from lvq_kafka.core.facts import Depth
from lvq_kafka.core.queue.limits import Limits

__all__ = ["Admission", "Send"]


class Send:
    """A message or delete of this producer that its follower has not read yet.

    Args:
        key: its key.
        size: its size in bytes; None for a delete.
        topics: the number of topics before the one that it is sent to.
    """

    __slots__ = ("key", "size", "topics")

    def __init__(self, key: bytes, size: int | None, topics: int) -> None:
        self.key = key
        self.size = size
        self.topics = topics


class Admission:
    """The contents of a queue, this producer's own sends included, and its room.

    The caller reports the messages that its follower has read and the group has not consumed (`show`, `remove`, then
    `read`), and the outcome of each `send`. Not thread-safe.

    Args:
        limits: the limits of the queue, with the policy ``"reject"`` or ``"block"``.
    """

    def __init__(self, limits: Limits) -> None:
        self.adopt(limits)
        self._messages = self._bytes = 0
        self._shown: dict[bytes, int] = {}  # the sizes of messages that wait or are in work
        self._sends: dict[bytes, list[Send]] = {}  # in the order of sending
        self._stored: dict[int, list[tuple[int, int, Send]]] = {}  # by partition, a heap of offset, number, send
        self._positions: dict[int, int] = {}
        self._number = self._topics = 0

    def adopt(self, limits: Limits | None) -> None:
        """Judge by the limits of an altered queue from now on, or by none (R39)."""
        self._blocks = limits is not None and limits.policy == "block"
        self._resume = 1.0 if limits is None else limits.resume or 1.0
        self._most_messages = inf if limits is None or limits.messages is None else limits.messages
        self._most_bytes = inf if limits is None or limits.bytes is None else limits.bytes
        self._held_back = False

    @property
    def depth(self) -> Depth:
        """The depth of the queue."""
        return Depth(self._messages, self._bytes)

    # ---------------------------------------------------------------- reports of the follower and the group

    @property
    def shown(self) -> list[bytes]:
        """The keys that were shown, and not removed."""
        return list(self._shown)

    def show(self, keys: Sequence[bytes], sizes: Sequence[int]) -> None:
        """Note the sizes of these keys' newest messages, which wait or are in work.

        No key appears twice.
        """
        shown, sends = self._shown, self._sends
        before, after = list(map(shown.get, keys)), sizes
        shown.update(zip(keys, sizes))
        if sends:  # they are newer, so they count instead
            others = [key not in sends for key in keys]
            before, after = list(compress(before, others)), list(compress(sizes, others))
        self._messages += before.count(None)
        self._bytes += sum(after) - sum(filter(None, before))

    def remove(self, keys: Iterable[bytes]) -> None:
        """Note that these keys have no message any longer.

        They were deleted or consumed, or have expired.
        """
        for key in keys:
            before = self._shown.pop(key, None)
            if before is not None and key not in self._sends:
                self._count(before, None)

    def read(self, positions: Mapping[int, int]) -> None:
        """Note the follower's positions, by partition; all messages below were shown or removed.

        Own sends below these positions no longer count as sends. Those of an aborted transaction were never shown.
        """
        if positions == self._positions:
            return
        self._positions.update(positions)
        for partition in list(self._stored):
            stored, position = self._stored[partition], positions.get(partition, 0)
            while stored and stored[0][0] < position:
                self._drop(heappop(stored)[2])
            if not stored:
                del self._stored[partition]

    def forget(self) -> None:
        """Forget the messages shown, and where sends are stored: the topic was replaced."""
        self.remove(self.shown)
        for stored in self._stored.values():
            for _, _, send in stored:
                self._drop(send)
        self._stored.clear()
        self._positions.clear()
        self._topics += 1

    # ---------------------------------------------------------------- own sends

    def counts(self, key: bytes) -> bool:
        """Return whether the queue has a message of this key.

        If so, the next one is an update, which needs no room; nor does a delete.
        """
        return self._size(key) is not None

    def has_room(self, size: int) -> bool:
        """Return whether the queue has room for one more message.

        Once full, a queue with the policy ``"block"`` has no room until its depth has shrunk to the part ``resume`` of
        the limits.
        """
        if not self._blocks:
            return self._messages < self._most_messages and self._bytes + size <= self._most_bytes
        # As in Broker-J, the last message may cross the limit of bytes.
        reached = self._messages >= self._most_messages or self._bytes >= self._most_bytes
        self._held_back = reached or (self._held_back and not self.within(self._resume))
        return not self._held_back

    def within(self, part: float) -> bool:
        """Return whether the depth is at most this part of the limits."""
        return self._messages <= part * self._most_messages and self._bytes <= part * self._most_bytes

    def send(self, key: bytes, size: int | None) -> Send:
        """Count a message that is being sent from now on."""
        before = self._size(key)
        send = Send(key, size, self._topics)
        sends = self._sends.get(key)
        if sends is None:
            self._sends[key] = [send]
        else:
            sends.append(send)
        self._count(before, size)
        return send

    def stored(self, send: Send, partition: int, offset: int) -> None:
        """Note where a send is stored: it counts as such until the follower has read it."""
        if send.topics < self._topics or offset < self._positions.get(partition, 0):
            self._drop(send)  # perhaps in a topic that is gone; if not, the follower shows it
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
        sends = self._sends.get(key)
        return self._shown.get(key) if sends is None else sends[-1].size

    def _count(self, before: int | None, after: int | None) -> None:
        self._messages += (after is not None) - (before is not None)
        self._bytes += (after or 0) - (before or 0)
