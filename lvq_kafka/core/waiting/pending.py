"""The messages of one partition that are not done, and the claim that a commit may make.

A commit states for every offset below its end whether it is done. Acked messages are done, and so is everything that
cannot be delivered: superseded values, deletes, gaps. So a gap never splits a run of pending offsets; only an ack does.
Messages that are not done form a list in offset order, and some of them are marked as having an ack between them and
the next. That is the whole state: every operation takes constant time, and acks take no room, however many there are
above a message that is held for long.

Queues in place also remember places (R4), and rings and paging count messages (R12).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, Protocol

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.records import RawHeaders
from lvq_kafka.core.queue.ranking import Rank
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled, LockLost

__all__ = ["Deletion", "Item", "KeyPlace", "Meter", "PendingList", "PlacedPendingList", "SizeMeter"]

_AVAILABLE = MessageState.AVAILABLE
_OFFSET = attrgetter("offset")

_NEVER = 1 << 63  # beyond all offsets


class Item:
    """A message in the ledger, and its holder's handle. A handle allows one settlement."""

    __slots__ = (
        "after",
        "before",
        "beyond",
        "deliveries",
        "due",
        "expires",
        "generation",
        "group",
        "headers",
        "key",
        "lane",
        "offset",
        "partition",
        "rank",
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
        headers: RawHeaders,
        slot: int,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.lane: bytes | int = offset if key is None else key
        """The unit of conflation and exclusive work: the key, or the offset if nothing replaces the message.

        Nothing does if it has no key (R1), or its queue is a standard one (R35).
        """
        self.slot = slot
        """Its place in the queue, comparable over all partitions of a ledger."""
        self.deliveries = 0
        """The number of deliveries, including the current one, as far as known."""
        self.redelivered = False
        """True if it was, or may have been, handed out before the current delivery."""
        self.reserved = False
        """True while it is set aside. The delivery counts only once a holder receives it."""
        self.due: float | None = None
        """The end of the holder's time or, for a delayed message, of the delay."""
        self.state = _AVAILABLE
        self.rank: Rank
        """Its place in the order of ranks, lowest first. Only in a ranked queue (R20)."""
        self.beyond: bool
        """Whether it waits beyond the window of its partition. Only in a ranked queue."""
        self.generation: int
        """The assignment under which it was handed out, as numbered by `Ledger.assign`."""
        self.expires: int
        """The last moment at which it counts, in ms since the epoch. Only in a queue with a TTL."""
        self.group: Any
        """The group in which it waits or is in work, as `lvq_kafka.core.waiting.grouped_queue` has it; None if in none.

        Only in a queue with groups, once it was ready.
        """
        self.before: Item | None
        self.after: Item | None

    @property
    def stands_alone(self) -> bool:
        """True if no other message can replace it."""
        return isinstance(self.lane, int)

    @property
    def delivered(self) -> int:
        """The number of times it reached a holder, as far as known."""
        return self.deliveries - self.reserved

    def again(self) -> Item:
        """Return a new handle to the same message."""
        twin = type(self)(self.partition, self.offset, self.timestamp, self.key, self.value, self.headers, self.slot)
        twin.lane = self.lane
        if hasattr(self, "rank"):
            twin.rank, twin.beyond = self.rank, False
        twin.deliveries = self.delivered
        twin.redelivered = self.redelivered or not self.reserved
        return twin

    def refuse(self) -> NoReturn:
        """Raise the error for a refused handle.

        Raises:
            AlreadySettled: the handle has been used.
            LockLost: the partition was revoked, or the time to settle ran out.
        """
        where = f"The message at offset {self.offset} of partition {self.partition}"
        if self.state is MessageState.LOST:
            raise LockLost(
                f"{where} is no longer held: its partition was revoked, or its lock timed out.",
                hint="The partition's current owner gets the message, unless its acknowledgement was committed.",
            )
        raise AlreadySettled(f"{where} cannot be settled: this handle is {self.state}.")

    def __repr__(self) -> str:
        return f"<Item {self.partition}/{self.offset} {quoted(self.key)}, {self.state}>"


class Deletion(Item):
    """A scheduled delete. It has no value, and is never handed out."""

    __slots__ = ()


class KeyPlace(Item):
    """The record of a replaced value that gives its key a place (R4).

    It is pending as long as the newest value is, so that everyone who reads from the base finds it again.
    """

    __slots__ = ("message",)

    message: Item
    """The newest value."""

    def __init__(self, of: Item) -> None:
        super().__init__(of.partition, of.offset, of.timestamp, of.key, b"", None, of.slot)
        self.state = MessageState.SUPERSEDED


class Meter(Protocol):
    """A count of pending messages; see `PendingList.meter`."""

    def exclude(self, item: Item) -> None:
        """Stop counting a message, if it counts: it is done, or replaced."""

    def swap(self, item: Item, twin: Item) -> None:
        """Count a message under its new handle, if it counts."""

    def clear(self) -> None:
        """Stop counting: all messages are about to be dropped."""


class SizeMeter:
    """Counts messages, and adds up their sizes. See `Meter`."""

    __slots__ = ("_sizes", "bytes")

    def __init__(self) -> None:
        self._sizes: dict[Item, int] = {}
        self.bytes = 0
        """The sizes of the messages that count."""

    def __len__(self) -> int:
        """Return the number of messages that count."""
        return len(self._sizes)

    def include(self, items: Sequence[Item], sizes: Sequence[int]) -> None:
        """Count messages, of these sizes in bytes, from now on."""
        self._sizes.update(zip(items, sizes))
        self.bytes += sum(sizes)

    def exclude(self, item: Item) -> None:
        """See `Meter.exclude`."""
        self.bytes -= self._sizes.pop(item, 0)

    def swap(self, item: Item, twin: Item) -> None:
        """See `Meter.swap`."""
        if item in self._sizes:
            self._sizes[twin] = self._sizes.pop(item)

    def clear(self) -> None:
        """See `Meter.clear`."""
        self._sizes.clear()
        self.bytes = 0


class PendingList:
    """The messages of one partition that are not done, by offset.

    Args:
        loaded: the group's last commit. Until its end has been read, it decides which records are done.
        start: the offset to read from: ``loaded.base``, or higher if the log starts above it.
    """

    __slots__ = (
        "_done_starts",
        "acked_behind",
        "count",
        "first",
        "last",
        "loaded",
        "meter",
        "next_done",
        "places",
        "position",
    )  # fmt: skip

    most_splits: ClassVar[int] = 1
    """The most pairs of runs that an ack adds to a claim."""

    def __init__(self, loaded: CommitMap, start: int) -> None:
        self.loaded = loaded
        self.position = start
        """The next offset to read."""
        self.first: Item | None = None
        self.last: Item | None = None
        self.count = 0
        self.acked_behind: set[Item] = set()
        """Messages that are followed by an ack before the next one."""
        self.places: dict[Item, KeyPlace] = {}
        """By message, the place that it took over; see `PlacedPendingList`."""
        self.meter: Meter | None = None
        """The count of some of the messages."""
        self._done_starts = iter([first for first, _ in loaded.done_from(start)])
        self.next_done = next(self._done_starts, _NEVER)
        """The start of the next run that the loaded map calls done.

        Call `pass_over` for it before adding anything beyond.
        """

    @property
    def base(self) -> int:
        """The lowest offset that is not done."""
        return self.position if self.first is None else self.first.offset

    @property
    def lowest(self) -> Item | None:
        """The message whose settlement raises the base."""
        return self.first

    @property
    def splits(self) -> int:
        """The number of pairs of runs in a claim, once the loaded map is read to its end."""
        return len(self.acked_behind)

    # ---------------------------------------------------------------- keeping the list

    def append(self, item: Item) -> None:
        """Append the newest message of a key, at an offset beyond all others."""
        last = self.last
        item.before, item.after = last, None
        if last is None:
            self.first = item
        else:
            last.after = item
        self.last = item
        self.count += 1

    def pass_over(self, offset: int) -> int:
        """Note that reading has reached or passed a done run of the loaded map.

        Its records may have been compacted away. Returns the new ``next_done``.
        """
        if self.last is not None:
            self.acked_behind.add(self.last)
        while self.next_done <= offset:
            self.next_done = next(self._done_starts, _NEVER)
        return self.next_done

    def remove(self, item: Item, *, acked: bool) -> None:
        """Remove a message that was acked, or superseded and therefore done anyway."""
        if self.meter is not None:
            self.meter.exclude(item)
        before, after = item.before, item.after
        if after is None:
            self.last = before
        else:
            after.before = before
        if item in self.acked_behind:
            self.acked_behind.remove(item)
            acked = True
        if before is None:
            self.first = after
        else:
            before.after = after
            if acked:
                self.acked_behind.add(before)
        item.before = item.after = None
        self.count -= 1

    def renew(self, item: Item, offset: int) -> None:
        """Turn a message into the next one of its key, at an offset beyond all others.

        The old one counts as superseded.
        """
        if self.meter is not None:
            self.meter.exclude(item)
        before, after, last = item.before, item.after, self.last
        marked = item in self.acked_behind
        if marked:
            self.acked_behind.remove(item)
        if after is not None and last is not None:  # otherwise it is the last one, and stays last
            after.before = before
            if before is None:
                self.first = after
            else:
                before.after = after
            last.after = item
            item.before, item.after = last, None
            self.last = item
        if marked and before is not None:
            self.acked_behind.add(before)
        item.offset = offset

    def replace(self, item: Item, twin: Item) -> None:
        """Replace the handle of a message by another one."""
        if self.meter is not None:
            self.meter.swap(item, twin)
        twin.before, twin.after = item.before, item.after
        if twin.before is None:
            self.first = twin
        else:
            twin.before.after = twin
        if twin.after is None:
            self.last = twin
        else:
            twin.after.before = twin
        if item in self.acked_behind:
            self.acked_behind.remove(item)
            self.acked_behind.add(twin)
        item.before = item.after = None

    def clear(self) -> None:
        """Drop all messages without leaving reference cycles."""
        if self.meter is not None:
            self.meter.clear()
        item = self.first
        while item is not None:
            following = item.after
            item.before = item.after = None
            item = following
        self.first = self.last = None
        self.count = 0
        self.acked_behind.clear()

    def __iter__(self) -> Iterator[Item]:
        item = self.first
        while item is not None:
            yield item
            item = item.after

    def since(self, offset: int) -> list[Item]:
        """Return the pending messages and places from an offset on, in log order."""
        found: list[Item] = []
        item = self.last
        while item is not None and item.offset >= offset:
            found.append(item)
            item = item.before
        found.reverse()
        return found

    # ---------------------------------------------------------------- claiming

    def claim(self, leaving: Collection[Item] = ()) -> tuple[int, tuple[int, ...]]:
        """Return the base and the runs of a truthful commit.

        The messages in ``leaving`` count as acked.
        """
        behind = self.acked_behind
        if leaving:
            last_to_stay = (item.before for item in leaving if item.before not in leaving)
            behind = behind | {item for item in last_to_stay if item is not None}
        done: list[tuple[int, int]] = []
        for item in sorted(behind, key=_OFFSET):
            if done and item.offset < done[-1][1]:
                continue  # all in between is leaving, and walking it again is slow
            after = _skip(item.after, leaving)
            done.append((item.offset + 1, self.position if after is None else after.offset))
        if self.position < self.loaded.end:  # the part that has not been read yet still holds
            done += self.loaded.done_from(self.position)
        first = _skip(self.first, leaving)
        return _runs(self.position if first is None else first.offset, done)


class PlacedPendingList(PendingList):
    """A pending list that remembers the places of messages which have replaced others (R4)."""

    __slots__ = ()

    most_splits = 2  # where the message is, and where its place is

    def pass_place(self, old: Item, item: Item) -> None:
        """Give the place of a message in the list to the one that is about to replace it."""
        self._give(item, self.places.pop(old) if old in self.places else self._mark(old))

    def _give(self, item: Item, place: KeyPlace) -> None:
        self.places[item] = place
        place.message = item

    def _mark(self, item: Item) -> KeyPlace:
        """Put a place where a message is, before it."""
        place, before = KeyPlace(item), item.before
        place.before, place.after = before, item
        item.before = place
        if before is None:
            self.first = place
        else:
            before.after = place
        return place

    def forget_places(self) -> None:
        """Forget all places: from now on, a key is where its newest value is."""
        places = list(self.places.values())
        self.places.clear()
        for place in places:
            self._remove_place(place, acked=False)

    def _remove_place(self, place: KeyPlace, *, acked: bool) -> None:
        PendingList.remove(self, place, acked=acked)  # for a place is not a message
        self.count += 1

    def remove(self, item: Item, *, acked: bool) -> None:
        """See `PendingList.remove`. Removes its place, too."""
        place = self.places.pop(item, None)
        super().remove(item, acked=acked)
        if place is not None:
            self._remove_place(place, acked=acked)  # as the claim of a transaction has it

    def renew(self, item: Item, offset: int) -> None:
        """See `PendingList.renew`. It keeps its place."""
        if item not in self.places:
            self._give(item, self._mark(item))
        super().renew(item, offset)

    def replace(self, item: Item, twin: Item) -> None:
        """See `PendingList.replace`."""
        super().replace(item, twin)
        if item in self.places:
            self._give(twin, self.places.pop(item))

    def clear(self) -> None:
        """See `PendingList.clear`."""
        super().clear()
        self.places.clear()

    def __iter__(self) -> Iterator[Item]:
        return (item for item in super().__iter__() if not isinstance(item, KeyPlace))

    @property
    def lowest(self) -> Item | None:
        """See `PendingList.lowest`."""
        first = self.first
        return first.message if isinstance(first, KeyPlace) else first

    def claim(self, leaving: Collection[Item] = ()) -> tuple[int, tuple[int, ...]]:
        """See `PendingList.claim`."""
        places = {self.places[item] for item in leaving if item in self.places}
        return super().claim({*leaving, *places} if places else leaving)


def _skip(item: Item | None, leaving: Collection[Item]) -> Item | None:
    while item is not None and item in leaving:
        item = item.after
    return item


def _runs(base: int, done: Iterable[tuple[int, int]]) -> tuple[int, tuple[int, ...]]:
    """Convert ascending done ranges to a base and alternating lengths, pending and done."""
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
