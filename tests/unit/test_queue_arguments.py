"""The arguments of `declare` and the other calls that open something: options by name, and unknown ones (R3)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from lvq_kafka import Groups, LastValueQueue, Limits, QueueDefinition, Ttl
from lvq_kafka.core.queue.option_names import OPTION_NAMES
from lvq_kafka.errors import ConfigError, TopicNotFound
from lvq_kafka.testing import MemoryCluster

OF_SYSTEMS: list[dict[str, object]] = [
    {"qpid.last_value_queue_key": "ticker"},
    {"last-value-key": "ticker", "last-value": True, "expiry-delay": 60_000, "non-destructive": "true"},
    {"lvqKey": "ticker", "type": "lvq", "holdOnPublishEnabled": True, "max-delay": 5},
    {"qpid.priorities": "4"},
    {"type": "sorted", "sortKey": "bid", "messageGroupType": "SHARED_GROUPS"},
    {"key-header": "id", "ring-size": 100, "default-selector": "a = 1"},
]


@pytest.mark.parametrize("options", OF_SYSTEMS, ids=lambda options: next(iter(options)))
def test_r3_declare_takes_what_lvq_declare_takes(memory_cluster: MemoryCluster, options: dict[str, object]) -> None:
    expected = QueueDefinition.from_options("q", options)
    queue = LastValueQueue.declare("q", options=options, cluster=memory_cluster)
    assert queue.definition == expected
    again = asyncio.run(LastValueQueue.declare_async("q", options=options, cluster=memory_cluster))
    assert again.definition == LastValueQueue.open("q", cluster=memory_cluster).definition == expected


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ({"key_header": "id"}, {"default-ttl": 60}, {"ttl": Ttl(default=60)}),
        ({"key_header": "id", "order": "priority"}, {"qpid.priorities": 4}, {"order": "priority", "priorities": 4}),
        ({"key_header": "id", "priorities": 4}, {"order": "priority"}, {"order": "priority", "priorities": 4}),
        ({"key_header": "id"}, {"lvqKey": "id"}, {}),
        ({"key_header": None}, {"max-messages": 5}, {"key_header": None, "limits": Limits(messages=5, policy="none")}),
        ({"key_header": "id", "max_delay": 5.0}, {"holdOnPublishEnabled": True}, {"max_delay": 5.0}),
        ({"key_header": "id", "max_delay": 5}, {"max-delay": "5"}, {"max_delay": 5.0}),
        ({"key_header": "id", "groups": Groups()}, {"groups": "sticky"}, {"groups": Groups()}),
        ({"key_header": "id", "ttl": Ttl()}, {"expiry-topic": "late"}, {"ttl": Ttl(), "expiry_topic": "late"}),
        ({"key_header": "id", "conflate": False}, {"ring-size": 5}, {"conflate": False}),
        ({"conflate": False}, {}, {"key_header": None, "conflate": False}),
    ],
)
def test_r3_options_hold_together_with_arguments(
    memory_cluster: MemoryCluster, arguments: dict[str, Any], options: dict[str, object], expected: dict[str, Any]
) -> None:
    if "expiry-topic" in options:
        memory_cluster.topics.create("late", partitions=1, config={"cleanup.policy": "delete"})
    queue = LastValueQueue.declare("q", **arguments, options=options, cluster=memory_cluster)
    for field, value in ({"key_header": "id"} | expected).items():
        assert getattr(queue.definition, field) == value, field


@pytest.mark.parametrize(
    ("arguments", "options", "named", "said"),
    [
        ({"key_header": "a"}, {"lvqKey": "b"}, ("key_header", "lvqKey"), "key_header='a' and lvqKey='b' disagree"),
        ({"key_header": None}, {"lvqKey": "b"}, ("key_header", "lvqKey"), "key_header=None and lvqKey='b' in options"),
        ({"key_header": "a"}, {"type": "standard"}, ("type", "key_header"), "but key_header='a' names a key header"),
        ({"key_header": "a"}, {"qpid.priorities": 4}, ("qpid.priorities", "key_header"), "Say order=priority"),
        (
            {"key_header": "a", "ttl": Ttl(default=5)},
            {"default-ttl": 6},
            ("ttl", "default-ttl"),
            "and default-ttl=6 in options disagree",
        ),
        (
            {"key_header": "a", "order": "sorted"},
            {"order": "tail"},
            ("order", "order"),
            "order='sorted' and order='tail'",
        ),
        (
            {"key_header": "a", "order": "sorted"},
            {"priorities": 4},
            ("order", "priorities"),
            "order=sorted and priorities (for order=priority) exclude each other",
        ),
        (
            {"key_header": "a", "limits": Limits(messages=5, policy="ring")},
            {"ring-size": 6},
            ("limits", "ring-size"),
            "and ring-size=6 in options disagree",
        ),
        (
            {"key_header": "a", "max_delay": 5.0},
            {"holdOnPublishEnabled": False},
            ("holdOnPublishEnabled", "max_delay"),
            "holdOnPublishEnabled=false and max_delay contradict",
        ),
        ({"key_header": "a"}, {"ordr": "tail"}, ("ordr",), "Did you mean order?"),
        ({"key_header": "a"}, {5: "tail"}, ("5",), "5 is not a queue option"),
        ({"key_header": "a"}, "lvqKey=a", ("options",), "options must be a mapping"),
        ({"key_header": "a", "max_delay": "5"}, {"order": "tail"}, ("max_delay",), "max_delay='5' is not a number"),
        ({"key_header": "a", "max_delay": 0}, {"order": "tail"}, ("max_delay",), "max_delay=0 is not a number"),
        ({"key_header": "a", "non_destructive": 0}, {}, ("non_destructive",), "is 0, not True or False"),
        ({}, {}, ("key-header",), "needs the name of its key header"),
        ({}, None, ("key_header",), "The queue q needs the name of its key header"),
    ],
)
def test_r3_arguments_and_options_that_clash_are_named_as_they_were_given(
    memory_cluster: MemoryCluster, arguments: dict[str, Any], options: Any, named: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        LastValueQueue.declare("q", **arguments, options=options, cluster=memory_cluster)
    assert said in str(caught.value)
    assert caught.value.options == named
    with pytest.raises(TopicNotFound):
        memory_cluster.topics.describe("q")


CALLS: dict[str, tuple[str, Callable[[LastValueQueue[bytes], dict[str, Any]], object]]] = {
    "max_delays": ("max_delay", lambda q, x: LastValueQueue.declare("p", key_header="k", cluster=q.cluster, **x)),
    "key_heder": (
        "key_header",
        lambda q, x: asyncio.run(LastValueQueue.declare_async("p", key_header="k", cluster=q.cluster, **x)),
    ),
    "lvqKey": (
        'options={"lvqKey": ...}',
        lambda q, x: LastValueQueue.declare("p", key_header="k", cluster=q.cluster, **x),
    ),
    "default_ttl": (
        'options={"default-ttl": ...}',
        lambda q, x: LastValueQueue.declare("p", key_header="k", cluster=q.cluster, **x),
    ),
    "last-value-keys": (
        'options={"last-value-key": ...}',
        lambda q, x: LastValueQueue.declare("p", key_header="k", cluster=q.cluster, **x),
    ),
    "partitions": (
        "spec=TopicSpec(partitions=...)",
        lambda q, x: LastValueQueue.declare("p", key_header="k", cluster=q.cluster, **x),
    ),
    "bootstrap_server": ("bootstrap_servers", lambda q, x: LastValueQueue.open("q", **x)),
    "clustr": ("cluster", lambda q, x: asyncio.run(LastValueQueue.open_async("q", **x))),
    "key_headers": ("key_header", lambda q, x: LastValueQueue("q", **x)),
    "max_blok": ("max_block", lambda q, x: q.producer(**x)),
    "transaction_id": ("transactional_id", lambda q, x: asyncio.run(q.producer_async(**x))),
    "catchup_timeout": ("catch_up_timeout", lambda q, x: q.view(**x)),
    "were": ("where", lambda q, x: q.view(**x)),
    "replay": ("replay_period", lambda q, x: q.browser(**x)),
    "prefixes": ("prefix", lambda q, x: q.browser(**x)),
    "prefech": ("prefetch", lambda q, x: q.consumer(**x)),
    "lock_time": ("lock_timeout", lambda q, x: asyncio.run(q.consumer_async(**x))),
    "evry": ("every", lambda q, x: watch(q, x)),
    "tll": ("ttl", lambda q, x: put(q, x)),
    "priorities": ("priority", lambda q, x: asyncio.run(put_async(q, x))),
}


def watch(queue: LastValueQueue[bytes], unknown: dict[str, Any]) -> object:
    with queue.view() as view:
        return view.watch(**unknown)


def put(queue: LastValueQueue[bytes], unknown: dict[str, Any]) -> object:
    with queue.producer() as producer:
        return producer.put("a", b"1", **unknown)


async def put_async(queue: LastValueQueue[bytes], unknown: dict[str, Any]) -> object:
    async with queue.producer() as producer:
        return await producer.put_async("a", b"1", **unknown)


@pytest.mark.parametrize("unknown", CALLS)
def test_r3_an_unknown_argument_is_refused_and_names_the_nearest(memory_cluster: MemoryCluster, unknown: str) -> None:
    queue = LastValueQueue.declare("q", key_header="k", cluster=memory_cluster)
    nearest, call = CALLS[unknown]
    with pytest.raises(ConfigError) as caught:
        call(queue, {unknown: 5})
    assert caught.value.options == (unknown,)
    assert f"takes no argument {unknown}." in str(caught.value)
    assert nearest in caught.value.hint.replace("'", '"')


def test_r3_a_misspelt_argument_of_declare_is_not_sent_to_its_options(memory_cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError) as caught:
        LastValueQueue.declare("q", key_heder="k", cluster=memory_cluster)  # type: ignore[call-arg]
    assert caught.value.hint == "Did you mean key_header?"


def test_r3_an_unknown_argument_that_resembles_none_lists_them(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("q", key_header="k", cluster=memory_cluster)
    with pytest.raises(ConfigError, match=r"producer takes no argument xyz\. It takes max_block, transactional_id"):
        queue.producer(xyz=1)  # type: ignore[call-arg]


def test_a_consumer_still_says_why_it_cannot_select(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("q", key_header="k", cluster=memory_cluster)
    with pytest.raises(ConfigError, match="A consumer cannot have where"):
        queue.consumer(where=bool)  # type: ignore[call-arg]


def test_signatures_are_as_they_are_written() -> None:
    assert {"spec", "given"} < inspect.signature(LastValueQueue.declare).parameters.keys()
    assert [*inspect.signature(LastValueQueue.producer).parameters] == ["self", "options"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lastValueKey", "Pass it in options: options={'last-value-key': ...}."),
        (
            "lastValuKey",
            "Did you mean last-value-key? Pass it in options: options={",
        ),
        ("autoDelete", "It sets nothing: a queue stays until it is dropped. "),
        ("foo", "It takes bootstrap_servers, "),
    ],
)
def test_r3_an_argument_that_is_an_option_elsewhere_says_where_it_belongs(
    memory_cluster: MemoryCluster, name: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        LastValueQueue.declare("q", key_header="k", cluster=memory_cluster, **{name: "k"})
    assert caught.value.hint.startswith(hint)
    listed = "`lvq options` lists the names that options= takes."
    assert caught.value.hint.endswith(listed) == (name in ("lastValuKey", "foo"))


def test_every_option_of_the_systems_is_known_to_declare(memory_cluster: MemoryCluster) -> None:
    """None of them is an unknown option; the one that is gets named first."""
    for option in (row.name for row in OPTION_NAMES):
        with pytest.raises(ConfigError) as caught:
            LastValueQueue.declare("q", key_header="k", options={option: "?", "x": 1}, cluster=memory_cluster)
        assert f"{option} is not a queue option" not in str(caught.value)
