"""Section 9: management and counters."""

from __future__ import annotations

from tests.scenarios.harness import PRODUCERS_TIMES, Declare, Queue


def test_s108_what_was_purged_and_is_sent_again_comes_once(q: Queue) -> None:
    q.send("a=m1")
    q.queue.purge()
    assert q.content() == []
    q.send("a=m1")
    c = q.consume()
    assert c.take_and_ack(1) == ["m1"]
    assert c.has_nothing()
    assert c.held == 0


def test_s109_a_message_that_was_taken_out_leaves_nothing_behind(q: Queue) -> None:
    """A message is identified by its key, since each key has only one (R7)."""
    q.send("a=m1")
    assert q.queue.purge(keys=["a"]).messages == 1
    assert (q.queue.stats().depth, q.queue.stats().lag, q.content()) == (0, 0, [])
    q.send("a=m2")
    assert (q.queue.stats().depth, q.content()) == (1, ["m2"])
    c = q.consume()
    assert c.take_and_ack(1) == ["m2"]
    assert c.index_size == 0


def test_s111_the_oldest_message_is_the_oldest_of_those_that_are_left(declare: Declare) -> None:
    q = declare(spec=PRODUCERS_TIMES)
    oldest = []
    for time, message in ((10, "Z=1"), (100, "M=1"), (1000, "Z=2")):
        q.send_at(time, message)
        oldest.append(q.queue.stats().oldest)
    assert oldest == [10, 10, 100]
