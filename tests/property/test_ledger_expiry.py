"""Time in the ledger against a naive model: a list of messages, with the rules applied to each at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER, DueTimes
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER, Ttl
from lvq_kafka.errors import AlreadySettled, LockLost
from tests.effort import examples
from tests.rules import new_ledger

OPTIONS = [None, Ttl(), Ttl(default=0.6), Ttl(maximum=0.9), Ttl(minimum=0.4, default=0.7, maximum=3)]
KEYS = st.sampled_from([b"a", b"a", b"b", b"c", None])
TTLS = st.sampled_from([None, None, b"0", b"1", b"255", b"256", b"800", b"60000", b"soon"])
DELAYS = st.sampled_from([None, None, b"0", b"1", b"200", b"255", b"256", b"700", b"5000", b"soon"])
VALUES = st.sampled_from([b"v", b"v", b"v", None])
RECORDS = st.lists(st.tuples(KEYS, VALUES, TTLS, DELAYS, st.integers(0, 300)), min_size=1, max_size=6)


@dataclass
class Message:
    """A message of the model."""

    record: Record
    alive: bool  # it does not count yet, or is the newest of its key, with a value that is neither acked nor expired
    expires: int
    due: int
    scheduled: bool = False  # it does not count yet
    item: Item | None = None  # its holder's handle
    aside: bool = False  # not received by the holder
    delayed: bool = False
    kept: bool = False  # it has expired, and is done once it was stored elsewhere
    before: Message | None = None  # the one whose place it has

    @property
    def place(self) -> tuple[int, int]:
        """The time from which the record counts that gives it its place, and its offset."""
        return (self.due, self.offset) if self.before is None else self.before.place

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def lane(self) -> bytes | int:
        return self.record.offset if self.record.key is None else self.record.key


class Times(RuleBasedStateMachine):
    """One partition, read and consumed while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Message] = []
        self.now = 1000  # ms

    @initialize(
        ttl=st.sampled_from(OPTIONS),
        max_delay=st.sampled_from([None, 0.7, 60.0]),
        counted=st.booleans(),
        in_place=st.booleans(),
        keeps=st.booleans(),
    )
    def begin(self, ttl: Ttl | None, max_delay: float | None, counted: bool, in_place: bool, keeps: bool) -> None:
        self.keeps = keeps and ttl is not None
        self.expiry_times, self.due_times = ExpiryTimes.of(ttl), DueTimes.of(max_delay)
        order = "in-place" if in_place else "tail"
        self.options: dict[str, Any] = {"order": order, "count_deliveries": counted, "ttl": ttl}
        self.options |= {"expiry_topic": "letters" if self.keeps else None, "max_delay": max_delay}
        self.ledger = new_ledger(**self.options)
        self.ledger.assign(0, CommitMap(0), 0)

    # ---------------------------------------------------------------- the steps

    @rule(records=RECORDS)
    def read(self, records: list[tuple[bytes | None, bytes | None, bytes | None, bytes | None, int]]) -> None:
        messages: list[Message] = []
        judged_at = self.now
        for key, value, ttl, delay, later in records:
            self.now += later
            headers: tuple[tuple[str, bytes], ...] = () if ttl is None else ((TTL_HEADER, ttl),)
            if delay is not None:
                headers += ((NOT_BEFORE_HEADER, b"%d" % (self.now + int(delay)) if delay.isdigit() else delay),)
            record = Record(0, len(self.log), self.now, key, b"v" if key is None else value, headers)
            expires = NEVER if self.expiry_times is None else self.expiry_times.expiry(self.now, headers)
            due = self.now if self.due_times is None else self.due_times.due(self.now, headers)
            message = Message(record, True, expires, due, scheduled=due > max(self.now, judged_at))
            self.log.append(message)
            messages.append(message)
            if not message.scheduled:
                self.count(message)
        self.add(messages)
        self.judge()

    def count(self, message: Message) -> None:
        """Let a message count: it supersedes all below it in its lane."""
        if self.options["order"] == "in-place" and message.record.value is not None:
            waits = [one for one in self.log if one.lane == message.lane and one.alive and not one.scheduled]
            for old in waits:
                gone = old is message or old.item is not None or message.due > old.expires  # R8
                if not gone and old.place < message.place:
                    message.before = old
        for older in self.log[: message.offset]:
            older.alive = older.alive and older.lane != message.lane
        message.alive, message.scheduled = message.record.value is not None, False

    def add(self, messages: list[Message]) -> None:
        self.ledger.add(RecordBatch.of(message.record for message in messages))
        self.ledger.advance({0: len(self.log)})

    @rule(later=st.integers(0, 900))
    def wait(self, later: int) -> None:
        self.now += later
        self.judge()

    def judge(self) -> None:
        """Let time have its effect on both: what is due counts, what waits or is set aside and has expired is gone."""
        self.ledger.pass_time(self.now / 1000)
        for message in sorted(self.log, key=lambda message: (message.due, -message.offset)):
            if message.alive and message.scheduled and message.due <= self.now:
                self.count(message)
                self.expire(message)
        for message in self.log:
            self.expire(message)

    def expire(self, message: Message) -> None:
        if message.expires < self.now and not message.scheduled and (message.item is None or message.aside):
            message.kept = message.kept or (message.alive and self.keeps)
            message.alive, message.item, message.aside = False, None, False

    @rule(aside=st.booleans())
    def take(self, aside: bool) -> None:
        held = {message.lane for message in self.log if message.item is not None}
        ready = [one for one in self.log if one.alive and not one.scheduled and not one.delayed]
        free = [one for one in ready if one.lane not in held]
        item = self.ledger.reserve() if aside else self.ledger.acquire()
        assert (item is None) == (not free)
        if item is not None:
            (message,) = [one for one in free if one.offset == item.offset]
            assert message.expires >= self.now, "R10"
            assert message.due <= self.now, "R11"
            message.item, message.aside = item, aside

    @rule(which=st.integers(0, 9))
    def hand_over(self, which: int) -> None:
        aside = [message for message in self.log if message.aside]
        if aside:
            message = aside[which % len(aside)]
            assert message.item is not None
            self.ledger.hand_over(message.item)
            message.aside = False

    @rule(which=st.integers(0, 9), how=st.sampled_from(["ack", "reject", "release", "delay", "commit", "abort"]))
    def settle(self, which: int, how: str) -> None:
        held = [message for message in self.log if message.item is not None and not message.aside]
        if not held:
            return
        message = held[which % len(held)]
        item = message.item
        assert item is not None
        if how in ("commit", "abort"):
            self.ledger.leave(item)
            self.judge()  # it is still in work, and does not expire
        message.item = None
        if how in ("ack", "reject", "commit"):
            {"ack": self.ledger.ack, "reject": self.ledger.reject, "commit": self.ledger.commit}[how](item)
            message.alive = False
        elif how == "abort":
            self.ledger.give_back(item)
        else:
            self.ledger.release(item, 1e9 if how == "delay" else None)
            message.delayed = how == "delay" and message.alive
        self.judge()

    @rule(most=st.integers(0, 3))
    def bury(self, most: int) -> None:
        """Store what has expired elsewhere."""
        items = self.ledger.pop_expired(most)
        assert [item.offset for item in items] == [message.offset for message in self.log if message.kept][:most]
        for item in items:
            message = self.log[item.offset]
            assert message.kept
            self.ledger.bury_expired(item)
            message.kept = False

    @rule()
    def delays_end(self) -> None:
        self.ledger.wake(2e9)
        for message in self.log:
            message.delayed = False

    @rule()
    def start_over(self) -> None:
        """Lose the partition, and get it back with what was committed last."""
        loaded = self.ledger.assignment.claim(0)
        self.ledger.revoke([0])
        for message in self.log:
            if message.item is not None:
                with pytest.raises((LockLost, AlreadySettled)):
                    self.ledger.ack(message.item)
            message.item, message.aside, message.delayed = None, False, False
            above = self.log[message.offset + 1 :]
            newer = [other for other in above if other.lane == message.lane and not other.scheduled]
            message.alive, message.kept = message.alive or (message.kept and not newer), False
        if self.options["order"] == "in-place":
            self.find_places(loaded)
        self.ledger = new_ledger(**self.options)
        self.ledger.assign(0, loaded, len(self.log))
        self.ledger.pass_time(self.now / 1000)
        self.add(self.log[loaded.base :])
        self.judge()

    def find_places(self, loaded: CommitMap) -> None:
        """Give each key the place that the log and the commit tell the next owner.

        A replaced value that is not claimed as done may give a place, though its key had lost that when it was acked.
        """
        last: dict[bytes | int, Message] = {}
        for message in self.log[loaded.base :]:
            if message.due > self.now:
                continue
            old, done = last.pop(message.lane, None), loaded.done(message.offset)
            message.before = None
            if old is not None and not message.due > old.expires and old.place < message.place:
                message.before = old
            if message.record.value is not None and (not done or message.before is not None):
                last[message.lane] = message

    # ---------------------------------------------------------------- what holds at any time

    @invariant()
    def is_as_the_rule_says(self) -> None:
        if not hasattr(self, "ledger"):
            return
        alive = [message for message in self.log if message.alive]
        scheduled = [message for message in alive if message.scheduled]
        assert not [message for message in self.log if message.scheduled and message.item]
        assert [item.offset for item in self.ledger.assignment.scheduled(0)] == [one.offset for one in scheduled]
        waiting = [message for message in alive if message.item is None and not message.scheduled]
        assert self.ledger.assignment.available == len(waiting)
        left = alive + [message for message in self.log if message.kept]
        assert self.ledger.assignment.outstanding == len(left)
        assert self.ledger.in_work == sum(message.item is not None for message in self.log)
        claim = self.ledger.assignment.claim(0)
        places = [message.place[1] for message in left]
        assert claim.base == min(places, default=len(self.log))
        assert not [message for message in left if claim.done(message.offset)], "I1"
        assert not [place for place in places if claim.done(place)], "R4"


TestTimes = Times.TestCase
TestTimes.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
