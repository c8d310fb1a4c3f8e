"""Groups in definitions, and their options under the names of other brokers (R36)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.message_groups import NO_GROUP, Groups, encode_group
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.errors import ConfigError


def definition(**options: Any) -> QueueDefinition:
    return QueueDefinition(name="q", topic="q", key_header="id", **options)


def declared(options: dict[str, object]) -> Groups | None:
    return QueueDefinition.from_options("q", {"key-header": "id", **options}).groups


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ({}, None),
        ({"groups": "sticky"}, Groups()),
        ({"groups": "shared"}, Groups(mode="shared")),
        ({"group-header": "customer"}, Groups(header="customer")),
        ({"groups": "shared", "default-group": "rest"}, Groups(mode="shared", default="rest")),
        ({"groups": "sticky", "place-by": "group"}, Groups(placement="group")),
        ({"place-by": "key"}, Groups()),
        ({"messageGroupType": "NONE"}, None),
        ({"messageGroupType": "STANDARD"}, Groups(header="JMSXGroupID")),
        ({"messageGroupType": "shared_groups"}, Groups(header="JMSXGroupID", mode="shared", default=NO_GROUP)),
        (
            {"messageGroupType": "SHARED_GROUPS", "messageGroupKeyOverride": "k", "messageGroupDefaultGroup": "d"},
            Groups(header="k", mode="shared", default="d"),
        ),
        ({"messageGroupKeyOverride": "k", "messageGroupSharedGroups": "false"}, Groups(header="k")),
        ({"qpid.group_header_key": "k"}, Groups(header="k")),
        ({"qpid.group_header_key": "k", "qpid.shared_msg_group": "1"}, Groups(header="k", mode="shared")),
        (
            {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1, "qpid.default-message-group": "d"},
            Groups(header="k", mode="shared", default="d"),
        ),
        (
            {"groups": "shared", "messageGroupType": "SHARED_GROUPS", "group-header": "k"},
            Groups(header="k", mode="shared"),
        ),
        ({"group-rebalance": "false", "group-buckets": "-1", "groups": "sticky"}, Groups()),
        ({"group-rebalance": "false"}, None),
    ],
)
def test_r36_options_of_brokers_make_groups(options: dict[str, object], groups: Groups | None) -> None:
    assert declared(options) == groups


@pytest.mark.parametrize(
    ("options", "said", "culprits"),
    [
        ({"groups": "both"}, "groups='both' is not a kind of groups. Choose one of sticky, shared", ("groups",)),
        (
            {"messageGroupType": "SOME"},
            "messageGroupType='SOME' is not a kind of groups",
            ("messageGroupType",),
        ),
        (
            {"place-by": "header"},
            "place-by='header' is not what a message is placed by",
            ("place-by",),
        ),
        ({"group-header": " "}, "group-header must be text that is not blank", ("group-header",)),
        ({"groups": "shared", "default-group": ""}, "default-group must be text", ("default-group",)),
        ({"qpid.shared_msg_group": "perhaps"}, "neither true nor false", ("qpid.shared_msg_group",)),
        (
            {"groups": "sticky", "messageGroupType": "SHARED_GROUPS"},
            "groups asks for sticky groups, and messageGroupType for shared groups",
            ("groups", "messageGroupType"),
        ),
        (
            {"messageGroupType": "NONE", "qpid.shared_msg_group": 1},
            "messageGroupType asks for no groups, and qpid.shared_msg_group for shared groups",
            ("messageGroupType", "qpid.shared_msg_group"),
        ),
        (
            {"messageGroupType": "NONE", "messageGroupKeyOverride": "k"},
            "messageGroupType asks for no groups, and messageGroupKeyOverride says what they are like",
            ("messageGroupType", "messageGroupKeyOverride"),
        ),
        (
            {"groups": "sticky", "default-group": "d"},
            "default-group is for shared groups: .* for anyone in sticky ones",
            ("default-group", "groups"),
        ),
        (
            {"messageGroupDefaultGroup": "d"},
            "messageGroupDefaultGroup is for shared groups",
            ("messageGroupDefaultGroup", "groups"),
        ),
        (
            {"group-header": "a", "qpid.group_header_key": "b"},
            "group-header='a' and qpid.group_header_key='b' disagree",
            ("group-header", "qpid.group_header_key"),
        ),
        (
            {"group-rebalance": "true"},
            "group-rebalance='true' is not possible here: a group",
            ("group-rebalance",),
        ),
        ({"group-buckets": "1024"}, "group-buckets='1024' is not possible here: each group", ("group-buckets",)),
        (
            {"group-first-key": "first"},
            "group-first-key='first' is not possible here: consumers do not",
            ("group-first-key",),
        ),
        (
            {"groups": "shared", "group-header": "lvq-ttl"},
            "'lvq-ttl' cannot be the header of groups",
            ("groups", "group-header"),
        ),
    ],
)
def test_r36_options_that_clash_or_make_no_sense_are_named(
    options: dict[str, object], said: str, culprits: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        declared(options)
    assert caught.value.options == culprits


@pytest.mark.parametrize("header", ["lvq-ttl", "lvq-sort", "lvq-unkeyed", "a\0b", "\ud800"])
def test_a_header_that_means_something_else_cannot_name_the_group(header: str) -> None:
    with pytest.raises(ConfigError, match="header"):
        definition(groups=Groups(header=header))


def test_the_key_or_the_group_places_the_messages_of_a_queue() -> None:
    for by_key in (definition(), definition(groups=Groups())):
        assert (QueueRules.of(by_key).placement, by_key.placed_by) == ("key", None)
    placed = definition(groups=Groups(header="g", mode="shared", default="d", placement="group"))
    assert (QueueRules.of(placed).placement, placed.placed_by) == ("group", ("g", "d"))
    assert QueueDefinition.from_json(placed.to_json(), name="q") == placed


@pytest.mark.parametrize("bad", ["", "  ", b"", b" \t", "\ud800", 5, None, True, ["a"]])
def test_a_group_that_is_blank_or_has_no_wire_form_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="group must be text that is not blank") as caught:
        encode_group("group", bad)
    assert caught.value.options == ("group",)


def test_a_group_is_text_or_bytes() -> None:
    assert (encode_group("group", "ä"), encode_group("group", b"\xff")) == ("ä".encode(), b"\xff")
