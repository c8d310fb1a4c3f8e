"""Queues without consumers, and when brokers forget what was consumed (R50)."""

from __future__ import annotations

import math

from lvq_kafka.core.queue.topic_settings import Finding

__all__ = ["RETENTION", "in_words", "judge_retention", "risk"]

RETENTION = "offsets.retention.minutes"
"""The setting of brokers that says how long a group without members keeps its commits."""

_USUAL = 7 * 86_400.0  # seconds: Kafka's default
_SAFE = 0.5  # share of the retention that a message may have waited while no consumer is active
_UNITS = (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))


def judge_retention(retention: float) -> list[Finding]:
    """Return a finding if brokers keep commits for less time than they do by default.

    A queue that nobody consumes over a long weekend would lose them.
    """
    if retention >= _USUAL:
        return []
    return [Finding(RETENTION, f"{_USUAL / 60:.0f} or more", f"{retention / 60:.0f}", "warning")]


def risk(retention: float | None, waited: float | None) -> str:
    """Describe why brokers may soon forget what was consumed; empty if nothing says so.

    Nobody can ask a broker when the last consumer left. But a message that has waited for long while no consumer is
    active suggests that it was long ago.

    Args:
        retention: seconds for which it is kept; None if unknown, or if consumers are active.
        waited: the age of the oldest message that waits, in seconds; None if there is none.
    """
    if retention is None or math.isinf(retention):
        return ""
    waits = waited is not None and waited > _SAFE * retention
    if retention >= _USUAL and not waits:
        return ""
    seen = f"; the oldest message has waited for {in_words(waited)}" if waits and waited is not None else ""
    return (
        f"no consumer is active, and brokers forget what was consumed {in_words(retention)} after the last one has left"
        f" ({RETENTION}){seen}"
    )


def in_words(seconds: float) -> str:
    """Return a duration in the largest unit that it has two of, such as ``36 hours``."""
    for name, length in _UNITS:
        if seconds >= 2 * length or seconds == length or length == 1:
            number = int(seconds // length)
            return f"{number:,} {name}{'' if number == 1 else 's'}"
    raise AssertionError
