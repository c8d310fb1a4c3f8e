"""Section 4: acquire, hold, ack and release. Also S113 of section 9: inspecting a busy queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event

from tests.scenarios.harness import PATIENCE, Declare, Queue


def test_s049_the_ack_of_a_value_does_not_touch_the_newer_one(q: Queue) -> None:
    c = q.consume()
    q.send("a=m1")
    first = c.take()
    q.send("a=m2")
    first.ack()
    with c.take() as second:
        assert (first.value, second.value) == ("m1", "m2")
    assert c.has_nothing()


def test_s050_a_value_that_was_replaced_while_held_does_not_come_back_after_its_holder_left(q: Queue) -> None:
    c = q.consume()
    q.send("a=m1")
    assert c.take().value == "m1"
    q.send("a=m2")
    c.close()
    assert q.consume().take_all() == ["m2"]


def test_s054_values_that_were_replaced_while_held_do_not_come_back_after_their_holder_left(q: Queue) -> None:
    q.send(*(f"{number % 10}={number}" for number in range(200)))
    c = q.consume()
    assert [c.take().value for _ in range(10)] == [str(number) for number in range(190, 200)]
    q.send(*(f"{number % 10}={number}" for number in range(200, 400)))
    c.close()
    assert q.consume().take_all() == [str(number) for number in range(390, 400)]


def test_s056_a_released_message_is_the_next_one_again(q: Queue) -> None:
    """Two holders share the messages of a partition by sharing a consumer, each from its own thread."""
    q.send(*(f"{number}={number}" for number in range(1, 11)))
    c = q.consume()
    one = c.take()
    others = [c.take() for _ in range(9)]
    assert [delivery.value for delivery in (one, *others)] == [str(number) for number in range(1, 11)]
    one.release()
    again = c.take()
    assert (again.value, again.redelivered) == ("1", True)


def test_s057_a_replaced_value_that_is_released_does_not_come_after_the_newer_one(q: Queue) -> None:
    """R6, as in Qpid and Broker-J; in Artemis m1 comes back. By G13, m2 also waits while m1 is held."""
    c = q.consume()
    q.send("a=m1")
    first = c.take()
    q.send("a=m2")
    assert c.has_nothing()
    first.release()
    assert c.take_all() == ["m2"]
    assert c.has_nothing()
    assert c.index_size == 0


def test_s059_the_index_forgets_keys_that_are_done(q: Queue) -> None:
    c = q.consume()
    q.send("a=a1", "b=b1")
    assert c.waiting == 2
    assert c.take_all() == ["a1", "b1"]
    assert (c.waiting, c.held, c.index_size) == (0, 0, 0)
    q.send("a=a2")
    assert c.waiting == 1
    assert c.take_all() == ["a2"]
    assert c.index_size == 0


def test_s060_a_key_that_is_sent_and_taken_at_full_speed_leaves_nothing_behind(q: Queue) -> None:
    """Memory use is flat: the consumer's tables contain only waiting and held messages."""
    c, sends = q.consume(), 100_000

    def send() -> None:
        with q.queue.producer() as producer:
            for number in range(sends):
                producer.put("a", str(number))

    taken: list[int] = []
    sizes: list[int] = []
    with ThreadPoolExecutor() as threads:
        sender = threads.submit(send)
        while not taken or taken[-1] != sends - 1:
            with c.take() as delivery:
                taken.append(int(delivery.value))
                sizes.append(c.index_size)
    sender.result()
    assert all(older < newer for older, newer in pairwise(taken))
    assert max(sizes) <= 12, "two messages of one key, in six tables"
    assert c.has_nothing()
    assert c.index_size == 0


def test_s061_a_holder_that_acks_late_gets_the_first_and_the_last(q: Queue) -> None:
    c = q.consume()
    q.send("a=1")
    first = c.take()
    q.send(*(f"a={number}" for number in range(2, 101)))
    first.ack()
    assert (first.value, c.take_all()) == ("1", ["100"])


def test_s062_a_message_is_chosen_when_it_is_asked_for(q: Queue) -> None:
    c = q.consume()
    q.send("a=m1", "a=m2")
    c.settle()
    assert c.take().value == "m2"


def test_s063_the_last_one_taken_is_the_last_one_of_the_transaction(q: Queue) -> None:
    """Artemis hands out m1 to m5, and m6 to the next consumer. G3 does not specify which values are skipped."""
    c = q.consume()
    with q.transaction() as send:
        send(*(f"a=m{number}" for number in range(1, 7)))
    taken = c.take_all()
    assert taken == sorted(set(taken))
    assert taken[-1] == "m6"
    c.close()
    assert q.consume().has_nothing()


def test_s065_what_is_sent_and_acked_in_turn_comes_once_each(q: Queue) -> None:
    c = q.consume()
    for number in range(6):
        q.send(f"a=m{number}")
        with c.take() as delivery:
            assert delivery.value == f"m{number}"
    assert c.has_nothing()
    assert c.held == 0
    c.close()
    assert q.consume().has_nothing()


def test_s068_a_reader_that_waited_first_does_not_take_the_key_away_from_the_next(declare: Declare) -> None:
    """R13: readers of a non-destructive queue are browsers."""
    q = declare(non_destructive=True)
    b = q.browse()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(b.take)
        q.send("a=v1")
        assert waiting.result(PATIENCE) == "v1"
    b.close()
    q.send("a=v2")
    assert q.browse().take() == "v2"


def test_s069_a_read_of_a_non_destructive_queue_leaves_its_count(declare: Declare) -> None:
    """R13: the reader is a browser. To delete all messages, delete every key."""
    q = declare(non_destructive=True)
    b = q.browse()
    q.send("A=M1")
    assert b.take() == "M1"
    q.send("A=M2")
    assert b.take() == "M2"
    assert len(q.content()) == 1
    b.close()
    assert len(q.content()) == 1
    q.delete("A")
    assert q.content() == []


def test_s071_a_released_value_is_replaced_like_any_other(q: Queue) -> None:
    """R6. By the M4 documentation, an update does not replace a requeued message, and both would come."""
    c = q.consume()
    q.send("a=m1")
    c.take().release()
    q.send("a=m2")
    assert q.content() == ["m2"]
    assert c.take_all() == ["m2"]


def test_s113_a_queue_can_be_looked_at_while_it_is_at_work(q: Queue) -> None:
    """5 000 sends replace the half second of the original."""
    c, view, sends, done = q.consume(), q.view(), 5000, Event()

    def send() -> None:
        with q.queue.producer() as producer:
            for number in range(sends):
                producer.put("a", str(number))

    def look() -> int:
        looks = 0
        while not done.is_set() or not looks:
            looks += 1
            for entry in view.entries():
                assert view.get(entry.key, "0") >= "0"
            assert len(view.snapshot()) <= 1
            assert c.consumer.stats.in_work <= 1
            assert 0 <= q.queue.stats().depth <= 1
        return looks

    with ThreadPoolExecutor() as threads:
        sender, looker = threads.submit(send), threads.submit(look)
        try:
            last = ""
            while last != str(sends - 1):
                with c.take() as delivery:
                    last = delivery.value
        finally:
            done.set()
    sender.result()
    assert looker.result() > 0
    assert c.has_nothing()
