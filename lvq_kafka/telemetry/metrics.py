"""The metrics of a program's clients, read when somebody asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import ref

from lvq_kafka._version import __version__
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.measures.conventions import SCHEMA_URL
from lvq_kafka.core.measures.instruments import Collected, Instrument, Sample
from lvq_kafka.core.measures.measured import CONSUMER, PRODUCER, READER, SOURCES, MetricSource, ReaderFacts
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_kafka.producing.producer import Producer
from lvq_kafka.reading.following_reader import FollowingReader
from lvq_kafka.runtime.extras import needing
from lvq_kafka.telemetry.prometheus_families import families

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["MeasuredClient", "Metrics", "facts_of"]

C = TypeVar("C")

_FRESH = 1.0  # seconds for which what was read at one moment is handed out, each instrument once

MeasuredClient = FollowingReader[Any] | Consumer[Any] | Producer[Any]
"""A view, a browser, an attached view, a consumer or a producer."""


_SeriesPlace = tuple[str, tuple[str, ...]]
"""An instrument's name, and the values of its attributes."""

_TABLE = {each.name: (source, each) for source in SOURCES.values() for each in source.instruments}


class _Member:
    """One of the clients, or another thing, that are measured.

    Args:
        attributes: the values of its source's attributes.
        facts: returns what the instruments read, and whether that is all there will be; None if it is gone.
    """

    def __init__(
        self, source: MetricSource, attributes: Iterable[str], facts: Callable[[], tuple[Any, bool] | None]
    ) -> None:
        self._source = source
        self._attributes = tuple(attributes)
        self._facts = facts
        self._counted: dict[_SeriesPlace, tuple[float, float]] = {}  # what earlier counts came to, and the last count
        self.over = False

    @property
    def totals(self) -> Iterator[tuple[_SeriesPlace, float]]:
        """The sums of its counters when they were last read."""
        for place, (before, last) in self._counted.items():
            yield place, before + last

    def read(self) -> Iterator[tuple[_SeriesPlace, float]]:
        """Yield its readings. Once it is over, these are its counters alone."""
        found = self._facts()
        self.over = found is None or found[1]
        if found is not None:
            for instrument in self._source.instruments:
                for own, value in instrument.read(found[0]).items():
                    if value is None:
                        continue
                    place = instrument.name, (*self._attributes, *own)
                    if instrument.kind == "counter":
                        self._count(place, value)
                    elif not self.over:
                        yield place, value
        yield from self.totals

    def _count(self, place: _SeriesPlace, value: float) -> None:
        before, last = self._counted.get(place, (0.0, 0.0))
        # One that falls has begun again, as those of a reader that starts over.
        self._counted[place] = (before + last if value < last else before), value


class Metrics:
    """The metrics of clients. None is measured before it is added, or read unless asked for.

    Each number is one that the client's own ``stats`` or ``status`` has; those of several clients of a queue are added
    up, or the greatest counts. docs/how-to/metrics.md lists them. Clients are not kept alive. One that is closed is
    left out, but what it has counted stays in the sums. A queue counts by its name alone: give the clients of
    another cluster ``Metrics`` of their own.

    Thread-safe. Use it in the process that opened the clients.

    ::

        metrics = Metrics().add(view, consumer, producer)
        metrics.to_prometheus()        # in the registry that the program shows; with the extra prometheus
        metrics.to_opentelemetry()     # through the program's meter provider; with the extra otel
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._members: list[_Member] = []
        self._ended: dict[_SeriesPlace, float] = {}
        self._unread: dict[str, Sequence[Sample]] = {}
        self._read_at = 0.0

    def add(self, *clients: MeasuredClient) -> Self:
        """Measure these clients from now on, and return this. Add each once.

        Args:
            clients: views, browsers, consumers and producers. An attached view must be open.

        Raises:
            ConfigError: one of them is something else.
        """
        for client in clients:
            if isinstance(client, FollowingReader):
                self.add_source(READER, (client.queue, client._topic), facts_of(client, _of_reader))
            elif isinstance(client, Consumer):
                own = client.name, client.topic, client._shared.group
                self.add_source(CONSUMER, own, facts_of(client, _of_consumer))
            elif isinstance(client, Producer):
                client.writer.count_appends()
                self.add_source(PRODUCER, (client.topic,), facts_of(client, _of_producer))
            else:
                raise ConfigError(
                    f"{quoted(client)} cannot be measured.",
                    options=["clients"],
                    hint="Give views, browsers, consumers or producers.",
                )
        return self

    def add_source(
        self, source: MetricSource, attributes: Iterable[str], facts: Callable[[], tuple[Any, bool] | None]
    ) -> None:
        """Measure something else.

        Args:
            source: its metrics.
            attributes: the values of the attributes of the source.
            facts: returns what the instruments read, and whether that is all there will be; None if it is gone.
        """
        with self._lock:
            self._members.append(_Member(source, attributes, facts))

    # ---------------------------------------------------------------- reading

    def collect(self) -> Collected:
        """Return the values of this moment, of all instruments that have any."""
        with self._lock:
            return self._collect()

    def _collect(self) -> Collected:
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for (name, labels), value in self._ended.items():
            found.setdefault(name, {})[labels] = value
        for member in self._members:
            for (name, labels), value in member.read():
                held = found.setdefault(name, {})
                before = held.get(labels, 0.0)
                held[labels] = max(before, value) if _TABLE[name][1].kind == "greatest" else before + value
        self._end(member for member in self._members if member.over)
        return [
            (instrument, [Sample(_named(source, instrument, labels), value) for labels, value in found[name].items()])
            for name, (source, instrument) in _TABLE.items()
            if name in found
        ]

    def _end(self, over: Iterable[_Member]) -> None:
        for member in list(over):
            self._members.remove(member)
            for place, value in member.totals:
                self._ended[place] = self._ended.get(place, 0.0) + value

    def _samples(self, name: str) -> Sequence[Sample]:
        """Return the values of one instrument.

        All instruments, asked for one after the other, have the values of one moment.
        """
        with self._lock:
            now = time.monotonic()
            if name not in self._unread or now - self._read_at > _FRESH:
                self._unread, self._read_at = dict.fromkeys(_TABLE, ()), now
                self._unread |= {instrument.name: samples for instrument, samples in self._collect()}
            return self._unread.pop(name)

    # ---------------------------------------------------------------- exporting

    def to_opentelemetry(self, provider: MeterProvider | None = None) -> Self:
        """Offer the metrics as observable instruments of OpenTelemetry, and return this.

        Call it once for a provider.

        Args:
            provider: the meter provider; by default, the global one.

        Raises:
            MissingExtra: the extra ``otel`` is not installed.
        """
        with needing("otel", "Metrics of OpenTelemetry"):
            from opentelemetry.metrics import Observation, get_meter_provider
        meter = (provider or get_meter_provider()).get_meter("lvq_kafka", __version__, SCHEMA_URL)
        creates = {
            "counter": meter.create_observable_counter,
            "sum": meter.create_observable_up_down_counter,
            "greatest": meter.create_observable_gauge,
        }

        def observe(name: str, _: CallbackOptions) -> Iterator[Observation]:
            for sample in self._samples(name):
                yield Observation(sample.value, {key: value for key, value in sample.attributes.items() if value})

        for name, (_, instrument) in _TABLE.items():
            create = creates[instrument.kind]
            create(name, [partial(observe, name)], unit=instrument.unit, description=instrument.description)
        return self

    def to_prometheus(self, registry: CollectorRegistry | None = None) -> Self:
        """Show the metrics in a registry of ``prometheus_client``, and return this.

        Call it once for a registry.

        Args:
            registry: the registry; by default, the one that ``prometheus_client`` itself shows.

        Raises:
            MissingExtra: the extra ``prometheus`` is not installed.
        """
        with needing("prometheus", "Metrics of Prometheus"):
            from prometheus_client import REGISTRY
        (REGISTRY if registry is None else registry).register(_PrometheusCollector(self))
        return self


class _PrometheusCollector:
    """Metrics, as `prometheus_client` collects them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Return the names: of all, since clients come and go."""
        return families([(instrument, ()) for _, instrument in _TABLE.values()])

    def collect(self) -> Iterable[Metric]:
        """Return the values of this moment."""
        return families(self._metrics.collect())


def _named(source: MetricSource, instrument: Instrument, labels: Sequence[str]) -> Mapping[str, str]:
    return {**dict(zip((*source.attributes, *instrument.attributes), labels)), **instrument.constant}


def facts_of(client: C, read: Callable[[C], tuple[Any, bool]]) -> Callable[[], tuple[Any, bool] | None]:
    """Return a function that reads a client, without keeping it alive."""
    alive = ref(client)

    def facts() -> tuple[Any, bool] | None:
        found = alive()
        return None if found is None else read(found)

    return facts


def _of_reader(reader: FollowingReader[Any]) -> tuple[ReaderFacts, bool]:
    status = reader.status
    return ReaderFacts(status, reader.stats), status.state == "closed"


def _of_consumer(consumer: Consumer[Any]) -> tuple[Any, bool]:
    closed = consumer._shared.closed
    return consumer.stats, closed


def _of_producer(producer: Producer[Any]) -> tuple[Any, bool]:
    closed = producer._closed
    return producer.writer.facts, closed
