"""What a topic's log holds now, and whether a cut fits it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from lvq_kafka.cluster import Cluster, LogEnd, TopicDescription
from lvq_kafka.core.progress import Shortfall, describe
from lvq_kafka.errors import CatchUpTimeout, ConfigError, DataLoss, Unauthorized

__all__ = ["AsOfPolicy", "Bounds", "TopicSettings"]

AsOfPolicy = Literal["fail", "warn"]
"""What to do about a cut of the past, of which the topic may have compacted records away: refuse it, or warn."""

_PAUSE = 0.02  # seconds until it is asked again whether the log is at rest
_TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic that a cut depends on. What this user may not see counts as Kafka's default.

    One that is not compacted keeps every record for ever: what retention takes of it, it takes from its start.
    """

    compaction_lag: float = 0.0
    """Seconds for which a superseded record is kept, at least."""
    delete_retention: float = 86_400.0
    """Seconds for which a delete is kept, at least."""
    timestamp_type: int = -1
    """0 for the producers' times, 1 for append times, -1 for not known."""

    @classmethod
    def ask(cls, cluster: Cluster, topic: str, timeout: float = 10.0) -> TopicSettings:
        """The settings now."""
        try:
            found = cluster.topic_config(topic, timeout=timeout)
        except Unauthorized:
            return cls()
        compacted = "compact" in found.get("cleanup.policy", "compact")
        return cls(
            int(found.get("min.compaction.lag.ms", 0)) / 1000 if compacted else math.inf,
            int(found.get("delete.retention.ms", 86_400_000)) / 1000 if compacted else math.inf,
            _TIMESTAMP_TYPES.get(found.get("message.timestamp.type", ""), -1),
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """A topic, and where its log starts and ends: what is committed (``stable``), and what is in transactions, too.

    ``epochs`` are of the leaders that said so.
    """

    described: TopicDescription
    lowest: Mapping[int, int]
    stable: Mapping[int, int]
    highest: Mapping[int, int]
    epochs: Mapping[int, int]

    @classmethod
    def ask(cls, cluster: Cluster, topic: str, timeout: float = 10.0) -> Bounds:
        """The bounds now, of the partitions that all answers know: some may be added in between."""
        described = cluster.describe_topic(topic, timeout=timeout)
        lowest = cluster.start_offsets(topic, timeout=timeout)
        ends = cluster.stable_ends(topic, timeout=timeout)
        highest = cluster.end_offsets(topic, timeout=timeout)
        there = range(min(described.partitions, len(lowest), len(ends), len(highest)))
        return cls(
            replace(described, partitions=len(there)),
            {p: lowest[p] for p in there},
            {p: ends[p].offset for p in there},
            {p: highest[p] for p in there},
            {p: ends[p].leader_epoch for p in there},
        )

    @classmethod
    def at_rest(cls, cluster: Cluster, topic: str, within: float, timeout: float = 10.0) -> Bounds:
        """The bounds at a moment when each transaction was in all partitions or in none, to its end.

        All there was of the log was committed, and nothing came between the answers: for the first says what is
        committed in each partition, and the second, asked for after that, where each ends.

        Raises:
            CatchUpTimeout: there was no such moment in so many seconds.
        """
        deadline = time.monotonic() + within
        while (found := cls.ask(cluster, topic, timeout)).stable != found.highest:
            if time.monotonic() + _PAUSE > deadline:
                moving = found.undecided(found.highest)
                raise CatchUpTimeout(
                    f"The topic {topic} was not at rest for a moment within {within:g} s: {describe(moving)}.",
                    shortfalls=moving,
                    hint="Allow more time, or take a cut that may have a transaction in some partitions only.",
                )
            time.sleep(_PAUSE)
        return found

    @property
    def stable_ends(self) -> dict[int, LogEnd]:
        """What is committed, with the leaders' epochs."""
        return {partition: LogEnd(offset, self.epochs[partition]) for partition, offset in self.stable.items()}

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.described.name

    def undecided(self, end: Mapping[int, int]) -> list[Shortfall]:
        """Where not all before these offsets is committed."""
        stable = self.stable
        return [Shortfall(p, stable[p], end[p], stable[p]) for p in sorted(end) if stable[p] < end[p]]

    def committed(
        self, cluster: Cluster, wanted: Mapping[int, int], timeout: float
    ) -> tuple[dict[int, int], tuple[Shortfall, ...]]:
        """As much of a wanted end as is committed, and where an open transaction holds the rest back."""
        end = {p: min(offset, self.stable[p]) for p, offset in wanted.items()}
        if end == wanted:
            return end, ()
        # Perhaps the log only grew between the two questions. By now nothing but an open transaction parts them.
        now = cluster.end_offsets(self.topic, stable=True, timeout=timeout)
        return end, tuple(Shortfall(p, end[p], wanted[p], now[p]) for p in sorted(end) if now[p] < wanted[p])

    def reached(
        self,
        cluster: Cluster,
        moments: Mapping[int, float],
        settings: TopicSettings,
        policy: AsOfPolicy,
        timeout: float,
    ) -> dict[int, int]:
        """The first offset in each partition that is not older than a moment, or the end of the log.

        By producers' clocks a later record may be older still: it is the first one that counts, as for every lookup
        by time, so that what lies before and behind the cut is decided by offset.

        Raises:
            ConfigError: the topic may have compacted records of that time away, and that is to fail.
        """
        oldest = min(moments.values())
        if time.time() - oldest > settings.compaction_lag:
            said = datetime.fromtimestamp(oldest, UTC).isoformat(timespec="seconds")
            what = (
                f"The cut through {self.topic} is of {said}, and the topic keeps superseded records for "
                f"{settings.compaction_lag:g} s (min.compaction.lag.ms): compaction may have removed some of it."
            )
            if policy == "fail":
                raise ConfigError(
                    what,
                    options=["as_of"],
                    hint="Raise the topic's min.compaction.lag.ms for cuts to come, keep snapshots, or take what is "
                    "there with as_of_policy='warn' (lvq.asOfPolicy).",
                )
            warnings.warn(what, stacklevel=3)
        found = {at: cluster.offsets_at(self.topic, round(at * 1000), timeout=timeout) for at in set(moments.values())}
        return {p: min(found[at][p], self.highest[p]) for p, at in moments.items()}

    def check_partitions(self, option: str, offsets: Mapping[int, object]) -> None:
        """Check that these are the partitions of the topic.

        Raises:
            ConfigError: they are not.
        """
        partitions = self.described.partitions
        missing = sorted(set(range(partitions)) - set(offsets))
        unknown = sorted(set(offsets) - set(range(partitions)))
        if missing or unknown:
            what = [f"lacks partition {', '.join(map(str, missing))}"] if missing else []
            what += [f"names partition {', '.join(map(str, unknown))}, which is not there"] if unknown else []
            raise ConfigError(
                f"{option} does not fit the topic {self.topic} of {partitions} partitions: it {' and '.join(what)}.",
                options=[option],
                hint="Give one offset for each partition, all taken from the same topic since it last grew.",
            )

    def check_end(self, end: Mapping[int, int]) -> None:
        """Check that all before these offsets is there to be read.

        Raises:
            DataLoss: the log has never reached as far, or has lost what lies there.
            ConfigError: an open transaction hides some of it.
        """
        for partition, offset in sorted(end.items()):
            if not self.lowest[partition] <= offset <= self.highest[partition]:
                raise DataLoss(
                    f"The cut ends at offset {offset} of partition {partition} of {self.topic}, "
                    f"which holds {self.lowest[partition]} to {self.highest[partition]}.",
                    hint="The log was truncated, or the topic is another one by now: take a new cut.",
                )
        if held := self.undecided(end):
            raise ConfigError(
                f"The cut through {self.topic} ends behind an open transaction: {describe(held)}.",
                options=["end"],
                hint="Leave end out to stop before it, or wait until the transaction has ended.",
            )

    def check_start(self, start: Mapping[int, int], end: Mapping[int, int]) -> None:
        """Check that all from these offsets on is there to be read.

        Raises:
            DataLoss: the log does not reach back as far.
            ConfigError: a partition would end before it starts.
        """
        for partition, offset in sorted(start.items()):
            if offset > end[partition]:
                raise ConfigError(
                    f"In partition {partition} of {self.topic}, start {offset} is behind end {end[partition]}.",
                    options=["start", "end"],
                )
            if offset < self.lowest[partition] and offset < end[partition]:
                raise DataLoss(
                    f"The cut starts at offset {offset} of partition {partition} of {self.topic}, "
                    f"whose log starts at {self.lowest[partition]}.",
                    hint="Leave start out to read what is there.",
                )
