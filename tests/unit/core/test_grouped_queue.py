"""The ready queue of a queue with groups against a model that sorts all that waits, with many groups and sessions."""

from __future__ import annotations

import random

import pytest

from lvq_kafka.core.queue.message_groups import GroupMode, Groups
from lvq_kafka.core.waiting import grouped_queue
from lvq_kafka.core.waiting.grouped_queue import GroupedQueue
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.core.waiting.session_pins import SessionPins

SESSIONS = 4


class Model:
    """A grouped queue, and what is in it in the plainest form."""

    def __init__(self, mode: GroupMode) -> None:
        self.queue = GroupedQueue(Groups(mode=mode))
        self.sticky = mode == "sticky"
        self.sessions = [self.queue.open() for _ in range(SESSIONS)]
        self.waiting: dict[int, Item] = {}
        self.places: dict[int, Item] = {}  # those that are not ready
        self.working: dict[Item, SessionPins] = {}
        self.pins: dict[bytes, SessionPins] = {}
        self.slot = 0

    def group(self, item: Item) -> bytes | None:
        name = dict(item.headers or ()).get("lvq-group")
        return name or (None if self.sticky else b"qpid.no-group")

    def add(self, name: bytes | None) -> None:
        item = Item(0, self.slot, 0, None, b"", [] if name is None else [("lvq-group", name)], self.slot)
        self.slot += 1
        self.waiting[item.slot] = item
        self.queue.add(item)

    def remove(self, item: Item) -> None:
        self.queue.remove(item)
        del self.waiting[item.slot]
        self.places.pop(item.slot, None)

    def next_for(self, session: SessionPins) -> Item | None:
        blocked = set[bytes]()
        for slot in sorted(self.waiting):
            item, name = self.waiting[slot], self.group(self.waiting[slot])
            if name is None:
                return item
            if slot in self.places:
                blocked.add(name)
            elif name not in blocked and self.pins.get(name, session) is session:
                return item
        return None

    def pop(self, session: SessionPins) -> Item | None:
        expected = self.next_for(session)
        assert self.queue.serves(session) == (expected is not None)
        item = self.queue.pop(session)
        assert item is expected
        if item is not None:
            del self.waiting[item.slot]
            self.working[item] = session
            if (name := self.group(item)) is not None:
                self.pins[name] = session
        return item

    def settle(self, item: Item, dice: random.Random) -> None:
        del self.working[item]
        name = self.group(item)
        comes_back = dice.random()
        if comes_back < 0.2:
            self.waiting[item.slot] = twin = item.again()
            if comes_back < 0.1 and name is not None:
                self.places[item.slot] = twin
                self.queue.keep_place(twin)
            else:
                self.queue.add(twin)
        if name is not None:
            self.queue.settled(item, item.group)
            self.unpin_if_over(name)

    def end(self, session: SessionPins) -> None:
        self.queue.end(session)
        self.sessions[self.sessions.index(session)] = self.queue.open()
        for name in [name for name, owner in self.pins.items() if owner is session]:
            self.unpin_if_over(name)

    def unpin_if_over(self, name: bytes) -> None:
        in_work = any(self.group(one) == name for one in self.working)
        if not in_work and not (self.sticky and self.pins[name] in self.sessions):
            del self.pins[name]

    def ready(self, item: Item) -> None:
        del self.places[item.slot]
        self.queue.add(item)

    def check(self) -> None:
        groups = {self.group(item) for item in self.waiting.values()} - {None}
        assert (self.queue.waiting, self.queue.pinned) == (len(groups), len(self.pins))
        assert len(self.queue) == len(self.waiting)


@pytest.mark.parametrize("mode", ["sticky", "shared"])
@pytest.mark.parametrize("groups", [3, 40, 100_000])
@pytest.mark.parametrize("seed", range(4))
def test_the_next_message_is_the_first_that_a_session_may_have(
    monkeypatch: pytest.MonkeyPatch, mode: GroupMode, groups: int, seed: int
) -> None:
    monkeypatch.setattr(grouped_queue, "_SPARE", 4)
    dice, model = random.Random(seed), Model(mode)
    for _ in range(1500):
        what = dice.random()
        if what < 0.4 and len(model.waiting) < 150:
            model.add(None if dice.random() < 0.1 else b"%d" % dice.randrange(groups))
        elif what < 0.7:
            model.pop(dice.choice(model.sessions))
        elif what < 0.9 and model.working:
            model.settle(dice.choice(list(model.working)), dice)
        elif what < 0.91:
            model.end(dice.choice(model.sessions))
        elif what < 0.95 and model.places:
            model.ready(dice.choice(list(model.places.values())))
        elif model.waiting:
            model.remove(dice.choice(list(model.waiting.values())))
        model.check()
