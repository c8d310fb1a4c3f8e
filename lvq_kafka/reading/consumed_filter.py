"""The records that a queue's consumers have consumed, according to their group's commits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal, NamedTuple

from lvq_kafka.cluster import Cluster, Commit, LogEnd, TopicDescription
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.records import Record, RecordBatch, rows_by_partition
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.declared.damage import examine
from lvq_kafka.declared.group_checks import OnForeignCommits, known_ends
from lvq_kafka.errors import CatchUpTimeout, TopicNotFound, TransportError

__all__ = ["ConsumedFilter", "Consumption", "Learned", "is_transient"]


Learned = Literal["learned", "taken back", "overtaken"]


class Consumption(NamedTuple):
    """The commits of a group, as of a refresh, and the number of refreshes before."""

    maps: dict[int, CommitMap]
    refreshes: int


class ConsumedFilter:
    """The records that a group has consumed, as of the last refresh: `ask`, then `learn`.

    All but `ask` is guarded by its reader's lock.

    Args:
        cluster: the cluster that holds the queue.
        definition: the queue.
        group: its consumer group.
        on_foreign_commits: the policy for a commit that contains only its offset.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        group: str,
        on_foreign_commits: OnForeignCommits,
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
        self._maps: dict[int, CommitMap] = {}
        self._refreshes = 0  # completed
        self._known: tuple[object, Mapping[int, int]] = (None, {})
        self._described: TopicDescription | None = None  # at the last refresh

    def ask(self) -> Consumption:
        """Ask the group for its current commits.

        Raises:
            QueueNotDeclared, TopicRecreated, CommitMapRefused: it is no longer known what was consumed. Continuing
                would show everything again, or hide new values (R17).
            TopicNotFound: the topic does not exist right now.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        refreshes = self._refreshes
        while True:
            count = self._described.partitions if self._described else None
            # Messages consumed in an open transaction do not count yet.
            commits = self._cluster.groups.committed(self._group, self._topic, decided=False, partitions=count)
            stable = self._cluster.logs.stable_ends(self._topic, partitions=count)
            # Describe last: a topic's commits are deleted with it.
            self._described = described = self._cluster.topics.describe(self._topic)
            if count in (None, described.partitions):
                return Consumption(self._judge(commits, stable, described), refreshes)

    def learn(self, answer: Consumption) -> Learned:
        """Apply an answer, unless another thread has applied one meanwhile, which may be newer.

        Return ``"taken back"`` if any message is no longer done, as after a reset.
        """
        if self._refreshes != answer.refreshes:
            return "overtaken"
        self._refreshes += 1
        self.as_of = time.time()
        before, self._maps = self._maps, answer.maps
        if answer.maps == before:
            return "learned"
        self.news += 1
        kept = all(p in answer.maps and answer.maps[p].covers(was) for p, was in before.items())
        return "learned" if kept else "taken back"

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

    def done(self, record: Record) -> bool:
        """Return whether this record was consumed."""
        known = self._maps.get(record.partition)
        return known is not None and known.done(record.offset)

    def rows_done(self, batch: RecordBatch) -> list[int]:
        """Return the rows of the records that were consumed."""
        done: list[int] = []
        for partition, rows in rows_by_partition(batch.partitions):
            known = self._maps.get(partition)
            if known is None:
                continue
            if rows is None:
                return known.rows_done(batch.offsets)
            those = range(len(batch))[rows] if isinstance(rows, slice) else rows
            done += [those[row] for row in known.rows_done([batch.offsets[row] for row in those])]
        return done

    @property
    def bases(self) -> dict[int, int]:
        """The offset below which everything is done, by partition."""
        return {partition: known.base for partition, known in self._maps.items()}


def is_transient(error: Exception) -> bool:
    """Return whether to ask again after this error.

    Either it is temporary, or a follower of the topic also sees and reports it.
    """
    if isinstance(error, TransportError):
        return error.retriable
    return isinstance(error, CatchUpTimeout | TopicNotFound)
