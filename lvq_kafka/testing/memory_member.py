"""Consumer group members on the in-memory cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lvq_kafka.cluster import Answered, Commit, GroupListener, GroupMember, Membership
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import Closed, TransportError
from lvq_kafka.runtime.overriding import override
from lvq_kafka.testing.memory_reader import MemoryReader
from lvq_kafka.testing.memory_state import ClusterState, no_answer

__all__ = ["MemoryMember"]


class MemoryMember(GroupMember):
    """A group member on the in-memory cluster.

    It joins on creation. Partitions change only inside `poll` and `close`: the member first gives up partitions that
    others should have, then takes free ones. A member that does not poll keeps its partitions until it is expelled
    (`MemoryCluster.expel`), as a Kafka member does until its session times out.
    """

    losses = unheard = 0

    def __init__(self, cluster: ClusterState, group: str, topic: str, listener: GroupListener) -> None:
        self._state = cluster
        self._topic = topic
        self._listener = listener
        self._reader = MemoryReader(cluster, topic, {})
        self._held: set[int] = set()  # the partitions that the listener was assigned
        self._answers: list[Callable[[], None]] = []
        self._closed = False
        with cluster.changed:
            self.group = cluster.group(group)
            self._join()

    @property
    @override
    def membership(self) -> Membership:
        return Membership(self.seat.member, frozenset(self._held))

    @override
    def poll(self, timeout: float) -> Fetch:
        deadline = time.monotonic() + timeout
        fetch = None
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()
        if answers:
            deadline = time.monotonic()
        while fetch is None:
            self._reconcile()
            with self._state.changed:
                if self._closed:
                    raise Closed("This group member is closed.")
                if not self._due():
                    fetch = self._reader.try_poll(deadline)
        return fetch

    @override
    def commit(self, commits: Mapping[int, Commit]) -> None:
        with self._state.changed:
            self._state.enter("commit")
            self.store(commits)
            if not self._state.answers("commit"):
                raise no_answer("commit")

    @override
    def commit_async(self, commits: Mapping[int, Commit], answered: Answered) -> None:
        # Commits are stored at once; the next poll reports them.
        outcome: dict[int, TransportError | None] = dict.fromkeys(commits)
        with self._state.changed:
            if not self._held.issuperset(commits):
                self.store(commits)  # raises
            try:
                self._state.enter("commit")
                self.store(commits)
            except TransportError as error:
                outcome = dict.fromkeys(commits, error)
            if not self._state.answers("commit"):
                return
        self._answers.append(lambda: answered(outcome))

    def store(self, commits: Mapping[int, Commit], producer: int | None = None) -> None:
        """Store commits of this member, holding the lock.

        With a producer, they join its open transaction.
        """
        if self.seat.expelled or self._closed:
            raise TransportError(
                f"The group {self.group.name!r} no longer knows this member.", code="UNKNOWN_MEMBER_ID"
            )
        if foreign := set(commits) - self._held:
            raise TransportError(
                f"This member of group {self.group.name!r} does not hold partition {sorted(foreign)} of "
                f"{self._topic!r} and cannot commit for it.",
                code="ILLEGAL_GENERATION",
            )
        self.group.store(self._topic, commits, producer)
        self._state.changed.notify_all()

    def expel(self) -> None:
        """Take the member's partitions away, holding the lock; see `MemoryCluster.expel`."""
        if not self._closed and not self.seat.expelled:
            self.seat.expelled = True
            self.group.leave(self.seat, self._partition_count())
            self._state.changed.notify_all()

    @override
    def close(self) -> None:
        if self._closed:
            return
        try:
            if self.seat.expelled:
                self._lose()
            elif self._held:
                self._listener.revoked(sorted(self._held))
        finally:
            with self._state.changed:
                self._closed = True
                self._reader.close()
                self.group.leave(self.seat, self._partition_count())
                self._state.changed.notify_all()

    def _join(self) -> None:
        self.seat = self.group.join(self._topic, self._partition_count())
        self._state.changed.notify_all()

    def _partition_count(self) -> int:
        topic = self._state.topics.get(self._topic)
        return 0 if topic is None else len(topic.partitions)

    def _due(self) -> bool:
        """Return whether partitions must be given up, or can be taken, now."""
        seat = self.seat
        return self._state.connected and (seat.expelled or bool(seat.owned - seat.target) or bool(self._free()))

    def _free(self) -> set[int]:
        """Return the target partitions that can be taken now.

        Other members have given these up, and no commit for them is undecided.
        """
        wanted = self.seat.target - self.seat.owned
        return wanted and wanted - self.group.owned_by_others(self.seat) - self.group.undecided(self._topic)

    def _reconcile(self) -> None:
        """Give up and take partitions.

        The listener is called without the lock: it may commit, or wait for others.
        """
        if self._closed or not self._state.connected:
            return
        if self.seat.expelled:
            self._lose()
        with self._state.changed:
            going = sorted(self.seat.owned - self.seat.target)
        if going:
            try:
                if known := sorted(self._held.intersection(going)):
                    self._listener.revoked(known)
            finally:
                with self._state.changed:
                    self._held.difference_update(going)
                    self.seat.owned.difference_update(going)
                    self._reader.unassign(going)
                    self._state.changed.notify_all()
        with self._state.changed:
            coming = sorted(self._free())
            self.seat.owned.update(coming)
            commits = self.group.committed(self._topic)
        if coming:
            try:
                starts = self._listener.assigned(coming, {p: commits[p] for p in coming if p in commits})
            except BaseException:
                with self._state.changed:
                    self.seat.owned.difference_update(coming)  # the next poll takes them again
                raise
            self._held.update(starts)
            self._reader.assign(starts)

    def _lose(self) -> None:
        """Notice that the group went on without this member, and rejoin it."""
        with self._state.changed:
            lost = sorted(self._held)
            self._held.clear()
            self._reader.unassign(lost)
            self._join()
        if lost:
            self._listener.lost(lost)
