"""Metrics in the text formats of Prometheus, by its own client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from lvq_kafka.core.measures.instruments import Collected, prometheus_label, prometheus_name
from lvq_kafka.core.measures.measured import SOURCES
from lvq_kafka.runtime.extras import needing

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["exposition", "families", "need_prometheus"]

_LABELS = {
    instrument.name: (*source.attributes, *instrument.attributes, *instrument.constant)
    for source in SOURCES.values()
    for instrument in source.instruments
}
"""By instrument, its attributes: each has all of them, in this order."""


def need_prometheus(purpose: str) -> None:
    """Check that its client is installed.

    Raises:
        MissingExtra: the extra ``prometheus`` is not installed.
    """
    with needing("prometheus", purpose):
        import prometheus_client  # noqa: F401


def families(collected: Collected) -> Iterator[Metric]:
    """Yield metrics as `prometheus_client` has them.

    Raises:
        MissingExtra: the extra ``prometheus`` is not installed.
    """
    with needing("prometheus", "Metrics of Prometheus"):
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
    for instrument, samples in collected:
        attributes = _LABELS[instrument.name]
        kind = CounterMetricFamily if instrument.kind == "counter" else GaugeMetricFamily
        family = kind(
            prometheus_name(instrument), instrument.description, labels=[prometheus_label(each) for each in attributes]
        )
        for sample in samples:
            family.add_metric([sample.attributes.get(each, "") for each in attributes], sample.value)
        yield family


def exposition(collected: Collected, accept: str | None) -> tuple[bytes, str]:
    """Return the text for a scrape, and its media type.

    Args:
        accept: the header ``Accept`` of the request, which chooses the version of the format.

    Raises:
        MissingExtra: the extra ``prometheus`` is not installed.
    """
    with needing("prometheus", "Metrics of Prometheus"):
        from prometheus_client.exposition import choose_encoder
    encode, media_type = choose_encoder(accept or "")
    return encode(cast("CollectorRegistry", _CollectedRegistry(collected))), media_type


class _CollectedRegistry:
    """Metrics that were collected, in the place of a registry."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    def collect(self) -> Iterable[Metric]:
        return families(self._collected)
