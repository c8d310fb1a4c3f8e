"""The table of option names: it has every name of the systems' documents, and none is answered wrongly."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.option_names import (
    CHOICES,
    FIELDS,
    OPTION_NAMES,
    SYSTEMS,
    Fixed,
    Mapped,
    OptionName,
    explanation,
    option_named,
    spellings,
)
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError

MAPPED = [row for row in OPTION_NAMES if isinstance(row.meaning, Mapped)]
FIXED = [row for row in OPTION_NAMES if isinstance(row.meaning, Fixed)]

OF_THE_DOCUMENTS = {
    "qpid-cpp": "qpid.last_value_queue_key create node x-declare arguments",
    "artemis": "last-value-key lastValue lastValueKey default-last-value-key last-value default-last-value-queue "
    "last-value-queue non-destructive nonDestructive default-non-destructive expiry-delay min-expiry-delay "
    "max-expiry-delay no-expiry expiry-address multicast match address name _AMQ_LVQ_NAME HDR_LAST_VALUE_NAME",
    "qpid-m4": "ordering qpid.last_value_queue qpid.last_value_queue_no_browse qpid.LVQ_key exclusive autoDelete "
    "auto_delete broker port username password mechanism tcp-nodelay mode accept-mode acquire-mode",
    "broker-j": "type priorities sortKey lvqKey messageGroupKey messageGroupKeyOverride messageGroupType "
    "messageGroupDefaultGroup JMSXGroupID ensureNondestructiveConsumers qpid.ensure_nondestructive_consumers "
    "minimumMessageTtl maximumMessageTtl x-qpid-minimum-message-ttl x-qpid-replay-period defaultFilters "
    "holdOnPublishEnabled x-qpid-not-valid-before overflowPolicy maximumQueueDepthMessages maximumQueueDepthBytes "
    "queue.queueFlowResumeLimit queueFlowResumeLimit prefetch exclusive lifetimePolicy durable messageDurability "
    "maximumDeliveryAttempts alternateBinding maximumLiveConsumers",
    "ftl": "keyField matcher dynamic static endpoint durable-name subscriber-name prefetch",
}
"""The names in the documents of each system, and those that their users tried here."""


def declared(options: dict[str, Any], **more: Any) -> QueueDefinition:
    return QueueDefinition.from_options("q", options, **more)


@pytest.mark.parametrize(
    ("system", "name"), [(system, name) for system, names in OF_THE_DOCUMENTS.items() for name in names.split()]
)
def test_a_name_of_the_documents_is_known_to_its_system(system: str, name: str) -> None:
    row = option_named(name)
    assert row is not None
    assert system in row.systems
    assert explanation(row)


def test_every_option_is_known_in_any_case_and_with_any_separators() -> None:
    for row in OPTION_NAMES:
        for name in (row.name.upper(), row.name.replace("-", "_"), row.name.replace(".", " ").replace("_", "-")):
            assert option_named(name) is row


def test_names_are_of_systems_that_exist_and_each_system_has_some() -> None:
    assert {system for row in OPTION_NAMES for system in row.systems} == SYSTEMS.keys()


def test_every_field_of_a_definition_can_be_set_by_a_name_of_this_library() -> None:
    parts = {"ttl": Ttl, "default_filters": DefaultFilters, "groups": Groups, "limits": Limits}
    expected = {field.name for field in fields(QueueDefinition) if field.compare} - {"name", "topic", *parts} | {
        f"{part}.{field.name}" for part, kind in parts.items() for field in fields(kind)
    }
    own = {row.meaning.sets for row in MAPPED if "lvq" in row.systems and isinstance(row.meaning, Mapped)}
    assert expected <= own
    assert own <= FIELDS.keys()


def companions(row: OptionName) -> dict[str, object]:
    """Return other options without which one has no meaning."""
    assert isinstance(row.meaning, Mapped)
    needed: dict[str, object] = {"key-header": "k"}
    if row.meaning.brings.keys() & {"order"} or row.meaning.sets in ("type", "conflate"):
        needed["order"] = row.meaning.brings.get("order", "tail")
    match row.meaning.sets:
        case "key_header":
            return {}
        case "conflate" if row.meaning.example == "false":
            return {}
        case "order":
            return {"key-header": "k"}
        case "expiry_topic":
            return needed | {"max-ttl": 60}
        case "expiry_policy":
            return needed
        case "groups.default":
            return needed | {"groups": "shared"}
        case "limits.policy":
            return needed | {"max-messages": 5}
        case "limits.resume":
            return needed | {"max-messages": 5, "overflow": "block"}
        case "limits.resume_messages" | "limits.resume_bytes":
            return needed | {row.meaning.needs: 1000, "overflow": "block"}
        case _:
            return needed


@pytest.mark.parametrize("row", MAPPED, ids=[row.name for row in MAPPED])
def test_the_example_of_an_option_is_understood(row: OptionName) -> None:
    assert isinstance(row.meaning, Mapped)
    with_it = declared(companions(row) | {row.name: row.meaning.example})
    without = QueueDefinition(name="q", topic="q", key_header="k")
    unusual = row.meaning.sets in ("conflate", "type", "expiry_policy", "hold", "order", "key_mismatch")
    assert with_it != without or unusual, "it sets nothing"


@pytest.mark.parametrize("row", FIXED, ids=[row.name for row in FIXED])
def test_an_option_that_sets_nothing_is_accepted_where_it_asks_for_nothing_and_else_refused_with_the_reason(
    row: OptionName,
) -> None:
    meaning = row.meaning
    assert isinstance(meaning, Fixed)
    plain = declared({"key-header": "k"})
    for value in meaning.accepts or ():
        assert declared({"key-header": "k", row.name: value.upper()}) == plain
    if meaning.accepts is None:
        assert declared({"key-header": "k", row.name: "anything"}) == plain
        return
    with pytest.raises(ConfigError) as caught:
        declared({"key-header": "k", row.name: "something"})
    assert caught.value.options == (row.name,)
    assert meaning.reason in str(caught.value)


def test_any_negative_number_is_off_where_minus_one_is() -> None:
    for row in FIXED:
        assert isinstance(row.meaning, Fixed)
        if "-1" in (row.meaning.accepts or ()):
            declared({"key-header": "k", row.name: "-7"})
    for name, off in (("expiry-delay", -5), ("maximumMessageTtl", "-9"), ("max-messages", "-3"), ("ring-size", -2)):
        assert declared({"key-header": "k", name: off}) == declared({"key-header": "k"})


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("defaultFilter", "default-filters"),
        ("last-valu-key", "last-value-key"),
        ("maximumQueueDepthMesages", "maximumQueueDepthMessages"),
        ("non-destuctive", "non-destructive"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_name(slip: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared({"key-header": "k", slip: "1"})
    assert caught.value.hint == f"Did you mean {meant}? `lvq options` lists all of them."


def test_options_that_set_the_same_are_spellings_of_each_other() -> None:
    for row in OPTION_NAMES:
        assert row in spellings(row)
        for other in spellings(row):
            assert spellings(other) == spellings(row)


TEXT = st.one_of(st.text(max_size=40), st.sampled_from([row.name for row in OPTION_NAMES]))
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from(["1e400", "-1", "0", "1_0", "٣", "9" * 5000, "nan"]))
WORDS = st.sampled_from(["true", "off", *SYSTEMS, *(word for _, words in CHOICES.values() for word in words)])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@given(options=st.dictionaries(TEXT, JSON, max_size=4), record_key=st.booleans())
def test_any_options_give_a_definition_that_can_be_stored_or_an_error_of_the_user(
    options: dict[str, Any], record_key: bool
) -> None:
    try:
        definition = declared(options, record_key=record_key)
    except ConfigError:
        return
    assert QueueDefinition.from_json(definition.to_json(), name="q") == definition


@given(row=st.sampled_from(MAPPED), value=JSON)
def test_any_value_of_an_option_gives_a_definition_or_an_error_of_the_user(row: OptionName, value: object) -> None:
    try:
        definition = declared(companions(row) | {row.name: value}, record_key=True)
    except ConfigError:
        return
    assert QueueDefinition.from_json(definition.to_json(), name="q") == definition


NUMERIC = [row for row in MAPPED if isinstance(row.meaning, Mapped) and row.meaning.example.rstrip("M").isdigit()]


@pytest.mark.parametrize("row", NUMERIC, ids=[row.name for row in NUMERIC])
@pytest.mark.parametrize("value", ["nan", "inf", "1e400", "soon", "", "1.5.2", 10**400, "9" * 400, float("nan")])
def test_a_number_beyond_the_bounds_of_an_option_is_refused_by_its_name(row: OptionName, value: object) -> None:
    if isinstance(row.meaning, Mapped) and row.meaning.sets == "conflate":
        return
    with pytest.raises(ConfigError) as caught:
        declared(companions(row) | {row.name: value})
    assert row.name in caught.value.options
