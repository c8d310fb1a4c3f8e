"""The records that a queue's consumers have consumed, according to their group's commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lvq_kafka.cluster import Cluster, Commit, LogEnd, TopicDescription
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.records import Record
from lvq_kafka.managing.damage import examine
from lvq_kafka.managing.group_checks import OnForeignCommits, known_ends
from lvq_kafka.reading.follower_state import FollowerState

__all__ = ["ConsumedFilter"]


class ConsumedFilter:
    """The records that a group has consumed, as of the last refresh.

    Guarded by the follower's lock.

    Args:
        cluster: the cluster that holds the queue.
        definition: the queue.
        group: its consumer group.
        on_foreign_commits: what to do about a commit that carries nothing but its offset.
        shared: the state of its reader.
        on_news: called with the lock held when a refresh finds a change; with True if something is no longer done, as
            after a reset.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        group: str,
        on_foreign_commits: OnForeignCommits,
        shared: FollowerState,
        on_news: Callable[[bool], None],
    ) -> None:
        self.as_of = 0.0
        """Seconds since the epoch of the last refresh; 0.0 before the first."""
        self.news = 0
        """The number of refreshes that found a change."""
        self._cluster = cluster
        self._queue = definition.name
        self._topic = definition.topic
        self._group = group
        self._on_foreign_commits = on_foreign_commits
        self._shared = shared
        self._on_news = on_news
        self._maps: dict[int, CommitMap] = {}
        self._refreshes = 0  # completed
        self._known: tuple[object, Mapping[int, int]] = (None, {})
        self._described: TopicDescription | None = None  # at the last refresh

    def refresh(self) -> None:
        """Find out what has been consumed by now.

        Raises:
            QueueNotDeclared, TopicRecreated, CommitMapRefused: it is no longer known what was consumed. Continuing
                would show everything again, or hide new values (R17).
            TopicNotFound: the topic does not exist right now.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        learned = False
        while not learned:
            others = self._refreshes
            learned = self._learn(self._ask(), others)

    def _ask(self) -> dict[int, CommitMap]:
        while True:
            count = self._described.partitions if self._described else None
            # Messages consumed in an open transaction do not count yet.
            commits = self._cluster.groups.committed(self._group, self._topic, decided=False, partitions=count)
            stable = self._cluster.logs.stable_ends(self._topic, partitions=count)
            # Describe last: a topic's commits are deleted with it.
            self._described = described = self._cluster.topics.describe(self._topic)
            if count in (None, described.partitions):
                return self._judge(commits, stable, described)

    def _judge(
        self, commits: Mapping[int, Commit], stable: Mapping[int, LogEnd], described: TopicDescription
    ) -> dict[int, CommitMap]:
        partitions, ends = range(described.partitions), self._known_ends(commits, stable)
        found = examine(
            self._group, self._topic, partitions, commits, queue=self._queue, described=described, ends=ends
        )
        for damage in found.damages:
            # For a truncated log, the state below the cut is known: too much is shown, never too little.
            if damage.needs_start or (damage.kind == "commit-refused" and self._on_foreign_commits == "refuse"):
                raise damage.error
        return dict(found.maps)

    def _known_ends(self, commits: Mapping[int, Commit], stable: Mapping[int, LogEnd]) -> Mapping[int, int]:
        """Return `known_ends`, cached: it reads records, so it is called only after a change."""
        said = {partition: (commit, commit.leader_epoch) for partition, commit in commits.items()}
        asked = (said, {partition: end.leader_epoch for partition, end in stable.items()})
        before, ends = self._known
        if asked != before:
            ends = known_ends(self._cluster, self._topic, commits, stable)
            self._known = asked, ends
        return ends

    def _learn(self, maps: dict[int, CommitMap], others: int) -> bool:
        """Apply the result of a refresh, unless another thread completed one meanwhile.

        Returns False in that case, since the other result may be newer.
        """
        with self._shared.lock:
            if self._refreshes != others:
                return False
            self._refreshes += 1
            self.as_of = time.time()
            before, self._maps = self._maps, maps
            if maps != before:
                self.news += 1
                self._on_news(any(p not in maps or not maps[p].covers(was) for p, was in before.items()))
        return True

    def done(self, record: Record) -> bool:
        """Return whether this record was consumed."""
        known = self._maps.get(record.partition)
        return known is not None and known.done(record.offset)

    @property
    def bases(self) -> dict[int, int]:
        """The offset below which everything is done, by partition."""
        return {partition: known.base for partition, known in self._maps.items()}
