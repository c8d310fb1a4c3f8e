"""Scenarios on message groups: S131 to S133 and S137, and what else Broker-J does (R36)."""

from __future__ import annotations

from collections import defaultdict

import pytest

from lvq_kafka import Groups, Message
from lvq_kafka.core.queue.message_groups import GroupMode
from tests.scenarios.harness import KEY, PATIENCE, Declare, Queue, Taking

HEADER = "JMSXGroupID"
both_modes = pytest.mark.parametrize("mode", ["sticky", "shared"])


def grouped(declare: Declare, mode: GroupMode) -> Queue:
    return declare(groups=Groups(header=HEADER, mode=mode))


def send(q: Queue, *messages: str) -> None:
    """Send messages such as ``"1:ONE"``: the value, which is the key, too, and the group."""
    for message in messages:
        value, _, group = message.partition(":")
        q.send(f"{value}={value}", **({HEADER: group} if group else {}))


def two_sessions(q: Queue) -> tuple[Taking, Taking]:
    consumer = q.consume()
    return consumer.session(), consumer.session()


@both_modes
def test_s131_each_group_stays_with_one_consumer_and_is_skipped_by_the_other(declare: Declare, mode: GroupMode) -> None:
    q = grouped(declare, mode)
    send(q, "1:ONE", "2:TWO", "3:ONE", "4:TWO")
    c1, c2 = two_sessions(q)
    first, second = c1.take(), c2.take()
    assert (first.value, second.value) == ("1", "2")
    second.ack()
    fourth = c2.take()
    assert fourth.value == "4"
    first.ack()
    third = c1.take()
    assert third.value == "3"
    for delivery in (third, fourth):
        delivery.ack()
    assert c1.has_nothing()
    assert c2.has_nothing()


@both_modes
def test_s132_when_a_consumer_closes_its_groups_go_to_another(declare: Declare, mode: GroupMode) -> None:
    q = grouped(declare, mode)
    send(q, "1:ONE", "2:ONE", "3:TWO", "4:ONE")
    c1, c2 = two_sessions(q)
    first, third = c1.take(), c2.take()
    assert (first.value, third.value) == ("1", "3")
    third.ack()
    assert c2.has_nothing()
    c1.close()
    assert c2.has_nothing()  # what the closed one holds is not settled yet
    first.ack()
    assert c2.take_all() == ["2", "4"]
    assert c2.has_nothing()


@both_modes
def test_s133_what_a_closing_consumer_releases_comes_first_and_redelivered(declare: Declare, mode: GroupMode) -> None:
    q = grouped(declare, mode)
    send(q, "1:ONE", "2:ONE", "3:TWO", "4:ONE")
    c1, c2 = two_sessions(q)
    first, third = c1.take(), c2.take()
    third.ack()
    assert c2.has_nothing()
    c1.close()
    first.release()
    again = c2.take()
    assert (again.value, again.redelivered) == ("1", True)
    again.ack()
    assert c2.take_all() == ["2", "4"]


def test_s137_more_groups_than_buckets_do_not_get_in_each_others_way(declare: Declare) -> None:
    """If groups shared hash buckets, some of these would wait for each other."""
    q = grouped(declare, "sticky")
    names = [f"g{number}" for number in range(300)]
    with q.queue.producer() as producer:
        for turn in range(2):
            for name in names:
                producer.send(Message(f"{name}/{turn}", headers={KEY: f"{name}/{turn}", HEADER: name}))
        producer.flush(PATIENCE)
    c1, c2 = two_sessions(q)
    c1.settle()
    held = [c1.take() for _ in range(150)]
    assert [delivery.value for delivery in held] == [f"{name}/0" for name in names[:150]]
    # Nobody else gets on with these groups, and all others can.
    others: dict[str, list[str]] = defaultdict(list)
    for value in c2.take_all():
        name, _, turn = value.partition("/")
        others[name].append(turn)
    assert others == {key: ["0", "1"] for key in names[150:]}
    for delivery in held:
        delivery.ack()
    assert c2.has_nothing()
    assert c1.take_all() == [f"{name}/1" for name in names[:150]]


def test_r36_a_sticky_group_stays_with_its_consumer_when_it_is_empty(declare: Declare) -> None:
    """Broker-J's groupAssignmentSurvivesEmpty."""
    q = grouped(declare, "sticky")
    c1, c2 = two_sessions(q)
    send(q, "1:ONE")
    assert c1.take_and_ack(1) == ["1"]
    send(q, "2:ONE")
    assert c2.has_nothing()
    assert c1.take_all() == ["2"]
    c1.close()
    send(q, "3:ONE")
    assert c2.take_all() == ["3"]


def test_r36_a_shared_group_is_free_again_when_it_is_empty(declare: Declare) -> None:
    q = grouped(declare, "shared")
    c1, c2 = two_sessions(q)
    send(q, "1:ONE", "2:ONE", "3:ONE")
    first, second = c1.take(), c1.take()
    first.ack()
    assert c2.has_nothing()
    second.ack()
    third = c2.take()
    assert third.value == "3"
    assert c1.has_nothing()
    third.ack()


def test_r36_a_message_without_a_group_is_for_anyone_where_groups_are_sticky(declare: Declare) -> None:
    q = grouped(declare, "sticky")
    send(q, "1", "2", "3:", "4:ONE")
    c1, c2 = two_sessions(q)
    held = [c1.take(), c2.take(), c1.take(), c2.take()]
    assert [delivery.value for delivery in held] == ["1", "2", "3", "4"]
    for delivery in held:
        delivery.ack()


def test_r36_messages_without_a_group_are_a_group_where_groups_are_shared(declare: Declare) -> None:
    q = declare(groups=Groups(header=HEADER, mode="shared", default="none"))
    send(q, "1", "2", "3:none", "4:ONE")
    c1, c2 = two_sessions(q)
    first = c1.take()
    assert first.value == "1"
    assert c2.take_all() == ["4"]
    first.ack()
    assert c2.take_all() == ["2", "3"]


@both_modes
def test_r36_a_consumer_by_itself_gets_everything_in_the_order_of_the_queue(declare: Declare, mode: GroupMode) -> None:
    q = grouped(declare, mode)
    send(q, "1:ONE", "2:TWO", "3", "4:ONE", "5:TWO", "6")
    c = q.consume()
    assert c.take_all() == ["1", "2", "3", "4", "5", "6"]


@both_modes
def test_r36_a_newer_value_may_be_of_another_group_than_the_one_it_replaces(declare: Declare, mode: GroupMode) -> None:
    q = grouped(declare, mode)
    send(q, "1:ONE", "2:ONE", "3:TWO")
    c1, c2 = two_sessions(q)
    first, third = c1.take(), c2.take()
    q.send("2=2b", **{HEADER: "TWO"})
    q.send("4=4", **{HEADER: "ONE"})
    c1.settle()
    assert c2.take().value == "2b"
    assert c1.take().value == "4"
    first.ack()
    third.ack()


def test_r36_a_restart_ends_all_pins(declare: Declare) -> None:
    q = grouped(declare, "sticky")
    send(q, "1:ONE", "2:ONE", "3:ONE")
    c = q.consume()
    c.session().take()
    q.restart()
    c1, c2 = two_sessions(q)
    assert [c2.take().value, c2.take().value, c2.take().value] == ["1", "2", "3"]
    assert c1.has_nothing()
