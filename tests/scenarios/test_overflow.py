"""Scenarios of queues whose limits producers keep to: reject and block (R12)."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from lvq_kafka import Limits, Receipt
from lvq_kafka.errors import ConfigError, MessageTooLarge, QueueFull
from tests.scenarios.harness import PATIENCE, Declare, Queue
from tests.waiting import eventually

SIZE = 5
"""The size of a message ``"a=a1"``: its key, its value, and its key header."""


def test_s122_an_update_is_no_more_than_there_was(declare: Declare) -> None:
    q = declare(limits=Limits(messages=3, policy="reject"))
    q.send("a=1", "b=2", "c=3", "c=4")
    assert q.content() == ["1", "2", "4"]
    with pytest.raises(QueueFull):
        q.send("d=5")
    assert q.content() == ["1", "2", "4"]


def is_sent(q: Queue, message: str) -> bool:
    try:
        q.send(message)
    except QueueFull:
        return False
    return True


@pytest.mark.parametrize("limits", [{"messages": 1}, {"bytes": SIZE}])
def test_s123_a_message_is_refused_until_there_is_room(declare: Declare, limits: dict[str, int]) -> None:
    q = declare(limits=Limits(policy="reject", **limits))
    q.send("a=m0")
    with pytest.raises(QueueFull):
        q.send("b=m1")
    c = q.consume()
    with c.transaction() as tx:
        delivery = tx.acquire(PATIENCE)
        assert delivery is not None
        assert delivery.value == "m0"
        delivery.ack()
    eventually(lambda: is_sent(q, "b=m1"), PATIENCE)  # a broker commits before all of its partitions know
    assert c.take_all() == ["m1"]


def test_s125_a_limit_of_nothing_and_a_message_beyond_it_are_refused(declare: Declare) -> None:
    with pytest.raises(ConfigError):
        Limits(messages=0, policy="ring")
    for number, policy in enumerate(("ring", "reject", "block")):
        q = declare(str(number), limits=Limits(bytes=SIZE, policy=policy))  # type: ignore[arg-type]
        with pytest.raises(MessageTooLarge):
            q.send("a=toolong")
        q.send("a=a1")
        assert q.content() == ["a1"]


def test_s128_a_limit_alone_keeps_all(declare: Declare) -> None:
    q = declare(limits=Limits(messages=1, bytes=SIZE, policy="none"))
    q.send("a=a1", "b=b1", "c=c1")
    assert q.content() == ["a1", "b1", "c1"]


def test_s129_a_producer_is_blocked_until_the_queue_has_shrunk(declare: Declare) -> None:
    """Room for 3.5 messages: the fourth crosses the limit, and is the last. Room again at 2."""
    q = declare(limits=Limits(bytes=7 * SIZE // 2, policy="block", resume=0.6))
    c = q.consume()
    q.send("a=a1", "b=b1", "c=c1", "d=d1")
    with ThreadPoolExecutor() as threads, q.queue.producer() as producer:
        fifth: Future[Receipt] = threads.submit(producer.put, "e", "e1")
        for depth in (3, 2):
            assert not fifth.done()
            assert q.queue.stats().depth == depth + 1
            c.take().ack(wait=True)
        fifth.result(PATIENCE).result(PATIENCE)
    assert q.queue.stats().depth == 3


def test_s122_producers_that_race_exceed_a_limit_by_what_the_others_have_under_way(declare: Declare) -> None:
    limit, racing, each = 50, 4, 40
    q = declare(limits=Limits(messages=limit, policy="reject"))
    start = threading.Barrier(racing)
    stored = []

    def race(number: int) -> None:
        with q.queue.producer() as producer:
            start.wait(PATIENCE)
            for at in range(each):
                try:
                    stored.append(producer.put(f"{number}-{at}", "1").result(PATIENCE))
                except QueueFull:
                    return

    with ThreadPoolExecutor(racing) as threads:
        for racer in [threads.submit(race, number) for number in range(racing)]:
            racer.result()
    depth = q.queue.stats().depth
    assert depth == len(stored)
    # Each waits for its receipt, so it has one message under way. Followers lag for as long as a fetch takes.
    assert limit <= depth
    with q.queue.producer() as producer, pytest.raises(QueueFull):
        producer.put("new", "1")


def test_s122_a_producer_alone_never_exceeds_a_limit(declare: Declare) -> None:
    q = declare(limits=Limits(messages=20, policy="reject"))
    with q.queue.producer() as producer, ExitStack() as refused:
        refused.enter_context(pytest.raises(QueueFull))
        for at in range(40):
            producer.put(str(at), "1")
    eventually(lambda: q.queue.stats().depth == 20, PATIENCE)
