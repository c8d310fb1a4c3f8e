"""Section 11: limits whose rest goes to disk (R12), as with FLOW_TO_DISK of Broker-J and PAGE of Artemis."""

from __future__ import annotations

import pytest

from lvq_kafka import Groups, Limits
from lvq_kafka.core.queue.ranking import QueueOrder
from tests.scenarios.harness import Declare

LIMITS = [Limits(messages=2, policy="disk"), Limits(bytes=2000, policy="disk")]


def value(key: str, number: int = 1) -> str:
    return f"{key}{number}".ljust(1000, ".")


def message(key: str, number: int = 1) -> str:
    return f"{key}={value(key, number)}"


@pytest.mark.parametrize("limits", LIMITS)
def test_r12_nothing_is_refused_or_evicted_and_all_comes_in_order(declare: Declare, limits: Limits) -> None:
    q = declare(limits=limits)
    q.send(*(message(key) for key in "abcdef"))
    c = q.consume()
    assert c.waiting == 6
    assert (c.consumer.stats.paged, c.consumer.stats.paged_bytes) == (4, 4000)
    q.send(message("g"), message("c", 2))
    assert c.waiting == 7
    assert c.consumer.stats.paged == 5
    assert c.take_all() == [value(key) for key in "abdefg"] + [value("c", 2)]
    assert (c.consumer.stats.paged, c.consumer.stats.evicted) == (0, 0)


def test_r12_new_content_goes_to_disk_and_what_is_in_memory_stays_there(declare: Declare) -> None:
    q = declare(limits=LIMITS[0])
    c = q.consume()
    q.send(message("a"), message("b"), message("c"))
    assert (c.waiting, c.consumer.stats.paged) == (3, 1)
    assert c.take_and_ack(2) == [value("a"), value("b")]
    q.send(message("d"), message("e"), message("f"))
    assert (c.waiting, c.consumer.stats.paged) == (4, 2)
    assert c.take_all() == [value(key) for key in "cdef"]


def test_r12_a_browser_shows_all_that_waits(declare: Declare) -> None:
    q = declare(limits=LIMITS[0])
    c = q.consume()
    q.send(*(message(key) for key in "abcd"))
    assert c.waiting == 4
    assert q.content() == [value(key) for key in "abcd"]


def test_r12_returned_messages_and_those_left_by_a_restart_are_complete(declare: Declare) -> None:
    q = declare(limits=LIMITS[0])
    q.send(*(message(key) for key in "abcdef"))
    c = q.consume()
    assert c.waiting == 6
    held = [c.take() for _ in range(4)]
    held[1].ack(wait=True, timeout=30)
    held[3].release()
    assert c.take().value == value("d")
    c.close()
    c = q.consume()
    assert sorted(c.take_all()) == [value(key) for key in "acdef"]


@pytest.mark.parametrize("order", ["priority", "sorted"])
@pytest.mark.parametrize("conflate", [True, False])
def test_r12_ranks_and_groups_count_on_disk_as_in_memory(declare: Declare, order: QueueOrder, conflate: bool) -> None:
    q = declare(limits=LIMITS[0], order=order, conflate=conflate, groups=Groups())
    for number, key in enumerate("abcdef"):
        rank = {"priority": f"{number}", "sorted": f"{9 - number}"}[order]
        header = {"priority": "lvq-priority", "sorted": "lvq-sort"}[order]
        q.send(message(key), **{header: rank, "JMSXGroupID": f"{number % 2}"})
    c = q.consume()
    assert c.waiting == 6
    assert c.consumer.stats.paged == 4
    assert c.take_all() == [value(key) for key in "fedcba"]


def test_r12_a_transaction_takes_its_messages_from_disk(declare: Declare) -> None:
    q = declare(limits=LIMITS[1])
    q.send(*(message(key) for key in "abcde"))
    c = q.consume()
    assert c.waiting == 5
    with c.transaction(abort=True) as tx:
        for key in "abcd":
            delivery = c.take(tx)
            assert delivery.value == value(key)
            delivery.ack()
    with c.transaction() as tx:
        for key in "abcd":
            delivery = c.take(tx)
            assert delivery.value == value(key)
            delivery.ack()
    assert c.take_all() == [value("e")]
