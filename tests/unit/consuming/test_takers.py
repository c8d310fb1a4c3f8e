"""The line of those who wait for messages."""

from __future__ import annotations

from lvq_kafka.consuming.takers import Taker, Takers


class Line:
    """A line, and who was woken."""

    def __init__(self) -> None:
        self.takers = Takers()
        self.woken: list[str] = []

    def waiting(self, name: str, most: int = 1) -> Taker:
        taker = Taker(most, lambda: self.woken.append(name))
        self.takers.wait(taker)
        return taker


def test_a_change_wakes_the_first_and_the_next_change_the_second() -> None:
    line = Line()
    for name in "abc":
        line.waiting(name)
    line.takers.wake_next()
    line.takers.wake_next()
    assert line.woken == ["a", "b"]


def test_who_looked_in_vain_keeps_their_place() -> None:
    """News that is none for them, as of partitions that came, is no reason to be served after those who came later."""
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.takers.wake_next()
    line.takers.wait(first)
    line.takers.wake_next()
    line.takers.wake_next()
    assert line.woken == ["a", "a", "b"]


def test_who_was_served_is_in_the_line_no_longer_and_passes_it_on() -> None:
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.takers.wake_next()
    line.takers.serve(first)
    assert (line.woken, line.takers.wanted) == (["a", "b"], 0)
    line.takers.leave(first)
    assert line.woken == ["a", "b"]


def test_who_leaves_unwoken_is_not_woken() -> None:
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.takers.leave(first)
    line.takers.wake_next()
    assert line.woken == ["b"]


def test_who_was_woken_and_leaves_without_a_look_passes_it_on() -> None:
    line = Line()
    first = line.waiting("a")
    line.waiting("b")
    line.takers.wake_next()
    line.takers.leave(first)
    assert line.woken == ["a", "b"]
    line.takers.leave(first)
    assert line.woken == ["a", "b"]


def test_one_whose_event_loop_is_closed_is_passed_over() -> None:
    line = Line()

    def closed() -> None:
        raise RuntimeError("Event loop is closed")

    line.takers.wait(Taker(1, closed))
    line.waiting("b")
    line.takers.wake_next()
    assert line.woken == ["b"]


def test_all_are_woken_by_news_for_all() -> None:
    line = Line()
    for name in "abc":
        line.waiting(name, most=2)
    assert line.takers.wanted == 6
    line.takers.wake_all()
    assert (line.woken, line.takers.wanted) == (["a", "b", "c"], 0)
    line.takers.wake_next()
