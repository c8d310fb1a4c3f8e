"""Traces from producers to consumers, through the headers of messages (W3C Trace Context)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from lvq_kafka._version import __version__
from lvq_kafka.cluster import Receipt
from lvq_kafka.codecs import HeaderPairs, V
from lvq_kafka.consuming.delivery import Delivery, Settler
from lvq_kafka.consuming.settlement import Durability, Settlement
from lvq_kafka.consuming.shared_state import SharedState
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
from lvq_kafka.selectors.selector import Selector

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider

__all__ = ["Tracing"]

logger = logging.getLogger("lvq_kafka.telemetry")

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
    An error of the tracer, its sampler or its processors costs a span, and is logged once.

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
        tracer = (provider or get_tracer_provider()).get_tracer("lvq_kafka", __version__, SCHEMA_URL)
        self._spans = _Spans(tracer)
        self._propagator = TraceContextTextMapPropagator()

    def add(self, *producers: Producer[Any]) -> Self:
        """Trace all that these producers send from now on, and return this. Add each once.

        Deletes are traced, too.
        A message that has the header ``traceparent`` already keeps it: it is part of that trace, and its send is a
        trace of its own with a link to it. One that cannot be read is replaced, along with ``tracestate``.

        Raises:
            ConfigError: one of them is no producer, or its queue gives a meaning to a header of traces.
            MissingExtra: a queue's selector may read one, and the extra ``selectors`` is not installed.
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
        span = self._spans.start(
            f"process {settler.topic}",
            SpanKind.CONSUMER,
            {**attributes, OPERATION_NAME: "process", OPERATION_TYPE: "process"},
            context=self.context_of(delivery),
            links=_links_to(get_current_span()),
        )
        with self._spans.within(span):
            delivery.into(_TracedSettler(settler, self._spans, attributes))
            try:
                with delivery:
                    yield delivery
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
            own = get_current_span(self._propagator.extract(_fields(given), Context()))
            span = self._spans.start(
                f"send {topic}", SpanKind.PRODUCER, _of_record(topic, key, value), links=_links_to(own)
            )
            if not own.get_span_context().is_valid:
                fields: dict[str, str] = {}
                self._propagator.inject(fields, set_span_in_context(span))
                headers = _replaced(given, fields) if fields else headers
            # An exception of another kind ends nothing: a task that has to wait for room comes again, and a span that
            # is never ended is never exported.
            try:
                receipt = append(topic, key, value, headers)
            except LVQError as error:
                self._spans.fail(span, type(error).__qualname__)
                raise
            receipt.add_done_callback(partial(self._spans.decide, span))
            return receipt

        return send


class _Spans:
    """The spans of a tracer.

    An error of it, or of a sampler or processor that the program gave it, costs a span, not the work.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._sheltered = _Sheltered()

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, str | bool | int],
        *,
        context: Context | None = None,
        links: list[Link] | None = None,
    ) -> Span:
        """Return a new span.

        If the tracer fails, it is one that records nothing, and stands for its parent.
        """
        from opentelemetry.trace import NonRecordingSpan, get_current_span

        with self._sheltered:
            return self._tracer.start_span(name, context=context, kind=kind, attributes=attributes, links=links)
        return NonRecordingSpan(get_current_span(context).get_span_context())

    @contextmanager
    def within(self, span: Span) -> Iterator[None]:
        """Make a span current for a ``with`` block, and end it then."""
        from opentelemetry.trace import Status, StatusCode, use_span

        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            name = type(error).__qualname__
            with self._sheltered:
                span.set_attribute(ERROR_TYPE, name)
                if isinstance(error, Exception):  # others, as those that end a task, are no errors
                    span.set_status(Status(StatusCode.ERROR, f"{name}: {error}"))
                    span.record_exception(error)
            raise
        finally:
            self.end(span)

    def fail(self, span: Span, error: str) -> None:
        """End a span whose work failed, with the type of the error and no more."""
        from opentelemetry.trace import StatusCode

        with self._sheltered:
            span.set_attribute(ERROR_TYPE, error)
            span.set_status(StatusCode.ERROR)
        self.end(span)

    def end(self, span: Span) -> None:
        """End a span."""
        with self._sheltered:
            span.end()

    def decide(self, span: Span, receipt: Receipt) -> None:
        """End the span of a send whose outcome is known."""
        position = receipt.position
        if position is None:
            self.fail(span, _UNNAMED_ERROR)
        else:
            with self._sheltered:
                span.set_attribute(PARTITION, str(position.partition))
                span.set_attribute(OFFSET, position.offset)
            self.end(span)


class _Sheltered:
    """Goes on after an error in a ``with`` block, and logs the first one."""

    def __init__(self) -> None:
        self._said = False

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._said:
            self._said = True
            logger.warning("a span was lost, since tracing raised an error; later ones are not logged", exc_info=error)
        return True


class _TracedSettler:
    """Settles as another settler does, within spans."""

    def __init__(self, settler: Settler, spans: _Spans, attributes: Mapping[str, str | int]) -> None:
        self.topic = settler.topic
        self.defers = settler.defers
        self._settler = settler
        self._spans = spans
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
        with self._spans.within(self._spans.start(f"{name} {self.topic}", SpanKind.CLIENT, attributes)):
            yield


def _fields(headers: HeaderPairs) -> dict[str, str]:
    """Return the headers of a trace. If one is repeated, the last one counts."""
    found = {name: header_value(headers, name) for name in TRACE_HEADERS}
    return {name: value.decode("utf-8", "replace") for name, value in found.items() if value is not None}


def _replaced(headers: HeaderPairs, fields: Mapping[str, str]) -> HeaderPairs:
    """Return headers with those of another trace."""
    others = [pair for pair in headers if pair[0] not in TRACE_HEADERS]
    return [*others, *((name, text.encode()) for name, text in fields.items())]


def _check_headers(rules: QueueRules) -> None:
    """Check that the headers of traces mean nothing else in a queue.

    Raises:
        ConfigError: one of them does.
        MissingExtra: a selector has the name of one, and the extra ``selectors`` is not installed.
    """
    meant = {
        "the key header": (rules.keys.header,),
        "the header of groups": () if rules.groups is None else (rules.groups.header,),
        "the sort header": (rules.order.sort_header,),
        "in the selector": _names_in(rules.selector, rules.keys.topic),
    }
    for what, names in meant.items():
        for name in set(names).intersection(TRACE_HEADERS):
            raise ConfigError(
                f"The header {name!r} carries traces, and is {what} of {rules.keys.topic!r}.",
                options=["producers"],
                hint="Declare the queue with another one, or do not trace it.",
            )


def _names_in(selector: str | None, topic: str) -> Collection[str]:
    """Return the headers that a selector reads; of one without names of traces, none."""
    if selector is None or not any(name in selector for name in TRACE_HEADERS):
        return ()
    return Selector(selector, topic).reads


def _of_record(topic: str, key: bytes | None, value: bytes | None) -> dict[str, str | bool]:
    attributes: dict[str, str | bool] = {SYSTEM: "kafka", OPERATION_NAME: "send", OPERATION_TYPE: "send", TOPIC: topic}
    if value is None:
        attributes[TOMBSTONE] = True
    return attributes | _of_key(key)


def _of_delivery(delivery: Delivery[Any]) -> dict[str, str | int]:
    position, shared = delivery.position, delivery._settler.shared
    attributes: dict[str, str | int] = {
        SYSTEM: "kafka",
        TOPIC: position.topic,
        PARTITION: str(position.partition),
        OFFSET: position.offset,
    }
    if isinstance(shared, SharedState):
        attributes[GROUP] = shared.group
    return attributes | _of_key(delivery._item.key)


def _of_key(key: bytes | None) -> dict[str, str]:
    """Return the attribute for a key; none if it is not UTF-8, as exporters require."""
    with suppress(UnicodeDecodeError):
        return {} if key is None else {KEY: key.decode()}
    return {}


def _links_to(span: Span) -> list[Link] | None:
    from opentelemetry.trace import Link

    context = span.get_span_context()
    return [Link(context)] if context.is_valid else None
