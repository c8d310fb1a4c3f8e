"""The commit pipeline: the next commit, the commits in flight, and the durable ones.

A broker handles a few hundred commits a second, and a consumer acks many thousands of messages. So acks are gathered,
and the next commit leaves when the previous one is answered. Each carries the complete state of its partitions. If an
answer is negative or never arrives, nothing is known and nothing is lost: the next commit repeats everything.

This module holds the state that the partitions of a consumer share: the commits in flight. The state of a single
partition is in `lvq_kafka.core.consumer.partition_commits`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.commit_map.map_capacity import text_size
from lvq_kafka.core.consumer.partition_commits import Answer, Count, Omitted, PartitionCommits
from lvq_kafka.core.ledger.ledger import Item, Ledger

__all__ = ["Answer", "Commits", "Count", "Flight", "Omitted"]

W = TypeVar("W")


@dataclass(frozen=True, eq=False, slots=True)
class Flight(Generic[W]):
    """A commit in flight: sent and not yet answered."""

    maps: Mapping[int, CommitMap]
    """Its content, by partition."""
    numbers: Mapping[int, int]
    """By partition, the number of the claim."""
    senders: Mapping[int, PartitionCommits[W]]
    """By partition, the assignment that it belongs to."""
    alone: Collection[int]
    """The partitions that had no older commit in flight.

    In other partitions, the client may resend the older commit after this one, if the broker refused it temporarily.
    """


class Commits(Generic[W]):
    """The commits of all partitions of a consumer. ``W`` is the owner's type of waiter.

    Args:
        ledger: provides the claims, and learns which texts the broker takes.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._partitions: dict[int, PartitionCommits[W]] = {}
        self._flights: list[Flight[W]] = []
        self.sent = 0
        """The number of commits sent."""
        self._ready: list[W] = []

    # ---------------------------------------------------------------- partitions

    def track(self, partition: int, loaded: CommitMap, *, tag: bytes, partitions: int) -> None:
        """Start tracking a newly assigned partition; see `PartitionCommits`."""
        (part,) = self._ledger.assignment.known((partition,))
        self._partitions[partition] = PartitionCommits(part, loaded, tag=tag, partitions=partitions, ready=self._ready)

    def untrack(self, partitions: Collection[int]) -> list[W]:
        """Stop tracking revoked partitions. Returns the waiters that can no longer be served."""
        gone = [part for partition in partitions if (part := self._partitions.pop(partition, None)) is not None]
        return [waiter for part in gone for waiter in part.end()]

    def found(self, partition: int, stored: CommitMap) -> bool:
        """Check the group's commit; on a mismatch return False and schedule a rewrite.

        A mismatch means that a member thought dead, or a late request, has overwritten our commit. A check made before
        the last answer may mismatch, too; that costs one commit.
        """
        part = self._partitions.get(partition)
        return part is None or part.found(stored, in_flight=self._is_in_flight(partition))

    def doubt(self) -> None:
        """Treat nothing as durable until the next check.

        Earlier commits may arrive again, and overwrite later ones.
        """
        for part in self._partitions.values():
            part.doubted = True

    def distrust(self, partitions: Collection[int]) -> None:
        """Write the state of these partitions again: the group is known to hold less."""
        for partition in partitions:
            self._partitions[partition].distrust()

    def renew(self, partitions: Collection[int]) -> None:
        """Send a commit for these partitions even if nothing has changed."""
        for partition in partitions:
            self._partitions[partition].renew()

    # ---------------------------------------------------------------- sending

    @property
    def doubted(self) -> bool:
        """True while a partition needs a check, which has to happen with no commit in flight."""
        return any(part.doubted for part in self._partitions.values())

    @property
    def in_flight(self) -> bool:
        """True while at least one commit is in flight."""
        return bool(self._flights)

    def _is_in_flight(self, partition: int) -> bool:
        return any(partition in flight.maps for flight in self._flights)

    @property
    def longest(self) -> int:
        """The length of the longest text known to be stored, in characters."""
        return max((text_size(part.durable) for part in self._partitions.values()), default=0)

    def prepare(self, partitions: Collection[int] | None = None, leaving: Collection[Item] = ()) -> Flight[W] | None:
        """Build the next commit, or return None if there is nothing new or no room for it.

        Partitions with a commit in flight are included again, with their current state. The older commit may still
        arrive, even after this one, so this one resolves no waiters of these partitions.

        Args:
            partitions: the partitions to commit; all by default.
            leaving: messages to commit as done. The ledger is updated only after the commit succeeds.
        """
        flying = self._partitions.keys() & {partition for flight in self._flights for partition in flight.maps}
        for partition in flying:
            self._partitions[partition].repeat()
        maps: dict[int, CommitMap] = {}
        for partition in sorted(self._partitions if partitions is None else self._partitions.keys() & set(partitions)):
            part = self._partitions[partition]
            mine = [item for item in leaving if item.partition == partition]
            if part.due or mine:
                claim = part.next_claim(mine, self._ledger.capacity)
                if claim is not None:
                    maps[partition] = part.send(claim)
        if not maps:
            return None
        self.sent += 1
        senders = {partition: self._partitions[partition] for partition in maps}
        numbers = {partition: part.attempts for partition, part in senders.items()}
        flight = Flight(maps, numbers, senders, maps.keys() - flying)
        self._flights.append(flight)
        return flight

    def landed(self, flight: Flight[W], answers: Mapping[int, Answer] | Answer) -> None:
        """Process an answer, for all partitions of a commit or for each.

        It may be late or repeated.
        """
        if flight in self._flights:
            self._flights.remove(flight)
        each = dict.fromkeys(flight.maps, answers) if isinstance(answers, Answer) else answers
        for partition, sent in flight.maps.items():
            part = self._partitions.get(partition)
            if part is flight.senders[partition]:
                part.landed(
                    flight.numbers[partition],
                    sent,
                    each.get(partition, Answer.UNKNOWN),
                    alone=partition in flight.alone,
                    overtaken=self._is_in_flight(partition),
                )
            elif part is not None:
                part.distrust()  # sent in an earlier assignment: the group may keep either of the two
        too_large = [text_size(sent) for p, sent in flight.maps.items() if each.get(p) is Answer.TOO_LARGE]
        if too_large:
            self._ledger.capacity.refuse(max(too_large), stored=self.longest)

    def allow(self, limit: int) -> None:
        """Raise the limit to the broker's, but keep it below any text that the broker refused.

        Parts of claims that did not fit go into the next commit.
        """
        if self._ledger.capacity.allow(limit):
            for partition in self.omitted:
                self._partitions[partition].repeat()

    # ---------------------------------------------------------------- durability

    def last(self, partition: int) -> CommitMap:
        """Return the last commit that the group is known to hold for a partition."""
        return self._partitions[partition].durable

    def wait_done(self, partition: int, offset: int, waiter: W) -> bool:
        """Return whether this message is durably done.

        If not, the waiter becomes ready once it is.
        """
        return self._partitions[partition].wait_done(offset, waiter)

    def wait_stored(self, partition: int) -> Count:
        """Store the delivery counts of a partition; see `PartitionCommits.wait_stored`."""
        return self._partitions[partition].wait_stored()

    def pop_ready(self) -> list[W]:
        """Return the waiters whose wait is over, each once. Call after every other method."""
        ready = self._ready.copy()
        self._ready.clear()
        return ready

    @property
    def urgent(self) -> bool:
        """See `PartitionCommits.urgent`."""
        return any(part.urgent for part in self._partitions.values())

    @property
    def text_is_full(self) -> bool:
        """True if anything is `omitted`. Cheap, and safe to ask while others change it."""
        return any(any(part.omitted) for part in tuple(self._partitions.values()))

    @property
    def fills_up(self) -> bool:
        """True if a text is more than half full.

        Cheap, and safe to ask while others change it.
        """
        half = self._ledger.capacity.limit // 2
        return any(part.text > half for part in tuple(self._partitions.values()))

    @property
    def omitted(self) -> dict[int, Omitted]:
        """Parts of claims that wait for room in the commit text, by partition."""
        return {partition: part.omitted for partition, part in self._partitions.items() if any(part.omitted)}
