"""Section 1: conflation, which keeps only the newest value of each key."""

from __future__ import annotations

from lvq_kafka import Message
from tests.scenarios.harness import KEY, PATIENCE, Declare, Queue


def test_s001_a_new_value_goes_to_the_tail(q: Queue) -> None:
    q.send("1=1", "2=2", "3=3", "4=4", "2=2", "1=1")
    assert q.content() == ["3", "4", "2", "1"]


def test_s002_a_browser_gets_the_newest_of_each_key_in_the_order_of_arrival(q: Queue) -> None:
    q.send("a=a1", "b=b1", "a=a2", "a=a3", "c=c1", "c=c2")
    assert q.browse().drain() == ["b1", "a3", "c2"]


def test_s003_values_that_nobody_asked_for_yet_are_replaced_and_counted(q: Queue) -> None:
    """There are no unstarted consumers. One that does not acquire is equivalent, because acquiring chooses (R6)."""
    c, view = q.consume(), q.view()
    q.send("a=m1", "a=m2")
    view.barrier(PATIENCE)
    assert (view.stats.added, view.stats.replaced, len(view)) == (2, 1, 1)
    assert c.waiting == 1
    assert c.take().value == "m2"


def test_s006_the_depth_is_the_number_of_keys_also_with_a_transaction_for_each_message(q: Queue) -> None:
    view = q.view()
    with q.queue.producer(transactional_id=f"{q.name}-each") as producer:
        for number in range(400):
            with producer.transaction(PATIENCE):
                producer.send(Message(str(number), headers={KEY: number % 10}))
    view.barrier(PATIENCE)
    assert len(view) == 10
    assert list(view.values()) == [str(number) for number in range(390, 400)]


def test_s009_a_message_in_two_queues_is_replaced_in_each_by_itself(declare: Declare) -> None:
    q1, q2 = declare("1"), declare("2")
    message = Message("m1", headers={KEY: "a"})
    for q in (q1, q2):
        with q.queue.producer() as producer:
            producer.send(message)
    q1.send("a=m2")
    assert (q1.content(), q2.content()) == (["m2"], ["m1"])
    assert (q1.consume().take().value, q2.consume().take().value) == ("m2", "m1")


def test_s010_held_values_stay_with_their_holder_and_newer_ones_wait(q: Queue) -> None:
    """R6 and G13: held values count (as in Broker-J and Artemis), and no second value of a held key is handed out."""
    q.send("a=1", "b=2", "c=3", "a=4")
    c = q.consume()
    assert c.waiting == 3
    held = [c.take() for _ in range(3)]
    assert [delivery.value for delivery in held] == ["2", "3", "4"]
    q.send("a=5", "b=6", "c=7")
    assert (c.waiting, c.held) == (3, 3)
    assert c.has_nothing()
    for delivery in held:
        delivery.ack()
    assert c.take_all() == ["5", "6", "7"]


def test_s011_the_newest_value_stands_at_the_tail(q: Queue) -> None:
    """R4: the tail is the default."""
    q.send("a=m1", "b=m2", "c=m3", "a=m4")
    assert q.content() == ["m2", "m3", "m4"]
    assert q.consume().take_all() == ["m2", "m3", "m4"]


def test_s011_the_newest_value_keeps_its_place_where_that_was_asked_for(declare: Declare) -> None:
    """R4: ``order="in-place"`` is the rule of M4."""
    q = declare(order="in-place")
    q.send("a=m1", "b=m2", "c=m3", "a=m4")
    assert q.content() == ["m4", "m2", "m3"]
    assert q.consume().take_all() == ["m4", "m2", "m3"]


def test_s014_the_size_is_that_of_the_newest_value_alone(q: Queue) -> None:
    """Neither the queue, nor a consumer, nor an idle browser keeps anything of the previous value."""
    c, b = q.consume(), q.browse()
    q.send("a=m1")
    c.settle()
    size = c.index_size
    q.send("a=" + "x" * 10_240)
    assert (c.waiting, c.held, c.index_size) == (1, 0, size)
    assert (q.queue.stats().depth, q.queue.stats().attempted) == (1, 0)
    assert [len(value) for value in q.content()] == [10_240]
    assert [len(value) for value in b.drain()] == [10_240]


def test_s015_of_large_values_of_one_key_exactly_one_stays(q: Queue) -> None:
    for digit in "12345":
        with q.transaction() as send:
            send("a=" + digit * 300_000)
    assert q.consume().take_all() == ["5" * 300_000]


def test_s016_replaced_values_are_counted(q: Queue) -> None:
    view = q.view()
    q.send("A=1", "B=2", "A=3", "A=4", "B=5")
    view.barrier(PATIENCE)
    stats = view.stats
    assert (stats.replaced, stats.replaced + stats.deleted, len(view)) == (3, 3, 2)
