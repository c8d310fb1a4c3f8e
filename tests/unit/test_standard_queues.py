"""Standard queues on the in-memory cluster: what only they have, and what they refuse (R35)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue, Message, TopicSpec, Ttl
from lvq_kafka.consuming.letters import DLQ_SOURCE
from lvq_kafka.errors import ConfigError, QueueError, QueueMismatch, TopicMismatch, Unauthorized
from lvq_kafka.reading.entries import EndOfDump, Entry
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

PATIENCE = 30.0


def standard(cluster: MemoryCluster, name: str = "jobs", **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.declare(
        name, **{"key_header": "k", "conflate": False, "value": TEXT, "cluster": cluster, **options}
    )


def send(queue: LastValueQueue[str], *values: str, key: str | None = "a") -> None:
    with queue.producer() as producer:
        for value in values:
            producer.send(Message(value, {} if key is None else {"k": key}))


def content(queue: LastValueQueue[str], **options: Any) -> list[str]:
    with queue.browser(follow=False, **options) as browser:
        return [event.value for event in browser if isinstance(event, Entry)]


# ------------------------------------------------------------ producing


def test_the_record_key_is_that_of_the_key_header_or_null(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    send(queue, "1", "2")
    send(queue, "3", key=None)
    with queue.producer() as producer:
        producer.send(Message("4", key="b"))
        producer.send(Message("5", key=""))  # as readers give it for a message without one
    records = memory_cluster.records("jobs")
    assert [record.key for record in records] == [b"a", b"a", None, b"b", None]
    assert [record.headers for record in records] == [
        (("k", b"a"),),
        (("k", b"a"),),
        (),
        (("k", b"b"),),
        (),
    ]


def test_messages_without_a_key_are_spread(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster, spec=TopicSpec(partitions=3))
    send(queue, *map(str, range(9)), key=None)
    assert sorted(record.partition for record in memory_cluster.records("jobs")) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sorted(content(queue)) == list(map(str, range(9)))


def test_put_and_delete_name_what_refuses_them_and_the_way_out(memory_cluster: MemoryCluster) -> None:
    with standard(memory_cluster).producer() as producer:
        with pytest.raises(ConfigError, match=r"'jobs' is the topic of a standard queue .*'a'.*Use send\(\)") as caught:
            producer.put("a", "1")
        assert caught.value.options == ("conflate",)
        with pytest.raises(ConfigError, match=r"conflate=False.*purge") as caught:
            producer.delete("a")
        assert caught.value.options == ("conflate",)
    assert memory_cluster.records("jobs") == []


# ------------------------------------------------------------ declaring


def test_it_shares_no_topic_with_a_last_value_queue(memory_cluster: MemoryCluster) -> None:
    standard(memory_cluster)
    standard(memory_cluster, "audit", topic="jobs")
    with pytest.raises(QueueMismatch, match="would share the topic jobs, and audit is a standard queue") as caught:
        LastValueQueue.declare("values", key_header="k", topic="jobs", cluster=memory_cluster)
    assert caught.value.differences == {"conflate": (False, True)}
    with pytest.raises(QueueMismatch, match="conflate"):
        LastValueQueue.declare("jobs", key_header="k", cluster=memory_cluster)


def test_a_topic_that_loses_messages_is_refused_or_reconciled(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("jobs", partitions=1, config={"cleanup.policy": "compact"})
    with pytest.raises(TopicMismatch, match="cannot hold a standard queue") as caught:
        standard(memory_cluster)
    assert caught.value.settings["cleanup.policy"] == ("delete", "compact")
    warned = standard(memory_cluster, on_mismatch="warn")
    assert warned.declaration is not None
    assert "cleanup.policy" in {finding.setting for finding in warned.declaration.findings}
    standard(memory_cluster, on_mismatch="reconcile")
    config = memory_cluster.topics.config("jobs")
    assert (config["cleanup.policy"], config["retention.ms"]) == ("delete", "-1")


def test_a_topic_of_kafkas_defaults_has_retention_and_is_refused(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("jobs", partitions=1, config={"retention.ms": "604800000"})
    with pytest.raises(TopicMismatch) as caught:
        standard(memory_cluster)
    assert caught.value.settings.keys() == {"retention.ms"}


# ------------------------------------------------------------ reading


def test_a_method_that_needs_one_value_for_each_key_names_the_browser(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    with pytest.raises(ConfigError, match=r"jobs is a standard queue.*queue\.browser\(\)") as caught:
        queue.view()
    assert caught.value.options == ("conflate",)
    for name in ("previous", "changed"):
        with pytest.raises(ConfigError, match=f"{name}=True") as caught:
            queue.browser(**{name: True})  # type: ignore[arg-type]
        assert caught.value.options == (name, "conflate")


def test_a_browser_selects_by_key_header_value_and_time(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    send(queue, "1", "2", key="a")
    send(queue, "3", key="ab")
    send(queue, "4", key=None)
    assert content(queue, keys=["a"]) == ["1", "2"]
    assert content(queue, prefix="a") == ["1", "2", "3"]
    assert content(queue, headers={"k": "ab"}) == ["3"]
    assert content(queue, where=lambda entry: entry.key == "") == ["4"]
    assert content(queue, replay_period=0) == []
    with queue.browser(keys=["a"]) as browser:
        browser.drain(PATIENCE)
        send(queue, "5", key="b")
        send(queue, "6", key="a")
        assert [event.value for event in browser.drain(PATIENCE) if isinstance(event, Entry)] == ["6"]


def test_a_browser_keeps_only_what_it_has_not_returned(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    send(queue, *map(str, range(100)))
    with queue.browser() as browser:
        table = browser._shared.catch_up.values.table
        assert len(table) == 100
        assert len(browser.drain(PATIENCE)) == 101
        assert (len(table), browser.stats.returned) == (0, 100)
        send(queue, "more")
        assert [event.value for event in browser.drain(PATIENCE) if isinstance(event, Entry)] == ["more"]
        assert len(table) == 0


def test_after_a_reset_a_browser_returns_again_what_waits(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    send(queue, "1", "2", "3")
    with queue.browser(refresh=0.01) as browser:
        assert len(browser.drain(PATIENCE)) == 4
        queue.purge()
        assert browser.drain(PATIENCE) == []
        queue.reset("earliest")
        found: list[str] = []

        def came_again() -> bool:
            found.extend(event.value for event in browser.drain(PATIENCE) if isinstance(event, Entry))
            return found == ["1", "2", "3"]

        eventually(came_again, PATIENCE)


def test_a_browser_of_the_topic_itself_shows_all(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    send(queue, "1", "2")
    queue.purge()
    bare = LastValueQueue("jobs", key_header="k", conflate=False, value=TEXT, cluster=memory_cluster)
    assert (content(queue), content(bare), content(queue, hide_consumed=False)) == ([], ["1", "2"], ["1", "2"])


# ------------------------------------------------------------ consuming


def test_a_delivery_has_the_key_of_its_record_also_when_it_comes_again(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster, key_header=None)
    with queue.producer() as producer:
        producer.send(Message("1", key="a"))
        producer.send(Message("2", key="a"))
    with queue.consumer() as consumer:
        first, second = consumer.acquire_many(2, PATIENCE)
        assert [first.key, second.key] == ["a", "a"]
        second.release()
        again = consumer.acquire(PATIENCE)
        assert again is not None
        assert (again.key, again.value, again.delivery_count) == ("a", "2", 2)


def test_letters_do_not_replace_each_other(memory_cluster: MemoryCluster) -> None:
    """A topic of dead letters may be compacted, as that of a last value queue is."""
    LastValueQueue.declare("bad", key_header=None, cluster=memory_cluster)
    queue = standard(memory_cluster)
    send(queue, "1", "2", key="a")
    send(queue, "3", key=None)
    with queue.consumer(dead_letters="bad") as consumer:
        for delivery in consumer.acquire_many(3, PATIENCE):
            delivery.reject("bad").result(PATIENCE)
    letters = memory_cluster.records("bad")
    assert [record.key for record in letters] == [b"jobs/0/0", b"jobs/0/1", b"jobs/0/2"]
    assert [dict(record.headers)[DLQ_SOURCE] for record in letters] == [record.key for record in letters]
    assert dict(letters[0].headers)["k"] == b"a"


def test_expired_messages_have_a_letter_each(memory_cluster: MemoryCluster) -> None:
    LastValueQueue.declare("gone", key_header=None, cluster=memory_cluster)
    queue = standard(memory_cluster, ttl=Ttl(default=0.001), expiry_topic="gone")
    send(queue, "1", "2")
    with queue.consumer():
        eventually(lambda: len(memory_cluster.records("gone")) == 2, PATIENCE)
    assert {record.value for record in memory_cluster.records("gone")} == {b"1", b"2"}


# ------------------------------------------------------------ moving


def test_messages_move_from_and_to_a_standard_queue(memory_cluster: MemoryCluster) -> None:
    jobs, audit = standard(memory_cluster), standard(memory_cluster, "audit")
    values = LastValueQueue.declare("values", key_header="k", value=TEXT, cluster=memory_cluster)
    send(jobs, "1", "2", key="a")
    send(jobs, "3", key=None)
    assert jobs.move(audit).messages == 3
    assert [record.key for record in memory_cluster.records("audit")] == [b"a", b"a", None]
    assert (content(jobs), content(audit)) == ([], ["1", "2", "3"])
    assert audit.move(values).messages == 3
    with values.view() as view:
        assert sorted(view.values()) == ["2", "3"], "there, the second replaces the first"
    assert values.move(jobs).messages == 2
    moved = memory_cluster.records("jobs")[-2:]
    assert [(record.key, record.value, record.headers) for record in moved] == [
        (b"a", b"2", (("k", b"a"),)),
        (None, b"3", ()),
    ]
    assert jobs.move(audit, keys=["a"]).messages == 1


# ------------------------------------------------------------ reclaiming


def consume_all(queue: LastValueQueue[str], count: int, **options: Any) -> None:
    with queue.consumer(**options) as consumer:
        for delivery in consumer.acquire_many(count, PATIENCE):
            delivery.ack(wait=True, timeout=PATIENCE)


def start_of(cluster: MemoryCluster) -> int:
    return cluster.logs.start_offsets("jobs")[0]


def test_consumers_remove_what_was_durably_consumed_and_nothing_else(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    send(queue, *map(str, range(5)))
    with queue.consumer(auto_reclaim=0.01) as consumer:
        taken = consumer.acquire_many(5, PATIENCE)
        taken[3].ack(wait=True, timeout=PATIENCE)
        taken[0].ack(wait=True, timeout=PATIENCE)
        taken[1].ack(wait=True, timeout=PATIENCE)
        eventually(lambda: start_of(memory_cluster) == 2, PATIENCE)
        taken[2].ack(wait=True, timeout=PATIENCE)
        eventually(lambda: start_of(memory_cluster) == 4, PATIENCE)
        assert consumer.stats.trouble == ""
    assert content(queue) == ["4"]


def test_it_waits_for_the_slowest_queue_on_the_topic(memory_cluster: MemoryCluster) -> None:
    queue, slow = standard(memory_cluster), standard(memory_cluster, "slow", topic="jobs")
    send(queue, "1", "2")
    with slow.consumer() as other, queue.consumer(auto_reclaim=0.01) as consumer:
        for delivery in consumer.acquire_many(2, PATIENCE):
            delivery.ack(wait=True, timeout=PATIENCE)
        first = other.acquire(PATIENCE)
        assert first is not None
        assert start_of(memory_cluster) == 0
        first.ack(wait=True, timeout=PATIENCE)
        send(queue, "3")
        last = consumer.acquire(PATIENCE)
        assert last is not None
        last.ack(wait=True, timeout=PATIENCE)
        eventually(lambda: start_of(memory_cluster) == 1, PATIENCE)


@pytest.mark.parametrize(
    "error",
    [Unauthorized("may not", code="TOPIC_AUTHORIZATION_FAILED"), QueueError("no", queue="jobs"), RuntimeError("odd")],
)
def test_an_obstacle_to_it_is_logged_once_and_in_the_stats_until_it_is_over(
    memory_cluster: MemoryCluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    tries: list[int] = []
    works: list[bool] = []
    delete: Callable[..., Any] = memory_cluster.logs.delete_before

    def delete_before(*arguments: Any, **options: Any) -> Any:
        tries.append(len(tries))
        if not works:
            raise error
        return delete(*arguments, **options)

    monkeypatch.setattr(memory_cluster.logs, "delete_before", delete_before)
    queue = standard(memory_cluster)
    send(queue, "1", "2")
    with caplog.at_level(logging.WARNING, "lvq_kafka.consumer"), queue.consumer(auto_reclaim=0.01) as consumer:
        first, second = consumer.acquire_many(2, PATIENCE)
        first.ack(wait=True, timeout=PATIENCE)
        eventually(lambda: len(tries) > 3, PATIENCE)
        assert "cannot be removed from jobs" in consumer.stats.trouble
        assert sum("cannot be removed" in record.message for record in caplog.records) == 1
        second.ack(wait=True, timeout=PATIENCE)
        works.append(True)
        eventually(lambda: start_of(memory_cluster) == 2, PATIENCE)
        eventually(lambda: consumer.stats.trouble == "", PATIENCE)


def test_an_interval_may_be_longer_than_any_wait(memory_cluster: MemoryCluster) -> None:
    for interval in (float("inf"), 1e308, 10**400):
        with standard(memory_cluster).consumer(auto_reclaim=interval) as consumer:
            assert consumer.stats.trouble == ""


@pytest.mark.parametrize(
    ("selector", "selected"),
    [("lvq_key = 'a'", ["1", "3"]), ("lvq_key <> 'a'", ["2", "4"]), ("lvq_key = ''", ["4"]), ("lvq_key IS NULL", [])],
)
def test_r26_a_selector_reads_the_key_that_a_delivery_has(
    memory_cluster: MemoryCluster, selector: str, selected: list[str]
) -> None:
    """The consumer judged each message by the key that it stands alone under, and committed those of a key as done."""
    queue = standard(memory_cluster, selector=selector)
    for value, key in (("1", "a"), ("2", "b"), ("3", "a"), ("4", None)):
        send(queue, value, key=key)
    assert content(queue) == selected
    assert queue.stats().depth == len(selected)
    with queue.consumer() as consumer:
        for value in selected:
            delivery = consumer.acquire(30)
            assert delivery is not None
            assert delivery.value == value
            delivery.ack(wait=True, timeout=30)
        assert consumer.acquire(0.05) is None


def test_an_interval_is_a_time(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster)
    for interval in (0, -1, "often", float("nan")):
        with pytest.raises(ConfigError) as caught:
            queue.consumer(auto_reclaim=interval)  # type: ignore[arg-type]
        assert caught.value.options == ("auto_reclaim",)


def test_the_topic_of_a_last_value_queue_is_reclaimed_if_its_policy_allows_that(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare(
        "jobs", key_header="k", value=TEXT, spec=TopicSpec(reclaim=True), cluster=memory_cluster
    )
    send(queue, "1", "2")
    with queue.consumer(auto_reclaim=0.01) as consumer:
        delivery = consumer.acquire(PATIENCE)
        assert delivery is not None
        delivery.ack(wait=True, timeout=PATIENCE)
        eventually(lambda: start_of(memory_cluster) == 2, PATIENCE)


def test_a_dump_ends_once(memory_cluster: MemoryCluster) -> None:
    queue = standard(memory_cluster, non_destructive=True)
    send(queue, "1")
    with queue.browser() as browser:
        events = browser.drain(PATIENCE)
        send(queue, "2")
        events += browser.drain(PATIENCE)
    assert [type(event) for event in events] == [Entry, EndOfDump, Entry]
