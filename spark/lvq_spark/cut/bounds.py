"""The current bounds of a topic's log, and checks that a cut fits them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from lvq_kafka.cluster import Cluster, LogEnd, TopicDescription
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.log.progress import describe
from lvq_kafka.errors import CatchUpTimeout, ConfigError, DataLoss, Unauthorized

__all__ = ["AsOfPolicy", "Bounds", "TopicSettings"]

AsOfPolicy = Literal["fail", "warn"]
"""Policy for a past cut whose records compaction may have removed: refuse it, or warn."""

_PAUSE = 0.02  # seconds between checks whether the log is at rest
_TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The topic settings that a cut depends on.

    Kafka's defaults stand in for settings that this user may not see. A topic that is not compacted keeps every record
    forever: retention only removes records at the start of its log.
    """

    compaction_lag: float = 0.0
    """Minimum time in seconds that a superseded record is kept."""
    delete_retention: float = 86_400.0
    """Minimum time in seconds that a delete is kept."""
    timestamp_type: int = -1
    """0 for producer timestamps, 1 for append times, -1 if unknown."""

    @classmethod
    def ask(cls, cluster: Cluster, topic: str, timeout: float = 10.0) -> TopicSettings:
        """Fetch the current settings."""
        try:
            found = cluster.topics.config(topic, timeout=timeout)
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
    """A topic and the bounds of its log.

    ``lowest`` is where each partition starts, ``stable`` where its committed records end, ``highest`` where it ends,
    open transactions included. ``epochs`` are the epochs of the leaders that reported ``stable``.
    """

    described: TopicDescription
    lowest: Mapping[int, int]
    stable: Mapping[int, int]
    highest: Mapping[int, int]
    epochs: Mapping[int, int]

    @classmethod
    def ask(cls, cluster: Cluster, topic: str, timeout: float = 10.0) -> Bounds:
        """Fetch the current bounds.

        Partitions may be added meanwhile; only those that all answers know are included.
        """
        described = cluster.topics.describe(topic, timeout=timeout)
        lowest = cluster.logs.start_offsets(topic, timeout=timeout)
        ends = cluster.logs.stable_ends(topic, timeout=timeout)
        highest = cluster.logs.end_offsets(topic, timeout=timeout)
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
        """Fetch the bounds at a moment when no transaction was under way.

        At that moment each transaction was complete in all partitions, or in none. The whole log was committed and
        nothing was written between the two requests: the ends of the committed records are requested first and the ends
        of the log after that, and they agree.

        Raises:
            CatchUpTimeout: there was no such moment within ``within`` seconds.
        """
        deadline = time.monotonic() + within
        while (found := cls.ask(cluster, topic, timeout)).stable != found.highest:
            if time.monotonic() + _PAUSE > deadline:
                moving = found.undecided(found.highest)
                raise CatchUpTimeout(
                    f"The topic {topic} was not at rest within {within:g} s: {describe(moving)}.",
                    shortfalls=moving,
                    hint="Allow more time, or take a cut that may have a transaction in some partitions only.",
                )
            time.sleep(_PAUSE)
        return found

    @property
    def stable_ends(self) -> dict[int, LogEnd]:
        """The end of the committed records in each partition, with the leader's epoch."""
        return {partition: LogEnd(offset, self.epochs[partition]) for partition, offset in self.stable.items()}

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.described.name

    def undecided(self, end: Mapping[int, int]) -> list[Shortfall]:
        """Return the partitions where not everything before these offsets is committed."""
        stable = self.stable
        return [Shortfall(p, stable[p], end[p], stable[p]) for p in sorted(end) if stable[p] < end[p]]

    def committed(
        self, cluster: Cluster, wanted: Mapping[int, int], timeout: float
    ) -> tuple[dict[int, int], tuple[Shortfall, ...]]:
        """Return the committed part of a wanted end, and where an open transaction hides the rest."""
        end = {p: min(offset, self.stable[p]) for p, offset in wanted.items()}
        if end == wanted:
            return end, ()
        # The log may simply have grown between the two requests. Only an open transaction explains a gap that remains.
        now = cluster.logs.end_offsets(self.topic, stable=True, timeout=timeout)
        return end, tuple(Shortfall(p, end[p], wanted[p], now[p]) for p in sorted(end) if now[p] < wanted[p])

    def reached(
        self,
        cluster: Cluster,
        moments: Mapping[int, float],
        settings: TopicSettings,
        policy: AsOfPolicy,
        timeout: float,
    ) -> dict[int, int]:
        """Return the first offset of each partition that is not older than a moment.

        If there is none, return the end of the log. With producer timestamps a later record may still be older. As in
        every lookup by time the first match counts, so an offset separates the records before the cut from those after
        it.

        Raises:
            ConfigError: compaction may have removed records of that time, and the policy is to fail.
        """
        oldest = min(moments.values())
        if time.time() - oldest > settings.compaction_lag:
            said = datetime.fromtimestamp(oldest, UTC).isoformat(timespec="seconds")
            what = (
                f"The cut through {self.topic} is from {said}, but the topic keeps superseded records for "
                f"{settings.compaction_lag:g} s (min.compaction.lag.ms): compaction may have removed some of it."
            )
            if policy == "fail":
                raise ConfigError(
                    what,
                    options=["as_of"],
                    hint="Raise the topic's min.compaction.lag.ms for future cuts, keep snapshots, or accept what is "
                    "left with as_of_policy='warn' (lvq.asOfPolicy).",
                )
            warnings.warn(what, stacklevel=3)
        found = {
            at: cluster.logs.offsets_at(self.topic, round(at * 1000), timeout=timeout) for at in set(moments.values())
        }
        return {p: min(found[at][p], self.highest[p]) for p, at in moments.items()}

    def check_partitions(self, option: str, offsets: Mapping[int, object]) -> None:
        """Check that these are exactly the topic's partitions.

        Raises:
            ConfigError: they are not.
        """
        partitions = self.described.partitions
        missing = sorted(set(range(partitions)) - set(offsets))
        unknown = sorted(set(offsets) - set(range(partitions)))
        if missing or unknown:
            what = [f"lacks partition {', '.join(map(str, missing))}"] if missing else []
            what += [f"names partition {', '.join(map(str, unknown))}, which does not exist"] if unknown else []
            raise ConfigError(
                f"{option} does not fit the topic {self.topic} of {partitions} partitions: it {' and '.join(what)}.",
                options=[option],
                hint="Give one offset for each partition, all from the same topic, taken since it last gained "
                "partitions.",
            )

    def check_end(self, end: Mapping[int, int]) -> None:
        """Check that everything before these offsets can be read.

        Raises:
            DataLoss: the log has never reached these offsets, or has lost the records there.
            ConfigError: an open transaction hides some of the records.
        """
        for partition, offset in sorted(end.items()):
            if not self.lowest[partition] <= offset <= self.highest[partition]:
                raise DataLoss(
                    f"The cut ends at offset {offset} of partition {partition} of {self.topic}, "
                    f"which holds {self.lowest[partition]} to {self.highest[partition]}.",
                    hint="The log was truncated, or the topic was replaced: take a new cut.",
                )
        if held := self.undecided(end):
            raise ConfigError(
                f"The cut through {self.topic} ends beyond an open transaction: {describe(held)}.",
                options=["end"],
                hint="Omit end to stop before it, or wait until the transaction has ended.",
            )

    def check_start(self, start: Mapping[int, int], end: Mapping[int, int]) -> None:
        """Check that everything from these offsets on can be read.

        Raises:
            DataLoss: the log starts later.
            ConfigError: a partition would end before it starts.
        """
        for partition, offset in sorted(start.items()):
            if offset > end[partition]:
                raise ConfigError(
                    f"In partition {partition} of {self.topic}, start {offset} is beyond end {end[partition]}.",
                    options=["start", "end"],
                )
            if offset < self.lowest[partition] and offset < end[partition]:
                raise DataLoss(
                    f"The cut starts at offset {offset} of partition {partition} of {self.topic}, "
                    f"whose log starts at {self.lowest[partition]}.",
                    hint="Omit start to read what is left.",
                )
