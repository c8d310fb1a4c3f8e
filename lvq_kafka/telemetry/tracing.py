"""Traces from producers to consumers, through the headers of messages (W3C Trace Context)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from lvq_kafka._version import __version__
from lvq_kafka.cluster import Receipt
from lvq_kafka.codecs import HeaderPairs, V
from lvq_kafka.consuming.delivery import Delivery, Settler
from lvq_kafka.consuming.settlement import Durability, Settlement
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import header_value
from lvq_kafka.core.measures.conventions import (
    ERROR_TYPE,
    GROUP,
    KEY,
    OFFSET,
    OPERATION_NAME,
    OPERATION_TYPE,
    PARTITION,
    SCHEMA_URL,
    SYSTEM,
    TOMBSTONE,
    TOPIC,
    TRACE_HEADERS,
)
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.validation import instance
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.producing.producer import Append, Producer
from lvq_kafka.runtime.extras import needing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider

__all__ = ["Tracing"]

_PARENT = TRACE_HEADERS[0]
_UNNAMED_ERROR = "_OTHER"
"""The type of an error that must not be looked at: a receipt whose error was seen is not raised by `flush`."""


class _HasHeaders(Protocol):
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """All headers."""


class Tracing:
    """Traces messages from the producers that are added to the calls of `process`.

    A message carries the context of its send in the header ``traceparent``, and ``tracestate`` if there is one. The
    span of its processing is a child of that send, so both are in one trace. Where a value is replaced before anyone
    consumes it, its trace ends with its send: nobody was handed it. Spans are named, and have attributes, by the
    semantic conventions of OpenTelemetry for messaging.

    A producer's failure is seen by those who ask the receipt, as ever: the span says that it failed, and not why.

    Thread-safe. Needs the extra ``otel``.

    ::

        tracing = Tracing()
        with queue.producer() as producer, queue.consumer() as consumer:
            tracing.add(producer)
            for delivery in consumer:
                with tracing.process(delivery):  # a clean exit acks, an exception releases
                    work(delivery.value)

    Args:
        provider: the tracer provider; by default, the global one.

    Raises:
        MissingExtra: the extra ``otel`` is not installed.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        with needing("otel", "Tracing"):
            from opentelemetry.trace import get_tracer_provider
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        self._tracer: Tracer = (provider or get_tracer_provider()).get_tracer("lvq_kafka", __version__, SCHEMA_URL)
        self._propagator = TraceContextTextMapPropagator()

    def add(self, *producers: Producer[Any]) -> Self:
        """Trace all that these producers send from now on, and return this. Add each once.

        Deletes are traced, too.
        A message that has the header ``traceparent`` already keeps it: it is part of that trace, and its send is a
        trace of its own with a link to it.

        Raises:
            ConfigError: one of them is no producer, or its queue gives a meaning to a header of traces.
        """
        for producer in producers:
            instance("producers", producer, Producer, "Give open producers.")
            _check_headers(producer._rules)
        for producer in producers:
            producer._observe(self._traced)
        return self

    @contextmanager
    def process(self, delivery: Delivery[V]) -> Iterator[Delivery[V]]:
        """Process a delivery within a span, for a ``with`` block.

        A clean exit acks, an exception releases, as in ``with delivery``. The span is a child of the send. If another
        span is current, it is linked. Whatever settles the delivery meanwhile has a span, too. Settle it by itself:
        `Consumer.ack_many` refuses it.

        Raises:
            ConfigError: it is no delivery.
        """
        from opentelemetry.trace import SpanKind, get_current_span

        instance("delivery", delivery, Delivery, "Give what the consumer has acquired.")
        settler, attributes = delivery._settler, _of_delivery(delivery)
        span = self._tracer.start_as_current_span(
            f"process {settler.topic}",
            context=self.context_of(delivery),
            kind=SpanKind.CONSUMER,
            attributes={**attributes, OPERATION_NAME: "process", OPERATION_TYPE: "process"},
            links=_links_to(get_current_span()),
        )
        with span as current:
            delivery.into(_TracedSettler(settler, self._tracer, attributes))
            try:
                with delivery:
                    yield delivery
            except BaseException as error:
                current.set_attribute(ERROR_TYPE, type(error).__qualname__)
                raise
            finally:
                delivery.into(settler)

    def context_of(self, message: _HasHeaders) -> Context:
        """Return the context in which a message was sent, for spans of one's own.

        It is that of a delivery, an entry, or another event of a value; and empty if the message was not traced, or its
        headers are malformed.
        """
        from opentelemetry.context import Context

        return self._propagator.extract(_fields(message.headers), Context())

    def _traced(self, append: Append) -> Append:
        """Return an append that does the same within a span, with its context in the headers."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, get_current_span, set_span_in_context

        def send(topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs | None = None) -> Receipt:
            given = headers or ()
            found = _fields(given)
            has_own = _PARENT in found
            own = self._propagator.extract(found, Context())
            span = self._tracer.start_span(
                f"send {topic}",
                kind=SpanKind.PRODUCER,
                attributes=_of_record(topic, key, value),
                links=_links_to(get_current_span(own)),
            )
            if not has_own:
                fields: dict[str, str] = {}
                self._propagator.inject(fields, set_span_in_context(span))
                headers = [*given, *((name, text.encode()) for name, text in fields.items())]
            # An exception of another kind ends nothing: a task that has to wait for room comes again, and a span that
            # is never ended is never exported.
            try:
                receipt = append(topic, key, value, headers)
            except LVQError as error:
                _fail(span, type(error).__qualname__)
                span.end()
                raise
            receipt.add_done_callback(partial(_decide, span))
            return receipt

        return send


class _TracedSettler:
    """Settles as another settler does, within spans."""

    def __init__(self, settler: Settler, tracer: Tracer, attributes: Mapping[str, str | int]) -> None:
        self.topic = settler.topic
        self.defers = settler.defers
        self._settler = settler
        self._tracer = tracer
        self._attributes = attributes

    @property
    def shared(self) -> Durability:
        """See `Settler`."""
        return self._settler.shared

    def ack(self, item: Item) -> Settlement:
        """See `Delivery.ack`."""
        with self._span("ack"):
            return self._settler.ack(item)

    def release(self, item: Item, delay: float) -> None:
        """See `Delivery.release`."""
        with self._span("release"):
            self._settler.release(item, delay)

    def reject(self, item: Item, reason: str) -> Settlement:
        """See `Delivery.reject`."""
        with self._span("reject"):
            return self._settler.reject(item, reason)

    def extend(self, item: Item, seconds: float | None) -> None:
        """See `Delivery.extend`."""
        self._settler.extend(item, seconds)

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        from opentelemetry.trace import SpanKind

        attributes = {**self._attributes, OPERATION_NAME: name, OPERATION_TYPE: "settle"}
        kind: SpanKind = SpanKind.CLIENT
        with self._tracer.start_as_current_span(f"{name} {self.topic}", kind=kind, attributes=attributes) as span:
            try:
                yield
            except LVQError as error:
                span.set_attribute(ERROR_TYPE, type(error).__qualname__)
                raise


def _fields(headers: HeaderPairs) -> dict[str, str]:
    """Return the headers of a trace. If one is repeated, the last one counts."""
    found = {name: header_value(headers, name) for name in TRACE_HEADERS}
    return {name: value.decode("utf-8", "replace") for name, value in found.items() if value is not None}


def _check_headers(rules: QueueRules) -> None:
    """Check that the headers of traces mean nothing else in a queue.

    Raises:
        ConfigError: one of them does.
    """
    meant = {
        "the key header": rules.keys.header,
        "the header of groups": None if rules.groups is None else rules.groups.header,
        "the sort header": rules.order.sort_header,
    }
    for what, name in meant.items():
        if name in TRACE_HEADERS:
            raise ConfigError(
                f"The header {name!r} carries traces, and is {what} of {rules.keys.topic!r}.",
                options=["producers"],
                hint="Declare the queue with another one, or do not trace it.",
            )


def _of_record(topic: str, key: bytes | None, value: bytes | None) -> dict[str, str | bool]:
    attributes: dict[str, str | bool] = {SYSTEM: "kafka", OPERATION_NAME: "send", OPERATION_TYPE: "send", TOPIC: topic}
    if key is not None:
        attributes[KEY] = key_text(key)
    if value is None:
        attributes[TOMBSTONE] = True
    return attributes


def _of_delivery(delivery: Delivery[Any]) -> dict[str, str | int]:
    position, shared = delivery.position, delivery._settler.shared
    attributes: dict[str, str | int] = {
        SYSTEM: "kafka",
        TOPIC: position.topic,
        PARTITION: str(position.partition),
        OFFSET: position.offset,
    }
    if delivery.key:
        attributes[KEY] = delivery.key
    if isinstance(shared, SharedState):
        attributes[GROUP] = shared.group
    return attributes


def _links_to(span: Span) -> list[Link] | None:
    from opentelemetry.trace import Link

    context = span.get_span_context()
    return [Link(context)] if context.is_valid else None


def _decide(span: Span, receipt: Receipt) -> None:
    """End the span of a send whose outcome is known."""
    position = receipt.position
    if position is None:
        _fail(span, _UNNAMED_ERROR)
    else:
        span.set_attribute(PARTITION, str(position.partition))
        span.set_attribute(OFFSET, position.offset)
    span.end()


def _fail(span: Span, error: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute(ERROR_TYPE, error)
    span.set_status(StatusCode.ERROR)
