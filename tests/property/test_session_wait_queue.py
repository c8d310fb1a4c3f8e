"""Callers of sessions: whatever happens, nobody waits while there is something that they may get."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.consuming.wait_queue import SessionWaitQueue, Waiter
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, GroupMode, Groups
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.waiting.session_pins import SessionPins
from tests.effort import examples
from tests.rules import new_ledger

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "ack", "ack", "release", "delay", "wake", "come", "come", "end"]),
        st.integers(0, 11),
    ),
    min_size=30,
    max_size=90,
)


@dataclass
class Run:
    mode: GroupMode
    ranked: bool
    bounded: bool
    offset: int = 0
    held: list[Item] = field(default_factory=list)
    woken: list[Waiter] = field(default_factory=list)
    waiting: list[Waiter] = field(default_factory=list)

    def __post_init__(self) -> None:
        order = "priority" if self.ranked else "tail"
        limit = 90 if self.ranked or self.bounded else 4095
        self.ledger = new_ledger(groups=Groups(mode=self.mode), order=order, limit=limit, bounded=self.bounded)
        self.ledger.assign(0, CommitMap(0), 0)
        self.sessions = [self.open() for _ in range(3)]
        self.line = SessionWaitQueue(self.serves)

    def open(self) -> SessionPins:
        assert self.ledger.groups is not None
        return self.ledger.groups.open()

    def serves(self, session: SessionPins | None) -> bool:
        """Return whether a session may get something: nobody does while four messages are held."""
        return len(self.held) < 4 and self.ledger.serves(session)

    def acquire(self, session: SessionPins | None) -> Item | None:
        return self.ledger.acquire(session=session) if len(self.held) < 4 else None

    def send(self, which: int) -> None:
        headers: list[tuple[str, bytes | None]] = [(PRIORITY_HEADER, b"%d" % (which % 3))]
        headers += [(GROUP_HEADER, b"g%d" % (which % 3))] if which % 3 else []
        self.ledger.offer(0, self.offset, b"k%d" % which, b"v", 0, headers)
        self.offset += 1
        self.ledger.advance({0: self.offset})

    def settle(self, step: str, which: int) -> None:
        if self.held:
            item = self.held.pop(which % len(self.held))
            if step == "ack":
                self.ledger.ack(item)
            else:
                self.ledger.release(item, 1.0 if step == "delay" else None)

    def come(self, which: int) -> None:
        """Let a caller look, and wait if no message is ready."""
        session = self.sessions[which % len(self.sessions)]
        waiter = Waiter(1, lambda: self.woken.append(waiter), session)
        item = self.acquire(session)
        if item is None:
            self.waiting.append(waiter)
            self.line.wait(waiter)
        else:
            self.held.append(item)
            self.line.serve(None)

    def end(self, which: int) -> None:
        assert self.ledger.groups is not None
        at = which % len(self.sessions)
        session, self.sessions[at] = self.sessions[at], self.open()
        self.ledger.groups.end(session)
        self.line.wake_session(session)
        self.line.wake_next()

    def look(self) -> None:
        """Let all woken callers look."""
        looks = 0
        while self.woken:
            waiter = self.woken.pop(0)
            looks += 1
            assert looks < 200, "they wake each other without end"
            assert waiter.session is not None
            if waiter.session.ended:
                self.waiting.remove(waiter)
                self.line.leave(waiter)
                continue
            item = self.acquire(waiter.session)
            if item is None:
                self.line.wait(waiter)
            else:
                self.held.append(item)
                self.waiting.remove(waiter)
                self.line.serve(waiter)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("mode", ["sticky", "shared"])
@given(steps=STEPS)
@settings(deadline=None, max_examples=examples(60))
def test_nobody_waits_while_there_is_something_for_them(
    mode: GroupMode, ranked: bool, bounded: bool, steps: list[tuple[str, int]]
) -> None:
    run = Run(mode, ranked, bounded)
    for step, which in steps:
        if step in ("send", "come", "end"):
            getattr(run, step)(which)
        elif step == "wake":
            run.ledger.wake(9.0)
        else:
            run.settle(step, which)
        run.line.wake_next()
        run.look()
        if not (ranked or bounded):
            assert not any(map(run.serves, (waiter.session for waiter in run.waiting)))
    for waiter in run.waiting:
        assert run.acquire(waiter.session) is None
