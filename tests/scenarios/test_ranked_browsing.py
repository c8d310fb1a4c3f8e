"""Priority and sorted queues of Broker-J's chapter on queue types, as readers see them (R20)."""

from __future__ import annotations

import pytest

from lvq_kafka import TopicSpec
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER
from tests.scenarios.harness import Declare, Queue

both_kinds = pytest.mark.parametrize("conflate", [True, False], ids=["last value", "standard"])


def send(q: Queue, *messages: str, header: str = PRIORITY_HEADER) -> None:
    """Send ``"a=1 @ 9"`` as the value 1 of the key a with the rank 9, and ``"a=1"`` without a rank."""
    for message in messages:
        said, _, rank = message.partition(" @ ")
        q.send(said, **({header: rank} if rank else {}))


@both_kinds
def test_r20_priority_9_comes_first_0_last_and_4_is_the_default(declare: Declare, conflate: bool) -> None:
    q = declare(order="priority", conflate=conflate)
    send(q, "a=a @ 0", "b=b @ 4", "c=c @ 9", "d=d", "e=e @ 5", "f=f @ 3", "g=g @ 9")
    assert q.content() == ["c", "g", "e", "b", "d", "f", "a"]


@both_kinds
def test_r20_the_number_of_priorities_can_be_reduced(declare: Declare, conflate: bool) -> None:
    q = declare(order="priority", priorities=3, conflate=conflate)
    send(q, "a=a @ 0", "b=b @ 9", "c=c @ 4", "d=d @ 5", "e=e @ 3", "f=f @ 2")
    assert q.content() == ["b", "d", "c", "a", "e", "f"]


@both_kinds
def test_r20_sorted_by_text_without_it_first_and_duplicates_in_the_order_of_arrival(
    declare: Declare, conflate: bool
) -> None:
    """As in today's manual of Broker-J; that of 0.24 puts those without the property last."""
    q = declare(order="sorted", conflate=conflate)
    send(q, "a=a @ m", "b=b", "c=c @ a", "d=d @ m", "e=e @ B", "f=f @ 10", "g=g @ 9", "h=h", header=SORT_HEADER)
    assert q.content() == ["b", "h", "f", "g", "e", "c", "a", "d"]


def test_r20_sorted_by_a_property_that_the_queue_names(declare: Declare) -> None:
    q = declare(order="sorted", sort_header="due")
    send(q, "a=a @ 2026-03-01", "b=b @ 2026-01-01", "c=c @ 2026-02-01", header="due")
    assert q.content() == ["b", "c", "a"]


def test_s001_a_new_value_has_the_rank_that_it_says_and_is_the_last_of_it(declare: Declare) -> None:
    q = declare(order="priority")
    send(q, "1=a @ 9", "2=b @ 9", "3=c @ 0", "1=d @ 9", "2=e @ 0", "3=f")
    assert q.content() == ["d", "f", "e"]


def test_s031_after_the_dump_changes_come_as_they_arrive(declare: Declare) -> None:
    q = declare(order="priority")
    send(q, "a=1 @ 1", "b=2 @ 2")
    browser = q.browse()
    assert browser.dump()[0] == ["2", "1"]
    send(q, "c=3 @ 0", "d=4 @ 9", "a=5 @ 9")
    assert browser.drain() == ["3", "4", "5"]
    assert q.content() == ["4", "5", "2", "3"]


def test_r20_ranks_go_across_partitions(declare: Declare) -> None:
    q = declare(order="sorted", spec=TopicSpec(partitions=3))
    send(q, *(f"{number}={number} @ {number * 7 % 10}" for number in range(10)), header=SORT_HEADER)
    assert [int(value) * 7 % 10 for value in q.content()] == list(range(10))


def test_r20_the_order_survives_a_restart(declare: Declare) -> None:
    q = declare(order="priority")
    send(q, "a=1 @ 1", "b=2 @ 9", "c=3")
    q.restart()
    assert q.content() == ["2", "3", "1"]
