"""Consumer groups of the in-memory cluster: commits, seats and partition assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lvq_kafka.cluster import Commit
from lvq_kafka.errors import TransportError

__all__ = ["METADATA_LIMIT", "Group", "Seat"]

METADATA_LIMIT = 4095
"""The default limit for commit metadata, in UTF-16 units.

Brokers count ``offset.metadata.max.bytes`` (4096) in these units. The limit is one less because the Kafka client also
sends the terminating zero.
"""


@dataclass(slots=True, eq=False)
class Seat:
    """A member as seen by its group.

    ``target`` is what the member should read, ``owned`` what it reads now. As in Kafka's consumer protocol, it gives up
    partitions outside its target before any other member gets them.
    """

    topic: str
    member: str
    target: set[int] = field(default_factory=set)
    owned: set[int] = field(default_factory=set)
    expelled: bool = False


class Group:
    """A consumer group. Guarded by the cluster's lock."""

    def __init__(self, name: str, now: Callable[[], int], metadata_limit: int = METADATA_LIMIT) -> None:
        self.name = name
        self.stored_at = -1
        """The time of the last stored commit, in ms."""
        self._now = now
        self._metadata_limit = metadata_limit
        self.seats: list[Seat] = []
        self._left_at: int | None = None  # when the last member left, in ms; None if there never was one
        self._stored: dict[tuple[str, int], int] = {}  # the time of each commit, in ms
        self._joined = 0  # members so far
        self._commits: dict[tuple[str, int], Commit] = {}
        # By the producer whose transaction is open; None where a plain commit has overtaken it.
        self._pending: dict[int, dict[tuple[str, int], Commit | None]] = {}

    def committed(self, topic: str) -> dict[int, Commit]:
        """Return the stable commits in a topic."""
        return {partition: commit for (name, partition), commit in sorted(self._commits.items()) if name == topic}

    def undecided(self, topic: str) -> set[int]:
        """Return the partitions for which an open transaction holds a commit."""
        return {partition for pending in self._pending.values() for name, partition in pending if name == topic}

    def store(self, topic: str, commits: Mapping[int, Commit], producer: int | None = None) -> None:
        """Store commits, at once or when the producer's transaction commits.

        Raises:
            TransportError: a metadata text is too long. As on a broker, the other partitions' commits are stored.
        """
        limit, self.stored_at = 2 * self._metadata_limit, self._now()
        too_long = {p for p, commit in commits.items() if len(commit.metadata.encode("utf-16-le")) > limit}
        stored = {(topic, partition): commit for partition, commit in commits.items() if partition not in too_long}
        self._stored.update(dict.fromkeys(stored, self.stored_at))
        if producer is None:
            self._commits.update(stored)
            for pending in self._pending.values():  # a plain commit wins over an earlier one in an open transaction
                pending.update(dict.fromkeys(pending.keys() & stored))
        else:
            self._pending.setdefault(producer, {}).update(stored)
        if too_long:
            raise TransportError(
                f"The commit metadata of group {self.name!r} for partition {sorted(too_long)} of {topic!r} "
                f"is longer than {self._metadata_limit} characters.",
                code="OFFSET_METADATA_TOO_LARGE",
            )

    def end_transaction(self, producer: int, *, keep: bool) -> None:
        """Apply or drop the commits of a transaction."""
        pending = self._pending.pop(producer, {})
        if keep:
            self._commits.update({key: commit for key, commit in pending.items() if commit is not None})

    def forget(self, topic: str) -> None:
        """Drop everything about a topic, as a broker does when the topic is deleted."""
        self._commits = {key: commit for key, commit in self._commits.items() if key[0] != topic}
        for seat in self._seats_of(topic):
            seat.target.clear()
            seat.owned.clear()

    def expire(self, horizon: float) -> bool:
        """Drop commits older than a time (ms), if there are no members.

        Return whether none is left.

        As on a broker, they are as old as the group is without members. The age of each commit counts only if it never
        had any.
        """
        if self.seats or not self._commits:
            return False
        left = self._left_at
        self._commits = {
            key: commit
            for key, commit in self._commits.items()
            if (self._stored[key] if left is None else left) > horizon
        }
        return not (self._commits or self._pending)

    def join(self, topic: str, partitions: int) -> Seat:
        """Add a new member."""
        self._joined += 1
        seat = Seat(topic, f"member-{self._joined}")
        self.seats.append(seat)
        self.rebalance(topic, partitions)
        return seat

    def leave(self, seat: Seat, partitions: int) -> None:
        """Remove a member and free its partitions."""
        self.seats.remove(seat)
        seat.owned.clear()
        seat.target.clear()
        self._left_at = self._now()
        self.rebalance(seat.topic, partitions)

    def rebalance(self, topic: str, partitions: int) -> None:
        """Divide a topic's partitions evenly among its members, moving as few as possible."""
        seats = self._seats_of(topic)
        if not seats:
            return
        quota, more = divmod(partitions, len(seats))
        left = set(range(partitions))
        # The larger shares go to the members with the most partitions, which would otherwise have to give one up.
        for rank, seat in enumerate(sorted(seats, key=lambda seat: -len(seat.target))):
            share = quota + (rank < more)
            seat.target = set(sorted(seat.target & left)[:share])
            left -= seat.target
        for rank, seat in enumerate(sorted(seats, key=lambda seat: -len(seat.target))):
            share = quota + (rank < more)
            taken = sorted(left)[: share - len(seat.target)]
            seat.target.update(taken)
            left.difference_update(taken)

    def owned_by_others(self, seat: Seat) -> set[int]:
        """Return the partitions of the seat's topic that other members have not given up yet."""
        return {p for other in self._seats_of(seat.topic) if other is not seat for p in other.owned}

    def _seats_of(self, topic: str) -> list[Seat]:
        return [seat for seat in self.seats if seat.topic == topic]
