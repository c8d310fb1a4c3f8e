"""The port to what Kafka's admin client does: topics, their logs, and consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lvq_kafka.cluster.clients import Commit
from lvq_kafka.core.facts import Operation

__all__ = ["Assigned", "ConsumerGroups", "LogEnd", "Logs", "TopicDescription", "Topics"]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster describes it. ``id`` changes when the topic is recreated."""

    name: str
    id: str
    partitions: int
    replication_factor: int


class LogEnd(NamedTuple):
    """The end of a partition's log and its leader epoch; -1 if unknown."""

    offset: int
    leader_epoch: int


class Topics(Protocol):
    """The topics of a cluster: their existence, partitions and settings. Thread-safe."""

    def describe(self, topic: str, *, timeout: float = 10.0) -> TopicDescription:
        """Describe a topic.

        Raises:
            TopicNotFound: it does not exist, or this user may not see it.
        """

    def config(self, topic: str, *, timeout: float = 10.0) -> dict[str, str]:
        """Return the topic's settings, including defaults.

        Raises:
            TopicNotFound: it does not exist.
            Unauthorized: this user may not read its settings.
        """

    def create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> bool:
        """Create a topic; return False if it already exists.

        With ``replication_factor`` None, the cluster's default applies.
        """

    def check_may_create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> None:
        """Raise what `create` would raise, without creating anything."""

    def check_may(self, operation: Operation, topic: str, *, timeout: float = 10.0) -> None:
        """Check whether this user may perform an operation on a topic, without performing it.

        The check goes as far as the cluster reveals.

        Raises:
            Unauthorized: the user may not.
            TopicNotFound: the topic does not exist.
        """

    def alter_config(self, topic: str, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        """Change these settings and leave the others alone."""

    def add_partitions(self, topic: str, total: int, *, timeout: float = 10.0) -> None:
        """Raise the partition count."""

    def delete(self, topic: str, *, timeout: float = 10.0) -> None:
        """Delete a topic.

        Raises:
            TopicNotFound: it does not exist.
        """


class Logs(Protocol):
    """The logs of a topic's partitions: starts, ends and lost records. Thread-safe."""

    def start_offsets(self, topic: str, *, timeout: float = 10.0) -> dict[int, int]:
        """Return the log start offset of each partition.

        Raises:
            TopicNotFound: the topic does not exist.
        """

    def end_offsets(
        self, topic: str, *, stable: bool = False, partitions: int | None = None, timeout: float = 10.0
    ) -> dict[int, int]:
        """Return the true end of each partition's log, or its last stable offset.

        ``stable`` selects the last stable offset, which open transactions hold back.

        Pass ``partitions``, the partition count, if you know it: that saves a request. Partitions added since are then
        left out, and so are ones that do not exist.

        Uses its own connection, so it never queues behind a fetch that waits for data.

        Raises:
            TopicNotFound: the topic does not exist.
        """

    def stable_ends(self, topic: str, *, partitions: int | None = None, timeout: float = 10.0) -> dict[int, LogEnd]:
        """Return each partition's last stable offset and leader epoch, for `check_uncut`.

        Both come from the same response. ``partitions`` is as for `end_offsets`.

        Raises:
            TopicNotFound: the topic does not exist.
        """

    def offsets_at(self, topic: str, timestamp: int, *, timeout: float = 10.0) -> dict[int, int]:
        """Return each partition's first offset with a timestamp (ms) at or after ``timestamp``.

        That is the log end if there is no such record.
        """

    def delete_before(self, topic: str, offsets: Mapping[int, int], *, timeout: float = 10.0) -> dict[int, int]:
        """Permanently delete all records below these offsets; return the new log start offsets.

        A partition that already starts beyond its offset is left alone.

        Raises:
            TopicNotFound: the topic does not exist.
            ConfigError: the topic's ``cleanup.policy`` does not include ``delete``.
            DataLoss: an offset is beyond the end of the log.
        """

    def check_uncut(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> None:
        """Check that no log was truncated below its end, even if it has grown beyond that since.

        Offsets alone do not show this: a leader that was elected without some of the records, or whose disk has lost
        some, writes other records at the same offsets. But it does so in another leader epoch, and remembers where each
        epoch ended.

        Raises:
            DataLoss: a log was truncated, or starts after its end in ``ends``.
            TopicNotFound: the topic does not exist.
        """

    def overwritten(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> dict[int, int]:
        """Find records that overwrote ones already read: a log was truncated and grew again.

        Every record carries the epoch of the leader that wrote it, and epochs ascend within a log. So if a record below
        ``ends`` has a later epoch than everything that was read, it is not the record that was read at its offset.

        Returns, by partition, the first such offset; partitions without one are missing. Only committed records count:
        whatever else a transaction leaves in the log, in any epoch, was never read.

        Args:
            ends: how far each log was read, and the last epoch of the records read there.

        Raises:
            TopicNotFound: the topic does not exist.
        """


class Assigned(NamedTuple):
    """A member's partitions as its group sees them."""

    partitions: frozenset[int]
    """The partitions that it has, until it gives them up."""
    target: frozenset[int]
    """The partitions that it should have. Some may still be others'."""


class ConsumerGroups(Protocol):
    """The consumer groups of a cluster, seen and changed from outside. Thread-safe."""

    def committed(
        self,
        group: str,
        topic: str,
        *,
        decided: bool = True,
        partitions: int | None = None,
        timeout: float = 10.0,
    ) -> dict[int, Commit]:
        """Return a group's commits in a topic; partitions without a commit are missing.

        ``partitions`` is as for `Logs.end_offsets`.

        Args:
            decided: wait while an open transaction holds offsets of the group. Otherwise return the previous commits,
                which that transaction may change.

        Raises:
            OffsetsPending: time is up, and an open transaction still holds some offsets, or its replicas lag.
        """

    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], *, timeout: float = 10.0) -> None:
        """Commit for a group that currently has no members.

        Raises:
            TransportError: a partition was refused; a group with members refuses all of them.
        """

    def committed_at(self, group: str, *, timeout: float = 10.0) -> float:
        """Return when the group's coordinator last stored a commit, in seconds since the epoch.

        The time is by the coordinator's clock. The commit may be of this group, or of another that is kept in the same
        place. So after a commit, this is the cluster's time of that commit, or later.

        Raises:
            Unauthorized, TopicNotFound: this user may not see where commits are stored.
        """

    def check_may_commit(self, group: str, topic: str, *, timeout: float = 10.0) -> None:
        """Check whether this user may commit for a group on a topic, without committing.

        Neither has to exist.

        Raises:
            Unauthorized: the user may not.
        """

    def commit_text_limit(self, *, timeout: float = 10.0) -> int:
        """Return the maximum length of a commit's metadata text, as configured on a broker.

        Raises:
            Unauthorized: this user may not read broker settings.
        """

    def retention(self, *, timeout: float = 10.0) -> float:
        """Return the seconds for which brokers keep commits of a group without members.

        This is the setting of one broker. The time begins when the last member leaves, or with the commit if there
        never was one. Later commits do not prolong it; another member does. Infinity if commits are kept forever.

        Raises:
            Unauthorized: this user may not read broker settings.
            TransportError: the brokers have no such setting.
        """

    def assigned(self, group: str, topic: str, member: str, *, timeout: float = 10.0) -> Assigned | None:
        """Return the partitions of a topic that a group has assigned to a member.

        None if it has no such member.

        Raises:
            Unauthorized: this user may not describe the group.
        """

    def member_count(self, group: str, *, timeout: float = 10.0) -> int:
        """Return the group's current number of members; 0 if there is no such group.

        A dead member counts until its session times out.
        """

    def delete(self, group: str, *, timeout: float = 10.0) -> bool:
        """Delete a group without members; return False if there is no such group."""
