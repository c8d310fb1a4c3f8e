"""Standard queues: their definition, their topic, and keys that equal no others (R35)."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.standard import OwnKey, StandardFilter
from lvq_kafka.core.queue.topic_settings import TopicNeeds, TopicSpec, check_policy, judge, judge_ttl, topic_settings
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError
from tests.rules import new_ledger

STANDARD = TopicNeeds(conflate=False)


def standard(**changes: Any) -> QueueDefinition:
    return QueueDefinition(**{"name": "jobs", "topic": "jobs", "key_header": None, "conflate": False, **changes})


def test_the_stored_form_is_version_2_only_where_nothing_is_conflated() -> None:
    assert standard().to_json() == (
        b'{"conflate": false, "key_header": null, "key_mismatch": "record", "keyless": "pass", "name": "jobs", '
        b'"non_destructive": false, "order": "tail", "topic": "jobs", "version": 2}'
    )
    conflating = standard(conflate=True)
    assert json.loads(conflating.to_json())["version"] == 1
    assert b"conflate" not in conflating.to_json() + standard(conflate=True, ttl=Ttl()).to_json()


@pytest.mark.parametrize(
    "changes",
    [{}, {"key_header": "id"}, {"non_destructive": True}, {"ttl": Ttl(default=5)}, {"max_delay": 5.0}, {"topic": "t"}],
)
def test_a_definition_survives_its_stored_form(changes: dict[str, Any]) -> None:
    assert QueueDefinition.from_json(standard(**changes).to_json(), name="jobs") == standard(**changes)


@pytest.mark.parametrize("stored", [True, 0, None, "false"])
def test_a_stored_form_that_nobody_writes_is_refused(stored: object) -> None:
    row = {**json.loads(standard().to_json()), "conflate": stored}
    with pytest.raises(ConfigError, match="conflate"):
        QueueDefinition.from_json(json.dumps(row).encode(), name="jobs")


@pytest.mark.parametrize(("option", "value"), [("order", "in-place"), ("keyless", "refuse"), ("key_mismatch", "fail")])
def test_options_about_keys_clash_and_both_are_named(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}='{value}' and conflate=False of the queue jobs") as caught:
        standard(**{option: value})
    assert caught.value.options == (option, "conflate")


@pytest.mark.parametrize("value", [None, 0, "no"])
def test_conflate_is_true_or_false(value: Any) -> None:
    with pytest.raises(ConfigError, match="conflate of the queue jobs is"):
        standard(conflate=value)


@pytest.mark.parametrize(
    ("options", "key_header"),
    [
        ({"conflate": "false"}, None),
        ({"conflate": "no", "key-header": "id"}, "id"),
        ({"last-value": "false"}, None),
        ({"qpid.last_value_queue": "0"}, None),
        ({"type": "standard"}, None),
        ({"type": "Standard", "conflate": False, "non-destructive": "true"}, None),
    ],
)
def test_options_of_brokers_ask_for_a_standard_queue(options: dict[str, object], key_header: str | None) -> None:
    made = QueueDefinition.from_options("jobs", options)
    assert (made.conflate, made.key_header) == (False, key_header)


def test_options_of_brokers_ask_for_a_last_value_queue() -> None:
    options = {"type": "lvq", "lvqKey": "id", "conflate": "true"}
    assert QueueDefinition.from_options("q", options) == QueueDefinition(name="q", topic="q", key_header="id")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"last-value": "false", "last-value-key": "id"}, ("last-value", "last-value-key")),
        ({"type": "standard", "lvqKey": "id"}, ("type", "lvqKey")),
        ({"type": "standard", "last-value": "true"}, ("type", "last-value")),
        ({"conflate": "false", "type": "lvq"}, ("conflate", "type")),
        ({"type": "sideways"}, ("type",)),
        ({"conflate": "perhaps"}, ("conflate",)),
    ],
)
def test_r3_options_that_contradict_each_other_are_named(options: dict[str, object], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        QueueDefinition.from_options("q", options)
    assert caught.value.options == named


def test_an_error_that_asks_for_a_key_header_names_the_way_out() -> None:
    for options in ({"last-value": "false", "last-value-key": "id"}, {}):
        with pytest.raises(ConfigError, match="conflate=false"):
            QueueDefinition.from_options("q", options)


def test_its_topic_keeps_every_message() -> None:
    settings = topic_settings(TopicSpec(), STANDARD)
    assert (settings["cleanup.policy"], settings["retention.ms"], settings["retention.bytes"]) == ("delete", "-1", "-1")
    assert not any("compaction" in name or "cleanable" in name for name in settings)
    assert judge(settings, replication_factor=1, needs=STANDARD) == []


@pytest.mark.parametrize(
    ("setting", "actual", "expected"),
    [
        ("cleanup.policy", "compact", "delete"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("retention.ms", "604800000", "-1"),
        ("retention.bytes", "1073741824", "-1"),
    ],
)
def test_a_topic_that_would_lose_messages_is_an_error(setting: str, actual: str, expected: str) -> None:
    (finding,) = judge(topic_settings(TopicSpec(), STANDARD) | {setting: actual}, replication_factor=1, needs=STANDARD)
    assert (finding.setting, finding.expected, finding.severity) == (setting, expected, "error")


def test_retention_that_its_creator_asked_for_is_no_finding() -> None:
    spec = TopicSpec(config={"retention.ms": "604800000"})
    assert judge(topic_settings(spec, STANDARD), spec, replication_factor=1, needs=STANDARD) == []


def test_retention_removes_what_has_expired() -> None:
    needs = TopicNeeds.of(standard(ttl=Ttl(maximum=60)), [])
    assert topic_settings(TopicSpec(), needs)["retention.ms"] == "3660000"
    assert judge_ttl(needs) == []


def test_a_log_that_nobody_consumes_grows_for_good_unless_messages_expire() -> None:
    (finding,) = judge_ttl(TopicNeeds.of(standard(non_destructive=True), []))
    assert "never consumed" in str(finding)
    assert judge_ttl(TopicNeeds.of(standard(non_destructive=True, ttl=Ttl(maximum=60)), [])) == []
    assert judge_ttl(TopicNeeds.of(standard(ttl=Ttl()), [])) == [], "reclaim removes what was consumed or has expired"


@pytest.mark.parametrize(("policy", "conflate"), [("compact", False), ("compact,delete", False), ("delete", True)])
def test_a_policy_for_the_other_kind_of_queue_is_refused(policy: str, conflate: bool) -> None:
    with pytest.raises(ConfigError, match=f"cleanup.policy={policy}") as caught:
        check_policy(TopicSpec(config={"cleanup.policy": policy}), conflate=conflate)
    assert caught.value.options == ("cleanup.policy", "conflate")
    check_policy(TopicSpec(config={"cleanup.policy": policy}), conflate=not conflate)


def test_an_own_key_equals_only_itself() -> None:
    one, other = OwnKey(b"a"), OwnKey(b"a")
    assert one == one
    assert one != other
    assert {one: 1, other: 2, b"a": 3} == {one: 1, other: 2, b"a": 3}
    assert len({one, other, b"a"}) == 3
    assert (bytes(one), one.decode(), one.startswith(b"a")) == (b"a", "a", True)
    assert pickle.loads(pickle.dumps(one)).decode() == "a"


def test_a_screen_gives_each_message_a_key_of_its_own_and_drops_deletes() -> None:
    standard = StandardFilter()
    records = [
        Record(0, 0, 0, b"a", b"1"),
        Record(0, 1, 0, b"a", None),
        Record(1, 0, 0, b"a", b""),
        Record(1, 1, 0, None, b"4"),
    ]
    batch = standard(RecordBatch.of(records))
    assert (batch.offsets, batch.values, standard.ignored) == ([0, 0, 1], [b"1", b"", b"4"], 1)
    assert list(map(bytes, filter(lambda key: key is not None, batch.keys))) == [b"a", b"a", b""]  # type: ignore[arg-type]
    assert len(set(batch.keys)) == 3


def test_messages_keep_their_keys_when_a_partition_comes_twice_in_one_batch() -> None:
    ledger = new_ledger(conflate=False)
    for partition in (0, 1):
        ledger.assign(partition, CommitMap(0), 0)
    keys = [b"a", b"b", b"c", b"d"]
    ledger.add(RecordBatch([0, 1, 0, 1], [0, 0, 1, 1], [0] * 4, keys, [b""] * 4, [None] * 4))
    taken = [item for _ in keys if (item := ledger.acquire()) is not None]
    assert [item.key for item in taken] == keys
