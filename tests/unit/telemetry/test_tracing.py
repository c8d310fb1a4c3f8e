"""Traces through the headers of messages: joined, and without any effect on what is traced (R48)."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode, get_current_span

from lvq_kafka import TEXT, Groups, LastValueQueue, Limits, Message
from lvq_kafka.core.measures.conventions import SCHEMA_URL, TRACE_HEADERS
from lvq_kafka.errors import (
    AlreadySettled,
    ConfigError,
    DeliveryFailed,
    MissingExtra,
    QueueFull,
    StateError,
)
from lvq_kafka.telemetry import Metrics, Tracing
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

OWN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A tracer whose spans can be looked at."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self.provider)
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def traced() -> Traced:
    return Traced()


def declare(cluster: MemoryCluster, name: str = "prices", **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.declare(name, key_header="ticker", value=TEXT, cluster=cluster, **options)


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.context is not None
    assert parent.context is not None
    above = span.parent
    return above is not None and (above.span_id, span.context.trace_id) == (
        parent.context.span_id,
        parent.context.trace_id,
    )


def test_r48_a_message_is_one_trace_from_its_send_to_its_ack(memory_cluster: MemoryCluster, traced: Traced) -> None:
    queue, after = declare(memory_cluster), declare(memory_cluster, "after")
    with queue.producer() as producer, after.producer() as next_one, queue.consumer() as consumer:
        traced.tracing.add(producer, next_one)
        with traced.tracer.start_as_current_span("order"):
            position = producer.put("IBM", "1").result(10)
        delivery = consumer.acquire(10)
        assert delivery is not None
        with traced.tracing.process(delivery) as processed:
            assert processed is delivery
            next_one.put(delivery.key, delivery.value).result(10)
        assert delivery.settled
    order, send = traced.only("order"), traced.only("send prices")
    process, ack, sent_on = traced.only("process prices"), traced.only("ack prices"), traced.only("send after")
    assert is_child(send, order)
    assert is_child(process, send)
    assert is_child(ack, process)
    assert is_child(sent_on, process)
    assert [span.kind for span in (send, process, ack)] == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT]
    assert send.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "prices",
        "messaging.kafka.message.key": "IBM",
        "messaging.destination.partition.id": str(position.partition),
        "messaging.kafka.offset": position.offset,
    }
    assert process.attributes == {
        **send.attributes,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "lvq.prices",
    }
    assert ack.attributes is not None
    assert (ack.attributes["messaging.operation.name"], ack.attributes["messaging.operation.type"]) == ("ack", "settle")
    assert send.instrumentation_scope is not None
    assert send.instrumentation_scope.schema_url == SCHEMA_URL
    assert not [span.name for span in traced.spans if span.status.status_code is StatusCode.ERROR]


def test_r48_the_trace_of_a_value_that_is_replaced_ends_with_its_send(
    memory_cluster: MemoryCluster, traced: Traced
) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer:
        traced.tracing.add(producer)
        producer.put("IBM", "1")
        producer.put("IBM", "2")
    with queue.consumer() as consumer:
        delivery = consumer.acquire(10)
        assert delivery is not None
        with traced.tracing.process(delivery):
            assert delivery.value == "2"
    first, second = traced.named("send prices")
    assert is_child(traced.only("process prices"), second)
    assert first.context is not None
    assert [span.name for span in traced.spans if span.context and span.context.trace_id == first.context.trace_id] == [
        "send prices"
    ]


names = st.sampled_from(["ticker", "a", "b", "lvq", "trace", "Traceparent"])
headers = st.lists(st.tuples(names, st.one_of(st.none(), st.text(max_size=5), st.binary(max_size=5))), max_size=5)


@given(headers, st.text(max_size=5))
def test_r48_a_traced_message_differs_in_the_headers_of_its_trace_alone(
    pairs: list[tuple[str, Any]], value: str
) -> None:
    found = []
    for is_traced in (False, True):
        cluster = MemoryCluster()
        queue = declare(cluster)
        with queue.producer() as producer:
            if is_traced:
                Traced().tracing.add(producer)
            said = [*pairs, ("ticker", "IBM")]
            producer.send(Message(value, headers=said)).result(10)
            producer.put("MSFT", value, headers=[pair for pair in pairs if pair[0] != "ticker"]).result(10)
            producer.delete("MSFT").result(10)
        with queue.browser(dump=True, follow=False) as browser:
            entries = list(browser)
        found.append([(entry.key, entry.value, entry.position, plain(entry)) for entry in entries[:-1]])
        carried = [name for entry in entries[:-1] for name, _ in entry.headers if name in TRACE_HEADERS]
        assert carried == (["traceparent"] * len(entries[:-1]) if is_traced else [])
    assert found[0] == found[1]


def plain(entry: Any) -> list[tuple[str, bytes | None]]:
    return [pair for pair in entry.headers if pair[0] not in TRACE_HEADERS]


def test_r48_a_message_that_has_a_trace_keeps_it_and_its_send_is_linked(
    memory_cluster: MemoryCluster, traced: Traced
) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.view() as view:
        traced.tracing.add(producer)
        own = {"ticker": "IBM", "traceparent": OWN, "tracestate": "a=1"}
        producer.send(Message("1", headers=own)).result(10)
        view.barrier()
        entry = view.entry("IBM")
        assert entry is not None
        assert [value for name, value in entry.headers if name in TRACE_HEADERS] == [OWN.encode(), b"a=1"]
        (link,) = traced.only("send prices").links
        assert f"{link.context.trace_id:032x}" == OWN.split("-")[1]
        context = get_current_span(traced.tracing.context_of(entry)).get_span_context()
        assert (f"{context.span_id:016x}", context.trace_state.to_header()) == (OWN.split("-")[2], "a=1")


@pytest.mark.parametrize("bad", [b"", b"00-1-2-3", b"\xff", OWN.encode() + b"-more", None])
def test_r48_a_header_of_a_trace_that_cannot_be_read_is_as_good_as_none(
    memory_cluster: MemoryCluster, traced: Traced, bad: bytes | None
) -> None:
    queue = declare(memory_cluster)
    memory_cluster.write("prices", b"IBM", b"1", [("ticker", b"IBM"), ("traceparent", bad)])
    with queue.consumer() as consumer:
        delivery = consumer.acquire(10)
        assert delivery is not None
        with traced.tracing.process(delivery):
            pass
    assert traced.only("process prices").parent is None


@pytest.mark.parametrize(
    "own",
    [
        [("traceparent", b"")],
        [("traceparent", None)],
        [("traceparent", b"\xff")],
        [("traceparent", OWN.upper())],
        [("traceparent", "x" * 1_000_000)],
        [("traceparent", OWN), ("traceparent", "junk")],
        [("traceparent", "junk"), ("tracestate", "a=1")],
        [("tracestate", "a=1")],
    ],
)
def test_r48_a_message_whose_own_trace_cannot_be_read_is_in_that_of_its_send(
    memory_cluster: MemoryCluster, traced: Traced, own: list[tuple[str, str | bytes | None]]
) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.consumer() as consumer:
        traced.tracing.add(producer)
        producer.send(Message("1", headers=[("a", "1"), *own, ("ticker", "IBM"), ("a", "2")])).result(10)
        delivery = consumer.acquire(10)
        assert delivery is not None
        with traced.tracing.process(delivery):
            pass
    send, process = traced.only("send prices"), traced.only("process prices")
    assert is_child(process, send)
    assert process.context is not None
    assert len(process.context.trace_state) == 0
    assert [name for name, _ in delivery.headers] == ["a", "ticker", "a", "traceparent"]


def test_r48_a_trace_that_cannot_be_read_stays_where_none_is_recorded(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.view() as view:
        Tracing(NoOpTracerProvider()).add(producer)
        producer.put("IBM", "1", headers={"traceparent": "junk"}).result(10)
        view.barrier()
        entry = view.entry("IBM")
    assert entry is not None
    assert ("traceparent", b"junk") in entry.headers


def test_r48_an_error_in_processing_is_on_the_span_and_releases_the_message(
    memory_cluster: MemoryCluster, traced: Traced
) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.put("IBM", "1")
        delivery = consumer.acquire(10)
        assert delivery is not None
        with pytest.raises(KeyError), traced.tracing.process(delivery):
            raise KeyError("IBM")
        process = traced.only("process prices")
        assert process.attributes is not None
        assert (process.status.status_code, process.attributes["error.type"]) == (StatusCode.ERROR, "KeyError")
        assert is_child(traced.only("release prices"), process)
        again = consumer.acquire(10)
        assert again is not None
        assert again.redelivered
        again.ack()


class Fault(SpanProcessor, Sampler):
    """Raises where the spans of one operation start, or end, or are sampled."""

    def __init__(self, where: str, operation: str) -> None:
        self.where = where
        self.operation = operation

    def _raise(self, where: str, name: str) -> None:
        if where == self.where and name.startswith(self.operation):
            raise RuntimeError("a fault of the program")

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self._raise("start", span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self._raise("end", span.name)

    def should_sample(self, parent_context: Any, trace_id: int, name: str, *_: Any, **__: Any) -> SamplingResult:
        self._raise("sample", name)
        return ALWAYS_ON.should_sample(parent_context, trace_id, name)

    def get_description(self) -> str:
        return "Fault"


@pytest.mark.parametrize("operation", ["send", "process", "ack", "release"])
@pytest.mark.parametrize("where", ["sample", "start", "end"])
def test_r48_an_error_of_tracing_costs_a_span_and_not_the_work(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, where: str, operation: str
) -> None:
    fault = Fault(where, operation)
    provider, exporter = TracerProvider(sampler=fault), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(fault)
    tracing, queue = Tracing(provider), declare(memory_cluster)
    with caplog.at_level(logging.WARNING, "lvq_kafka.telemetry"), queue.producer() as producer:
        tracing.add(producer)
        producer.put("IBM", "1").result(10)
        producer.put("FB", "1").result(10)
        with queue.consumer() as consumer:
            eventually(lambda: consumer.stats.available == 2)
            first, second = consumer.acquire(10), consumer.acquire(10)
            assert first is not None
            assert second is not None
            with tracing.process(first):
                pass
            with pytest.raises(KeyError), tracing.process(second):
                raise KeyError("FB")
            assert (consumer.stats.acked, consumer.stats.released, consumer.stats.in_work) == (1, 1, 0)
            again = consumer.acquire(10)
            assert again is not None
            with tracing.process(again):
                pass
    assert [record.message.partition(",")[0] for record in caplog.records] == ["a span was lost"]
    assert caplog.records[0].exc_info is not None
    lost = {"sample", "start"} & {where}
    names = {span.name.partition(" ")[0] for span in exporter.get_finished_spans()}
    assert names == {"send", "process", "ack", "release"} - ({operation} if lost else set())


def test_r48_an_ack_within_a_span_that_was_lost_stays_in_the_trace(memory_cluster: MemoryCluster) -> None:
    provider, exporter = TracerProvider(sampler=Fault("sample", "process")), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing, queue = Tracing(provider), declare(memory_cluster)
    with queue.producer() as producer, queue.consumer() as consumer:
        tracing.add(producer)
        producer.put("IBM", "1").result(10)
        delivery = consumer.acquire(10)
        assert delivery is not None
        with tracing.process(delivery):
            pass
    send, ack = exporter.get_finished_spans()
    assert is_child(ack, send)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_r48_an_error_without_a_text_is_raised_as_it_is(memory_cluster: MemoryCluster, traced: Traced) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.put("IBM", "1")
        delivery = consumer.acquire(10)
        assert delivery is not None
        with pytest.raises(Unspeakable), traced.tracing.process(delivery):
            raise Unspeakable
    process = traced.only("process prices")
    assert process.attributes is not None
    assert process.attributes["error.type"] == "Unspeakable"


def test_r48_a_key_that_is_not_text_is_no_attribute_of_spans(memory_cluster: MemoryCluster, traced: Traced) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.consumer() as consumer:
        traced.tracing.add(producer)
        producer.send(Message("1", headers={"ticker": b"\xff\xfe"})).result(10)
        delivery = consumer.acquire(10)
        assert delivery is not None
        with traced.tracing.process(delivery):
            pass
    assert {span.name.partition(" ")[0] for span in traced.spans} == {"send", "process", "ack"}
    for span in traced.spans:
        assert span.attributes is not None
        assert "messaging.kafka.message.key" not in span.attributes
        for value in span.attributes.values():
            str(value).encode()


def test_r48_each_call_that_settles_a_delivery_has_a_span(memory_cluster: MemoryCluster, traced: Traced) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.consumer(lock_timeout=60) as consumer:
        for key in "abc":
            producer.put(key, "1")
        one, two, three = [consumer.acquire(10) for _ in range(3)]
        assert one is not None
        assert two is not None
        assert three is not None
        with traced.tracing.process(one):
            one.extend()
            one.ack(wait=True, timeout=10)
            with pytest.raises(AlreadySettled):
                one.ack()
        with traced.tracing.process(two):
            two.reject("bad")
        with traced.tracing.process(three), pytest.raises(StateError):
            consumer.ack_many([three])
    first, refused, last = traced.named("ack prices")
    assert [span.status.status_code for span in (first, last)] == [StatusCode.UNSET] * 2
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "AlreadySettled"
    assert len(traced.named("reject prices")) == 1


def test_r48_a_span_that_is_current_is_linked_to_that_of_processing(
    memory_cluster: MemoryCluster, traced: Traced
) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.consumer() as consumer:
        traced.tracing.add(producer)
        producer.put("IBM", "1")
        delivery = consumer.acquire(10)
        assert delivery is not None
        with traced.tracer.start_as_current_span("batch"), traced.tracing.process(delivery):
            pass
    process, batch = traced.only("process prices"), traced.only("batch")
    assert is_child(process, traced.only("send prices"))
    assert [link.context for link in process.links] == [batch.context]


async def in_tasks(queue: LastValueQueue[str], traced: Traced) -> None:
    async with await queue.producer_async() as producer, await queue.consumer_async() as consumer:
        traced.tracing.add(producer)

        async def work(key: str) -> None:
            with traced.tracer.start_as_current_span(f"task {key}"):
                await producer.put(key, "1")

        await asyncio.gather(*map(work, "abc"))
        for _ in range(3):
            delivery = await consumer.acquire_async(10)
            assert delivery is not None
            with traced.tracing.process(delivery):
                await asyncio.sleep(0)


def test_r48_tasks_have_their_own_traces(memory_cluster: MemoryCluster, traced: Traced) -> None:
    asyncio.run(in_tasks(declare(memory_cluster), traced))
    for key in "abc":
        (send,) = [span for span in traced.named("send prices") if is_child(span, traced.only(f"task {key}"))]
        assert [is_child(span, send) for span in traced.named("process prices")].count(True) == 1


def test_r48_sends_in_a_transaction_belong_to_the_processing(memory_cluster: MemoryCluster, traced: Traced) -> None:
    queue, after = declare(memory_cluster), declare(memory_cluster, "after")
    with queue.producer() as first:
        traced.tracing.add(first)
        first.put("IBM", "1")
    with after.producer(transactional_id="t") as producer, queue.consumer() as consumer:
        traced.tracing.add(producer)
        eventually(lambda: consumer.stats.available == 1)
        with consumer.transaction(producer) as transaction:
            for delivery in transaction.acquire_many(1, timeout=10):
                with traced.tracing.process(delivery):
                    producer.put(delivery.key, "2")
    assert is_child(traced.only("send after"), traced.only("process prices"))
    assert is_child(traced.only("ack prices"), traced.only("process prices"))


def test_g14_r48_the_failure_of_a_traced_send_is_raised_as_ever(memory_cluster: MemoryCluster, traced: Traced) -> None:
    producer = declare(memory_cluster).producer()
    metrics = Metrics().add(producer)
    traced.tracing.add(producer)
    memory_cluster.fail_next("append", DeliveryFailed("Not stored.", key=b"IBM", code="NOT_ENOUGH_REPLICAS"))
    memory_cluster.disconnect()
    producer.put("IBM", "1")
    assert traced.spans == []
    memory_cluster.reconnect()
    with pytest.raises(DeliveryFailed):
        producer.close(10)
    span = traced.only("send prices")
    assert span.attributes is not None
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "_OTHER")
    assert producer.writer.facts.failures == 1
    assert metrics.collect()


def test_r12_r48_limits_count_the_headers_of_traces_and_a_refusal_is_on_the_span(
    memory_cluster: MemoryCluster, traced: Traced
) -> None:
    queue = declare(memory_cluster, limits=Limits(bytes=1000, policy="reject"))
    with queue.producer() as producer:
        traced.tracing.add(producer)
        for number in range(5):
            producer.put(f"k{number}", "1" * 50).result(10)
        occupied = producer._gate._occupancy  # type: ignore[union-attr]
        assert occupied.depth.bytes == queue.stats().bytes
        with pytest.raises(QueueFull):
            producer.put("k5", "1" * 500)
    failed = traced.named("send prices")[-1]
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "QueueFull"


async def until_there_is_room(queue: LastValueQueue[str], traced: Traced) -> None:
    async with await queue.producer_async() as producer:
        traced.tracing.add(producer)
        await producer.put("a", "1")
        with traced.tracer.start_as_current_span("task"):
            waiting = asyncio.ensure_future(producer.put_async("b", "1"))
            await asyncio.sleep(0)
        await producer.delete("a")
        await (await waiting)


def test_r12_r48_a_send_that_waits_for_room_is_one_span(memory_cluster: MemoryCluster, traced: Traced) -> None:
    asyncio.run(until_there_is_room(declare(memory_cluster, limits=Limits(messages=1, policy="block")), traced))
    assert len(traced.named("send prices")) == 3
    assert [span for span in traced.named("send prices") if is_child(span, traced.only("task"))]


def test_r42_r48_a_value_that_was_written_again_has_not_changed(memory_cluster: MemoryCluster, traced: Traced) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer, queue.view() as view, view.watch(changed=True) as watch:
        traced.tracing.add(producer)
        found = []
        for value in ("1", "1", "2"):
            producer.put("IBM", value)
            view.barrier()
            event = watch.poll(0)
            found.append(None if event is None else event.value)
        assert found == ["1", None, "2"]


@pytest.mark.parametrize(
    "options",
    [
        {"key_header": "traceparent"},
        {"groups": Groups(header="tracestate")},
        {"order": "sorted", "sort_header": "traceparent"},
        {"selector": "traceparent IS NULL"},
        {"selector": "price > 1 AND NOT (\"tracestate\" LIKE 'a%')"},
    ],
)
def test_r48_a_queue_to_which_a_header_of_traces_means_something_is_not_traced(
    memory_cluster: MemoryCluster, traced: Traced, options: dict[str, Any]
) -> None:
    queue = LastValueQueue.declare("q", cluster=memory_cluster, **{"key_header": "k", **options})
    with queue.producer() as producer, pytest.raises(ConfigError, match="carries traces"):
        traced.tracing.add(producer)


@pytest.mark.parametrize("selector", ["price > 1", "note <> 'traceparent'"])
def test_r48_a_queue_whose_selector_reads_no_header_of_traces_is_traced(
    memory_cluster: MemoryCluster, traced: Traced, selector: str
) -> None:
    queue = declare(memory_cluster, selector=selector)
    with queue.producer() as producer, queue.view() as view:
        traced.tracing.add(producer)
        producer.put("IBM", "1", headers={"price": "2", "note": "x"}).result(10)
        view.barrier()
        assert view["IBM"] == "1"


def test_r48_a_queue_whose_selector_nobody_can_read_here_is_traced(
    memory_cluster: MemoryCluster, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = declare(memory_cluster, selector="price > 1")
    monkeypatch.setitem(sys.modules, "lvq_kafka.selectors.grammar", None)
    with queue.producer() as producer:
        traced.tracing.add(producer)
        producer.put("IBM", "1", headers={"price": "2"}).result(10)
    assert traced.only("send prices")


def test_r48_traced_sends_are_counted_as_all_others(memory_cluster: MemoryCluster, traced: Traced) -> None:
    with declare(memory_cluster).producer() as producer:
        metrics = Metrics().add(producer)
        traced.tracing.add(producer)
        producer.put("IBM", "1")
        assert producer.writer.facts.sent == 1
        assert metrics.collect()
    assert len(traced.named("send prices")) == 1


def test_an_argument_that_cannot_be_traced_is_refused(traced: Traced) -> None:
    with pytest.raises(ConfigError, match="producers"):
        traced.tracing.add("prices")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="delivery"), traced.tracing.process("prices"):  # type: ignore[arg-type]
        pass


def test_tracing_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtra, match=r"lvq-kafka\[otel\]"):
        Tracing()
