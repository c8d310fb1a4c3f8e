"""The line of callers that wait for messages."""

from __future__ import annotations

import pytest

from lvq_kafka.consuming.wait_queue import SessionWaitQueue, Waiter, WaitQueue
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, GroupMode, Groups
from lvq_kafka.core.waiting.session_pins import SessionPins
from tests.rules import new_ledger


class Line:
    """A line, and the waiters that were woken."""

    def __init__(self) -> None:
        self.waiters = WaitQueue()
        self.woken: list[str] = []

    def waiting(self, name: str, most: int = 1) -> Waiter:
        waiter = Waiter(most, lambda: self.woken.append(name))
        self.waiters.wait(waiter)
        return waiter


def test_a_change_wakes_the_first_and_the_next_change_the_second() -> None:
    line = Line()
    for name in "abc":
        line.waiting(name)
    line.waiters.wake_next()
    line.waiters.wake_next()
    assert line.woken == ["a", "b"]


def test_a_caller_that_looked_without_success_keeps_its_place() -> None:
    """News without a message for them, such as new partitions, must not cost them their place."""
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.waiters.wake_next()
    line.waiters.wait(first)
    line.waiters.wake_next()
    line.waiters.wake_next()
    assert line.woken == ["a", "a", "b"]


def test_a_caller_that_was_served_is_no_longer_in_the_line_and_wakes_the_next() -> None:
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.waiters.wake_next()
    line.waiters.serve(first)
    assert (line.woken, line.waiters.wanted) == (["a", "b"], 0)
    line.waiters.leave(first)
    assert line.woken == ["a", "b"]


def test_a_caller_that_leaves_unwoken_is_not_woken() -> None:
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.waiters.leave(first)
    line.waiters.wake_next()
    assert line.woken == ["b"]


def test_a_woken_caller_that_leaves_without_a_look_wakes_the_next() -> None:
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.waiters.wake_next()
    line.waiters.leave(first)
    assert line.woken == ["a", "b"]
    line.waiters.leave(first)
    assert line.woken == ["a", "b"]


def test_one_whose_event_loop_is_closed_is_passed_over() -> None:
    line = Line()

    def closed() -> None:
        raise RuntimeError("Event loop is closed")

    line.waiters.wait(Waiter(1, closed))
    line.waiting("b")
    line.waiters.wake_next()
    assert line.woken == ["b"]


def test_all_are_woken_by_news_for_all() -> None:
    line = Line()
    for name in "abc":
        line.waiting(name, most=2)
    assert line.waiters.wanted == 6
    line.waiters.wake_all()
    assert (line.woken, line.waiters.wanted) == (["a", "b", "c"], 0)
    line.waiters.wake_next()


class Counted(Waiter):
    """A waiter; the class counts how often any of them is asked whether it was woken."""

    asked = 0
    _woken = False

    @property
    def woken(self) -> bool:
        Counted.asked += 1
        return self._woken

    @woken.setter
    def woken(self, woken: bool) -> None:
        self._woken = woken


def test_the_next_one_is_found_in_as_many_steps_however_many_have_been_woken_and_have_not_looked_yet() -> None:
    """As with the tasks of a busy loop, while a thread takes messages without waiting."""

    def steps(number: int) -> float:
        waiters, waiting = WaitQueue(), [Counted(1, lambda: None) for _ in range(number)]
        for waiter in waiting:
            waiters.wait(waiter)
        Counted.asked = 0
        for _ in waiting:
            waiters.serve(None)
        for waiter in waiting:
            waiters.serve(waiter)
        assert not waiters.present
        return Counted.asked / number

    assert steps(500) == pytest.approx(steps(10), rel=0.1)


def test_the_number_of_wanted_messages_is_known_whatever_the_callers_do() -> None:
    line = Line()
    one, two, three = (line.waiting(name, most) for name, most in (("a", 1), ("b", 2), ("c", 4)))
    assert line.waiters.wanted == 7
    line.waiters.wake_next()
    assert line.waiters.wanted == 6
    line.waiters.wait(one)
    line.waiters.wait(one)
    assert line.waiters.wanted == 7
    line.waiters.leave(two)
    line.waiters.leave(two)
    assert line.waiters.wanted == 5
    line.waiters.serve(three)
    assert (line.waiters.wanted, line.woken) == (0, ["a", "a"])
    line.waiters.forget()
    assert (line.waiters.wanted, len(line.waiters.present)) == (0, 0)


@pytest.mark.parametrize("mode", ["sticky", "shared"])
def test_a_message_looks_at_as_many_sessions_however_many_wait(mode: GroupMode) -> None:
    def looks(sessions: int) -> float:
        """Return how often a session is asked whether there is something for it, for each message and its ack."""
        ledger = new_ledger(groups=Groups(mode=mode))
        assert ledger.groups is not None
        ledger.assign(0, CommitMap(0), 0)
        asked: list[SessionPins | None] = []
        waiters = SessionWaitQueue(lambda session: asked.append(session) or ledger.serves(session))  # type: ignore[func-returns-value]
        woken: list[Waiter] = []

        def come(session: SessionPins) -> None:
            waiter = Waiter(1, lambda: woken.append(waiter), session)
            waiters.wait(waiter)

        for _ in range(sessions):
            come(ledger.groups.open())
        asked.clear()
        for offset in range(200):
            ledger.offer(0, offset, b"%d" % offset, b"v", 0, [(GROUP_HEADER, b"%d" % (offset % 150))])
            ledger.advance({0: offset + 1})
            waiters.wake_next()
            (waiter,) = woken
            woken.clear()
            assert waiter.session is not None
            item = ledger.acquire(session=waiter.session)
            assert item is not None
            waiters.serve(waiter)
            ledger.ack(item)
            waiters.wake_next()
            come(waiter.session)
        return len(asked) / 200

    assert looks(1000) <= 1.5 * looks(10)
    assert looks(10_000) <= 1.5 * looks(10)


def test_a_caller_with_a_message_of_its_own_is_woken_once_messages_may_be_taken_again() -> None:
    """As when as many are in work as may be, or the consumer is paused."""
    ledger, woken = new_ledger(groups=Groups()), []
    assert ledger.groups is not None
    ledger.assign(0, CommitMap(0), 0)
    session, may_take = ledger.groups.open(), [True]
    waiters = SessionWaitQueue(lambda session: may_take[0] and ledger.serves(session))
    for offset in range(2):
        ledger.offer(0, offset, b"%d" % offset, b"v", 0, [(GROUP_HEADER, b"group")])
        ledger.advance({0: offset + 1})
        if not offset:
            item = ledger.acquire(session=session)
            assert item is not None
            waiters.wait(Waiter(1, lambda: woken.append(session), session))
            assert not ledger.serves(ledger.groups.open())
    assert not ledger.serves(ledger.groups.open()), "which moves the message to where only its session looks"
    for may_take[0] in (False, False, True):
        assert woken == []
        waiters.wake_next()
    assert woken == [session]
