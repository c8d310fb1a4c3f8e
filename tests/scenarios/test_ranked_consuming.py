"""Priority and sorted queues of Broker-J's chapter on queue types, as consumers see them (R20), with its prefetch."""

from __future__ import annotations

import pytest

from lvq_kafka import TopicSpec
from lvq_kafka.core.queue.ranking import SORT_HEADER
from tests.scenarios.harness import Declare
from tests.scenarios.test_ranked_browsing import both_kinds, send


@both_kinds
def test_r20_the_best_priority_comes_first_also_if_it_arrives_last(declare: Declare, conflate: bool) -> None:
    q = declare(order="priority", conflate=conflate)
    send(q, "a=a @ 2", "b=b", "c=c @ 2")
    c = q.consume()
    assert c.take_and_ack(1) == ["b"]
    send(q, "d=d @ 9")
    c.settle()
    assert c.take_and_ack(3) == ["d", "a", "c"]


@both_kinds
def test_r20_a_sorted_queue_is_consumed_by_its_text(declare: Declare, conflate: bool) -> None:
    q = declare(order="sorted", conflate=conflate)
    send(q, "a=a @ m", "b=b", "c=c @ a", "d=d @ m", "e=e @ B", header=SORT_HEADER)
    assert q.consume().take_and_ack(5) == ["b", "e", "c", "a", "d"]


@both_kinds
def test_r20_with_three_partitions_one_consumer_compares_all(declare: Declare, conflate: bool) -> None:
    q = declare(order="priority", conflate=conflate, spec=TopicSpec(partitions=3))
    send(q, *(f"{number}={number} @ {number}" for number in range(10)))
    c = q.consume()
    c.settle()
    assert c.take_and_ack(10) == list("9876543210")


@pytest.mark.parametrize(("prefetch", "order"), [(1, "aucd"), (2, "acud")])
def test_r20_a_prefetched_message_comes_before_a_better_one_that_arrives_later(
    declare: Declare, prefetch: int, order: str
) -> None:
    """With a prefetch of 1, the semantics are exact; with more, the order of what is set aside is fixed."""
    q = declare(order="priority")
    send(q, "a=a @ 5", "c=c @ 2", "d=d @ 1")
    c = q.consume(prefetch=prefetch)
    c.settle()
    values = []
    for delivery in c.consumer:
        with delivery:
            values.append(delivery.value)
        if len(values) == 1:
            send(q, "u=u @ 9")
            c.settle()
        if len(values) == len(order):
            break
    assert "".join(values) == order
