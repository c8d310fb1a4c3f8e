"""Check at the start, and then regularly, that topic and consumer group are as expected."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from lvq_kafka.cluster import Assigned, Cluster, Commit, TopicDescription
from lvq_kafka.core.commit_map.commit_map import CommitMap, topic_tag
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.topic_settings import DELETE_RETENTION
from lvq_kafka.declared.damage import examine
from lvq_kafka.declared.group_checks import OnForeignCommits, check_group, known_ends
from lvq_kafka.declared.queue_topic import ask_delete_retention
from lvq_kafka.errors import OffsetsPending, TopicRecreated, TransportError
from lvq_kafka.runtime.notice import Notice
from lvq_kafka.runtime.retrying import patiently

__all__ = ["GroupMonitor", "Observation", "StartingPoint"]

logger = logging.getLogger("lvq_kafka.consumer")

T = TypeVar("T")

# Seconds that a new consumer waits for an open transaction. The broker aborts that of a dead client when its
# transaction.timeout.ms expires (a minute with this client, and with Java's); it checks every ten seconds.
_UNDECIDED = 90.0
_OPENING = 10.0  # seconds that a new consumer waits for an answer
# Seconds that a newly assigned partition waits for the cluster to report its start and end, before that counts as
# trouble. Meanwhile nothing is polled.
_PATIENCE = 3.0
_LOOK = 5.0  # seconds between checks of the topic's identity and ends
_LOOK_AGAIN = 1.0  # seconds until the next check after a failed one, or during trouble
_LATE = (0.0, 1.0, 5.0, 15.0, 60.0)  # seconds after a lost connection to check for late commits over newer ones
_LOOKS = 4  # checks within the time for which the topic keeps tombstones
_SETTINGS = 60.0  # seconds between checks of the topic's settings
_REREAD = 300.0  # seconds between checks whether the group still holds our commits
_MOMENT = 0.5  # seconds to wait for offsets that an open transaction holds back
_LIMIT, _LIMIT_AGAIN = 1.0, 60.0  # seconds for asking the text limit, and until the next time
_QUESTIONS = LEASE / 2  # seconds that a check may take: meanwhile nothing is polled, and no lease renewed


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The starting point of newly assigned partitions."""

    maps: Mapping[int, CommitMap]
    """The group's progress in each partition."""
    starts: Mapping[int, int]
    """The offsets to read from."""
    ends: Mapping[int, int]
    """The offsets to reach before anything is handed out (G12)."""
    epochs: Mapping[int, int]
    """The leader epochs in the commits."""
    tag: bytes
    """The topic's tag, for commits."""
    retention: float
    """Seconds for which the topic keeps tombstones."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of a check of the topic and the group."""

    ends: Mapping[int, int]
    """The log end offsets."""
    stable: Mapping[int, int]
    """The last stable offsets."""
    retention: float
    """Seconds for which the topic keeps tombstones."""
    members: int = 0
    """The number of members of the group, if it was asked."""
    stored: Mapping[int, CommitMap] = field(default_factory=dict)
    """The group's commits, if they were read."""
    assigned: Assigned | None = None
    """The partitions that the group has assigned to the member, if it was asked."""


class GroupMonitor:
    """Asks the cluster about a queue's topic and group.

    Raises:
        GroupNotFound, OffsetsExpired, PartitionsAdded: the group holds no offsets, or not for all partitions (R17).
        CommitMapRefused: another client commits with the group.
        TopicNotFound, TopicRecreated: the topic does not exist, or was recreated since it was consumed.
        OffsetsPending: an open transaction has held offsets of the group for longer than a dead client's transaction
            lasts by default.
        TransportError: the cluster cannot be reached or refuses.
    """

    def __init__(self, cluster: Cluster, definition: QueueDefinition, on_foreign_commits: OnForeignCommits) -> None:
        self._cluster = cluster
        self._name = definition.name
        self._topic = definition.topic
        self._group = definition.group
        self._on_foreign_commits = on_foreign_commits
        described = cluster.topics.describe(self._topic)
        self._topic_id = described.id
        self._partitions = described.partitions
        self._load(range(described.partitions), self._decided(), described)
        self._retention = DELETE_RETENTION
        self._observed_at = -math.inf
        self._observe_at = time.monotonic() + _LOOK
        self._settings_at = time.monotonic() + _SETTINGS
        self._reread_at = time.monotonic() + _REREAD
        self._ask_limit_at = 0.0
        self._rereads: list[float] = []  # when to check for late commits over newer ones

    @property
    def topic_id(self) -> str:
        """The id of the consumed topic."""
        return self._topic_id

    def starting_point(self, partitions: Collection[int], commits: Mapping[int, Commit]) -> StartingPoint:
        """Check the commits of newly assigned partitions.

        Raises what the constructor raises, and `DataLoss`.

        Hand-out begins at the current last stable offset. A former holder could not see anything above it either, so
        the newest value below it is never older than the values that the group has consumed. And an open transaction
        delays nothing.
        """
        cluster, topic = self._cluster, self._topic
        described = patiently(lambda: self._describe(partitions), _PATIENCE)
        if set(partitions) - commits.keys():
            # Check the whole group: it may be gone, or these partitions may be new to it.
            commits = patiently(lambda: cluster.groups.committed(self._group, topic), _PATIENCE)
        first = patiently(lambda: cluster.logs.start_offsets(topic), _PATIENCE)
        stable = patiently(lambda: cluster.logs.stable_ends(topic), _PATIENCE)
        mine = {partition: commits[partition] for partition in partitions if partition in commits}
        known = patiently(lambda: known_ends(cluster, topic, mine, stable), _PATIENCE)
        maps = self._load(partitions, commits, described, known)
        # Anything below the log start offset was consumed or superseded and truncated, or has aged out.
        starts = {partition: max(said.base, first[partition]) for partition, said in maps.items()}
        ends = {partition: end.offset for partition, end in stable.items()}
        epochs = {partition: commit.leader_epoch for partition, commit in mine.items()}
        self._retention = ask_delete_retention(cluster, topic, self._retention, timeout=_QUESTIONS)
        self._observe_at = min(self._observe_at, time.monotonic() + self._pause)
        return StartingPoint(maps, starts, ends, epochs, topic_tag(self._topic_id), self._retention)

    def retention(self) -> float:
        """Ask how long the topic keeps tombstones, in seconds, after an absence.

        Raises:
            TransportError: the cluster is not answering.
        """
        self._retention = ask_delete_retention(
            self._cluster, self._topic, self._retention, timeout=_QUESTIONS, insist=True
        )
        return self._retention

    def _decided(self) -> dict[int, Commit]:
        """Return the group's commits, once no open transaction holds any of them."""
        deadline, waiting = time.monotonic() + _UNDECIDED, Notice()
        while True:
            try:
                return patiently(self._committed, _OPENING, unless=(OffsetsPending,))
            except OffsetsPending as error:
                if time.monotonic() >= deadline:
                    raise
                if waiting.begins():
                    logger.warning("the consumer of %s waits: %s", self._name, error)

    def _committed(self) -> dict[int, Commit]:
        return self._cluster.groups.committed(self._group, self._topic, timeout=_OPENING / 4)

    def is_due(self, now: float) -> bool:
        """Return whether it is time to `observe` again."""
        return now >= self._observe_at

    def hasten(self) -> None:
        """Check soon, since anything may have happened during trouble.

        During prolonged trouble, at most once a second.
        """
        self._observe_at = min(self._observe_at, self._observed_at + _LOOK_AGAIN)

    def reread(self) -> None:
        """Read the group's commits soon, and again until there is an answer."""
        self._reread_at = -math.inf
        self.hasten()

    def doubt(self) -> None:
        """Read the group's commits at once and repeatedly: a late commit may overwrite them."""
        now = time.monotonic()
        self._rereads = [now + after for after in _LATE]
        self._observe_at = min(self._observe_at, now)

    def observe(
        self,
        now: float,
        mine: Collection[int],
        others: Collection[int] = (),
        *,
        count: bool = False,
        member: str = "",
    ) -> Observation:
        """Check the topic's identity and ends and, every few minutes, the group's commits.

        The commits are those of ``mine`` and ``others``. Members are counted if ``mine`` is empty, or with ``count``.
        If there is a ``member``, it is asked for what is assigned to it.

        Without this check, a topic that was deleted and recreated would silently be read from the old position.
        """
        deadline = time.monotonic() + _QUESTIONS
        stored: Mapping[int, CommitMap] = {}

        def left() -> float:
            return max(0.1, deadline - time.monotonic())

        try:
            # In this order: a partition without transactions then never looks blocked.
            known = self._partitions  # each description costs memory: one per check is enough
            ends = self._cluster.logs.end_offsets(self._topic, partitions=known, timeout=_QUESTIONS)
            stable = self._cluster.logs.end_offsets(self._topic, stable=True, partitions=known, timeout=left())
            self._check_id(self._cluster.topics.describe(self._topic, timeout=left()))
            if now >= self._settings_at:
                self._retention = ask_delete_retention(self._cluster, self._topic, self._retention, timeout=left())
                self._settings_at = now + _SETTINGS
            members = self._members(left()) if count or not mine else 0
            assigned = self._assigned(member, left()) if member else None
            if now >= min((self._reread_at, *self._rereads[:1])):
                commits = self._cluster.groups.committed(
                    self._group, self._topic, decided=bool(others), partitions=known, timeout=min(_MOMENT, left())
                )
                stored = examine(self._group, self._topic, {*mine, *others}, commits, queue=self._name).maps
                self._reread_at = now + _REREAD
                self._rereads = [due for due in self._rereads if due > now]
        finally:
            self._observed_at = time.monotonic()
            self._observe_at = self._observed_at + _LOOK_AGAIN
        self._observe_at = min((self._observed_at + self._pause, *self._rereads[:1]))
        return Observation(ends, stable, self._retention, members, stored, assigned)

    def _members(self, timeout: float) -> int:
        return _if_allowed(lambda: self._cluster.groups.member_count(self._group, timeout=timeout)) or 0

    def _assigned(self, member: str, timeout: float) -> Assigned | None:
        return _if_allowed(lambda: self._cluster.groups.assigned(self._group, self._topic, member, timeout=timeout))

    @property
    def _pause(self) -> float:
        return min(_LOOK, max(_LOOK_AGAIN, self._retention / _LOOKS))

    def text_limit(self) -> int | None:
        """Return the broker's limit for the characters of a commit's text; None if unknown.

        Asked only when texts are long, once a minute: most users may not read broker settings, and most queues have no
        need to.
        """
        if time.monotonic() < self._ask_limit_at:
            return None
        self._ask_limit_at = time.monotonic() + _LIMIT_AGAIN
        try:
            return self._cluster.groups.commit_text_limit(timeout=_LIMIT)
        except TransportError:
            return None

    def _load(
        self,
        partitions: Collection[int],
        commits: Mapping[int, Commit],
        described: TopicDescription,
        ends: Mapping[int, int] | None = None,
    ) -> dict[int, CommitMap]:
        return check_group(
            self._group,
            self._topic,
            partitions,
            commits,
            queue=self._name,
            described=described,
            ends=ends,
            on_foreign_commits=self._on_foreign_commits,
        )

    def _describe(self, partitions: Collection[int]) -> TopicDescription:
        """Describe the topic, which must have these partitions, since the group assigned them."""
        described = self._cluster.topics.describe(self._topic)
        self._check_id(described)
        if max(partitions, default=-1) >= described.partitions:
            raise TransportError(
                f"The broker asked about topic {self._topic} does not know all its partitions yet.",
                code="UNKNOWN_TOPIC_OR_PART",
                retriable=True,
            )
        return described

    def _check_id(self, described: TopicDescription) -> None:
        self._partitions = max(self._partitions, described.partitions)
        if described.id != self._topic_id:
            raise TopicRecreated(
                f"The topic {self._topic} was re-created while queue {self._name} was being consumed.",
                topic=self._topic,
                hint=f"Choose where to start in the new one: lvq repair {self._name} --start earliest --apply",
            )


def _if_allowed(ask: Callable[[], T]) -> T | None:
    """Return an answer about the group; None if this user may not ask."""
    try:
        return ask()
    except TransportError as error:
        if error.retriable:
            raise
        return None
