"""The format that a queue was declared with, and who goes by it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.serialization import StringDeserializer, StringSerializer
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka import BYTES, DECLARED, JSON, TEXT, AddressSettings, Codec, LastValueQueue, attach, queues, serializers
from lvq_kafka.core.facts import Format
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import ConfigError, QueueMismatch
from lvq_kafka.managing import declaring
from lvq_kafka.testing import MemoryCluster


@dataclass
class Price:
    bid: float


def declare(cluster: MemoryCluster, value: Any = BYTES, **options: Any) -> LastValueQueue[Any]:
    return LastValueQueue.declare("prices", key_header="ticker", value=value, cluster=cluster, **options)


def put(queue: LastValueQueue[Any], value: Any) -> None:
    with queue.producer() as producer:
        producer.put("IBM", value).result(5)


def read(cluster: MemoryCluster) -> Any:
    with LastValueQueue.open("prices", value=DECLARED, cluster=cluster).view() as view:
        view.wait_caught_up(10)
        return view["IBM"]


@pytest.mark.parametrize(
    ("value", "remembered"),
    [
        (TEXT, "text"),
        (JSON, "json"),
        (Price, "json"),
        (BYTES, None),
        (DECLARED, None),
        (Codec(lambda value: b"", lambda data: None), None),
        (serializers(StringSerializer(), StringDeserializer()), None),
    ],
)
def test_r53_a_new_queue_has_the_format_of_its_codec(
    memory_cluster: MemoryCluster, value: Any, remembered: Format | None
) -> None:
    declare(memory_cluster, value)
    (definition,) = queues(cluster=memory_cluster)
    assert definition.format == remembered
    at = LastValueQueue.at("others?last-value-key=id", value=value, cluster=memory_cluster)
    at.producer().close()
    assert at.newest().format == remembered


def test_r53_options_and_settings_count_before_the_codec(memory_cluster: MemoryCluster) -> None:
    assert declare(memory_cluster, TEXT, format="json").definition.format == "json"
    with AddressSettings(cluster=memory_cluster) as settings:
        settings.set("acme.#", {"format": "json", "key-header": "id"})
    by_setting = LastValueQueue.declare("acme.orders", value=TEXT, cluster=memory_cluster)
    assert by_setting.definition.format == "json"
    assert LastValueQueue.declare("acme.orders", cluster=memory_cluster).definition == by_setting.definition


@pytest.mark.parametrize("value", [BYTES, TEXT, JSON, Price])
def test_r53_a_declaration_that_names_no_format_matches_a_queue_of_any(
    memory_cluster: MemoryCluster, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for form in ("json", "text", None):
        queue = declare(memory_cluster, format=form)
        assert declare(memory_cluster, value).definition == queue.definition
        queue.alter(keyless="refuse")
        caplog.clear()
        assert declare(memory_cluster, value).newest().format == form
        assert "format" not in caplog.text
        queue.drop()


def test_r53_the_format_of_a_codec_yields_to_that_of_a_declaration_that_was_faster(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = declaring.complete

    def late(*arguments: Any) -> Any:
        found = first(*arguments)
        monkeypatch.setattr(declaring, "complete", first)
        declare(memory_cluster, TEXT)
        return found

    monkeypatch.setattr(declaring, "complete", late)
    assert declare(memory_cluster, JSON).definition.format == "text"
    monkeypatch.setattr(declaring, "complete", late)
    with pytest.raises(QueueMismatch):
        declare(memory_cluster, JSON, keyless="refuse")


def test_r53_an_object_that_found_no_queue_goes_by_the_one_that_somebody_declares(
    memory_cluster: MemoryCluster,
) -> None:
    early = LastValueQueue.at("prices?last-value-key=ticker", value=DECLARED, cluster=memory_cluster)
    assert early.value_codec is BYTES
    declare(memory_cluster, JSON)
    early.producer().close()
    assert early.value_codec is JSON


@pytest.mark.parametrize("before", ["text", None])
def test_r53_a_declaration_that_names_another_format_is_a_mismatch(
    memory_cluster: MemoryCluster, before: Format | None
) -> None:
    declare(memory_cluster, format=before)
    with pytest.raises(QueueMismatch) as caught:
        declare(memory_cluster, options={"format": "json"})
    assert caught.value.differences == {"format": (before, "json")}


def test_r53_a_format_can_be_altered_and_taken_away(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    assert queue.alter(format="text").definition.format == "text"
    assert queue.alter(format=None).definition.format is None
    declare(memory_cluster, format="text")  # as it once was
    with pytest.raises(QueueMismatch, match="format"):
        declare(memory_cluster, format="json")


@pytest.mark.parametrize("wrong", ["avro", "JSON", 5, ""])
def test_an_unknown_format_is_refused_by_name(memory_cluster: MemoryCluster, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"not a valid format.*Choose one of bytes, text, json") as caught:
        declare(memory_cluster, format=wrong)
    assert caught.value.options == ("format",)


def test_r53_a_program_that_is_written_for_no_queue_reads_and_writes_the_declared_format(
    memory_cluster: MemoryCluster,
) -> None:
    put(declare(memory_cluster, JSON), {"bid": 1.5})
    assert read(memory_cluster) == {"bid": 1.5}
    put(LastValueQueue.open("prices", value=DECLARED, cluster=memory_cluster), [1])
    assert memory_cluster.records("prices")[-1].value == b"[1]"
    declare(memory_cluster).alter(format="text")
    assert read(memory_cluster) == "[1]"
    declare(memory_cluster).alter(format=None)
    assert read(memory_cluster) == b"[1]"


def test_a_store_has_no_declared_format(memory_cluster: MemoryCluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Only a declared queue has a declared format") as caught:
        attach(tmp_path, value=DECLARED)
    assert caught.value.options == ("value",)


NAMED = st.sampled_from(["bytes", "text", "json"])


@given(NAMED | st.none(), NAMED | st.none())
def test_r53_only_what_is_left_open_is_filled_in(asked: Format | None, declared: Format | None) -> None:
    def definition(form: Format | None) -> QueueDefinition:
        return QueueDefinition(name="prices", topic="prices", key_header="ticker", format=form)

    filled = definition(asked).with_format_of(definition(declared))
    assert filled == replace(definition(asked), format=asked or declared)
    assert QueueDefinition.from_json(filled.to_json(), name="prices") == filled
    assert json.loads(filled.to_json()).get("format") == filled.format
