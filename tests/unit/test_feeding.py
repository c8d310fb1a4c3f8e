"""Feeding a queue from a topic (R29): each message once, before values replace each other, and never a silent loss."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest

from lvq_kafka import Feed, FeedStats, LastValueQueue, Limits, TopicSpec
from lvq_kafka.cluster import Commit
from lvq_kafka.errors import (
    BrokerUnavailable,
    ConfigError,
    FeedPositionLost,
    MessageTooLarge,
    TopicNotFound,
    TransportError,
)
from lvq_kafka.managing import feeding
from lvq_kafka.managing.feeding import feed_name
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples
from tests.unit.managing import consume, declare
from tests.waiting import eventually

NYSE = "Exchange = 'NYSE'"
GROUP = feed_name("trades", "ticker")


def ticker(cluster: MemoryCluster, **options: Any) -> LastValueQueue[str]:
    cluster.topics.create("trades", partitions=2, config={})
    return declare(cluster, "ticker", **{"key_header": "Symbol", "non_destructive": True, **options})


def trade(cluster: MemoryCluster, value: bytes | dict[str, Any] | None, *headers: tuple[str, bytes]) -> None:
    body = json.dumps(value).encode() if isinstance(value, dict) else value
    cluster.write("trades", None, body, headers, partition=0)


def fed(queue: LastValueQueue[str], **options: Any) -> FeedStats:
    with queue.feed("trades", **options) as feed:
        return feed.run(until_end=True)


def fed_at_last(queue: LastValueQueue[str]) -> None:
    """Feed, again and again: a feed ends if it has failed too often in a row."""
    while True:
        with suppress(TransportError):
            fed(queue)
            return


def values(cluster: MemoryCluster) -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records("ticker")]


@contextmanager
def running(feed: Feed) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=feed.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        feed.stop()
        thread.join(20)
        feed.close()


def test_s153_a_feed_tests_the_selector_before_a_value_replaces_another(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster, selector=NYSE)
    trade(memory_cluster, {"Symbol": "IBM", "Exchange": "NYSE", "price": 118})
    trade(memory_cluster, {"Symbol": "IBM", "Exchange": "LSE", "price": 117})
    assert fed(queue) == FeedStats(read=2, fed=1, unselected=1)
    with queue.view() as view:
        assert json.loads(view["IBM"])["price"] == 118
        assert dict(view.entry("IBM").headers) == {"Exchange": b"NYSE", "Symbol": b"IBM"}


def test_r29_a_feed_goes_on_where_the_last_one_ended(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster)
    trade(memory_cluster, b"1", ("Symbol", b"IBM"))
    assert fed(queue) == FeedStats(read=1, fed=1)
    assert fed(queue) == FeedStats()
    trade(memory_cluster, b"2", ("Symbol", b"IBM"))
    assert fed(queue, start="earliest") == FeedStats(read=1, fed=1)  # there is a position, so start means nothing
    assert values(memory_cluster) == ["1", "2"]


def test_r29_a_message_that_the_queue_cannot_have_is_counted_and_told_once_and_does_not_stop_the_feed(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ticker(memory_cluster, spec=TopicSpec(config={"max.message.bytes": "1000"}))
    for number in range(2):
        trade(memory_cluster, b"no JSON %d" % number)
        trade(memory_cluster, {"price": number})
        trade(memory_cluster, {"Symbol": "BIG", "text": "x" * 1000})
        trade(memory_cluster, b"x", ("Symbol", b"TTL"), ("lvq-ttl", b"5"))
        trade(memory_cluster, None)
        trade(memory_cluster, {"Symbol": f"OK{number}"})
    with caplog.at_level(logging.WARNING, "lvq_kafka.feed"):
        assert fed(queue) == FeedStats(read=12, fed=2, unreadable=2, refused=8)
    assert [record.key for record in memory_cluster.records("ticker")] == [b"OK0", b"OK1"]
    told = [record.getMessage() for record in caplog.records if record.name == "lvq_kafka.feed"]
    assert len(told) == 4
    for place, remedy in (
        ("trades/0/0", "Send objects of JSON"),
        ("trades/0/1", "no field of that name"),
        ("trades/0/2", "Raise max.message.bytes"),
        ("trades/0/3", "Declare the queue with ttl=Ttl()"),
    ):
        (line,) = [line for line in told if place in line]
        assert remedy in line
        assert "is left out of ticker" in line


def test_r29_every_message_is_fed_once_whatever_fails(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster, selector="n < 900")
    seed = Random().randrange(2**32)
    random = Random(seed)
    expected: list[int] = []
    away = BrokerUnavailable("away", code="_TRANSPORT", retriable=True)
    for _ in range(examples(60)):
        for _ in range(random.randrange(4)):
            number = random.randrange(1000)
            trade(memory_cluster, {"Symbol": "IBM", "n": number})
            expected += [number] if number < 900 else []
        for operation in random.sample(
            ["begin_transaction", "send_offsets", "append", "commit_transaction", "abort_transaction", "poll"], 2
        ):
            if operation in {"append", "commit_transaction"} and random.random() < 0.5:
                memory_cluster.lose_answers(operation)
            else:
                memory_cluster.fail_next(operation, away)
        fed_at_last(queue)
    fed_at_last(queue)
    assert [json.loads(value)["n"] for value in values(memory_cluster)] == expected, f"seed {seed}"


def test_the_messages_of_each_partition_stay_in_order(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster)
    for number in range(20):
        memory_cluster.write("trades", None, b"%d" % number, [("Symbol", b"IBM")], partition=number % 2)
    fed(queue)
    numbers = [int(value) for value in values(memory_cluster)]
    assert [n for n in numbers if n % 2] == list(range(1, 20, 2))
    assert [n for n in numbers if not n % 2] == list(range(0, 20, 2))


def test_a_feed_follows_its_source_and_its_new_partitions(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "_TOPIC", 0.0)
    queue = ticker(memory_cluster)
    feed = queue.feed("trades")
    with running(feed):
        trade(memory_cluster, b"1", ("Symbol", b"IBM"))
        eventually(lambda: values(memory_cluster) == ["1"])
        memory_cluster.topics.add_partitions("trades", 3)
        memory_cluster.write("trades", None, b"2", [("Symbol", b"IBM")], partition=2)
        eventually(lambda: values(memory_cluster) == ["1", "2"])
        eventually(lambda: feed.stats == FeedStats(read=2, fed=2))


def test_a_feed_that_stands_idle_keeps_its_position_known(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers forget the commits of a group without members after a week."""
    monkeypatch.setattr(feeding, "_RENEWAL", 0.0)
    queue = ticker(memory_cluster)
    trade(memory_cluster, b"1", ("Symbol", b"IBM"))
    with running(queue.feed("trades")):
        eventually(lambda: values(memory_cluster) == ["1"])
        memory_cluster.groups.delete(GROUP)
        eventually(lambda: memory_cluster.groups.committed(GROUP, "trades").get(0, Commit(0)).offset == 1)


def test_a_feed_waits_for_a_cluster_that_is_away(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ticker(memory_cluster)
    feed = queue.feed("trades")
    with caplog.at_level(logging.WARNING, "lvq_kafka.feed"), running(feed):
        trade(memory_cluster, b"1", ("Symbol", b"IBM"))
        eventually(lambda: feed.stats.fed == 1)
        memory_cluster.disconnect()
        eventually(lambda: "feeding ticker from trades waits" in caplog.text)
        memory_cluster.reconnect()
        trade(memory_cluster, b"2", ("Symbol", b"IBM"))
        eventually(lambda: feed.stats.fed == 2)
        eventually(lambda: "ticker is fed from trades again" in caplog.text)
    assert values(memory_cluster) == ["1", "2"]


def test_r12_a_feed_waits_for_room_in_a_queue_with_limits(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ticker(memory_cluster, non_destructive=False, limits=Limits(messages=2, policy="reject"))
    for number in range(4):
        trade(memory_cluster, b"%d" % number, ("Symbol", b"%d" % number))
    feed = queue.feed("trades")
    with caplog.at_level(logging.WARNING, "lvq_kafka.feed"), running(feed):
        eventually(lambda: feed.stats.fed == 2)
        eventually(lambda: "feeding ticker from trades waits: The queue ticker is full" in caplog.text)
        consume(queue, "0", "1")
        eventually(lambda: feed.stats == FeedStats(read=4, fed=4), 20)
    assert values(memory_cluster) == ["0", "1", "2", "3"]


def test_another_feed_of_the_same_queue_ends_the_one_before(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster)
    with queue.feed("trades") as old, queue.feed("trades") as new:
        trade(memory_cluster, b"1", ("Symbol", b"IBM"))
        with pytest.raises(TransportError) as caught:
            old.run(until_end=True)
        assert caught.value.code == "_FENCED"
        assert new.run(until_end=True).fed == 1


def test_a_topic_feeds_several_queues_independently(memory_cluster: MemoryCluster) -> None:
    ticker(memory_cluster)
    other = declare(memory_cluster, "london", key_header="Symbol", selector="Exchange = 'LSE'")
    trade(memory_cluster, {"Symbol": "IBM", "Exchange": "LSE"})
    assert fed(LastValueQueue.open("ticker", cluster=memory_cluster)).fed == 1
    assert fed(other) == FeedStats(read=1, fed=1)


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize(("start", "expected"), [("earliest", ["1", "1"]), ("latest", ["1"])])
def test_r29_a_feed_without_a_position_asks_where_to_start_if_the_queue_has_been_written_to(
    memory_cluster: MemoryCluster, start: Any, expected: list[str]
) -> None:
    queue = ticker(memory_cluster)
    trade(memory_cluster, b"1", ("Symbol", b"IBM"))
    fed(queue)
    memory_cluster.groups.delete(GROUP)
    with pytest.raises(FeedPositionLost, match="no position is known") as caught:
        fed(queue)
    assert (caught.value.queue, caught.value.topic, caught.value.partitions) == ("ticker", "trades", (0, 1))
    assert "start='latest'" in caught.value.hint
    fed(queue, start=start)
    assert values(memory_cluster) == expected


def test_a_new_feed_can_leave_out_what_is_there(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster)
    trade(memory_cluster, b"1", ("Symbol", b"IBM"))
    assert fed(queue, start="latest") == FeedStats()
    trade(memory_cluster, b"2", ("Symbol", b"IBM"))
    assert fed(queue).fed == 1
    assert values(memory_cluster) == ["2"]


def test_r29_a_position_of_another_topic_of_that_name_is_lost(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster)
    trade(memory_cluster, b"1", ("Symbol", b"IBM"))
    fed(queue)
    before = memory_cluster.groups.committed(GROUP, "trades")
    memory_cluster.topics.delete("trades")
    memory_cluster.topics.create("trades", partitions=2, config={})
    memory_cluster.groups.commit(GROUP, "trades", before)
    with pytest.raises(FeedPositionLost, match="another topic of this name"):
        fed(queue)


def test_r29_a_position_below_the_log_is_lost(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster)
    trade(memory_cluster, b"1", ("Symbol", b"IBM"))
    fed(queue)
    trade(memory_cluster, b"2", ("Symbol", b"IBM"))
    trade(memory_cluster, b"3", ("Symbol", b"IBM"))
    memory_cluster.delete_records("trades", 0, 2)
    with pytest.raises(FeedPositionLost, match="partition 0: offset 1 is not between 2 and 3"):
        fed(queue)
    assert fed(queue, start="earliest").fed == 1
    assert values(memory_cluster) == ["1", "3"]


def test_r29_a_position_that_expired_in_one_partition_is_lost_and_a_new_partition_begins_at_its_start(
    memory_cluster: MemoryCluster,
) -> None:
    queue = ticker(memory_cluster)
    fed(queue)
    commits = memory_cluster.groups.committed(GROUP, "trades")
    memory_cluster.topics.add_partitions("trades", 3)
    memory_cluster.write("trades", None, b"new", [("Symbol", b"IBM")], partition=2)
    assert fed(queue).fed == 1
    memory_cluster.groups.delete(GROUP)
    memory_cluster.groups.commit(GROUP, "trades", {0: commits[0]})
    with pytest.raises(FeedPositionLost, match="partition 1: the position has expired"):
        fed(queue)


def test_a_position_that_a_tool_has_set_is_trusted(memory_cluster: MemoryCluster) -> None:
    queue = ticker(memory_cluster)
    for number in range(3):
        trade(memory_cluster, b"%d" % number, ("Symbol", b"IBM"))
    memory_cluster.groups.commit(GROUP, "trades", {0: Commit(2), 1: Commit(0)})
    assert fed(queue).fed == 1
    assert values(memory_cluster) == ["2"]


# ---------------------------------------------------------------- errors


def test_a_queue_cannot_feed_itself(memory_cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match="ticker is the topic of the queue ticker itself") as caught:
        ticker(memory_cluster).feed("ticker")
    assert caught.value.options == ("source",)


@pytest.mark.parametrize("source", ["", "a/b", "x" * 300])
def test_a_source_has_the_name_of_a_topic(memory_cluster: MemoryCluster, source: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a topic"):
        ticker(memory_cluster).feed(source)


def test_a_start_is_one_of_two_words(memory_cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match="start"):
        ticker(memory_cluster).feed("trades", start="first")  # type: ignore[arg-type]


def test_a_source_that_does_not_exist_is_an_error(memory_cluster: MemoryCluster) -> None:
    with ticker(memory_cluster).feed("nothing") as feed, pytest.raises(TopicNotFound):
        feed.run(until_end=True)


def test_an_error_that_does_not_pass_ends_a_feed_after_some_attempts(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "_PAUSES", (0.0, 0.0))
    queue = ticker(memory_cluster)
    memory_cluster.fail_next("begin_transaction", TransportError("no", code="_FAIL"), times=100)
    with queue.feed("trades") as feed, pytest.raises(TransportError, match="no"):
        feed.run(until_end=True)


def test_r29_messages_that_were_refused_with_one_that_is_too_large_are_fed(
    memory_cluster: MemoryCluster,
) -> None:
    """The client may know the limit of a topic only from the broker's answer, for a whole batch."""
    queue = ticker(memory_cluster)
    for number in range(8):
        trade(memory_cluster, b"%d" % number, ("Symbol", b"IBM"))
    too_large = MessageTooLarge("too large", code="MSG_SIZE_TOO_LARGE")
    memory_cluster.fail_next("append", too_large)  # the batch of eight is tried again in halves
    assert fed(queue) == FeedStats(read=8, fed=8)
    assert values(memory_cluster) == [str(number) for number in range(8)]
