"""What is not done in one partition, and what a commit may therefore claim.

A commit says of every offset below its end whether it is done. Done is what was acked, and all that cannot come again:
a superseded value, a delete, a gap. So a gap never splits a run of pending offsets; only an ack does. The messages that
are not done form a list in offset order, and for some of them an ack lies between them and the next one. That is all
there is to remember: a step takes constant time, and what was acked takes no room, however many acks there are above a
message that is held for long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NoReturn

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.quoting import quoted
from lvq_kafka.errors import AlreadySettled, LockLost

__all__ = ["Item", "PendingList"]

_AVAILABLE = State.AVAILABLE

_NEVER = 1 << 63  # beyond all offsets


class Item:
    """A message in the ledger, and the handle of whoever holds it: a handle is good for one settlement."""

    __slots__ = (
        "after",
        "before",
        "deliveries",
        "due",
        "generation",
        "headers",
        "key",
        "lane",
        "offset",
        "partition",
        "redelivered",
        "reserved",
        "slot",
        "state",
        "timestamp",
        "value",
    )

    def __init__(
        self,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes,
        headers: Sequence[tuple[str, bytes | None]] | None,
        slot: int,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.lane: bytes | int = offset if key is None else key
        """What conflates and what is worked on one at a time: the key; without one, the record by itself (R1)."""
        self.slot = slot
        """Its place in the queue, comparable over all partitions of a ledger."""
        self.deliveries = 0
        """How often it has been handed out, the present time included, as far as is known."""
        self.redelivered = False
        """Whether it was, or may have been, handed out before the present time."""
        self.reserved = False
        """Whether it is set aside for somebody who has not got it yet: a time that counts only if they do."""
        self.due: float | None = None
        """When its holder's time is over; when its delay is, while it is delayed."""
        self.state = _AVAILABLE
        self.generation: int
        """The assignment of its partition that it was handed out under: `Ledger.assign` numbers them."""
        self.before: Item | None
        self.after: Item | None

    @property
    def delivered(self) -> int:
        """How often somebody has got it, as far as is known."""
        return self.deliveries - self.reserved

    def again(self) -> Item:
        """The same message under a new handle."""
        twin = Item(self.partition, self.offset, self.timestamp, self.key, self.value, self.headers, self.slot)
        twin.deliveries = self.delivered
        twin.redelivered = self.redelivered or not self.reserved
        return twin

    def refuse(self) -> NoReturn:
        """Say why this handle is not good for what was tried.

        Raises:
            AlreadySettled, LockLost: one of them.
        """
        where = f"The message at offset {self.offset} of partition {self.partition}"
        if self.state is State.LOST:
            raise LockLost(
                f"{where} is no longer held: its partition was revoked, or the time to settle it was over.",
                hint="Whoever has the partition now gets the message, unless its acknowledgement was committed.",
            )
        raise AlreadySettled(f"{where} cannot be settled: this handle is {self.state}.")

    def __repr__(self) -> str:
        return f"<Item {self.partition}/{self.offset} {quoted(self.key)}, {self.state}>"


class PendingList:
    """The messages of one partition that are not done, by offset.

    Args:
        loaded: what the group had committed. Until its end is read, it decides what of the log is done.
        start: the offset that reading starts at; not below ``loaded.base``, and beyond it where the log begins later.
    """

    __slots__ = ("_acked_behind", "_done_starts", "count", "first", "last", "loaded", "next_done", "position")

    def __init__(self, loaded: CommitMap, start: int) -> None:
        self.loaded = loaded
        self.position = start
        """The next offset to read."""
        self.first: Item | None = None
        self.last: Item | None = None
        self.count = 0
        self._acked_behind: dict[int, Item] = {}  # by offset, those that an ack lies behind, before the next one
        self._done_starts = iter([first for first, _ in loaded.done_from(start)])
        self.next_done = next(self._done_starts, _NEVER)
        """Where the next run begins that the loaded map says is done: `pass_over` it before adding anything beyond."""

    @property
    def base(self) -> int:
        """The lowest offset that is not done."""
        return self.position if self.first is None else self.first.offset

    @property
    def splits(self) -> int:
        """How many pairs of runs a claim has once the loaded map is read to its end. One more for each ack, at most."""
        return len(self._acked_behind)

    # ---------------------------------------------------------------- keeping the list

    def append(self, item: Item) -> None:
        """A message that is the newest of its key. Its offset is beyond all others."""
        last = self.last
        item.before, item.after = last, None
        if last is None:
            self.first = item
        else:
            last.after = item
        self.last = item
        self.count += 1

    def pass_over(self, offset: int) -> int:
        """Reading has come to this offset, and so to, or past, a run that was done: its records may be gone by now.

        Returns ``next_done`` as it is now.
        """
        if self.last is not None:
            self._acked_behind[self.last.offset] = self.last
        while self.next_done <= offset:
            self.next_done = next(self._done_starts, _NEVER)
        return self.next_done

    def remove(self, item: Item, *, acked: bool) -> None:
        """Take a message out: acked, or superseded and so done in any case."""
        before, after = item.before, item.after
        if after is None:
            self.last = before
        else:
            after.before = before
        if item.offset in self._acked_behind:
            del self._acked_behind[item.offset]
            acked = True
        if before is None:
            self.first = after
        else:
            before.after = after
            if acked:
                self._acked_behind[before.offset] = before
        item.before = item.after = None
        self.count -= 1

    def renew(self, item: Item, offset: int) -> None:
        """Let a message be the newer one of its key, which lies beyond all others, and itself superseded."""
        before, after, last = item.before, item.after, self.last
        marked = self._acked_behind.pop(item.offset, None) is not None
        if after is not None and last is not None:  # else it is the last one, and stays that
            after.before = before
            if before is None:
                self.first = after
            else:
                before.after = after
            last.after = item
            item.before, item.after = last, None
            self.last = item
        if marked and before is not None:
            self._acked_behind[before.offset] = before
        item.offset = offset

    def replace(self, item: Item, twin: Item) -> None:
        """Put another handle of the same message in its place."""
        twin.before, twin.after = item.before, item.after
        if twin.before is None:
            self.first = twin
        else:
            twin.before.after = twin
        if twin.after is None:
            self.last = twin
        else:
            twin.after.before = twin
        if item.offset in self._acked_behind:
            self._acked_behind[item.offset] = twin
        item.before = item.after = None

    def clear(self) -> None:
        """Let go of all, with no cycle of references left behind."""
        item = self.first
        while item is not None:
            following = item.after
            item.before = item.after = None
            item = following
        self.first = self.last = None
        self.count = 0
        self._acked_behind.clear()

    def __iter__(self) -> Iterator[Item]:
        item = self.first
        while item is not None:
            yield item
            item = item.after

    # ---------------------------------------------------------------- what a commit may say

    def claim(self, leaving: Collection[Item] = ()) -> tuple[int, tuple[int, ...]]:
        """The base and the runs of a truthful commit of now; ``leaving``, some of these messages, count as acked."""
        behind = self._acked_behind
        if leaving:
            last_to_stay = (item.before for item in leaving if item.before not in leaving)
            behind = behind | {item.offset: item for item in last_to_stay if item is not None}
        done: list[tuple[int, int]] = []
        for offset in sorted(behind):
            if done and offset < done[-1][1]:
                continue  # everything from the one before up to there leaves, and walking it again takes long
            after = _skip(behind[offset].after, leaving)
            done.append((offset + 1, self.position if after is None else after.offset))
        if self.position < self.loaded.end:  # what of it has not been read yet still holds
            done += self.loaded.done_from(self.position)
        first = _skip(self.first, leaving)
        return _runs(self.position if first is None else first.offset, done)


def _skip(item: Item | None, leaving: Collection[Item]) -> Item | None:
    while item is not None and item in leaving:
        item = item.after
    return item


def _runs(base: int, done: Iterable[tuple[int, int]]) -> tuple[int, tuple[int, ...]]:
    """The base and the lengths of runs, pending and done in turn, from done ranges in ascending order."""
    runs: list[int] = []
    at = base
    for start, end in done:
        if start > at:
            runs += (start - at, end - start)
        elif runs:
            runs[-1] += end - at
        else:
            base = end
        at = end
    return base, tuple(runs)
