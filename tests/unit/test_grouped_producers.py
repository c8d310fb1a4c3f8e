"""Producers of queues with groups, their placement, and what readers make of it (R14, R36)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from lvq_kafka import Groups, LastValueQueue, Message, Producer, TopicSpec
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import ConfigError, QueueMismatch, TopicNotFound, TransportError
from lvq_kafka.testing import MemoryCluster
from tests.rules import rules
from tests.unit.managing import declare, drained
from tests.waiting import eventually

TOPIC = "prices"
PLACED = Groups(placement="group")
JMS = Groups(header="JMSXGroupID")


def grouped(
    cluster: MemoryCluster, groups: Groups = PLACED, partitions: int = 5, **options: Any
) -> LastValueQueue[str]:
    return declare(cluster, TOPIC, groups=groups, spec=TopicSpec(partitions=partitions), **options)


def groups_of(cluster: MemoryCluster, header: str = "lvq-group") -> list[bytes | None]:
    return [dict(record.headers).get(header) for record in cluster.records(TOPIC)]


def place(group: str, partitions: int = 5) -> int:
    return home_partition(group.encode(), partitions)


@pytest.mark.parametrize("header", ["lvq-group", "JMSXGroupID"])
def test_r36_a_message_names_its_group(memory_cluster: MemoryCluster, header: str) -> None:
    queue = grouped(memory_cluster, Groups(header=header))
    with queue.producer() as producer:
        producer.put("a", "1", group="g")
        producer.put("a", "1", {"x": "y"}, group=b"\xff")
        producer.put("a", "1", {header: "own"})
        producer.send(Message("1", {"ticker": "a"}, group="g"))
        producer.send(Message("1", {"ticker": "a", header: 5}))
        producer.send(Message("1", key="a", group="g"))
        producer.delete("a", group="g")
        producer.put("a", "1")
        producer.put("a", "1", {header: None})
    assert sorted(groups_of(memory_cluster, header), key=str) == sorted(
        [b"g", b"\xff", b"own", b"g", b"5", b"g", b"g", None, None], key=str
    )


def test_r36_asyncio_and_transactions_have_groups(memory_cluster: MemoryCluster) -> None:
    queue = grouped(memory_cluster)

    async def produce() -> None:
        async with await queue.producer_async() as producer:
            assert (await producer.put("a", "1", group="g")).partition == place("g")
            receipts = [producer.send(Message("1", {"ticker": key}, group="h")) for key in "abc"]
            assert {(await receipt).partition for receipt in receipts} == {place("h")}

    asyncio.run(produce())
    with queue.producer(transactional_id="t") as sure, sure.transaction():
        sure.put("z", "1", group="g")
    assert [record.partition for record in memory_cluster.records(TOPIC) if record.key == b"z"] == [place("g")]


def test_r36_standard_queues_have_groups(memory_cluster: MemoryCluster) -> None:
    queue = grouped(memory_cluster, key_header=None, conflate=False)
    with queue.producer() as producer:
        for key in (None, "a", "b"):
            assert producer.send(Message("1", key=key, group="g")).result(5).partition == place("g")
        assert producer.send(Message("1", key="b")).result(5).partition == place("b"), "without a group, by the key"
        with pytest.raises(ConfigError, match="standard queue"):
            producer.put("a", "1", group="g")
        with pytest.raises(ConfigError, match="standard queue"):
            producer.delete("a", group="g")


@pytest.mark.parametrize("bad", ["", " ", b"", "\ud800", 5])
def test_r36_a_blank_group_is_refused_before_anything_is_sent(memory_cluster: MemoryCluster, bad: Any) -> None:
    queue = grouped(memory_cluster, Groups())
    with queue.producer() as producer:
        calls: list[Callable[[], object]] = [
            lambda: producer.put("a", "1", group=bad),
            lambda: producer.send(Message("1", {"ticker": "a"}, group=bad)),
            lambda: producer.delete("a", group=bad),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match="group must be text that is not blank") as caught:
                call()
            assert caught.value.options == ("group",)
    assert memory_cluster.records(TOPIC) == []


@pytest.mark.parametrize("groups", [Groups(), JMS], ids=["lvq-group", "JMSXGroupID"])
def test_r36_a_header_with_a_blank_group_is_refused(memory_cluster: MemoryCluster, groups: Groups) -> None:
    queue = grouped(memory_cluster, groups)
    with queue.producer() as producer, pytest.raises(ConfigError, match=f"The header {groups.header} must be text"):
        producer.send(Message("1", {"ticker": "a", groups.header: " "}))


@pytest.mark.parametrize("groups", [Groups(), JMS], ids=["lvq-group", "JMSXGroupID"])
def test_r36_a_group_said_twice_is_refused(memory_cluster: MemoryCluster, groups: Groups) -> None:
    queue = grouped(memory_cluster, groups)
    with queue.producer() as producer:
        for call in (
            lambda: producer.put("a", "1", {groups.header: "g"}, group="g"),
            lambda: producer.send(Message("1", {"ticker": "a", groups.header: None}, group="g")),
            lambda: producer.delete("a", {groups.header: "h"}, group="g"),
        ):
            with pytest.raises(ConfigError, match=f"both group='g' and the header {groups.header}") as caught:
                call()
            assert caught.value.options == ("group", groups.header)


def test_r22_a_group_is_refused_where_the_queue_has_none(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer:
        calls: list[tuple[Callable[[], object], tuple[str, ...]]] = [
            (lambda: producer.put("a", "1", group="g"), ("group", "lvq-group")),
            (lambda: producer.put("a", "1", {"lvq-group": "g"}), ("lvq-group",)),
            (lambda: producer.send(Message("1", {"ticker": "a"}, group="g")), ("group", "lvq-group")),
            (lambda: producer.delete("a", group="g"), ("group", "lvq-group")),
        ]
        for call, options in calls:
            with pytest.raises(ConfigError, match=r"'lvq-group' is reserved.*groups=Groups\(\)") as caught:
                call()
            assert caught.value.options == options
        producer.put("a", "1", {"JMSXGroupID": ""}).result(5)  # a header like any other


def test_r22_the_header_of_our_own_is_refused_where_another_names_the_group(memory_cluster: MemoryCluster) -> None:
    queue = grouped(memory_cluster, JMS)
    with queue.producer() as producer, pytest.raises(ConfigError, match="write the header JMSXGroupID"):
        producer.put("a", "1", {"lvq-group": "g"})


def test_a_message_shows_its_group() -> None:
    assert repr(Message(b"1", key="IBM", group="g")) == "Message(b'1', key='IBM', group='g')"


class TestPlacement:
    """``placement="group"``: a group lies in one partition."""

    def test_r36_a_group_lies_in_one_partition_whatever_its_keys(self, memory_cluster: MemoryCluster) -> None:
        queue = grouped(memory_cluster)
        with queue.producer() as producer:
            for group in ("g", "h", "i", "j"):
                found = {producer.put(f"k{n}", "1", group=group).result(5).partition for n in range(20)}
                assert found == {place(group)}
            assert {producer.put(f"own{n}", "1", {"lvq-group": "g"}).result(5).partition for n in range(9)} == {
                place("g")
            }
        assert len({place(group) for group in ("g", "h", "i", "j")}) > 1

    def test_r36_without_a_group_the_key_chooses_or_the_default_group_where_groups_are_shared(
        self, memory_cluster: MemoryCluster
    ) -> None:
        with grouped(memory_cluster).producer() as producer:
            assert [producer.put(key, "1").result(5).partition for key in "abc"] == [place(key) for key in "abc"]
        shared = declare(
            memory_cluster,
            "shared",
            groups=Groups(mode="shared", default="rest", placement="group"),
            spec=TopicSpec(partitions=5),
        )
        with shared.producer() as producer:
            assert {producer.put(key, "1").result(5).partition for key in "abcdefgh"} == {place("rest")}

    def test_r36_r14_the_newest_value_counts_for_readers_in_whatever_partition_it_is(self) -> None:
        now = [1_800_000_000.0]
        cluster = MemoryCluster(clock=lambda: now[0])
        queue = grouped(cluster)
        seen: list[list[str]] = []
        with (
            queue.producer() as producer,
            queue.view() as view,
            queue.view(where=lambda entry: True) as selected,
            queue.browser() as browser,
        ):
            for number in range(12):
                now[0] += 0.001
                producer.put("a", f"{number}", group=f"g{number}").result(5)
                view.barrier()
                selected.barrier()
                seen.append([view["a"], selected["a"]])
            assert view.split_keys == ["a"]
            assert eventually(lambda: (event := browser.poll(5)) and getattr(event, "value", "") == "11")
        assert seen == [[f"{number}"] * 2 for number in range(12)]
        assert len({place(f"g{number}") for number in range(12)}) == 4
        with queue.view() as later:
            assert dict(later) == {"a": "11"}

    def test_r36_a_delete_needs_the_group_of_the_value(self, memory_cluster: MemoryCluster) -> None:
        queue = grouped(memory_cluster)
        with queue.producer() as producer:
            producer.put("a", "1", group="g")
            with pytest.raises(ConfigError, match=r"The delete of 'a' needs the group.*placed by group") as caught:
                producer.delete("a")
            assert caught.value.options == ("group", "placement")
            assert "headers={'lvq-group': None}" in caught.value.hint
            with pytest.raises(ConfigError, match="needs the group"):
                producer.delete("a", {"x": "y"})
            assert producer.delete("a", group="g").result(5).partition == place("g")
            assert producer.delete("a", {"lvq-group": "g"}).result(5).partition == place("g")
            assert producer.delete("a", {"lvq-group": None}).result(5).partition == place("a"), "it has none"
        with queue.view() as view:
            assert dict(view) == {}

    def test_r36_a_delete_in_another_partition_hides_what_is_older(self, memory_cluster: MemoryCluster) -> None:
        queue = grouped(memory_cluster, partitions=2)
        one, other = next(
            (f"g{n}", f"g{m}") for n in range(9) for m in range(9) if place(f"g{n}", 2) < place(f"g{m}", 2)
        )
        with queue.producer() as producer, queue.view() as view:
            producer.put("a", "1", group=one).result(5)
            producer.delete("a", group=other).result(5)
            view.barrier()
            assert dict(view) == {}
        with queue.view() as later:
            assert dict(later) == {}

    def test_r36_a_producer_learns_of_added_partitions(
        self, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = grouped(memory_cluster, partitions=1)
        monkeypatch.setattr("lvq_kafka.producing.group_placement._REFRESH", 0.0)
        with queue.producer() as producer:
            assert producer.put("a", "1", group="g").result(5).partition == 0
            memory_cluster.topics.add_partitions(TOPIC, 7)
            assert place("g", 7) > 0
            eventually(lambda: producer.put("a", "1", group="g").result(5).partition == place("g", 7))

    def test_r36_a_producer_keeps_the_count_it_knows_if_it_may_not_ask_again(
        self, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = grouped(memory_cluster)
        monkeypatch.setattr("lvq_kafka.producing.group_placement._REFRESH", 0.0)
        with queue.producer() as producer, caplog.at_level(logging.WARNING, "lvq_kafka.producer"):
            memory_cluster.fail_next("topics.describe", TransportError("No answer.", code="_TIMED_OUT", retriable=True))
            assert producer.put("a", "1", group="g").result(5).partition == place("g")
            eventually(lambda: "are as before: No answer." in caplog.text)
            assert producer.put("a", "1", group="g").result(5).partition == place("g")

    def test_r36_a_producer_by_group_needs_the_topic(self, memory_cluster: MemoryCluster) -> None:
        with pytest.raises(TopicNotFound):
            Producer(memory_cluster, rules(topic="nowhere", key_header="ticker", groups=PLACED))

    def test_r36_groups_in_several_partitions_are_a_finding(
        self, memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = grouped(memory_cluster, Groups(), partitions=3)
        assert queue.declaration is not None
        (finding,) = queue.declaration.findings
        assert (finding.setting, finding.severity) == ("groups", "warning")
        said = "groups are placed by key in 3 partitions: in each partition a group has a consumer"
        assert said in str(finding)
        assert said in caplog.text

    @pytest.mark.parametrize(
        "options",
        [
            {"groups": PLACED, "partitions": 3},
            {"groups": Groups(header="ticker"), "partitions": 3},
            {"groups": Groups(), "partitions": 1},
            {"groups": Groups(), "partitions": 3, "non_destructive": True},
        ],
        ids=["by group", "the group is the key", "one partition", "never consumed"],
    )
    def test_r36_groups_in_one_partition_each_are_none(
        self, memory_cluster: MemoryCluster, options: dict[str, Any]
    ) -> None:
        declaration = grouped(memory_cluster, **options).declaration
        assert declaration is not None
        assert declaration.findings == ()

    def test_r14_queues_on_one_topic_agree_on_the_placement(self, memory_cluster: MemoryCluster) -> None:
        grouped(memory_cluster)
        declare(memory_cluster, "same", topic=TOPIC, groups=Groups(placement="group", mode="sticky"))
        for name, groups in (
            ("plain", None),
            ("by-key", Groups()),
            ("header", Groups(header="JMSXGroupID", placement="group")),
            ("shared", Groups(mode="shared", placement="group")),
        ):
            with pytest.raises(
                QueueMismatch, match=f"prices places messages by lvq-group, but {name}|places"
            ) as caught:
                declare(memory_cluster, name, topic=TOPIC, groups=groups)
            assert "groups" in caught.value.differences


class TestMoving:
    """Groups survive a move, and so do their places."""

    @pytest.mark.parametrize("atomic", [True, False])
    def test_r36_messages_go_to_the_partition_of_their_group(self, memory_cluster: MemoryCluster, atomic: bool) -> None:
        source = declare(memory_cluster, "source", groups=Groups())
        target = grouped(memory_cluster)
        with source.producer() as producer:
            for number in range(9):
                producer.put(f"k{number}", "1", group="g")
            producer.put("alone", "1")
        assert source.move(target, atomic=atomic).messages == 10
        found = memory_cluster.records(TOPIC)
        assert {record.partition for record in found if record.key != b"alone"} == {place("g")}
        assert [record.partition for record in found if record.key == b"alone"] == [place("alone")]
        assert all(dict(record.headers)["lvq-group"] == b"g" for record in found if record.key != b"alone")

    def test_r36_to_a_queue_without_groups_the_header_goes_along(self, memory_cluster: MemoryCluster) -> None:
        source, target = grouped(memory_cluster), declare(memory_cluster, "plain")
        with source.producer() as producer:
            producer.put("a", "1", group="g")
        source.move(target)
        (record,) = memory_cluster.records("plain")
        assert dict(record.headers) == {"ticker": b"a", "lvq-group": b"g"}

    def test_r14_of_a_key_in_several_partitions_the_latest_value_counts_there(
        self, memory_cluster: MemoryCluster
    ) -> None:
        source, target = grouped(memory_cluster), declare(memory_cluster, "plain")
        for at, group in enumerate(("g4", "g1", "g3", "g0", "g2")):
            memory_cluster.write(
                TOPIC,
                b"a",
                group.encode(),
                [("ticker", b"a"), ("lvq-group", group.encode())],
                partition=place(group),
                timestamp=1000 + at,
            )
        assert len({record.partition for record in memory_cluster.records(TOPIC)}) > 1
        source.move(target)
        assert drained(target)[-1] == "g2"

    def test_r36_a_purge_does_not_ask_for_groups(self, memory_cluster: MemoryCluster) -> None:
        queue = grouped(memory_cluster)
        with queue.producer() as producer:
            for group in ("g", "h", "i"):
                producer.put(group, "1", group=group)
        assert queue.purge(keys=["g"]).messages == 1
        queue.purge()
        assert queue.stats().depth == 0
