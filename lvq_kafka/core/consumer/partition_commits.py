"""The commits of one partition: the durable one, those in flight, and their waiters."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from lvq_kafka.core.commit_map.commit_map import CommitMap, following
from lvq_kafka.core.commit_map.map_capacity import MapCapacity, text_size
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.waiting.pending import Item

__all__ = ["Answer", "Count", "Omitted", "PartitionCommits"]

W = TypeVar("W")


class Answer(Enum):
    """The outcome of a commit in one partition."""

    STORED = "stored"
    UNKNOWN = "unknown"
    """It was refused or not answered: it may be stored, now or later."""
    TOO_LARGE = "too large"
    """The text exceeds the broker's limit.

    For a commit of several partitions, the client reports this for all of them, although some may be stored.
    """


class Omitted(NamedTuple):
    """Parts of a claim that the commit text has no room for."""

    runs: int
    """The number of runs of messages that are done. They are delivered again after a crash."""
    counts: int
    """The number of messages with delivery counts. The counts are forgotten after a crash."""


class Count:
    """Delivery counts on their way to the group."""

    __slots__ = ("after", "done")

    def __init__(self, after: int) -> None:
        self.after = after
        """The number of the claim that contains them."""
        self.done = False
        """True once they are stored, or will not be."""


class PartitionCommits(Generic[W]):
    """The commits of one partition, from its assignment to its end.

    Args:
        part: makes the claims.
        loaded: the group's last commit.
        tag: the tag of the current topic.
        partitions: the topic's partition count that the queue was declared with.
        ready: the list to append waiters to when their wait is over.
    """

    __slots__ = (
        "_again",
        "_asked",
        "_counts",
        "_part",
        "_partitions",
        "_ready",
        "_sequence",
        "_stored",
        "_sure",
        "_tag",
        "_waiters",
        "_wanted",
        "attempts",
        "doubted",
        "durable",
        "omitted",
        "text",
    )

    def __init__(
        self, part: PartitionLedger, loaded: CommitMap, *, tag: bytes, partitions: int, ready: list[W]
    ) -> None:
        self.durable = loaded
        """The last commit known to be stored."""
        self.attempts = 0
        """The number of claims sent.

        Each contains everything that was settled and counted before an earlier one was sent.
        """
        self.doubted = False
        """True while a commit may arrive late, until a check shows that none has."""
        self.omitted = Omitted(0, 0)
        """Parts of the last claim that had no room."""
        self.text = 0
        """The length of the last claim sent, in characters."""
        self._part = part
        self._tag = tag
        self._partitions = partitions
        self._sequence = loaded.sequence  # of the last commit sent
        self._stored = 0  # the number of the last claim known to be stored
        self._sure = True  # False while a commit sent before that one may have been written over it
        # The lowest claim that has to be stored: until it or a later one is, commits are sent even if nothing has
        # changed.
        self._wanted = 0
        self._asked = 0  # the last claim requested just to learn whether the group accepts commits
        self._again = False  # whether to send the claim again though it has not changed
        self._waiters: list[tuple[int, W]] = []  # each with the offset that has to be done
        self._counts: list[Count] = []
        self._ready = ready

    # ---------------------------------------------------------------- whether to commit

    @property
    def due(self) -> bool:
        """True if the next commit should include this partition."""
        return self._again or self._part.changed

    @property
    def urgent(self) -> bool:
        """True while a waiter needs a commit, or one has to be repeated to be durable again.

        If the message of a waiter does not fit into the text, other messages must be settled first: no commit helps
        before something changes.
        """
        if self._stored < self._wanted:
            return True
        return bool(self._waiters or self._counts) and (self.due or self._stored < self.attempts)

    def repeat(self) -> None:
        """Include this partition in the next commit even if its claim has not changed."""
        self._again = True

    def want(self) -> None:
        """Commit until a commit later than those sent so far is stored."""
        self._wanted = self.attempts + 1
        self._again = True

    def renew(self) -> None:
        """Send a commit even if nothing has changed, to learn whether the group accepts it."""
        self.want()
        self._asked = self._wanted

    def distrust(self) -> None:
        """Write the state again: another commit may have been written over the last one."""
        self._sure = False
        self.want()

    # ---------------------------------------------------------------- sending

    def next_claim(self, leaving: Collection[Item], capacity: MapCapacity) -> CommitMap | None:
        """Return the next claim to send, or None if there is nothing new or no room for it."""
        self._again = self._part.changed = False
        whole, claim = self._claims(leaving, capacity)
        if len(claim.runs) < len(whole.runs) and self._part.forget_places():
            whole, claim = self._claims(leaving, capacity)
        self.omitted = Omitted((len(whole.runs) - len(claim.runs)) // 2, len(whole.counts) - len(claim.counts))
        if leaving and self.omitted.runs:
            self._part.room.overflowed()
        # A later commit may be stored, too, with counts of deliveries that were taken back meanwhile.
        if claim == self.durable and self._stored >= max(self.attempts, self._wanted):
            self._resolve(self.attempts + 1)
            return None
        return claim if claim.covers(self.durable) else self._repeated(capacity)

    def _claims(self, leaving: Collection[Item], capacity: MapCapacity) -> tuple[CommitMap, CommitMap]:
        """Return the whole claim, and the part of it that fits."""
        whole = replace(
            self._part.claim(leaving),
            topic_tag=self._tag,
            partitions=self._partitions,
            sequence=self.durable.sequence,
        )
        # Never take back stored acks (G11); the acks of a transaction get room next.
        return whole, whole.shortened(capacity.limit, stored=self.durable, first=[item.offset for item in leaving])

    def _repeated(self, capacity: MapCapacity) -> CommitMap | None:
        """Return the stored map for re-sending, or None if that would prove nothing.

        The limit has dropped below the length of the stored map, and a shorter map would take acks back (G11). More
        messages must be settled first; until then, no caller should wait for a count to be stored.
        """
        for count in self._counts:
            count.done = True
        self._counts.clear()
        # The stored commit is still true: it serves callers that only want to know whether the group accepts commits.
        # It may be too large by now; that answer serves, too, since only members get it.
        again = replace(self.durable, sequence=following(self._sequence))
        fits = self._stored < self._wanted and text_size(again) <= capacity.limit
        return again if fits or self.attempts < self._asked else None

    def send(self, claim: CommitMap) -> CommitMap:
        """Count a claim as sent, and return it with its sequence."""
        self._sequence = following(self._sequence)
        self.attempts += 1
        sent = replace(claim, sequence=self._sequence)
        self.text = text_size(sent)
        return sent

    # ---------------------------------------------------------------- answers

    def landed(self, number: int, sent: CommitMap, answer: Answer, *, alone: bool, overtaken: bool) -> None:
        """Process the answer to a claim.

        Args:
            number: the number of the claim.
            sent: the claim as it was sent.
            alone: whether no older commit was in flight when it was sent.
            overtaken: whether another commit of this partition is still in flight.
        """
        if number == self._stored:
            return  # already known
        if number < self._stored:
            self.distrust()  # the group may keep either of the two
        elif number < self.attempts:
            return  # a later commit that repeats it is in flight
        elif answer is Answer.STORED:
            self.durable, self._stored, self._sure = sent, number, alone
            if alone:
                self._resolve(number)
            elif not overtaken:
                self.want()
        else:
            # It may be stored, so even a claim equal to the last stored one has to be sent: counts go up and down.
            self._wanted = max(self._wanted, number)
            self._again = True

    def found(self, stored: CommitMap, *, in_flight: bool) -> bool:
        """Check the group's commit; on a mismatch return False and have it rewritten.

        With a commit in flight, the group's commit may predate it, or may have overwritten it.
        """
        if not (self.durable.sequence <= stored.sequence <= self._sequence and stored.covers(self.durable)):
            self._sequence = max(self._sequence, stored.sequence)
            self.distrust()
            return False
        if self.doubted and not in_flight:
            self.doubted = False
            self._again = True  # a waiter may need a check, and no commit
            self._resolve(self._stored)
        return True

    # ---------------------------------------------------------------- waiting

    def wait_done(self, offset: int, waiter: W) -> bool:
        """Return whether this message is durably done.

        If not, the waiter becomes ready once it is.
        """
        done = self._is_final and self.durable.done(offset)
        if not done:
            self._waiters.append((offset, waiter))
            self._again = True
        return done

    def wait_stored(self) -> Count:
        """Return a handle for the current delivery counts.

        It is done once they are stored, or known not to fit.
        """
        count = Count(self.attempts + 1)
        self._counts.append(count)
        self._again = True
        return count

    def end(self) -> list[W]:
        """End with the assignment. Returns the waiters that can no longer be served."""
        for count in self._counts:
            count.done = True
        return [waiter for _, waiter in self._waiters]

    @property
    def _is_final(self) -> bool:
        """True if no commit can overwrite the last stored one, as far as is known."""
        return self._sure and not self.doubted

    def _resolve(self, number: int) -> None:
        """Resolve the waiters of this claim, if it is stored for good."""
        if not self._is_final:
            return
        waiters, self._waiters = self._waiters, []
        for waiting in waiters:
            if self.durable.done(waiting[0]):
                self._ready.append(waiting[1])
            else:
                self._waiters.append(waiting)
        for count in self._counts:
            count.done = number >= count.after
        self._counts = [count for count in self._counts if not count.done]
