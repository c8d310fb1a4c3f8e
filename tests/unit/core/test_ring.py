"""Rings: what is evicted, in which order, and what the commit map says of it (R12)."""

from __future__ import annotations

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.ledger.ring import Oversized
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.rules import new_ledger
from tests.unit.core.queues import Queue


def ring(messages: int | None = None, size: int | None = None) -> Limits:
    return Limits(policy="ring", messages=messages, bytes=size)


def letters(text: str) -> list[tuple[str, str | None]]:
    """Return a record for each letter of a text; a letter in upper case is a delete."""
    return [(letter.lower(), None if letter.isupper() else f"{letter}{at}") for at, letter in enumerate(text)]


def waiting(ledger: Ledger) -> str:
    """Return the keys that wait, in the order of the log."""
    held = {item.offset for item in ledger.assignment.held()}
    part = ledger._partitions[0]
    return "".join(item.key.decode() for item in part.pending if item.key and item.offset not in held)


def count_of(queue: Queue) -> int:
    return queue.ledger.stats.evicted


def test_the_lowest_waiting_messages_make_room_for_what_comes() -> None:
    queue = Queue(*letters("ab"), limits=ring(3))
    queue.send(*letters("cde"))
    assert (waiting(queue.ledger), count_of(queue)) == ("cde", 2)
    assert (queue.base, queue.runs) == (2, ())
    assert [item[1] for item in queue.drain()] == ["0", "1", "2"]


def test_an_update_costs_no_other_key_its_value() -> None:
    queue = Queue(*letters("abc"), limits=ring(3))
    queue.send(*letters("ccbacba"))
    assert (waiting(queue.ledger), count_of(queue)) == ("cba", 0)


def test_an_update_of_a_key_in_work_costs_no_other_key_its_value() -> None:
    queue = Queue(*letters("abc"), limits=ring(3))
    held = queue.take()
    queue.send(*letters("aa"))
    assert (held.state, waiting(queue.ledger), count_of(queue)) == (MessageState.STALE, "bca", 0)


def test_a_delete_makes_room() -> None:
    queue = Queue(*letters("abc"), limits=ring(3))
    queue.send(*letters("Bd"))
    assert (waiting(queue.ledger), count_of(queue)) == ("acd", 0)


def test_nothing_is_evicted_before_the_partition_was_read_to_its_end() -> None:
    queue = Queue(*letters("abcdeBCD"), limits=ring(3))
    assert (waiting(queue.ledger), count_of(queue)) == ("ae", 0)


def test_messages_beyond_the_ring_go_once_the_partition_was_read_to_its_end() -> None:
    queue = Queue(*letters("abcdea"), limits=ring(3))
    assert (waiting(queue.ledger), count_of(queue)) == ("dea", 2)


def test_messages_that_the_commit_calls_done_do_not_count() -> None:
    queue = Queue(*letters("bcde"), limits=ring(3), loaded=CommitMap(0, (1, 2)))
    assert (waiting(queue.ledger), count_of(queue)) == ("be", 0)


def test_messages_in_work_count_and_are_never_evicted() -> None:
    queue = Queue(*letters("abc"), limits=ring(3))
    held = [queue.take(), queue.take()]
    queue.send(*letters("de"))
    assert (waiting(queue.ledger), [item.state for item in held]) == ("e", [MessageState.ACQUIRED] * 2)
    queue.ledger.ack(held[0])
    queue.send(*letters("fg"))
    assert waiting(queue.ledger) == "fg"


def test_the_message_that_came_last_stays_whatever_is_in_work() -> None:
    queue = Queue(*letters("ab"), limits=ring(2))
    held = [queue.take(), queue.take()]
    queue.send(*letters("c"))
    queue.send(*letters("d"))
    assert (waiting(queue.ledger), count_of(queue)) == ("d", 1)
    assert len(held) + 1 == queue.ledger.assignment.outstanding


@pytest.mark.parametrize("way", ["release", "delay", "time out", "abort", "letter"])
def test_a_returned_message_is_evicted_if_the_ring_is_full(way: str) -> None:
    queue = Queue(*letters("ab"), limits=ring(2))
    ledger, held = queue.ledger, [queue.take(10.0), queue.take(90.0)]
    queue.send(*letters("c"))
    if way in ("release", "delay"):
        ledger.release(held[0], 20.0 if way == "delay" else None)
    elif way == "time out":
        ledger.wake(10.0)
    else:
        ledger.leave(held[0])
        ledger.give_back(held[0], 30.0 if way == "letter" else None)
    assert (waiting(ledger), count_of(queue)) == ("c", 1)
    ledger.wake(50.0)
    assert queue.drain() == ["c0"]
    assert ledger.assignment.claim(0) == CommitMap(1, (1, 1), delivered=3)


def test_messages_that_come_back_together_are_judged_one_by_one_in_the_order_of_their_deadlines() -> None:
    queue = Queue(*letters("ab"), limits=ring(2))
    queue.take(20.0)
    queue.take(10.0)
    queue.send(*letters("c"))
    queue.ledger.wake(30.0)
    assert waiting(queue.ledger) == "ac"  # b came back while a was in work


def test_a_returned_message_stays_if_there_is_room() -> None:
    queue = Queue(*letters("abc"), limits=ring(3))
    held = queue.take()
    queue.send(*letters("C"))
    queue.ledger.release(held)
    queue.send(*letters("d"))
    assert (waiting(queue.ledger), count_of(queue)) == ("abd", 0)
    queue.send(*letters("e"))
    assert waiting(queue.ledger) == "bde"


def test_a_returned_message_may_be_evicted_later_and_is_in_no_turn_any_more() -> None:
    queue = Queue(*letters("ab"), limits=ring(2))
    queue.ledger.release(queue.take(), 20.0)
    queue.send(*letters("c"))
    queue.ledger.wake(30.0)
    assert queue.drain() == ["b1", "c0"]


def test_evicted_messages_are_done_in_the_commit_map_above_what_is_in_work() -> None:
    queue = Queue(*letters("abcd"), limits=ring(4))
    held = [queue.take(), queue.take(), queue.take()]
    queue.ledger.ack(held[1])
    queue.send(*letters("efgh"))
    # a and c are in work; b was acked, and d, e, f are evicted
    assert waiting(queue.ledger) == "gh"
    assert (queue.base, queue.runs) == (0, (1, 1, 1, 3))


def test_one_run_between_two_messages_in_work_is_all_the_room_that_evicted_ones_take() -> None:
    queue = Queue(*letters("abcdefghij"), limits=ring(10))
    for item in [queue.take() for _ in range(10)]:
        if item.offset % 3:
            queue.ledger.ack(item)
    held = list(queue.ledger.assignment.held())
    for number in range(200):
        queue.send((f"k{number}", "v"))
    assert len(queue.runs) // 2 <= len(held)


@pytest.mark.parametrize("acked", [0, 1, 2])
def test_an_evicted_and_committed_message_does_not_come_back_though_the_queue_has_become_shorter(acked: int) -> None:
    queue = Queue(*letters("abc"), limits=ring(3))
    queue.take()
    queue.send(*letters("def"))  # b, c and d go; a is in work
    items = [queue.take(), queue.take()]
    for item in items[:acked]:
        queue.ledger.ack(item)
    claim = queue.ledger.assignment.claim(0)
    heir = Queue(limits=ring(3), loaded=claim)
    heir.end = 0
    heir.send(*letters("abcdef")[claim.base :])
    assert waiting(heir.ledger) == ("a" + "ef"[acked:])


def test_a_released_message_is_not_evicted_twice() -> None:
    queue = Queue(*letters("a"), limits=ring(1))
    item = queue.take()
    queue.send(*letters("b"))
    queue.ledger.release(item)
    queue.send(*letters("c"))
    assert (waiting(queue.ledger), count_of(queue)) == ("c", 2)


def test_bytes_count_with_keys_values_and_headers() -> None:
    queue = Queue(limits=ring(size=20))
    for offset, key in enumerate((b"a", b"b", b"c")):  # 8 bytes each
        queue.ledger.offer(0, offset, key, b"123", headers=[("h", b"123")])
    assert (waiting(queue.ledger), count_of(queue)) == ("bc", 1)
    queue.ledger.offer(0, 3, b"c", b"1" * 11)
    assert (waiting(queue.ledger), count_of(queue)) == ("bc", 1)
    queue.ledger.offer(0, 4, b"c", b"1" * 12)
    assert (waiting(queue.ledger), count_of(queue)) == ("c", 2)


def test_both_limits_count() -> None:
    queue = Queue(limits=ring(2, 10))
    queue.send(("a", "123"), ("b", "123"), ("c", "1"))
    assert waiting(queue.ledger) == "bc"
    queue.send(("d", "1234567"))
    assert waiting(queue.ledger) == "cd"


def test_a_message_that_is_too_large_costs_no_other_its_place() -> None:
    queue = Queue(*letters("ab"), limits=ring(size=10))
    queue.send(("c", "0123456789"))
    assert (waiting(queue.ledger), count_of(queue)) == ("ab", 1)
    queue.send(("a", "0123456789"))
    assert (waiting(queue.ledger), count_of(queue)) == ("b", 2)
    found = queue.ledger.ring
    assert found is not None
    assert (found.oversized, found.crossings) == (Oversized(0, 2, 11, 10), 0)


def test_a_message_that_is_too_large_and_replaced_before_the_end_is_read_is_not_looked_at() -> None:
    queue = Queue(("a", "0123456789"), ("a", "1"), limits=ring(size=10))
    assert (waiting(queue.ledger), count_of(queue)) == ("a", 0)


@pytest.mark.parametrize(("messages", "partitions", "share"), [(10, 3, 3), (3, 3, 1), (1, 3, 1), (9, 1, 9), (5, 0, 5)])
def test_a_partition_has_an_even_share(messages: int, partitions: int, share: int) -> None:
    queue = Queue(limits=ring(messages), loaded=CommitMap(0, partitions=partitions))
    queue.send(*letters("abcdefghijkl"))
    assert len(waiting(queue.ledger)) == share


def test_the_worst_rank_goes_first_and_of_one_rank_the_lowest() -> None:
    queue = Queue(limits=ring(4), order="priority")
    for offset, priority in enumerate(b"9151150"):
        headers = [(PRIORITY_HEADER, b"%c" % priority)]
        queue.ledger.offer(0, offset, b"%c" % (ord("a") + offset), b"v", headers=headers)
    # beyond four, b and d (of rank 1) go before c and f (of rank 5), and g came last
    assert (waiting(queue.ledger), count_of(queue)) == ("acfg", 3)
    queue.ledger.offer(0, 7, b"h", b"v")
    assert waiting(queue.ledger) == "acfh"


def test_in_a_sorted_queue_the_last_text_goes_first() -> None:
    queue = Queue(limits=ring(3), order="sorted", sort_header="by")
    for offset, text in enumerate((b"b", b"c", b"bb", None, b"a")):
        queue.ledger.offer(0, offset, b"%d" % offset, b"v", headers=None if text is None else [("by", text)])
    assert waiting(queue.ledger) == "034"


def test_in_place_the_offset_decides_and_not_the_turn() -> None:
    queue = Queue(*letters("abca"), order="in-place", limits=ring(3))
    queue.send(*letters("d"))
    assert waiting(queue.ledger) == "cad"
    assert queue.drain() == ["a3", "c2", "d0"]


def test_a_standard_queue_keeps_its_newest_messages() -> None:
    queue = Queue(*letters("aaaa"), conflate=False, limits=ring(3))
    assert (waiting(queue.ledger), count_of(queue)) == ("aaa", 1)
    queue.send(*letters("bb"))
    assert waiting(queue.ledger) == "abb"


def test_a_standard_queue_hands_nothing_out_that_may_have_no_room() -> None:
    ledger = new_ledger(conflate=False, limits=ring(2))
    ledger.assign(0, CommitMap(0), 4)
    for offset in range(3):
        ledger.offer(0, offset, b"a", b"%d" % offset)
        assert ledger.acquire() is None
    ledger.offer(0, 3, b"a", b"3")
    ledger.advance({0: 4})
    item = ledger.acquire()
    assert item is not None
    assert item.value == b"2"


def test_the_keys_of_messages_in_a_standard_queue_count_too() -> None:
    queue = Queue(conflate=False, limits=ring(size=10))
    queue.send(("key", "12"), ("key", "12"), ("key", "12"))
    assert count_of(queue) == 1


def scheduled_for(queue: Queue, key: str, due: int) -> None:
    queue.ledger.offer(0, queue.end, key.encode(), b"v", headers=[(NOT_BEFORE_HEADER, b"%d" % due)])
    queue.end += 1


def test_a_scheduled_message_does_not_count_until_it_is_due() -> None:
    queue = Queue(*letters("ab"), limits=ring(2), max_delay=100)
    scheduled_for(queue, "c", 50_000)
    scheduled_for(queue, "b", 60_000)
    assert (waiting(queue.ledger), count_of(queue)) == ("abcb", 0)
    queue.ledger.pass_time(50.0)
    assert (waiting(queue.ledger), count_of(queue)) == ("bcb", 1)
    queue.ledger.pass_time(60.0)
    assert (waiting(queue.ledger), count_of(queue)) == ("cb", 1)


def test_a_due_message_stays_as_the_one_that_came_last() -> None:
    queue = Queue(limits=ring(1), max_delay=100)
    scheduled_for(queue, "a", 50_000)
    queue.send(*letters("b"))
    queue.ledger.pass_time(50.0)
    assert waiting(queue.ledger) == "a"


@pytest.mark.parametrize("kept", [False, True])
def test_expired_messages_do_not_count(kept: bool) -> None:
    ledger = new_ledger(limits=ring(2), ttl=Ttl(default=70), expiry_topic="letters" if kept else None)
    ledger.assign(0, CommitMap(0), 0)
    for offset, key in enumerate((b"a", b"b")):
        ledger.offer(0, offset, key, b"v")
    ledger.pass_time(80.0)
    for offset, key in enumerate((b"c", b"d"), start=2):
        ledger.offer(0, offset, key, b"v", timestamp=80_000)
    assert (ledger.stats.expired, ledger.stats.evicted) == (2, 0)
    ledger.offer(0, 4, b"e", b"v")  # it has expired already
    assert (ledger.stats.expired, ledger.stats.evicted) == (3, 0)


def test_a_message_that_expires_while_it_is_set_aside_costs_no_other_its_place() -> None:
    ledger = new_ledger(limits=ring(2), ttl=Ttl(default=70))
    ledger.assign(0, CommitMap(0), 0)
    ledger.offer(0, 0, b"a", b"v")
    reserved = ledger.reserve()
    for offset, key in enumerate((b"b", b"c"), start=1):
        ledger.offer(0, offset, key, b"v", timestamp=60_000)
    assert (waiting(ledger), ledger.stats.evicted) == ("c", 1)
    ledger.pass_time(80.0)
    assert (waiting(ledger), ledger.stats.evicted, ledger.stats.expired) == ("c", 1, 1)
    assert reserved is not None


def test_the_ring_is_crossed_once_until_a_fifth_of_it_was_free() -> None:
    queue = Queue(*letters("abcdefghij"), limits=ring(10))
    found = queue.ledger.ring
    assert found is not None
    crossings = []
    for taken in (0, 1, 1, 3, 0, 0, 1):
        for _ in range(taken):
            queue.ledger.ack(queue.take())
        queue.send(*letters("x"))
        queue.send((f"k{queue.end}", "v"), (f"k{queue.end}'", "v"))
        crossings.append(found.crossings)
    assert crossings[0] == 1
    assert crossings == sorted(crossings)
    assert crossings[-1] < len(crossings)


@pytest.mark.parametrize("options", [{}, {"order": "priority"}])
def test_obsolete_entries_take_no_memory_for_long(options: dict[str, str]) -> None:
    queue = Queue(limits=ring(200), **options)
    for at in range(150):
        queue.send(*((f"k{number}", "v") for number in range(100)), (f"new {at}", "v"))
    (part,) = queue.ledger._partitions[0].features
    assert len(part._order) <= 2 * 200 + 1024 + 101
    assert count_of(queue) == 50


def test_nothing_is_evicted_once_the_partition_is_about_to_go() -> None:
    queue = Queue(*letters("ab"), limits=ring(2))
    held = queue.take()
    queue.ledger.withhold([0])
    queue.send(*letters("cd"))
    queue.ledger.release(held)
    assert count_of(queue) == 0
    queue.ledger.revoke([0])
    queue.ledger.assign(0, CommitMap(0), 0)


def test_an_evicted_message_has_no_handle_that_anybody_could_settle() -> None:
    queue = Queue(*letters("a"), limits=ring(1))
    (item,) = [item for part in queue.ledger._partitions.values() for item in part.pending]
    queue.send(*letters("b"))
    assert isinstance(item, Item)
    assert item.state is MessageState.EVICTED
