"""Metrics of a program's clients: each number is one that the client has (R48)."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lvq_kafka import TEXT, ConsumerStats, LastValueQueue, QueueStats, ReaderStats, ReaderStatus, attach
from lvq_kafka.core.measures.conventions import SCHEMA_URL
from lvq_kafka.core.measures.instruments import Instrument, prometheus_name
from lvq_kafka.core.measures.measured import CONSUMER, SOURCES, MetricSource, ProducerFacts, QueueFacts, ServerFacts
from lvq_kafka.errors import ConfigError, TransportError
from lvq_kafka.telemetry import Metrics
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

TABLE = [(source, instrument) for source in SOURCES.values() for instrument in source.instruments]
NAMES = [instrument.name for _, instrument in TABLE]


class Seen(int):
    """Stands for all facts, and notes which attributes somebody looks at."""

    paths: set[str]
    path: str

    @classmethod
    def at(cls, path: str, paths: set[str]) -> Seen:
        seen = cls(0)
        seen.path, seen.paths = path, paths
        paths.add(path)
        return seen

    def __getattr__(self, name: str) -> Seen:
        return Seen.at(f"{self.path}.{name}".lstrip("."), self.paths)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __call__(self, *_: Any) -> tuple[Any, ...]:
        return ()


def looked_at(source: MetricSource) -> set[str]:
    paths: set[str] = set()
    for instrument in source.instruments:
        instrument.read(Seen.at("", paths))
    return paths


LEFT_OUT = {
    "positions": "offsets mean nothing without their partition",
    "stale": "records read twice are no concern of anybody",
    "returned": "is in the number of values",
    "failure": "is the state failed",
    "trouble": "is the state disconnected",
    "progress": "is the lag while a reader catches up",
    "lag_by_partition": "is the lag",
    "queue": "is an attribute",
    "topic": "is an attribute",
    "text_limit": "is in crowded",
    "oldest": "is by priority, or of all",
    "waited": "is the age of the oldest",
    "retention": "is a setting of the brokers",
}
"""Fields of statistics that are no metrics, and why."""


@pytest.mark.parametrize(
    ("source", "prefix", "facts"),
    [
        ("reader", "stats.", ReaderStats),
        ("reader", "status.", ReaderStatus),
        ("consumer", "", ConsumerStats),
        ("queue", "stats.", QueueStats),
        ("producer", "", ProducerFacts),
        ("server", "", ServerFacts),
        ("queue", "", QueueFacts),
    ],
)
def test_r48_the_tables_have_each_number_that_clients_know(source: str, prefix: str, facts: Any) -> None:
    named = facts._fields if hasattr(facts, "_fields") else [field.name for field in fields(facts)]
    seen = looked_at(SOURCES[source])
    missing = {name for name in named if f"{prefix}{name}" not in seen}
    of_consumers = {"trouble"} if facts is ConsumerStats else set()
    assert missing <= LEFT_OUT.keys() - of_consumers


def test_r48_names_follow_the_conventions_of_the_version_that_is_named() -> None:
    for _, instrument in TABLE:
        if instrument.name.startswith("messaging."):
            constant = instrument.name.upper().replace(".", "_")
            assert getattr(messaging_metrics, constant) == instrument.name
        else:
            assert instrument.name.startswith("lvq.")
            assert prometheus_name(instrument).startswith("lvq_")
    assert len(set(NAMES)) == len(NAMES)
    assert [(a, b) for a in NAMES for b in NAMES if b.startswith(f"{a}.")] == [], "a name is no namespace of others"
    from opentelemetry.semconv import _incubating
    from opentelemetry.semconv._incubating.attributes import error_attributes, messaging_attributes
    from opentelemetry.semconv.schemas import Schemas

    from lvq_kafka.core.measures import conventions

    assert _incubating is not None
    assert SCHEMA_URL in {schema.value for schema in Schemas}
    known = {**vars(messaging_attributes), **vars(error_attributes)}
    for name in ("SYSTEM", "OPERATION_NAME", "OPERATION_TYPE", "TOPIC", "PARTITION", "GROUP", "KEY", "OFFSET"):
        assert getattr(conventions, name) in known.values(), name


@pytest.mark.parametrize("instrument", [instrument for _, instrument in TABLE], ids=NAMES)
def test_r48_an_instrument_says_what_it_is(instrument: Instrument) -> None:
    assert instrument.description.endswith(".")
    # Those in braces are no part of a name in Prometheus. A collector makes `_ratio` of "1".
    assert instrument.unit in ("s", "By") or re.fullmatch(r"\{[a-z]+\}", instrument.unit)


def values(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        instrument.name: {tuple(sample.attributes.values()): sample.value for sample in samples}
        for instrument, samples in metrics.collect()
    }


def test_r48_each_number_is_one_that_its_client_has() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    with queue.producer() as producer, queue.view() as view, queue.consumer() as consumer:
        metrics = Metrics().add(producer, view, consumer)
        for ticker in ("IBM", "IBM", "MSFT", "FB"):
            producer.put(ticker, "1")
        producer.delete("FB")
        view.barrier()
        first = consumer.acquire(10)
        assert first is not None
        first.ack(wait=True)
        eventually(lambda: consumer.stats.read == 4)
        found = values(metrics)
        of_view, of_consumer = ("prices", "prices"), ("prices", "prices", "lvq.prices")
        assert found["lvq.reader.values"] == {of_view: len(view)}
        assert found["lvq.reader.read"] == {of_view: view.stats.added}
        assert found["lvq.reader.removed"][(*of_view, "replaced")] == 1
        assert {labels[-1] for labels, number in found["lvq.reader.count"].items() if number} == {"caught-up"}
        assert found["lvq.consumer.settled"][(*of_consumer, "acked")] == consumer.stats.acked == 1
        assert found["lvq.consumer.available"] == {of_consumer: consumer.stats.available}
        assert found["messaging.client.consumed.messages"] == {(*of_consumer, "kafka", "acquire"): 1}
        assert found["messaging.client.sent.messages"] == {("prices", "kafka", "send"): 5}
        assert found["lvq.producer.undecided"] == {("prices",): 0}


def test_r48_numbers_of_several_clients_are_one_and_those_that_end_stay_in_the_sums() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    cluster.write("prices", b"IBM", b"1")
    with queue.view() as one:
        two: Any = queue.view().open()
        metrics = Metrics().add(one, two)
        assert values(metrics)["lvq.reader.read"] == {("prices", "prices"): 2}
        assert values(metrics)["lvq.reader.lag"] == {("prices", "prices"): 0}
        two.close()
        assert values(metrics)["lvq.reader.read"] == {("prices", "prices"): 2}
        assert values(metrics)["lvq.reader.values"] == {("prices", "prices"): 1}
        two = queue.view().open()
        metrics.add(two)
        assert values(metrics)["lvq.reader.read"] == {("prices", "prices"): 3}
        two.close()
        del two
        gc.collect()
        assert values(metrics)["lvq.reader.read"] == {("prices", "prices"): 3}
        assert sum(values(metrics)["lvq.reader.count"].values()) == 1
    assert "lvq.reader.count" not in values(metrics)
    assert values(metrics)["lvq.reader.read"] == {("prices", "prices"): 3}


def test_r48_queues_of_one_name_on_two_clusters_are_apart_in_metrics_of_their_own() -> None:
    found = []
    for keys in ("abc", "abcde"):
        cluster, metrics, registry = MemoryCluster(), Metrics(), CollectorRegistry()
        queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
        for key in keys:
            cluster.write("prices", key.encode(), b"1")
        with queue.view() as view:
            metrics.add(view).to_prometheus(registry)
            labels = {"lvq_queue": "prices", "messaging_destination_name": "prices"}
            found.append(registry.get_sample_value("lvq_reader_values", labels))
    assert found == [3, 5]


Steps = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["grow", "begin again", "end"]), st.integers(0, 5)))


@given(Steps)
def test_r48_a_counter_never_falls_and_counts_all_that_was_read(steps: list[tuple[int, str, int]]) -> None:
    held: dict[int, ConsumerStats | None] = {number: ConsumerStats() for number in range(3)}
    metrics, all_of_it = Metrics(), 0
    for number in held:
        facts = lambda number=number: None if held[number] is None else (held[number], False)  # noqa: E731
        metrics.add_source(CONSUMER, ("q", "q", "g"), facts)
    before = 0.0
    for number, what, much in steps:
        stats = held[number]
        if stats is None:
            continue
        if what == "end":
            held[number] = None
        elif what == "grow":
            stats.delivered += much
            all_of_it += much
        elif much < stats.delivered:
            stats.delivered = much
            all_of_it += much
        (after,) = values(metrics)["messaging.client.consumed.messages"].values()
        assert before <= after == all_of_it
        before = after


def of_opentelemetry(reader: InMemoryMetricReader) -> dict[str, dict[tuple[str, ...], float]]:
    data: Any = reader.get_metrics_data()
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.schema_url) == ("lvq_kafka", SCHEMA_URL)
    return {
        metric.name: {tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points}
        for metric in scope.metrics
    }


def sample_values(metrics: Metrics) -> dict[str, dict[tuple[Any, ...], float]]:
    return {
        instrument.name: {
            tuple(sorted(item for item in sample.attributes.items() if item[1])): sample.value for sample in samples
        }
        for instrument, samples in metrics.collect()
    }


KNOWN_BY_CHECKS = ("lvq.reader.lag", "lvq.reader.silence", "lvq.reader.blocked")
"""Those that a reader has once it has seen the end of its log."""


def test_r48_a_reader_that_has_not_seen_the_end_of_its_log_has_no_lag_and_no_silence() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    cluster.write("prices", b"IBM", b"1")
    exported, registry, view = InMemoryMetricReader(), CollectorRegistry(), queue.view()
    provider = MeterProvider([exported])
    metrics = Metrics().add(view).to_opentelemetry(provider).to_prometheus(registry)

    def shown() -> list[set[str]]:
        text = generate_latest(registry).decode()
        families = {family.name for family in text_string_to_metric_families(text) if family.samples}
        in_prometheus = {prometheus_name(each): each.name for _, each in TABLE}
        return [set(values(metrics)), set(of_opentelemetry(exported)), {in_prometheus.get(n, n) for n in families}]

    for names in shown():
        assert "lvq.reader.count" in names
        assert names.isdisjoint(KNOWN_BY_CHECKS)
    with view:
        assert all(names.issuperset(KNOWN_BY_CHECKS) for names in shown())
        unopened = queue.view()
        metrics.add(unopened)
        cluster.disconnect()
        assert values(metrics)["lvq.reader.lag"] == {("prices", "prices"): view.lag}
        assert values(metrics)["lvq.reader.silence"][("prices", "prices")] <= view.silence
        cluster.reconnect()
    provider.shutdown()


def test_r48_a_reader_of_a_store_without_a_cluster_has_no_lag_and_no_silence(tmp_path: Any) -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    cluster.write("prices", b"IBM", b"1")
    with queue.view(store=tmp_path):
        pass
    cluster.disconnect()
    view = queue.view(store=tmp_path)
    metrics = Metrics().add(view)
    with pytest.raises(TransportError):
        view.open()
    assert values(metrics).keys().isdisjoint(KNOWN_BY_CHECKS)
    view.close()


WITHOUT_TIME = ("lvq.reader.silence",)


def test_r48_opentelemetry_and_prometheus_show_the_same_numbers() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    reader, registry, second = InMemoryMetricReader(), CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader, second])
    with queue.producer() as producer, queue.view() as view:
        metrics = Metrics().add(view, producer).to_opentelemetry(provider).to_prometheus(registry)
        producer.put("IBM", "1")
        view.barrier()
        expected = sample_values(metrics)
        for each in (reader, second):
            found = of_opentelemetry(each)
            assert found.keys() == expected.keys()
            assert {n: v for n, v in found.items() if n not in WITHOUT_TIME} == {
                n: v for n, v in expected.items() if n not in WITHOUT_TIME
            }
        text = generate_latest(registry).decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        for _, instrument in TABLE:
            if instrument.name in expected and instrument.name not in WITHOUT_TIME:
                family = families[prometheus_name(instrument).removesuffix("_total")]
                assert family.documentation == instrument.description
                assert {sample.name for sample in family.samples} == {prometheus_name(instrument)}
                assert sorted(sample.value for sample in family.samples) == sorted(expected[instrument.name].values())
        producer.put("IBM", "2")
        view.barrier()
        assert of_opentelemetry(reader)["lvq.reader.read"] == sample_values(metrics)["lvq.reader.read"]
    provider.shutdown()


def test_r48_an_attached_view_and_a_browser_are_measured_like_a_view(tmp_path: Any) -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    cluster.write("prices", b"IBM", b"1")
    with queue.view(store=tmp_path) as view, attach(tmp_path, value=TEXT) as attached, queue.browser() as browser:
        browser.poll(10)
        metrics = Metrics().add(view, attached, browser)
        assert sum(values(metrics)["lvq.reader.count"].values()) == 3


def test_r48_failed_and_waiting_messages_of_a_producer_are_counted() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    producer = queue.producer()
    producer.put("IBM", "0").result(10)
    metrics = Metrics().add(producer)
    cluster.disconnect()
    producer.put("IBM", "1")
    found = values(metrics)
    assert found["lvq.producer.undecided"] == {("prices",): 1}
    assert found["messaging.client.sent.messages"] == {("prices", "kafka", "send"): 1}
    cluster.reconnect()
    assert values(metrics)["lvq.producer.undecided"] == {("prices",): 0}
    producer.close()
    ended = values(metrics)
    assert "lvq.producer.undecided" not in ended
    assert ended["messaging.client.sent.messages"] == {("prices", "kafka", "send"): 1}


def test_an_argument_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be measured") as caught:
        Metrics().add("prices")  # type: ignore[arg-type]
    assert caught.value.options == {"clients": None} or "clients" in caught.value.options


def test_r48_a_program_that_asks_for_no_metrics_loads_nothing_for_them() -> None:
    loaded = "{name.partition('.')[0] for name in sys.modules} & {'opentelemetry', 'prometheus_client'}"
    program = f"import sys, lvq_kafka; print({loaded}, 'lvq_kafka.telemetry' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["set()", "False"]
