"""What the consumers of a queue have consumed, as a browser of it knows: by looks at their group's commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lvq_kafka.cluster import Cluster, Commit, LogEnd, TopicDescription
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.records import Record
from lvq_kafka.managing.damage import examine
from lvq_kafka.managing.group_checks import OnForeignCommits, known_ends
from lvq_kafka.reading.follower import Follower

__all__ = ["ConsumedFilter"]


class ConsumedFilter:
    """What a group has done, as of the last look. The lock of the follower guards it.

    Args:
        cluster: where the queue lies.
        definition: the queue.
        group: its consumer group.
        on_foreign_commits: what to do about a commit that says nothing but its offset.
        follower: who reads the queue.
        on_news: called with the lock held when a look has found something else than the one before; with True where
            something is no longer done that was, as after a reset.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        group: str,
        on_foreign_commits: OnForeignCommits,
        follower: Follower,
        on_news: Callable[[bool], None],
    ) -> None:
        self.as_of = 0.0
        """Seconds since the epoch of the last look; 0.0 before the first."""
        self.news = 0
        """How many looks have found something else than the one before."""
        self._cluster = cluster
        self._queue = definition.name
        self._topic = definition.topic
        self._group = group
        self._on_foreign_commits = on_foreign_commits
        self._follower = follower
        self._on_news = on_news
        self._maps: dict[int, CommitMap] = {}
        self._refreshes = 0  # that have ended
        self._known: tuple[object, Mapping[int, int]] = (None, {})
        self._described: TopicDescription | None = None  # at the last look

    def refresh(self) -> None:
        """Learn what is done by now.

        Raises:
            QueueNotDeclared, TopicRecreated, CommitMapRefused: it is not known any more: all of it would come back,
                or what is new would be hidden (R17).
            TopicNotFound: there is no such topic now.
            TransportError: the cluster cannot be reached or refuses.
        """
        learned = False
        while not learned:
            others = self._refreshes
            learned = self._learn(self._ask(), others)

    def _ask(self) -> dict[int, CommitMap]:
        while True:
            count = self._described.partitions if self._described else None
            # What an open transaction consumes is not consumed yet.
            commits = self._cluster.committed(self._group, self._topic, decided=False, partitions=count)
            stable = self._cluster.stable_ends(self._topic, partitions=count)
            # Afterwards: the commits of a topic go with it.
            self._described = described = self._cluster.describe_topic(self._topic)
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
            # Of a log that was cut it is known what lies below: too much is shown, never too little.
            if damage.needs_start or (damage.kind == "commit-refused" and self._on_foreign_commits == "refuse"):
                raise damage.error
        return dict(found.maps)

    def _known_ends(self, commits: Mapping[int, Commit], stable: Mapping[int, LogEnd]) -> Mapping[int, int]:
        """See `known_ends`, which has to look at records; so it is asked again only when something has changed."""
        said = {partition: (commit, commit.leader_epoch) for partition, commit in commits.items()}
        asked = (said, {partition: end.leader_epoch for partition, end in stable.items()})
        before, ends = self._known
        if asked != before:
            ends = known_ends(self._cluster, self._topic, commits, stable)
            self._known = asked, ends
        return ends

    def _learn(self, maps: dict[int, CommitMap], others: int) -> bool:
        """Take in what a look has found; False where another thread's has ended meanwhile, which may know more."""
        with self._follower.changed:
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
        """Whether this record was consumed."""
        known = self._maps.get(record.partition)
        return known is not None and known.done(record.offset)

    @property
    def bases(self) -> dict[int, int]:
        """By partition, the offset below which everything is done."""
        return {partition: known.base for partition, known in self._maps.items()}
