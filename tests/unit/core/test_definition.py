"""Definitions: accepted and refused values, and storage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.timing.delay import LONGEST_DELAY
from lvq_kafka.core.timing.ttl import LONGEST_TTL, Ttl
from lvq_kafka.errors import ConfigError


def definition(**changes: Any) -> QueueDefinition:
    return QueueDefinition(**{"name": "prices", "topic": "prices", "key_header": "ticker", **changes})


@pytest.mark.parametrize("name", ["lvq-ttl", "lvq-group", "lvq-unkeyed"])
def test_r22_no_key_header_has_a_reserved_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' cannot be the key header"):
        QueueDefinition(name="q", topic="q", key_header=name)


def test_the_stored_form_is_golden() -> None:
    assert definition().to_json() == (
        b'{"key_header": "ticker", "key_mismatch": "record", "keyless": "pass", "name": "prices", '
        b'"non_destructive": false, "order": "tail", "topic": "prices", "version": 1}'
    )


def test_with_a_ttl_the_stored_form_is_version_2_which_older_clients_refuse() -> None:
    assert definition(ttl=Ttl(default=60, maximum=86400.5)).to_json() == (
        b'{"key_header": "ticker", "key_mismatch": "record", "keyless": "pass", "name": "prices", '
        b'"non_destructive": false, "order": "tail", "topic": "prices", '
        b'"ttl": {"default_ms": 60000, "maximum_ms": 86400500}, "version": 2}'
    )


def test_with_a_longest_delay_the_stored_form_is_version_2() -> None:
    assert definition(max_delay=86400.0005).to_json() == (
        b'{"key_header": "ticker", "key_mismatch": "record", "keyless": "pass", "max_delay": {"ms": 86400000}, '
        b'"name": "prices", "non_destructive": false, "order": "tail", "topic": "prices", "version": 2}'
    )
    assert definition(max_delay=86400.0005) == definition(max_delay=86400), "as it is stored"
    assert definition(max_delay=None).to_json() == definition().to_json()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_delay": 0.001},
        {"max_delay": 1 / 3, "ttl": Ttl(maximum=5), "selector": "price > 5"},
        {"max_delay": LONGEST_DELAY},
        {"key_header": None, "topic": "other"},
        {"keyless": "refuse", "order": "in-place", "key_mismatch": "fail", "non_destructive": True},
        {"ttl": Ttl()},
        {"ttl": Ttl(never=True)},
        {"ttl": Ttl(default=0.001, minimum=0.001, maximum=LONGEST_TTL)},
        {"ttl": Ttl(default=1 / 3)},
        {"selector": "price > 5", "default_filters": DefaultFilters(replay_period=0.5, selector="price > 7")},
        {"default_filters": DefaultFilters(replay_period=1 / 3)},
        {"default_filters": DefaultFilters(replay_period=0)},
    ],
)
def test_a_definition_survives_its_stored_form(changes: dict[str, Any]) -> None:
    mine = definition(**changes)
    assert QueueDefinition.from_json(mine.to_json(), name="prices") == mine


@pytest.mark.parametrize(
    ("options", "ttl"),
    [
        ({"ttl": "true"}, Ttl()),
        ({"ttl": "false"}, None),
        ({"default-ttl": "60", "min-ttl": 1, "max-ttl": "86400"}, Ttl(default=60.0, minimum=1.0, maximum=86400.0)),
        ({"minimumMessageTtl": 500, "maximumMessageTtl": "60000"}, Ttl(minimum=0.5, maximum=60.0)),
        ({"minimumMessageTtl": 0, "maximumMessageTtl": 0}, None),
        ({"expiry-delay": 100, "min-expiry-delay": -1, "max-expiry-delay": "2000"}, Ttl(default=0.1, maximum=2.0)),
        ({"no-expiry": "true"}, Ttl(never=True)),
        ({"max-ttl": "5", "maximumMessageTtl": 5000}, Ttl(maximum=5.0)),
        ({"no-expiry": "false"}, None),
    ],
)
def test_options_of_other_brokers_give_a_ttl(options: dict[str, object], ttl: Ttl | None) -> None:
    assert QueueDefinition.from_options("prices", {"key-header": "ticker", **options}) == definition(ttl=ttl)


@pytest.mark.parametrize(
    ("options", "said", "culprits"),
    [
        ({"max-ttl": "soon"}, "max-ttl='soon' is not a number", ("max-ttl",)),
        ({"max-ttl": "0"}, "max-ttl='0' is not a number of seconds from 0.001", ("max-ttl",)),
        ({"max-ttl": 5, "maximumMessageTtl": 6}, "max-ttl=5 and maximumMessageTtl=6", ("max-ttl", "maximumMessageTtl")),
        ({"max-ttl": 5, "maximumMessageTtl": 5}, "max-ttl=5 and maximumMessageTtl=5", ("max-ttl", "maximumMessageTtl")),
        ({"ttl": "false", "no-expiry": "true", "expiry-delay": -1}, "but no-expiry limits it", ("ttl", "no-expiry")),
        ({"max-ttl": 5, "min-ttl": 6}, "min-ttl=6 exceeds max-ttl=5", ("min-ttl", "max-ttl")),
        ({"ttl": "false", "max-ttl": 5}, "ttl=false says that messages carry no TTL", ("ttl", "max-ttl")),
        ({"no-expiry": "true", "max-ttl": 5}, "no-expiry='true' and max-ttl=5 contradict", ("no-expiry", "max-ttl")),
    ],
)
def test_options_of_time_that_make_no_sense_are_named(
    options: dict[str, object], said: str, culprits: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        QueueDefinition.from_options("prices", {"key-header": "ticker", **options})
    assert caught.value.options == culprits


@pytest.mark.parametrize("max_delay", [0, -1, 0.0004, "60", True, float("nan"), float("inf"), LONGEST_DELAY + 1, {}])
def test_r11_a_longest_delay_is_a_number_of_seconds(max_delay: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"max_delay=.* is not a number of seconds from 0.001 to 31,536,000"
    ) as caught:
        definition(max_delay=max_delay)
    assert caught.value.options == ("max_delay",)


@pytest.mark.parametrize(
    ("options", "max_delay"),
    [
        ({"max-delay": "60"}, 60.0),
        ({"max-delay": 0.5, "holdOnPublishEnabled": "true"}, 0.5),
        ({"holdOnPublishEnabled": "false"}, None),
        ({}, None),
    ],
)
def test_r11_options_of_brokers_let_messages_be_scheduled(options: dict[str, object], max_delay: float | None) -> None:
    made = QueueDefinition.from_options("prices", {"key-header": "ticker", **options})
    assert made == definition(max_delay=max_delay)


@pytest.mark.parametrize(
    ("options", "said", "culprits"),
    [
        ({"max-delay": "soon"}, "max-delay='soon' is not a number", ("max-delay",)),
        ({"max-delay": "0"}, "max-delay='0' is not a number of seconds from 0.001", ("max-delay",)),
        ({"max-delay": "nan"}, "max-delay='nan' is not a number of seconds from 0.001", ("max-delay",)),
        (
            {"holdOnPublishEnabled": "true"},
            "holdOnPublishEnabled=true needs max-delay: the topic is not compacted for as long",
            ("holdOnPublishEnabled", "max-delay"),
        ),
        (
            {"holdOnPublishEnabled": "false", "max-delay": 5},
            "holdOnPublishEnabled=false and max-delay contradict each other",
            ("holdOnPublishEnabled", "max-delay"),
        ),
        ({"holdOnPublishEnabled": "perhaps"}, "is neither true nor false", ("holdOnPublishEnabled",)),
        ({"max-dealy": 5}, "Did you mean max-delay", ("max-dealy",)),
    ],
)
def test_r11_options_of_delays_that_make_no_sense_are_named(
    options: dict[str, object], said: str, culprits: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        QueueDefinition.from_options("prices", {"key-header": "ticker", **options})
    assert caught.value.options == culprits


@pytest.mark.parametrize("ttl", [5, "60", {}])
def test_a_ttl_is_a_ttl(ttl: Any) -> None:
    with pytest.raises(ConfigError, match="ttl must be a Ttl"):
        definition(ttl=ttl)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 3}, "version 3"),
        ({"ttl": 5}, "unknown fields ttl"),
        ({"version": 2, "size": 5}, "unknown fields size"),
        ({"version": 2, "ttl": 5}, "malformed: ttl has 5"),
        ({"version": 2, "ttl": {"jitter_ms": 5}}, "ttl has unknown fields jitter_ms"),
        ({"version": 2, "ttl": {"default_ms": "5"}}, "default_ms='5' is not a whole number"),
        ({"version": 2, "ttl": {"default_ms": -5}}, "default=-0.005 is not a number of seconds"),
        ({"version": 2, "ttl": {"default_ms": 10**400}}, "default=inf is not a number of seconds"),
        ({"version": 2, "ttl": {"never": 1}}, "never=1 is neither True nor False"),
        ({"max_delay": {"ms": 5}}, "unknown fields max_delay"),
        *(
            ({"version": 2, "max_delay": part}, "malformed: max_delay=.* does not say a whole number of ms")
            for part in (5, "5", None, [], {}, {"ms": "5"}, {"ms": 5.0}, {"ms": True}, {"ms": 5, "jitter": 1})
        ),
        *(
            ({"version": 2, "max_delay": {"ms": ms}}, "malformed: max_delay=.* is not a number of seconds from 0.001")
            for ms in (0, -5, 31_536_000_001, 10**400)
        ),
        ({"selector": "price > 5"}, "unknown fields selector"),
        ({"version": 2, "selector": ""}, "malformed: selector='' is empty"),
        ({"version": 2, "selector": 5}, "selector=5 is not text"),
        ({"version": 2, "default_filters": 5}, "default_filters has 5"),
        ({"version": 2, "default_filters": {"x": 5}}, "default_filters has {'x': 5}"),
        ({"version": 2, "default_filters": {"replay_period_ms": "5"}}, "replay_period_ms='5' is not a whole number"),
        ({"version": 2, "default_filters": {"replay_period_ms": 10**400}}, "replay_period must be a non-negative"),
        ({"version": 2, "default_filters": {"replay_period_ms": -5}}, "replay_period must be a non-negative"),
        ({"name": "other"}, "names another queue"),
        ({"order": "random"}, "not a valid order"),
        ({"version": 2, "conflate": "x" * 1000}, r"conflate='x+'… \(1,000 characters\) is not false"),
    ],
)
def test_an_unknown_stored_form_is_refused(changes: dict[str, Any], said: str) -> None:
    stored = json.loads(definition().to_json()) | changes
    with pytest.raises(ConfigError, match=said):
        QueueDefinition.from_json(json.dumps(stored).encode(), name="prices")


@pytest.mark.parametrize("stored", [b"", b"[]", b"{", b"\xff", b'{"version": 1}'])
def test_an_unreadable_stored_form_is_refused(stored: bytes) -> None:
    with pytest.raises(ConfigError, match="prices"):
        QueueDefinition.from_json(stored, name="prices")


@pytest.mark.parametrize("header", ["", 5, b"ticker", False])
def test_r3_an_empty_or_odd_key_header_is_an_error(header: Any) -> None:
    with pytest.raises(ConfigError, match="key header") as caught:
        definition(key_header=header)
    assert caught.value.options == ("key_header",)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 201, ".", "..", None])
def test_a_name_that_kafka_would_not_take_is_an_error(name: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a queue"):
        definition(name=name)


@pytest.mark.parametrize("option", ["key-header", "last-value-key", "qpid.last_value_queue_key", "lvqKey"])
def test_the_key_header_can_be_given_by_any_brokers_option(option: str) -> None:
    assert QueueDefinition.from_options("prices", {option: "ticker"}) == definition()


def test_options_are_read_by_value() -> None:
    made = QueueDefinition.from_options(
        "q",
        {"last-value": "true", "lvqKey": "k", "non-destructive": "yes", "order": "in-place", "keyless": "refuse"},
        topic="t",
    )
    assert made == QueueDefinition(
        name="q", topic="t", key_header="k", order="in-place", keyless="refuse", non_destructive=True
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"last-value": "false", "lvqKey": "k"}, ("last-value", "lvqKey")),
        ({"lvqKey": "a", "last-value-key": "b"}, ("last-value-key", "lvqKey")),
        ({"lvqKey": "a", "qpid.priorities": 10}, ("qpid.priorities", "lvqKey")),
        ({"lvqKey": "a", "qpid.paging": "true"}, ("qpid.paging",)),
        ({"last-value": "maybe", "lvqKey": "a"}, ("last-value",)),
        ({"last-value": True, "qpid.last_value_queue": 1}, ("last-value", "qpid.last_value_queue")),
        ({"lvqKey": "a", "ordr": "tail"}, ("ordr",)),
    ],
)
def test_r3_clashing_and_unknown_options_are_errors_that_name_them(
    options: dict[str, object], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        QueueDefinition.from_options("q", options)
    assert caught.value.options == named
    assert all(option in str(caught.value) for option in named)


def test_an_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean order"):
        QueueDefinition.from_options("q", {"lvqKey": "a", "ordr": "tail"})


# --- where expired messages go ------------------------------------------------------------------------------------


def test_an_expiry_topic_is_part_of_version_2() -> None:
    definition = QueueDefinition(name="q", topic="t", key_header="k", ttl=Ttl(), expiry_topic="gone")
    assert b'"expiry_topic": "gone"' in definition.to_json()
    assert b'"version": 2' in definition.to_json()
    assert QueueDefinition.from_json(definition.to_json(), name="q") == definition


@pytest.mark.parametrize(
    ("options", "said", "names"),
    [
        ({"ttl": None}, "is for messages that expire, and none does", ("expiry_topic", "ttl")),
        ({"ttl": Ttl(never=True)}, "is for messages that expire, and none does", ("expiry_topic", "ttl")),
        ({"non_destructive": True}, "exclude each other: consumers write", ("expiry_topic", "non_destructive")),
        ({"expiry_topic": "t"}, "expiry_topic='t' is the queue's own topic", ("expiry_topic",)),
        ({"expiry_topic": "__x"}, "has a name reserved by Kafka", ("expiry_topic",)),
        ({"expiry_topic": "a b"}, "cannot be the name of a topic", ("expiry_topic",)),
        ({"expiry_topic": 5}, "expiry_topic=5 cannot be the name of a topic", ("expiry_topic",)),
    ],
)
def test_an_expiry_topic_that_makes_no_sense_is_refused(
    options: dict[str, Any], said: str, names: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        QueueDefinition(
            **{"name": "q", "topic": "t", "key_header": "k", "ttl": Ttl(), "expiry_topic": "gone"} | options
        )
    assert caught.value.options == names


@pytest.mark.parametrize(
    ("options", "topic"),
    [
        ({"expiry-topic": "gone"}, "gone"),
        ({"expiry-address": "gone"}, "gone"),
        ({"expiryPolicy": "ROUTE_TO_ALTERNATE", "expiry-topic": "gone"}, "gone"),
        ({"expiryPolicy": "DELETE"}, None),
    ],
)
def test_an_expiry_topic_has_its_names_in_other_brokers(options: dict[str, object], topic: str | None) -> None:
    assert QueueDefinition.from_options("q", {"lvqKey": "k", "ttl": True, **options}).expiry_topic == topic


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"expiryPolicy": "ROUTE_TO_ALTERNATE"}, "needs the name of a topic in expiry-topic"),
        ({"expiryPolicy": "DELETE", "expiry-address": "gone"}, "DELETE needs none"),
        ({"expiryPolicy": "KEEP"}, "Choose one of DELETE, ROUTE_TO_ALTERNATE"),
        ({"expiry-topic": "gone", "expiry-address": "other"}, "disagree"),
    ],
)
def test_names_of_an_expiry_topic_that_disagree_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        QueueDefinition.from_options("q", {"lvqKey": "k", "ttl": True, **options})


# --- orders by rank -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "made", "stored"),
    [
        ({"order": "priority"}, {"order": "priority", "priorities": 10}, b'"priorities": 10'),
        ({"order": "priority", "priorities": 2}, {"order": "priority", "priorities": 2}, b'"priorities": 2'),
        ({"order": "sorted"}, {"order": "sorted", "sort_header": "lvq-sort"}, b'"sort_header": "lvq-sort"'),
        ({"order": "sorted", "sort_header": "ü"}, {"order": "sorted", "sort_header": "ü"}, b'"sort_header": "\\u00fc"'),
    ],
)
def test_r20_an_order_by_rank_is_part_of_version_2(
    options: dict[str, Any], made: dict[str, Any], stored: bytes
) -> None:
    definition = QueueDefinition(name="q", topic="t", key_header="k", **options)
    assert {field: getattr(definition, field) for field in made} == made
    assert QueueRules.of(definition).order.place == "tail"
    written = definition.to_json()
    assert b'"version": 2' in written
    assert stored in written
    assert QueueDefinition.from_json(written, name="q") == definition
    assert definition == QueueDefinition(name="q", topic="t", key_header="k", **made)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"priorities": 5}, ("priorities", "order")),
        ({"priorities": 5, "order": "sorted"}, ("priorities", "order")),
        ({"sort_header": "a"}, ("sort_header", "order")),
        ({"sort_header": "a", "order": "priority"}, ("sort_header", "order")),
        ({"order": "priority", "priorities": 1}, ("priorities",)),
        ({"order": "priority", "priorities": 11}, ("priorities",)),
        ({"order": "priority", "priorities": True}, ("priorities",)),
        ({"order": "priority", "priorities": "5"}, ("priorities",)),
        ({"order": "sorted", "sort_header": " "}, ("sort_header",)),
        ({"order": "sorted", "sort_header": 7}, ("sort_header",)),
        ({"order": "sorted", "sort_header": "a\0b"}, ("sort_header",)),
        ({"order": "sorted", "sort_header": "\ud800"}, ("sort_header",)),
        ({"order": "sorted", "sort_header": "lvq-priority"}, ("sort_header",)),
        ({"order": "sorted", "sort_header": "lvq-unkeyed"}, ("sort_header",)),
    ],
)
def test_r20_options_of_an_order_that_make_no_sense_are_named(options: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        QueueDefinition(name="q", topic="t", key_header="k", **options)
    assert caught.value.options == named


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({"lvqKey": "k", "order": "priority"}, {"order": "priority"}),
        ({"lvqKey": "k", "order": "priority", "qpid.priorities": "5"}, {"order": "priority", "priorities": 5}),
        ({"lvqKey": "k", "order": "sorted", "sort-header": "a"}, {"order": "sorted", "sort_header": "a"}),
        (
            {"key-header": "k", "conflate": "false", "sortKey": "a"},
            {"conflate": False, "order": "sorted", "sort_header": "a"},
        ),
    ],
)
def test_r20_an_order_by_rank_goes_with_a_key_header(options: dict[str, object], made: dict[str, Any]) -> None:
    assert QueueDefinition.from_options("q", options) == QueueDefinition(name="q", topic="q", key_header="k", **made)


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({"type": "priority"}, {"order": "priority"}),
        ({"type": "Priority", "priorities": 3}, {"order": "priority", "priorities": 3}),
        ({"priorities": "3"}, {"order": "priority", "priorities": 3}),
        ({"qpid.priorities": 3, "x-qpid-priorities": 3}, {"order": "priority", "priorities": 3}),
        ({"x-qpid-priorities": 3, "conflate": "no"}, {"order": "priority", "priorities": 3}),
        ({"type": "sorted"}, {"order": "sorted"}),
        ({"type": "sorted", "sortKey": "a"}, {"order": "sorted", "sort_header": "a"}),
        ({"qpid.queue_sort_key": "a"}, {"order": "sorted", "sort_header": "a"}),
        ({"type": "standard", "order": "sorted"}, {"order": "sorted"}),
    ],
)
def test_r20_queues_of_other_brokers_with_an_order_by_rank_do_not_conflate(
    options: dict[str, object], made: dict[str, Any]
) -> None:
    wanted = QueueDefinition(name="q", topic="q", key_header=None, conflate=False, **made)
    assert QueueDefinition.from_options("q", options) == wanted


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lvqKey": "k", "priorities": 5}, ("priorities", "lvqKey")),
        ({"lvqKey": "k", "sortKey": "a"}, ("sortKey", "lvqKey")),
        ({"last-value": "true", "qpid.priorities": 5}, ("qpid.priorities", "last-value")),
        ({"type": "lvq", "qpid.queue_sort_key": "a"}, ("qpid.queue_sort_key", "type")),
        ({"type": "standard", "priorities": 5}, ("priorities", "type")),
        ({"type": "priority", "lvqKey": "k"}, ("type", "lvqKey")),
        ({"type": "priority", "sortKey": "a"}, ("type", "sortKey")),
        ({"type": "sorted", "priorities": 5}, ("type", "priorities")),
        ({"priorities": 5, "sortKey": "a"}, ("priorities", "sortKey")),
        ({"priorities": 5, "qpid.priorities": 6}, ("priorities", "qpid.priorities")),
        ({"order": "tail", "type": "priority"}, ("order", "type")),
        ({"lvqKey": "k", "order": "in-place", "sort-header": "a"}, ("order", "sort-header")),
        ({"lvqKey": "k", "order": "priority", "priorities": "some"}, ("priorities",)),
        ({"type": "priority", "priorities": "99"}, ("priorities",)),
        ({"type": "priority", "last-value": "true"}, ("type", "last-value")),
    ],
)
def test_r3_options_of_an_order_that_clash_are_both_named(options: dict[str, object], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        QueueDefinition.from_options("q", options)
    assert caught.value.options == named


def test_r3_an_endless_order_is_not_repeated_in_full() -> None:
    with pytest.raises(ConfigError, match=r"order=x+… \(1,000 characters\) and priorities \(for order=priority\)"):
        QueueDefinition.from_options("q", {"lvqKey": "k", "order": "x" * 1000, "priorities": 5})
