"""Moving messages to another queue: each message is in one of the two, whatever happens."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest

from lvq_kafka import LastValueQueue, Message, Position, TopicSpec
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import (
    ConfigError,
    DeliveryFailed,
    MissingKey,
    OutcomeUnknown,
    QueueError,
    TransportError,
    Unauthorized,
)
from lvq_kafka.managing.moving import _SoleMember
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import commits, consume, declare, drained, maps, overwrite, put, said


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "a=2", "c=1")
    return queue


@pytest.fixture
def other(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    return declare(memory_cluster, "other")


Queue = LastValueQueue[str]
both_ways = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "at least once"])


@both_ways
def test_the_newest_of_each_key_moves_as_it_is_in_queue_order(
    memory_cluster: MemoryCluster, queue: Queue, other: Queue, atomic: bool
) -> None:
    with queue.producer() as producer:
        producer.send(Message("4", headers=[("x", "1"), ("ticker", "d"), ("x", "2")])).result(5)
    change = queue.move(other, atomic=atomic)
    assert (change.messages, change.without_room) == (4, 0)
    assert (change.before[0].base, change.after[0].base) == (0, 5)
    assert maps(queue) == dict(change.after)
    moved = memory_cluster.records("other")
    assert [(record.key, record.value) for record in moved] == [(b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"d", b"4")]
    assert moved[-1].headers == (("x", b"1"), ("ticker", b"d"), ("x", b"2"))
    assert (drained(queue), drained(other)) == ([], ["1", "2", "1", "4"])


@both_ways
def test_only_some_keys_move_and_what_was_done_stays_done(queue: Queue, other: Queue, atomic: bool) -> None:
    consume(queue, "c")
    assert queue.move(other, keys=["a", "c"], atomic=atomic).messages == 1
    assert (drained(queue), drained(other)) == (["1"], ["2"])


@both_ways
def test_there_it_replaces_what_that_queue_has_for_its_key(queue: Queue, other: Queue, atomic: bool) -> None:
    put(other, "a=9", "z=9")
    queue.move(other, atomic=atomic)
    assert drained(other) == ["9", "1", "2", "1"]


def test_an_empty_queue_has_nothing_to_move(queue: Queue, other: Queue) -> None:
    queue.purge()
    before = commits(queue)
    assert queue.move(other).messages == 0
    assert commits(queue) == before


def test_a_queue_that_is_never_consumed_can_be_moved_to(memory_cluster: MemoryCluster, queue: Queue) -> None:
    pictures = declare(memory_cluster, "pictures", non_destructive=True)
    queue.move(pictures)
    assert pictures.stats().depth == 3


def test_the_batches_of_a_move_together_hold_all_of_it(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.managing.moving._BATCH", 7)
    queue, other = declare(memory_cluster, spec=TopicSpec(partitions=3)), declare(memory_cluster, "other")
    put(queue, *(f"{number}={number}" for number in range(50)))
    assert queue.move(other, keys=range(0, 50, 2)).messages == 25
    assert sorted(map(int, drained(queue))) == list(range(1, 50, 2))
    assert other.move(declare(memory_cluster, "third")).messages == 25
    assert maps(other)[0].sequence == 4  # each batch is a commit of its own


class TestKeys:
    def test_another_key_header_names_the_key(self, memory_cluster: MemoryCluster, queue: Queue) -> None:
        with queue.producer() as producer:
            producer.send(Message("by city", headers={"ticker": "d", "city": "Rome"}))
        cities = declare(memory_cluster, "cities", key_header="city")
        assert queue.move(cities).messages == 4
        *unkeyed, rome = memory_cluster.records("cities")
        assert (rome.key, rome.value) == (b"Rome", b"by city")
        assert all(_is_unkeyed(record) for record in unkeyed)
        assert len({record.key for record in unkeyed}) == 3

    def test_the_record_key_is_the_key_where_no_header_is(self, memory_cluster: MemoryCluster, queue: Queue) -> None:
        plain = declare(memory_cluster, "plain", key_header=None)
        queue.move(plain, keys=["a"])
        assert [record.key for record in memory_cluster.records("plain")] == [b"a"]

    @both_ways
    def test_a_message_without_a_key_is_refused_where_none_is_taken(
        self, memory_cluster: MemoryCluster, queue: Queue, atomic: bool
    ) -> None:
        cities = declare(memory_cluster, "cities", key_header="city", keyless="refuse")
        with pytest.raises(MissingKey, match="prices/0/1 has no key for cities"):
            queue.move(cities, atomic=atomic)
        assert memory_cluster.records("cities") == []
        assert queue.stats().depth == 3

    def test_messages_without_a_key_move_and_have_none(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue
    ) -> None:
        queue.purge()
        with queue.producer() as producer:
            producer.send(Message("one"))
            producer.send(Message("two"))
        queue.move(other)
        moved = memory_cluster.records("other")
        assert [record.value for record in moved] == [b"one", b"two"]
        assert all(_is_unkeyed(record) for record in moved)
        strict = declare(memory_cluster, "strict", keyless="refuse")
        with pytest.raises(MissingKey):
            other.move(strict)


class TestWhereItCannotBe:
    def test_on_one_topic_there_is_nowhere_to_move_to(self, memory_cluster: MemoryCluster, queue: Queue) -> None:
        twin = declare(memory_cluster, "twin", topic="prices")
        with pytest.raises(ConfigError, match="share a topic"):
            queue.move(twin)
        with pytest.raises(ConfigError, match="share a topic"):
            queue.move(queue)

    def test_another_cluster_is_no_matter_of_one_transaction(self, queue: Queue) -> None:
        elsewhere = declare(MemoryCluster())  # with the same name
        with pytest.raises(ConfigError, match="another cluster") as refused:
            queue.move(elsewhere)
        assert refused.value.options == ("atomic",)
        assert queue.move(elsewhere, atomic=False).messages == 3
        assert (drained(queue), drained(elsewhere)) == ([], ["1", "2", "1"])

    def test_messages_that_lie_too_far_apart_are_refused_before_any_has_moved(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lvq_kafka.managing.management.MOST_TEXT", 60)
        put(queue, *(f"{number}=1" for number in range(300)))
        with pytest.raises(QueueError, match="of 150 messages of prices lie too far apart"):
            queue.move(other, keys=Random(7).sample(range(300), 150))
        assert memory_cluster.records("other") == []


class TestWhenItFails:
    def test_in_a_transaction_nothing_has_happened(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue
    ) -> None:
        before = commits(queue)
        for operation in ("append", "send_offsets", "commit_transaction"):
            error = DeliveryFailed if operation == "append" else Unauthorized
            memory_cluster.fail_next(operation, error("No.", code="TOPIC_AUTHORIZATION_FAILED"))
            with pytest.raises(error, match="No") as caught:
                queue.move(other)
            assert caught.value.__notes__ == ["0 of 3 messages had been moved by then."]
            assert (commits(queue), memory_cluster.records("other")) == (before, [])
        assert queue.move(other).messages == 3
        assert drained(other) == ["1", "2", "1"]

    def test_batches_before_have_moved(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lvq_kafka.managing.moving._BATCH", 2)
        begin = memory_cluster.writer

        def writer(**options: Any) -> Any:
            made = begin(**options)
            sent = made.commit_transaction

            def commit(timeout: float | None = None) -> None:
                sent(timeout)
                memory_cluster.fail_next("commit_transaction", TransportError("Fenced.", code="_FENCED"))

            made.commit_transaction = commit  # type: ignore[method-assign]
            return made

        monkeypatch.setattr(memory_cluster, "writer", writer)
        with pytest.raises(TransportError, match="Fenced") as caught:
            queue.move(other)
        assert caught.value.__notes__ == ["2 of 3 messages had been moved by then."]
        assert queue.stats().depth == 1
        assert other.stats().depth == 2

    def test_where_the_outcome_is_unknown_it_is_said(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue
    ) -> None:
        memory_cluster.fail_next("commit_transaction", TransportError("Late.", code="_TIMED_OUT", retriable=True))
        with pytest.raises(OutcomeUnknown, match="batch of 3 messages"):
            queue.move(other)
        assert queue.stats().depth + other.stats().depth == 3

    def test_a_consumer_that_comes_in_between_ends_it(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fenced = TransportError("Who?", code="UNKNOWN_MEMBER_ID")
        memory_cluster.fail_next("send_offsets", fenced)
        with pytest.raises(QueueError, match="still has active consumers"):
            queue.move(other)
        assert memory_cluster.records("other") == []

    def test_a_consumer_that_came_and_went_between_two_batches_ends_it(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lvq_kafka.managing.moving._BATCH", 1)
        check, checks = _SoleMember.check, count(1)

        def put_out_before_the_second(member: _SoleMember) -> None:
            if next(checks) == 2:
                memory_cluster.expel(member.member)
                consume(queue, "a")
            check(member)

        monkeypatch.setattr(_SoleMember, "check", put_out_before_the_second)
        with pytest.raises(QueueError, match="still has active consumers") as caught:
            queue.move(other)
        assert caught.value.__notes__ == ["1 of 3 messages had been moved by then."]
        monkeypatch.undo()
        assert (drained(queue), drained(other)) == (["1"], ["1"]), "what was consumed meanwhile stays consumed"

    def test_without_a_transaction_it_may_be_in_both(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue
    ) -> None:
        memory_cluster.fail_next("commit", TransportError("Lost.", code="_TRANSPORT", retriable=True))
        with pytest.raises(TransportError) as caught:
            queue.move(other, atomic=False)
        assert caught.value.__notes__ == ["Some or all of 3 messages are in other and in the queue."]
        assert (queue.stats().depth, other.stats().depth) == (3, 3)

    def test_without_a_transaction_nothing_is_done_before_all_is_stored(
        self, memory_cluster: MemoryCluster, queue: Queue, other: Queue
    ) -> None:
        memory_cluster.fail_next("append", DeliveryFailed("Full.", key=b"b", code="KAFKA_STORAGE_ERROR"))
        before = commits(queue)
        with pytest.raises(DeliveryFailed):
            queue.move(other, atomic=False)
        assert commits(queue) == before


def test_positions_in_the_other_queue_are_new(queue: Queue, other: Queue) -> None:
    overwrite(queue, p0=said(queue, 2))
    queue.move(other)
    with other.browser(follow=False) as browser:
        positions = [event.position for event in browser if hasattr(event, "position")]
    assert positions == [Position("other", 0, 0), Position("other", 0, 1)]


def _is_unkeyed(record: Record) -> bool:
    return record.key is not None and record.key.startswith(b"lvq-unkeyed:") and ("lvq-unkeyed", b"1") in record.headers
