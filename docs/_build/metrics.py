"""The metrics and the alerts in Markdown, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from lvq_kafka.core.measures.instruments import Instrument, prometheus_label, prometheus_name
from lvq_kafka.core.measures.measured import SOURCES, MetricSource

__all__ = ["alerts", "metrics"]

RULES = Path(__file__).parents[1] / "monitoring" / "alerts.yml"

TITLES = {
    "queue": "Queues, by the exporter",
    "reader": "Readers",
    "consumer": "Consumers",
    "producer": "Producers",
    "server": "`lvq serve`",
}


def metrics() -> str:
    """Return a table of the metrics of each kind of thing, by their names in Prometheus."""
    return "\n".join(line for name, title in TITLES.items() for line in _section(title, SOURCES[name]))


def _section(title: str, source: MetricSource) -> Iterator[str]:
    labels = ", ".join(f"`{prometheus_label(each)}`" for each in source.attributes)
    yield from (f"### {title}", "")
    if labels:
        yield from (f"Labels of all: {labels}.", "")
    yield from ("| metric | further labels | it is |", "| --- | --- | --- |")
    for each in source.instruments:
        yield f"| `{prometheus_name(each)}` | {_labels(each)} | {each.description} |"
    yield ""


def _labels(instrument: Instrument) -> str:
    return ", ".join(f"`{prometheus_label(each)}`" for each in (*instrument.attributes, *instrument.constant))


def alerts() -> str:
    """Return a table of the alerts, with their causes and remedies."""
    lines = ["| alert | cause | remedy |", "| --- | --- | --- |"]
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            said = rule["annotations"]
            remedy = said["remedy"].replace("{{ $labels.lvq_queue }}", "QUEUE")
            lines.append(f"| `{rule['alert']}` | {said['cause']} | {remedy} |")
    return "\n".join(lines)
