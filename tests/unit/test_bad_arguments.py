"""Wrong arguments of public calls that take a number, a time, a function or one of the library's objects.

A wrong value (None, text for a number, NaN, a wrong object) is a `ConfigError` that names the argument, before anything
is done: no raw Python error, and no message that is settled, lost or half sent by then.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from lvq_kafka import (
    TEXT,
    AttachedView,
    ClientConfig,
    Codec,
    Consumer,
    Delivery,
    Entry,
    Groups,
    LastValueQueue,
    Limits,
    LVQError,
    Message,
    Position,
    Producer,
    QueueDefinition,
    Receipt,
    Settlement,
    TopicSpec,
    Transaction,
    View,
    Watch,
    attach,
    connect,
    queues,
    serializers,
)
from lvq_kafka.errors import ConfigError
from lvq_kafka.reading.browser import Browser
from lvq_kafka.testing import MemoryCluster
from tests.rules import rules


class Opened:
    """One object of each kind, on a queue with messages."""

    def __init__(self, cluster: MemoryCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self._stack, self._attached = stack, cast("AttachedView[str] | None", None)
        self.queue: LastValueQueue[str] = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster)
        self.producer: Producer[str] = stack.enter_context(self.queue.producer())
        self.receipt: Receipt = self.producer.put("a", "1")
        self.producer.put("b", "2")
        self.receipt.result(10)
        self.view: View[str] = stack.enter_context(self.queue.view())
        self.browser: Browser[str] = stack.enter_context(self.queue.browser())
        self.watch: Watch[str] = stack.enter_context(self.view.watch())
        self.consumer: Consumer[str] = stack.enter_context(self.queue.consumer())
        delivery, acked = self.consumer.acquire(10), self.consumer.acquire(10)
        assert delivery is not None
        assert acked is not None
        self.delivery: Delivery[str] = delivery
        self.settlement: Settlement = acked.ack()
        ranked = LastValueQueue.declare("ranked", key_header="k", order="priority", value=TEXT, cluster=cluster)
        by_text = LastValueQueue.declare("sorted", key_header="k", order="sorted", value=TEXT, cluster=cluster)
        self.ranking: Producer[str] = stack.enter_context(ranked.producer())
        self.sorting: Producer[str] = stack.enter_context(by_text.producer())
        self.transacting = stack.enter_context(self.queue.producer(transactional_id="t"))

    def attached(self) -> AttachedView[str]:
        if self._attached is None:
            place = Path(self._stack.enter_context(TemporaryDirectory())) / "store"
            self._stack.enter_context(self.queue.view(store=place))
            self._attached = self._stack.enter_context(attach(place, value=TEXT))
        return self._attached

    def transaction(self) -> Transaction[str]:
        return self.consumer.transaction(self.transacting)

    def declare(self, **options: Any) -> object:
        return LastValueQueue.declare("new", key_header="k", cluster=self.cluster, **options)

    def limited(self) -> LastValueQueue[bytes]:
        limits = Limits(messages=5, policy="block")
        return LastValueQueue.declare("limited", key_header="k", limits=limits, cluster=self.cluster)

    def buffered(self) -> Receipt:
        """Return the receipt of an undecided message."""
        self.cluster.disconnect()
        return self.producer.put("c", "3")


@pytest.fixture
def opened(memory_cluster: MemoryCluster) -> Iterator[Opened]:
    with ExitStack() as stack:
        yield Opened(memory_cluster, stack)
        memory_cluster.reconnect()


Call = Callable[[Opened, Any], object]

WAITING: dict[str, Call] = {
    "LastValueQueue.expire": lambda o, x: o.queue.expire(5, timeout=x),
    "LastValueQueue.keep_alive": lambda o, x: o.queue.keep_alive(timeout=x),
    "LastValueQueue.move": lambda o, x: o.queue.move(o.queue, timeout=x),
    "LastValueQueue.purge": lambda o, x: o.queue.purge(timeout=x),
    "LastValueQueue.stats": lambda o, x: o.queue.stats(timeout=x),
    "Producer.flush": lambda o, x: o.producer.flush(x),
    "Producer.flush_async": lambda o, x: asyncio.run(o.producer.flush_async(x)),
    "Producer.close": lambda o, x: o.producer.close(x),
    "Producer.transaction": lambda o, x: o.transacting.transaction(x).__enter__(),
    "Receipt.result": lambda o, x: o.buffered().result(x),
    "Receipt.exception": lambda o, x: o.buffered().exception(x),
    "View.wait_caught_up": lambda o, x: o.view.wait_caught_up(x),
    "View.wait_caught_up_async": lambda o, x: asyncio.run(o.view.wait_caught_up_async(x)),
    "View.barrier": lambda o, x: o.view.barrier(x),
    "View.wait_for": lambda o, x: o.view.wait_for("q/0/0", x),
    "AttachedView.wait_caught_up": lambda o, x: o.attached().wait_caught_up(x),
    "AttachedView.barrier": lambda o, x: o.attached().barrier(x),
    "AttachedView.wait_for": lambda o, x: o.attached().wait_for("q/0/0", x),
    "Watch.poll": lambda o, x: o.watch.poll(x),
    "Browser.poll": lambda o, x: o.browser.poll(x),
    "Browser.drain": lambda o, x: o.browser.drain(x),
    "Consumer.acquire": lambda o, x: o.consumer.acquire(x),
    "Consumer.acquire_async": lambda o, x: asyncio.run(o.consumer.acquire_async(x)),
    "Consumer.acquire_many": lambda o, x: o.consumer.acquire_many(3, x),
    "Consumer.ack_many": lambda o, x: o.consumer.ack_many([o.delivery], wait=True, timeout=x),
    "Consumer.transaction": lambda o, x: o.consumer.transaction(o.transacting, timeout=x),
    "Consumer.close": lambda o, x: o.consumer.close(x),
    "Delivery.ack": lambda o, x: o.delivery.ack(wait=True, timeout=x),
    "Settlement.result": lambda o, x: o.settlement.result(x),
}
"""Calls that wait and take ``timeout``."""

NO_NUMBERS = ["5", math.nan, object, [1], True]


@pytest.mark.parametrize("name", WAITING)
def test_a_time_to_wait_that_is_no_number_is_refused_by_name(opened: Opened, name: str) -> None:
    for bad in NO_NUMBERS:
        with pytest.raises(ConfigError, match="timeout must be") as caught:
            WAITING[name](opened, bad)
        assert caught.value.options == ("timeout",), bad
        assert not opened.delivery.settled, "nothing was done before"
        opened.cluster.reconnect()


@pytest.mark.parametrize("name", WAITING)
def test_a_time_to_wait_that_is_over_already_is_no_fault_of_the_caller(opened: Opened, name: str) -> None:
    with suppress(LVQError):  # the error for an expired timeout, if there is one
        WAITING[name](opened, -1)


@pytest.mark.parametrize(
    ("name", "endless"), list(zip(WAITING, cycle([None, math.inf, 1e12, 10**400]))), ids=list(WAITING)
)
def test_a_time_to_wait_may_have_no_end(opened: Opened, name: str, endless: Any) -> None:
    if "acquire" in name or name.endswith("poll"):
        opened.producer.put("a", "new").result(10)
        opened.delivery.release()
    if name.startswith("Receipt"):
        opened.receipt.result(endless)
        return
    with suppress(LVQError):  # refused for other reasons: consumers are at work
        WAITING[name](opened, endless)


OTHERS: list[tuple[str, str, list[Any], Call]] = [
    ("Consumer.acquire_many", "most", ["3", None, math.nan, 0, -1, 1.5], lambda o, x: o.consumer.acquire_many(x, 0)),
    ("Transaction.acquire_many", "most", ["3", None], lambda o, x: in_transaction(o, lambda t: t.acquire_many(x, 0))),
    ("Consumer.ack_many", "deliveries", [None, 5, [None], "ab", [5]], lambda o, x: o.consumer.ack_many(x)),
    ("Transaction.ack_many", "deliveries", [None, [None]], lambda o, x: in_transaction(o, lambda t: t.ack_many(x))),
    ("Transaction.enlist", "delivery", [None, 5], lambda o, x: in_transaction(o, lambda t: t.enlist(x))),
    ("Consumer.transaction", "producer", [None, "p"], lambda o, x: o.consumer.transaction(x)),
    ("Consumer.run", "handler", [None, "f"], lambda o, x: o.consumer.run(x)),
    ("Consumer.run", "workers", [None, "3", 0], lambda o, x: o.consumer.run(print, workers=x)),
    ("Consumer.run", "retry_delay", [None, "3", -1], lambda o, x: o.consumer.run(print, retry_delay=x)),
    ("Delivery.release", "delay", ["5", None, math.nan, -1, math.inf], lambda o, x: o.delivery.release(delay=x)),
    ("Delivery.extend", "seconds", ["5", math.nan, 0, -1], lambda o, x: o.delivery.extend(x)),
    ("Delivery.reject", "reason", [None, 5, b"no"], lambda o, x: o.delivery.reject(x)),
    *(
        ("LastValueQueue.consumer", option, bad, lambda o, x, option=option: o.queue.consumer(**{option: x}))
        for option, bad in {
            "max_in_work": [None, "3", 0, 1.5],
            "prefetch": [None, "3", 0],
            "max_deliveries": ["3", 0, math.nan],
            "lock_timeout": ["3", 0, math.nan],
            "commit_interval": [None, "3", -1, math.nan],
            "revoke_grace": [None, "3", 61],
            "dead_letters": [5, "", "\ud800"],
            "on_foreign_commits": [None, "never"],
            "undecodable": [None, 5],
        }.items()
    ),
    *(
        ("LastValueQueue.browser", option, bad, lambda o, x, option=option: o.queue.browser(**{option: x}))
        for option, bad in {
            "replay_period": ["3", -1, math.nan, math.inf],
            "keys": ["IBM", 5],
            "partitions": ["0", b"x", 5, [], [-1], [True]],
            "headers": ["x", 5, [("k", "v")]],
            "refresh": [None, "3", -1, math.nan],
            "on_foreign_commits": [None, "never"],
            "catch_up_timeout": ["3", math.nan],
            "metadata_interval": [None, "3", 0, math.nan],
        }.items()
    ),
    ("LastValueQueue.view", "catch_up_timeout", ["3", math.nan], lambda o, x: o.queue.view(catch_up_timeout=x)),
    ("LastValueQueue.view", "metadata_interval", [None, "3", 0], lambda o, x: o.queue.view(metadata_interval=x)),
    ("LastValueQueue.producer", "transactional_id", [5, ""], lambda o, x: o.queue.producer(transactional_id=x)),
    ("LastValueQueue.producer", "max_block", ["3", math.nan], lambda o, x: o.queue.producer(max_block=x)),
    ("LastValueQueue.open", "name", [None, 5, "", "\ud800"], lambda o, x: LastValueQueue.open(x, cluster=o.cluster)),
    ("LastValueQueue.open", "value", [None, "json"], lambda o, x: LastValueQueue.open("q", value=x, cluster=o.cluster)),
    ("LastValueQueue.open", "cluster", [5, "q"], lambda o, x: LastValueQueue.open("q", cluster=x)),
    ("LastValueQueue.declare", "spec", ["x", {"partitions": 3}], lambda o, x: o.declare(spec=x)),
    ("LastValueQueue.declare", "start", [None, "now"], lambda o, x: o.declare(start=x)),
    ("LastValueQueue.declare", "on_mismatch", [None, "ignore"], lambda o, x: o.declare(on_mismatch=x)),
    ("LastValueQueue.declare", "max_delay", ["5", math.nan, 0, -1, math.inf], lambda o, x: o.declare(max_delay=x)),
    *(
        (what, option, bad, lambda o, x, option=option, order=order: o.declare(order=order, **{option: x}))
        for what, option, bad, order in (
            ("LastValueQueue.declare", "priorities", [5.0, "5", True, 1, 11, math.nan], "priority"),
            ("LastValueQueue.declare", "sort_header", [5, "", "\ud800", "lvq-ttl"], "sorted"),
        )
    ),
    ("LastValueQueue.declare", "order", [None, 5, "lifo"], lambda o, x: o.declare(order=x)),
    ("Producer", "order", [None, "lifo"], lambda o, x: Producer(o.cluster, rules(topic="q", key_header="k", order=x))),
    ("Producer.put", "priority", ["5", 5.0, True, -1, 10], lambda o, x: o.ranking.put("a", "1", priority=x)),
    ("Message", "priority", ["5", 5.0, 10], lambda o, x: o.ranking.send(Message("1", key="a", priority=x))),
    ("Producer.put", "sort", [5, b"a", "\ud800"], lambda o, x: o.sorting.put("a", "1", sort=x)),
    ("Message", "sort", [5, b"a"], lambda o, x: o.sorting.send(Message("1", key="a", sort=x))),
    ("LastValueQueue.declare", "limits", ["5", 5, {"messages": 5}], lambda o, x: o.declare(limits=x)),
    *(
        ("Limits", option, bad, lambda o, x, option=option: Limits(**{"messages": 5, "policy": "block", option: x}))
        for option, bad in {
            "messages": ["5", 0, -1.0, 1.5, math.nan, True],
            "bytes": ["5", 0, -1.0, 1.5, math.nan, True],
            "policy": [None, "tape", 5],
            "resume": ["0.5", 0, -1, 1.5, math.nan],
        }.items()
    ),
    ("LastValueQueue.producer", "max_block", ["3", math.nan], lambda o, x: o.limited().producer(max_block=x)),
    ("LastValueQueue.stats", "on_foreign_commits", [None, "x"], lambda o, x: o.queue.stats(on_foreign_commits=x)),
    ("LastValueQueue.purge", "keys", ["IBM", 5], lambda o, x: o.queue.purge(keys=x)),
    ("LastValueQueue.expire", "older_than", [None, "5", math.nan, -1, math.inf], lambda o, x: o.queue.expire(x)),
    ("LastValueQueue.move", "destination", [None, "q"], lambda o, x: o.queue.move(x)),
    ("LastValueQueue.repair", "start", ["now", math.nan, 1e300], lambda o, x: o.queue.repair(x, dry_run=True)),
    ("View.wait_for", "position", [None, 5], lambda o, x: o.view.wait_for(x)),
    ("View.on_change", "callback", [None, "f"], lambda o, x: o.view.on_change(x)),
    ("Message", "headers", [None, 5, "ab", [1, 2], [("a",)]], lambda o, x: o.producer.send(Message("v", headers=x))),
    ("Producer.put", "headers", [5, "ab"], lambda o, x: o.producer.put("k", "v", x)),
    ("LastValueQueue.declare", "groups", ["sticky", 5, {"mode": "sticky"}], lambda o, x: o.declare(groups=x)),
    *(
        ("Groups", option, bad, lambda o, x, option=option: Groups(**{option: x}))
        for option, bad in {
            "header": [None, 5, "", " ", "\ud800"],
            "mode": [None, 5, "both"],
            "placement": [None, 5, "header"],
            "default": [5, "", "\ud800", "g"],
        }.items()
    ),
    *(
        (name, "group", ["", " ", b"", "\ud800", 5, ["g"]], call)
        for name, call in {
            "Producer.put": lambda o, x: with_groups(o, lambda p: p.put("k", b"v", group=x)),
            "Producer.delete": lambda o, x: with_groups(o, lambda p: p.delete("k", group=x)),
            "Message": lambda o, x: with_groups(o, lambda p: p.send(Message(b"v", group=x))),
        }.items()
    ),
    ("connect", "config", [5, "a=b"], lambda o, x: connect("a:1", config=x)),
    ("connect", "bootstrap_servers", [5, ["a:1"]], lambda o, x: connect(x)),
    ("connect", "cluster", [5, "log"], lambda o, x: connect(cluster=x)),
    ("queues", "cluster", [5], lambda o, x: queues(cluster=x)),
    ("ClientConfig", "bootstrap_servers", [None, 5, "\ud800:1"], lambda o, x: ClientConfig(x)),
    ("ClientConfig", "client.id", ["\ud800"], lambda o, x: ClientConfig("a:1", {"client.id": x})),
    ("ClientConfig", "properties", [5, "a=b", {5: 6}], lambda o, x: ClientConfig("a:1", x)),
    ("ClientConfig.from_file", "path", [None, 5], lambda o, x: ClientConfig.from_file(x)),
    *(
        ("TopicSpec", option, bad, lambda o, x, option=option: TopicSpec(**{option: x}))
        for option, bad in {
            "partitions": ["3", 0, 1.5, math.nan],
            "replication_factor": ["3", 0],
            "delete_retention": [None, "5", math.nan, -1],
            "config": [None, 5, "a=b"],
        }.items()
    ),
    ("TopicSpec", "segment.ms", [5, None], lambda o, x: TopicSpec(config={"segment.ms": x})),
    ("QueueDefinition.from_options", "options", [5], lambda o, x: QueueDefinition.from_options("q", x)),
    ("Codec", "encode", [None, 5], lambda o, x: Codec(x, bytes)),
    ("Codec", "decode", [None, 5], lambda o, x: Codec(bytes, x)),
    ("serializers", "serializer", [5], lambda o, x: serializers(x)),
    ("serializers", "deserializer", [5], lambda o, x: serializers(None, x)),
]


def with_groups(opened: Opened, act: Callable[[Producer[bytes]], object]) -> None:
    with Producer(opened.cluster, rules(topic="q", key_header="k", groups=Groups())) as producer:
        act(producer)


def in_transaction(opened: Opened, act: Callable[[Transaction[str]], object]) -> None:
    with opened.transaction() as transaction:
        act(transaction)


@pytest.mark.parametrize(
    ("option", "bad", "call"),
    [pytest.param(option, bad, call, id=f"{name}({option})") for name, option, bad, call in OTHERS],
)
def test_an_argument_that_is_none_is_refused_by_name(opened: Opened, option: str, bad: list[Any], call: Call) -> None:
    for one in bad:
        with pytest.raises(ConfigError) as caught:
            call(opened, one)
        assert option in caught.value.options, one
        assert not opened.delivery.settled, "nothing was done before"


@pytest.mark.parametrize(
    "bad",
    [None, 5, b"q/0/1", Position, f"q/0/{'9' * 5_000}", f"q/{'9' * 5_000}/0", "q/\N{FULLWIDTH DIGIT ONE}/2", "q/0/-2"],
    ids=lambda bad: repr(bad)[:20],
)
def test_a_text_that_is_no_token_of_a_position_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="is not a position") as caught:
        Position.parse(bad)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("period", [1e12, 1e308])
def test_a_replay_period_longer_than_there_is_time_is_everything(opened: Opened, period: float) -> None:
    """Negative timestamps have special meanings in the protocol."""
    with opened.queue.browser(replay_period=period, follow=False) as browser:
        assert "a" in {event.key for event in browser if isinstance(event, Entry)}  # b may be consumed by now
