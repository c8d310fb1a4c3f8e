"""The values that the dump of a browser begins with: all, the recent ones, or none."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.text.validation import as_float, delays
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.errors import ConfigError

__all__ = ["ReplayPeriod"]


class ReplayPeriod:
    """Limits the dump of a browser to values that arrived in a period that ends now (R15).

    A message that was scheduled before that, and becomes due while the browser is open, is an update.

    Args:
        seconds: the length of the period; None for no limit.
        now: the time, in seconds since the epoch.
        dump: False for no dump.
        times: the rule of when the queue's messages count.

    Raises:
        ConfigError: the period is invalid, or there is no dump for it.
    """

    def __init__(self, seconds: float | None, *, now: float, dump: bool, times: TimeRule) -> None:
        horizon = None if seconds is None else _horizon(seconds, now)
        if seconds and not dump:
            raise ConfigError(
                "`dump` skips the values that `replay_period` selects.",
                options={"dump": False, "replay_period": seconds},
                hint="Give one of them.",
            )
        self._dump = dump and seconds != 0
        self._horizon = horizon if self._dump else math.inf
        self._longest_delay = times.longest_delay
        self._judge = times.due_times()
        self._ends: Mapping[int, int] | None = None  # as of the start; None if the dump includes later records, too
        self._opened_at: Mapping[int, int] = {}
        self._opened_when = 0  # in ms
        self._topic_id = ""

    def first(self, cluster: Cluster, topic: str) -> dict[int, int]:
        """Return, by partition, the offset below which no record is in the period, or scheduled.

        It is 0 for partitions that are missing, and never beyond records that an open transaction still hides.
        """
        if self._horizon is None:
            return {}
        visible = cluster.logs.end_offsets(topic, stable=True)
        horizon, now = self._horizon, cluster.now()
        if not self._dump:
            self._ends, self._opened_when = visible, round(1000 * now)
        if self._longest_delay is not None:
            horizon = min(horizon, max(0, round(1000 * (now - self._longest_delay))))
        if horizon == math.inf:
            return visible
        recent = cluster.logs.offsets_at(topic, int(horizon))
        return {partition: min(offset, visible.get(partition, 0)) for partition, offset in recent.items()}

    def opened(self, positions: Mapping[int, int], when: float, topic_id: str) -> None:
        """Set the boundary of the dump.

        Records below these positions are for the dump if they count; all others are updates.

        Args:
            positions: the next offset of each partition.
            when: the time by which they count, in seconds since the epoch.
            topic_id: the id of the topic.
        """
        self._topic_id = topic_id
        if self._ends is None:
            self._opened_at, self._opened_when = dict(positions), round(1000 * when)
        else:  # unless the log has been truncated since
            self._opened_at = {partition: min(at, positions.get(partition, 0)) for partition, at in self._ends.items()}

    def excludes(self, record: Record, topic_id: str) -> bool:
        """Return whether a record of this topic is too old for the dump, and no update."""
        if self._horizon is None or record.timestamp >= self._horizon or topic_id != self._topic_id:
            return False
        if record.offset >= self._opened_at.get(record.partition, 0):
            return False
        return self._judge is None or self._judge.counts(self._opened_when, record.timestamp, record.headers)


def _horizon(replay_period: object, now: float) -> int:
    """Return the earliest time, in ms, within a replay period that ends now (R15)."""
    delays(replay_period=replay_period)
    return round(max(0.0, now - as_float(replay_period)) * 1000)  # the protocol reserves negative times
