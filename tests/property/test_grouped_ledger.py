"""A state machine that drives a ledger with groups and a naive model side by side (R36).

The model knows the log, what waits and what is held, and who has which group. It looks at everything each time.

- No group ever has two holders, and a pinned group is served to nobody else.
- Within a group, messages come in the order of the queue.
- Whatever is not pinned elsewhere is handed out; only the first message of its group may be in its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.latest.fold import Order
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.queue.message_groups import GroupMode, Groups
from lvq_kafka.core.waiting.ready_queue import TRIED_OFTEN
from lvq_kafka.core.waiting.session_pins import SessionPins
from tests.effort import examples
from tests.rules import new_ledger

PARTITIONS = (0, 1)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", None, None])
GROUPS = st.sampled_from([b"one", b"one", b"two", b"three", None, b""])
PARTITION = st.sampled_from([0, 0, 1])
NUMBER = st.integers(0, 7)
ENDS = ["ack", "ack", "ack", "reject", "release", "release", "delay", "commit", "abort", "time out"]


@dataclass(eq=False)
class Message:
    partition: int
    offset: int
    lane: bytes | int
    group: bytes | None
    place: int
    deliveries: int = 0
    due: float | None = None


@dataclass(eq=False)
class Pin:
    session: SessionPins
    unsettled: int = 0
    received: bool = False


@dataclass(eq=False)
class Holding:
    item: Item
    message: Message
    pin: Pin | None
    aside: bool
    locked: bool


@dataclass
class Part:
    waiting: dict[bytes | int, Message] = field(default_factory=dict)
    held: dict[bytes | int, Holding] = field(default_factory=dict)
    end: int = 0
    assigned: bool = True


class Grouping(RuleBasedStateMachine):
    """Two partitions, some sessions that come and go."""

    @initialize(
        mode=st.sampled_from(["sticky", "shared"]),
        order=st.sampled_from(["tail", "in-place"]),
        limit=st.sampled_from([None, None, 64, 4095]),
    )
    def begin(self, mode: GroupMode, order: Order, limit: int | None) -> None:
        groups = Groups(mode=mode)
        self.sticky, self.order, self.group_of = mode == "sticky", order, groups.group
        self.bounded = limit is not None
        self.ledger = new_ledger(order=order, groups=groups, limit=limit or 4095, bounded=self.bounded)
        assert self.ledger.groups is not None
        self.groups = self.ledger.groups
        self.parts = {partition: Part() for partition in PARTITIONS}
        self.pins: dict[bytes, Pin] = {}
        self.sessions = [self.groups.open()]
        self.places, self.now = 0, 0.0
        for partition in PARTITIONS:
            self.ledger.assign(partition, CommitMap(0), 0)

    # --- the log ----------------------------------------------------------------------------------------------------

    @rule(partition=PARTITION, records=st.lists(st.tuples(KEYS, GROUPS, st.integers(0, 5)), min_size=1, max_size=6))
    def produce(self, partition: int, records: list[tuple[bytes | None, bytes | None, int]]) -> None:
        part = self.parts[partition]
        if not part.assigned:
            return
        for key, name, dice in records:
            headers = [] if name is None else [("lvq-group", name)]
            value = None if key is not None and dice == 0 else b"%d" % part.end
            self.ledger.offer(partition, part.end, key, value, headers=headers)
            self.read(part, partition, part.end if key is None else key, self.group_of(headers), deletes=value is None)
            part.end += 1
        self.ledger.advance({partition: part.end})

    def read(self, part: Part, partition: int, lane: bytes | int, group: bytes | None, *, deletes: bool) -> None:
        old = part.waiting.pop(lane, None)
        if not deletes:
            place = self.places
            if old is not None and self.order == "in-place":
                place = old.place
            else:
                self.places += 1
            part.waiting[lane] = Message(partition, part.end, lane, group, place)

    # --- sessions ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.sessions) < 3)
    @rule()
    def open(self) -> None:
        self.sessions.append(self.groups.open())

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(who=NUMBER)
    def end(self, who: int) -> None:
        session = self.sessions.pop(who % len(self.sessions))
        self.groups.end(session)
        self.groups.end(session)
        for pin in list(self.pins.values()):
            self.unpin_if_over(pin)

    def unpin_if_over(self, pin: Pin) -> None:
        if not pin.unsettled and (not self.sticky or not pin.received or pin.session not in self.sessions):
            self.pins = {name: one for name, one in self.pins.items() if one is not pin}

    # --- working ----------------------------------------------------------------------------------------------------

    @rule(who=NUMBER, aside=st.booleans(), locked=st.booleans(), times=st.integers(1, 4))
    def hand_out(self, who: int, aside: bool, locked: bool, times: int) -> None:
        session = self.sessions[who % len(self.sessions)]
        for _ in range(times):
            if aside:
                item = self.ledger.reserve(session)
            else:
                item = self.ledger.acquire(self.now + 2 if locked else None, session)
            if item is None:
                self.check_nothing_left(session)
                return
            self.check_order(item, session)
            part = self.parts[item.partition]
            message = part.waiting.pop(item.lane)
            pin = None
            if message.group is not None:
                pin = self.pins.setdefault(message.group, Pin(session))
                assert pin.session is session, "a group has two holders"
                pin.unsettled += 1
            message.deliveries += 1
            part.held[item.lane] = Holding(item, message, pin, aside, locked and not aside)

    def firsts(self, session: SessionPins) -> list[Message]:
        """The messages that a session may get, without regard to the room in the commit map."""
        waiting = sorted((one for part in self.parts.values() for one in part.waiting.values()), key=lambda m: m.place)
        found, seen = [], set[bytes]()
        for message in waiting:
            name = message.group
            if name is not None:
                if name in seen or (name in self.pins and self.pins[name].session is not session):
                    continue
                seen.add(name)
            if self.is_ready(message):
                found.append(message)
        return found

    def is_ready(self, message: Message) -> bool:
        return message.due is None and message.lane not in self.parts[message.partition].held

    def lowest(self, partition: int) -> int:
        part = self.parts[partition]
        current = [one.offset for one in part.waiting.values()]
        current += [one.message.offset for lane, one in part.held.items() if self.is_newest(part, lane, one)]
        return min(current, default=-1)

    def is_newest(self, part: Part, lane: bytes | int, holding: Holding) -> bool:
        return lane not in part.waiting and holding.item.state in {"acquired", "leaving"}

    def check_nothing_left(self, session: SessionPins) -> None:
        left = self.firsts(session)
        if self.bounded:  # the lowest of each partition always has room
            left = [one for one in left if one.offset == self.lowest(one.partition)]
        assert not left, f"not handed out: {left}"
        assert self.bounded or not self.groups.serves(session)

    def check_order(self, item: Item, session: SessionPins) -> None:
        message = self.parts[item.partition].waiting[item.lane]
        firsts = self.firsts(session)
        assert message.offset == item.offset
        if self.bounded and message.offset == self.lowest(item.partition):
            return
        assert message in firsts, "not the next of its group"
        if message.deliveries < TRIED_OFTEN and not self.bounded:
            assert message is next(one for one in firsts if one.deliveries < TRIED_OFTEN)

    @rule(which=NUMBER, how=st.sampled_from(ENDS))
    def settle(self, which: int, how: str) -> None:
        held = [one for part in self.parts.values() for one in part.held.values()]
        if held:
            self.end_one(held[which % len(held)], how)

    @rule(how=st.sampled_from(["ack", "release"]))
    def settle_all(self, how: str) -> None:
        for one in [one for part in self.parts.values() for one in part.held.values()]:
            self.end_one(one, how)

    def end_one(self, holding: Holding, how: str) -> None:
        item, ledger = holding.item, self.ledger
        if how == "time out" and not holding.locked:
            how = "release"
        comes_back = how in {"release", "delay", "abort", "time out"}
        if holding.aside and not comes_back:
            ledger.hand_over(item)
            holding.aside = False
        part = self.parts[item.partition]
        newest = self.is_newest(part, item.lane, holding) and item.state == "acquired"
        if how == "ack":
            ledger.ack(item)
        elif how == "reject":
            ledger.reject(item)
        elif how == "release":
            ledger.release(item)
        elif how == "delay":
            ledger.release(item, self.now + 3)
        elif how == "time out":
            ledger.extend(item, self.now)
            ledger.wake(self.now)
        else:
            ledger.leave(item)
            self.check_pinned(holding)
            (ledger.commit if how == "commit" else ledger.give_back)(item)
        del part.held[item.lane]
        message = holding.message
        message.deliveries -= holding.aside
        if comes_back and newest:
            message.due = self.now + 3 if how == "delay" else None
            part.waiting[item.lane] = message
        self.let_go(holding)

    def check_pinned(self, holding: Holding) -> None:
        """While it is leaving, a message keeps its group."""
        others = [session for session in self.sessions if holding.pin and session is not holding.pin.session]
        for session in others:
            assert all(one.group != holding.message.group for one in self.firsts(session))

    def let_go(self, holding: Holding) -> None:
        pin = holding.pin
        if pin is not None:
            pin.unsettled -= 1
            pin.received |= not holding.aside
            self.unpin_if_over(pin)

    @rule(seconds=st.sampled_from([1, 4]))
    def wait(self, seconds: int) -> None:
        for part in self.parts.values():
            for one in list(part.held.values()):
                if one.locked:
                    self.end_one(one, "time out")
        self.now += seconds
        self.ledger.wake(self.now)
        for part in self.parts.values():
            for message in part.waiting.values():
                if message.due is not None and message.due <= self.now:
                    message.due = None

    # --- the group --------------------------------------------------------------------------------------------------

    @rule(partition=PARTITION, grace=st.booleans())
    def revoke(self, partition: int, grace: bool) -> None:
        part = self.parts[partition]
        if not part.assigned:
            return
        if grace:
            self.ledger.withhold([partition])
            for one in list(part.held.values()):
                if one.aside:
                    self.model_release(part, one)
            part.waiting.clear()
            for one in list(part.held.values())[:1]:
                self.end_one(one, "ack")
            part.waiting.clear()
        self.ledger.end_locks([partition])
        for one in list(part.held.values()):
            self.let_go(one)
        self.ledger.revoke([partition])
        self.parts[partition] = Part(end=part.end, assigned=False)
        if not any(one.assigned for one in self.parts.values()):
            self.pins.clear()

    def model_release(self, part: Part, holding: Holding) -> None:
        del part.held[holding.item.lane]
        self.let_go(holding)

    @rule(partition=PARTITION)
    def assign(self, partition: int) -> None:
        part = self.parts[partition]
        if not part.assigned:
            self.ledger.assign(partition, CommitMap(part.end), part.end)
            self.parts[partition] = Part(end=part.end)

    # --- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "groups"):
            return
        names = {one.group for part in self.parts.values() for one in part.waiting.values() if one.group is not None}
        assert self.groups.waiting == len(names)
        assert self.groups.pinned == len(self.pins)
        assert self.groups.sessions == len(self.sessions)
        kept = [
            one
            for part in self.parts.values()
            for one in part.waiting.values()
            if one.group is not None or self.is_ready(one)
        ]
        assert len(self.groups) == len(kept)
        if not self.bounded:
            for session in self.sessions:
                assert self.groups.serves(session) == bool(self.firsts(session))


TestGrouping = Grouping.TestCase
TestGrouping.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
