"""The values that the dump of a browser begins with: all, the recent ones, or none."""

from __future__ import annotations

import time
from collections.abc import Mapping

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.records import Record
from lvq_kafka.core.validation import as_float, delays
from lvq_kafka.errors import ConfigError

__all__ = ["ReplayPeriod"]


class ReplayPeriod:
    """Limits the dump of a browser to what arrived in a period that ends now (R15).

    Args:
        dump: False for no dump.
        seconds: the length of the period; None for no limit.

    Raises:
        ConfigError: the period is invalid, or there is no dump for it.
    """

    def __init__(self, seconds: float | None, *, dump: bool) -> None:
        if seconds and not dump:
            raise ConfigError(
                f"dump=False skips the values that replay_period={seconds!r} selects.",
                options=["dump", "replay_period"],
                hint="Give one of them.",
            )
        self._horizon = _horizon(seconds)
        self._dump = dump and seconds != 0
        self._opened_at: Mapping[int, int] = {}

    def first(self, cluster: Cluster, topic: str) -> dict[int, int]:
        """Return, by partition, the offset below which nothing is in the period.

        It is 0 for partitions that are missing, and never beyond records that an open transaction still hides.
        """
        if self._dump and self._horizon is None:
            return {}
        visible = cluster.logs.end_offsets(topic, stable=True)
        if not self._dump or self._horizon is None:
            return visible
        recent = cluster.logs.offsets_at(topic, self._horizon)
        return {partition: min(offset, visible.get(partition, 0)) for partition, offset in recent.items()}

    def opened(self, positions: Mapping[int, int]) -> None:
        """Set the boundary: records below these positions are for the dump, later ones updates."""
        self._opened_at = dict(positions)

    def excludes(self, record: Record) -> bool:
        """Return whether a record is too old for the dump, and no update."""
        if self._horizon is None or record.timestamp >= self._horizon:
            return False
        return record.offset < self._opened_at.get(record.partition, 0)


def _horizon(replay_period: object) -> int | None:
    """Return the earliest time, in ms, within a replay period that ends now (R15)."""
    if replay_period is None:
        return None
    delays(replay_period=replay_period)
    return round(max(0.0, time.time() - as_float(replay_period)) * 1000)  # the protocol reserves negative times
