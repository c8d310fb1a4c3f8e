"""The delivery ledger: what a consumer holds, what is in work, and how far its group may commit.

Feed it every record of the assigned partitions in offset order, and it conflates them: of each key only the newest
value waits. It hands messages out, takes the holders' decisions, and says which offset may be committed. It knows no
client, thread or clock, and every step takes constant time.

It moves by the table in `lvq_kafka.core.lifecycle`, and refuses what is not in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lvq_kafka.core.fold import Order
from lvq_kafka.core.handout import BySlot, HandOut
from lvq_kafka.core.lifecycle import TRANSITIONS, Event, State
from lvq_kafka.errors import AlreadySettled, LockLost, StateError

__all__ = ["Item", "Ledger"]


_ON_ACK, _ON_RELEASE, _ON_REJECT = TRANSITIONS[Event.ACK], TRANSITIONS[Event.RELEASE], TRANSITIONS[Event.REJECT]
_ON_ACQUIRE, _ON_SUPERSEDE, _ON_REVOKE = (
    TRANSITIONS[Event.ACQUIRE],
    TRANSITIONS[Event.SUPERSEDE],
    TRANSITIONS[Event.REVOKE],
)
_AVAILABLE = State.AVAILABLE


@dataclass(slots=True, eq=False)
class Item:
    """A message in the ledger, and the handle of whoever holds it: a handle is good for one settlement."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]] | None
    slot: int
    """Its place in the queue, comparable over all partitions of this ledger."""
    deliveries: int = 0
    """How often this ledger has handed it out, the present time included."""
    state: State = _AVAILABLE

    @property
    def lane(self) -> bytes | int:
        """What conflates and what is worked on one at a time: the key; without one, the record by itself (R1)."""
        return self.offset if self.key is None else self.key


@dataclass(slots=True)
class _Partition:
    position: int
    target: int
    open: bool
    """Whether its messages may be handed out: it has been read up to the target, and is not withheld."""
    withheld: bool = False
    outstanding: OrderedDict[int, Item] = field(default_factory=OrderedDict)
    """By offset, ascending: all that a commit must not pass. Not the stale ones: they are dead once settled or lost."""
    waiting: dict[bytes | int, Item] = field(default_factory=dict)
    """By lane, the available message."""
    held: dict[bytes | int, Item] = field(default_factory=dict)
    """By lane, the message in work."""


class Ledger:
    """The messages of the partitions that a consumer is assigned.

    A step that is not allowed raises and leaves everything as it was.

    Args:
        order: where a new value of a waiting key stands (R4): at the tail, or in the place of the one it replaces.
        hand_out: which of the messages that may be handed out is next; by default the one that waits longest.
    """

    def __init__(self, *, order: Order = "tail", hand_out: HandOut[Item] | None = None) -> None:
        self._in_place = order == "in-place"
        self._hand_out: HandOut[Item] = BySlot() if hand_out is None else hand_out
        self._partitions: dict[int, _Partition] = {}
        self._slots = 0
        self._in_work = 0

    # --- partitions -------------------------------------------------------------------------------------------------

    def assign(self, partition: int, base: int, target: int) -> None:
        """Begin with a partition at its committed offset.

        Nothing of it is handed out before it has been read up to ``target``, the end of the partition when it was
        assigned: a value below the end may be superseded by one that the group has consumed already (G12).

        Raises:
            StateError: the partition is assigned already.
        """
        if partition in self._partitions:
            raise StateError(f"Partition {partition} is assigned already.")
        self._partitions[partition] = _Partition(position=base, target=target, open=base >= target)

    def withhold(self, partitions: Collection[int]) -> None:
        """Hand out nothing more of these, because they are about to go. Holders can still settle.

        Raises:
            StateError: one of them is not assigned.
        """
        for part in self._known(partitions):
            part.withheld = True
            if part.open:
                part.open = False
                for item in part.waiting.values():
                    self._hand_out.remove(item)

    def revoke(self, partitions: Collection[int]) -> list[Item]:
        """Forget these partitions. Returns the messages that were in work; their handles are lost.

        Raises:
            StateError: one of them is not assigned.
        """
        self.withhold(partitions)
        lost: list[Item] = []
        for partition in partitions:
            part = self._partitions.pop(partition)
            lost += part.held.values()
            for item in (*part.waiting.values(), *part.held.values()):
                item.state = _ON_REVOKE[item.state]
        self._in_work -= len(lost)
        return lost

    def _known(self, partitions: Collection[int]) -> list[_Partition]:
        missing = sorted(set(partitions) - self._partitions.keys())
        if missing:
            raise StateError(f"Not assigned: partition {', '.join(map(str, missing))}.")
        return [self._partitions[partition] for partition in partitions]

    # --- reading ----------------------------------------------------------------------------------------------------

    def offer(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Take the next record of a partition: it supersedes what there is of its key, and waits. None deletes.

        Raises:
            StateError: the partition is not assigned, or the offset has been read already.
        """
        part = self._partitions.get(partition)
        if part is None or offset < part.position:
            raise StateError(
                f"Partition {partition} is not assigned."
                if part is None
                else f"Offset {offset} of partition {partition} was read before: the next one is {part.position}."
            )
        part.position = offset + 1
        lane = offset if key is None else key
        holder = part.held.get(lane)
        if holder is not None:
            holder.state = _ON_SUPERSEDE[holder.state]
            part.outstanding.pop(holder.offset, None)
        old = part.waiting.pop(lane, None)
        if old is not None:
            old.state = _ON_SUPERSEDE[old.state]
            del part.outstanding[old.offset]
        if old is not None and self._in_place and value is not None:
            slot = old.slot
        else:
            slot = self._slots
            self._slots += 1
            if old is not None:
                self._hand_out.remove(old)
        if value is None:
            return
        item = Item(partition, offset, timestamp, key, value, headers, slot)
        part.outstanding[offset] = item
        part.waiting[lane] = item
        if part.open and holder is None:
            self._hand_out.add(item)

    def advance(self, positions: Mapping[int, int]) -> None:
        """Take over how far partitions have been read; past markers and holes too. A position never moves back.

        Raises:
            StateError: a partition is not assigned.
        """
        for part, position in zip(self._known(positions.keys()), positions.values(), strict=True):
            if position > part.position:
                part.position = position
            if not part.open and not part.withheld and part.position >= part.target:
                part.open = True
                for item in sorted(part.waiting.values(), key=_slot_of):
                    self._hand_out.add(item)

    # --- working ----------------------------------------------------------------------------------------------------

    def acquire(self) -> Item | None:
        """Hand out the next message that may be, or None. It is the caller's alone until it is settled (G9)."""
        item = self._hand_out.take()
        if item is not None:
            lane = item.offset if item.key is None else item.key
            part = self._partitions[item.partition]
            del part.waiting[lane]
            part.held[lane] = item
            item.state = _ON_ACQUIRE[item.state]
            item.deliveries += 1
            self._in_work += 1
        return item

    def ack(self, item: Item) -> None:
        """The message is done: it is removed, and does not touch a newer value of its key (R6).

        Raises:
            AlreadySettled: this handle was settled before.
            LockLost: the partition was revoked since the hand-out.
        """
        self._remove(item, _ON_ACK)

    def reject(self, item: Item) -> None:
        """The message cannot be processed: it is removed as by `ack`.

        Raises:
            AlreadySettled: this handle was settled before.
            LockLost: the partition was revoked since the hand-out.
        """
        self._remove(item, _ON_REJECT)

    def release(self, item: Item) -> None:
        """Give the message back: it is available again in its old place, or dropped if it was superseded (R6, R7).

        Raises:
            AlreadySettled: this handle was settled before.
            LockLost: the partition was revoked since the hand-out.
        """
        self._settle(item, _ON_RELEASE)
        if item.state is State.RELEASED:
            part = self._partitions[item.partition]
            again = Item(
                item.partition, item.offset, item.timestamp, item.key, item.value, item.headers, item.slot,
                item.deliveries,
            )  # fmt: skip
            part.outstanding[item.offset] = part.waiting[item.lane] = again
            if part.open:
                self._hand_out.add(again)

    def _remove(self, item: Item, outcomes: Mapping[State, State]) -> None:
        self._settle(item, outcomes)
        self._partitions[item.partition].outstanding.pop(item.offset, None)

    def _settle(self, item: Item, outcomes: Mapping[State, State]) -> None:
        """End the holder's lock, and let the value of the key that waited for it go ahead."""
        after = outcomes.get(item.state)
        if after is None:
            where = f"The message at offset {item.offset} of partition {item.partition}"
            if item.state is State.LOST:
                raise LockLost(
                    f"{where} is no longer held: its partition was revoked.",
                    hint="Whoever has the partition now gets the message, unless its acknowledgement was committed.",
                )
            raise AlreadySettled(f"{where} cannot be settled: this handle is {item.state}.")
        item.state = after
        self._in_work -= 1
        part = self._partitions[item.partition]
        lane = item.offset if item.key is None else item.key
        del part.held[lane]
        waiting = part.waiting.get(lane)
        if waiting is not None and part.open:
            self._hand_out.add(waiting)

    # --- facts ------------------------------------------------------------------------------------------------------

    def base(self, partition: int) -> int:
        """The offset to commit: of the lowest message that is not done, else the next one to read.

        Everything below is acknowledged, rejected, superseded or deleted, whatever happens to this commit later.

        Raises:
            StateError: the partition is not assigned.
        """
        (part,) = self._known((partition,))
        return next(iter(part.outstanding), part.position)

    def bases(self) -> dict[int, int]:
        """`base` of every assigned partition."""
        return {number: next(iter(part.outstanding), part.position) for number, part in self._partitions.items()}

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read of every assigned partition."""
        return {number: part.position for number, part in self._partitions.items()}

    @property
    def catching_up(self) -> dict[int, int]:
        """The targets of the partitions that have not been read up to them."""
        return {number: part.target for number, part in self._partitions.items() if part.position < part.target}

    @property
    def available(self) -> int:
        """How many messages wait."""
        return sum(len(part.waiting) for part in self._partitions.values())

    @property
    def in_work(self) -> int:
        """How many messages are held."""
        return self._in_work

    @property
    def outstanding(self) -> int:
        """How many messages are not done: those that wait, and the held ones that are still newest."""
        return sum(len(part.outstanding) for part in self._partitions.values())

    def held(self, partitions: Collection[int] | None = None) -> Iterator[Item]:
        """The messages in work, of these partitions or of all."""
        for number, part in self._partitions.items():
            if partitions is None or number in partitions:
                yield from part.held.values()


def _slot_of(item: Item) -> int:
    return item.slot
