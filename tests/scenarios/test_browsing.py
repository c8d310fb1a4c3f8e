"""Section 3: browsing. Also S083 and S085 of section 6: transactions as a browser sees them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from lvq_kafka import Entry, LVQError
from lvq_kafka.errors import AlreadySettled, CatchUpTimeout
from tests.scenarios.harness import PATIENCE, Declare, Queue


def test_s031_a_browser_follows_and_a_new_one_begins_with_the_current_values(q: Queue) -> None:
    q.send("a=a1", "b=b1", "a=a2", "a=a3", "c=c1", "c=c2")
    b = q.browse()
    assert b.drain() == ["b1", "a3", "c2"]
    q.send("b=b2")
    assert b.drain() == ["b2"]
    q.send("c=c3", "d=d1")
    assert b.drain() == ["c3", "d1"]
    q.send("b=b3")
    assert b.drain() == ["b3"]
    b.close()
    assert q.browse().drain() == ["a3", "c3", "d1", "b3"]


def test_s032_a_browser_gets_the_newest_of_many_and_then_the_update(declare: Declare) -> None:
    q = declare(non_destructive=True)
    q.send(*(f"{number % 10}={number}" for number in range(400)))
    b = q.browse()
    assert [b.take() for _ in range(10)] == [str(number) for number in range(390, 400)]
    q.send("0=400")
    assert b.take() == "400"


def test_s033_two_browsers_get_the_same_in_the_same_order(declare: Declare) -> None:
    q = declare(non_destructive=True)
    q.send(*(f"{number % 10}={number}" for number in range(400)))
    one, two = q.browse(), q.browse()
    in_step = [(one.take(), two.take()) for _ in range(10)]
    assert in_step == [(str(number), str(number)) for number in range(390, 400)]
    q.send("0=400")
    assert (one.take(), two.take()) == ("400", "400")


def test_s035_an_idle_browser_is_given_only_the_newest_of_what_it_missed(q: Queue) -> None:
    q.send("a=a1")
    b = q.browse()
    assert b.drain() == ["a1"]
    q.send("a=a2", "a=a3", "a=a4")
    assert b.drain() == ["a4"]
    q.send("a=a5", "b=b1", "a=a6")
    assert b.drain() == ["b1", "a6"]


def test_s036_a_browse_neither_removes_nor_reorders(q: Queue) -> None:
    q.send("a=a1", "b=b1")
    assert q.browse().drain() == ["a1", "b1"]
    assert q.consume().take_all() == ["a1", "b1"]


def _run(number: int) -> list[str]:
    return [f"{key}={number}.{at}" for at, key in enumerate(["key1", "key2", "key3", "key1", "last"])]


def test_s037_a_browse_does_not_pin_what_it_has_seen(q: Queue) -> None:
    """G6, as in Qpid since 0.6. In M4 a consumer also gets the first run's four values."""
    q.send(*_run(1))
    assert q.browse().drain() == ["1.1", "1.2", "1.3", "1.4"]
    q.send(*_run(2))
    assert q.consume().take_all() == ["2.1", "2.2", "2.3", "2.4"]


def test_s038_two_browses_see_the_same_and_a_consumer_gets_what_is_newest_then(q: Queue) -> None:
    q.send(*_run(1), *_run(2))
    assert q.browse().drain() == ["2.1", "2.2", "2.3", "2.4"]
    assert q.browse().drain() == ["2.1", "2.2", "2.3", "2.4"]
    q.send(*_run(3))
    assert q.consume().take_all() == ["3.1", "3.2", "3.3", "3.4"]


def test_s041_a_message_is_acquired_once_and_never_after_it_was_replaced(q: Queue) -> None:
    """G9: waiting messages have no handles. Acquiring chooses the next message, so neither a replaced value nor a held
    one can be acquired. A handle is valid for one settlement."""
    q.send("a=1", "b=2", "c=3", "a=4")
    c = q.consume()
    assert c.waiting == 3
    two = c.take()
    assert two.value == "2"
    assert c.waiting == 2
    two.ack()
    with pytest.raises(AlreadySettled):
        two.ack()
    q.send("b=5")
    assert c.waiting == 3
    assert q.browse().drain()[-3:] == ["3", "4", "5"]
    q.send("c=6")
    assert c.waiting == 3
    assert c.take_all() == ["4", "5", "6"]


def test_s042_a_browser_shows_a_held_message_until_it_is_acked(q: Queue) -> None:
    """By G2 and G6, held is not consumed. Qpid and Broker-J hide a held message until it is released."""
    q.send("a=a1", "b=b1")
    c = q.consume()
    held = c.take()
    assert held.value == "a1"
    b = q.browse()
    assert b.drain() == ["a1", "b1"]
    held.release()
    assert b.drain() == []
    assert q.content() == ["a1", "b1"]
    c.take().ack(wait=True, timeout=PATIENCE)
    assert q.content() == ["b1"]


def test_s044_a_dump_under_load_misses_no_key_and_shows_no_older_value_after_a_newer(q: Queue) -> None:
    keys, most = 2000, 20_000
    q.send(*(f"{key}=0" for key in range(keys)))
    enough = Event()

    def write(remainder: int) -> None:
        """Update this writer's half of the keys in rounds. A value is the number of its update."""
        with q.queue.producer() as producer:
            for number in range(1, most):
                if enough.is_set():
                    return
                producer.put((2 * number + remainder) % keys, str(number))

    def note(event: object) -> None:
        if isinstance(event, Entry):
            assert int(event.value) >= seen.get(event.key, -1)
            seen[event.key] = int(event.value)

    seen: dict[str, int] = {}
    with ThreadPoolExecutor() as threads:
        try:
            writers = [threads.submit(write, remainder) for remainder in (0, 1)]
            browser = q.browse().browser
            for event in browser:
                note(event)
                if not isinstance(event, Entry):
                    break
        finally:
            enough.set()
    for writer in writers:
        writer.result()
    assert len(seen) == keys
    for event in browser.drain(PATIENCE):
        note(event)
    assert seen == {key: int(value) for key, value in q.view().items()}


def test_s047_reading_all_that_there_is_settles_nothing(q: Queue) -> None:
    """G6: a browser's entries are not deliveries. There is nothing to ack, and nothing is acked."""
    q.send("a=a1", "b=b1")
    cluster, group = q.venue.cluster, q.queue.definition.group
    before = cluster.groups.committed(group, q.queue.topic), q.queue.stats()
    b = q.browse()
    assert b.drain() == ["a1", "b1"]
    b.close()
    assert (cluster.groups.committed(group, q.queue.topic), q.queue.stats()) == before
    assert q.content() == ["a1", "b1"]
    assert q.consume().take_all() == ["a1", "b1"]


def test_s083_an_aborted_value_is_never_shown_and_the_one_before_it_stays(q: Queue) -> None:
    q.send("a=a1")
    with q.transaction(abort=True) as send:
        send("a=a2")
        assert q.content() == ["a1"]
    assert q.content() == ["a1"]
    assert dict(q.view()) == {"a": "a1"}


def test_s085_the_dump_ends_without_waiting_for_an_open_transaction_and_says_so(q: Queue) -> None:
    """G5: the end of the dump names the partition that the transaction blocks. A view must be complete, so it waits."""
    q.send("a=a1")
    with q.transaction() as send:
        send("b=b1")
        b = q.browse()
        values, end = b.dump()
        assert values == ["a1"]
        assert [shortfall.partition for shortfall in end.blocked] == [0]
        for timeout in (0.2, 2.0, 20.0):  # on a loaded machine, all before the transaction takes longer
            with pytest.raises(CatchUpTimeout) as caught:
                q.view(catch_up_timeout=timeout)
            assert isinstance(caught.value, LVQError)
            if "transaction" in str(caught.value):
                break
        assert "transaction" in str(caught.value)
        assert caught.value.shortfalls[0].blocked
        q.send("c=c1")
        assert b.drain() == []
    assert b.drain() == ["b1", "c1"]
    assert dict(q.view()) == {"a": "a1", "b": "b1", "c": "c1"}
    assert q.browse().dump()[1].blocked == ()
