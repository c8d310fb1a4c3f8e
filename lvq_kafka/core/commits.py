"""The commit pipeline: what to commit, the commit in flight, and what is durable.

A broker handles a few hundred commits a second, and a consumer acks many thousands of messages. So acks are gathered,
and the next commit leaves when the previous one is answered. Each carries the complete state of its partitions. If an
answer is negative or never comes, nothing is known and nothing is lost: the next commit repeats everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from lvq_kafka.core.commit_map import ANY_LENGTH, CommitMap, following
from lvq_kafka.core.ledger import Item, Ledger

__all__ = ["Answer", "Commits", "Flight", "Unsaid"]

W = TypeVar("W")

_SHORTEST_TEXT = 64  # characters; enough for any base
_STATE = -1  # the "offset" of waiters that wait for no message, but for counts


class Answer(Enum):
    """The outcome of a commit in one partition."""

    STORED = "stored"
    UNKNOWN = "unknown"
    """It was refused or not answered: it may be stored, now or later."""
    TOO_LARGE = "too large"
    """The text exceeds the broker's limit.

    In a commit of several partitions, others may be stored all the same, though the client reports this for all of
    them.
    """


class Unsaid(NamedTuple):
    """Parts of a claim that the commit text has no room for."""

    runs: int
    """The number of runs of acked messages. They are redelivered after a crash."""
    counts: int
    """The number of messages with delivery counts. The counts are forgotten after a crash."""


_ALL_SAID = Unsaid(0, 0)


@dataclass(eq=False, slots=True)
class _Book(Generic[W]):
    """The commits of one partition, from its assignment to its end."""

    durable: CommitMap
    """The last one known to be stored."""
    tag: bytes
    partitions: int
    sequence: int
    """The sequence of the last commit sent."""
    attempts: int = 0
    """The number of claims sent.

    Each contains everything settled and counted before an earlier one.
    """
    stored: int = 0
    """The number of the last claim known to be stored."""
    sure: bool = True
    """False while a commit sent before that one may have been written over it."""
    doubted: bool = False
    """True while a commit may arrive late and no check has shown since that none has."""
    wanted: int = 0
    """The first claim that may be the last one stored.

    Until it is stored, commits are sent even if nothing has changed.
    """
    asked: int = 0
    """The last claim requested just to learn whether the group accepts commits."""
    unsaid: Unsaid = _ALL_SAID
    """Parts of the last claim that had no room."""
    waiters: list[tuple[int, int, W]] = field(default_factory=list)
    """Waiters, each with the offset that has to be done and the claim that has to be stored."""


@dataclass(frozen=True, eq=False, slots=True)
class Flight(Generic[W]):
    """A commit in flight: sent and not yet answered."""

    maps: Mapping[int, CommitMap]
    """Its content, by partition."""
    numbers: Mapping[int, int]
    books: Mapping[int, _Book[W]]
    alone: Collection[int]
    """The partitions that had no older commit in flight.

    The client may resend an older commit after this one, if it was refused temporarily.
    """


class Commits(Generic[W]):
    """The commits of all partitions of a consumer. ``W`` is the owner's type of waiter.

    Args:
        ledger: provides the claims and their maximum length: its ``limit`` is lowered if the broker allows less.
        limit: the initial limit, if not the ledger's.
    """

    def __init__(self, ledger: Ledger, *, limit: int | None = None) -> None:
        self._ledger = ledger
        if limit is not None:
            ledger.limit = limit
        self._books: dict[int, _Book[W]] = {}
        self._flights: list[Flight[W]] = []
        self._refused = ANY_LENGTH  # characters of the shortest text refused as too large
        self.sent = 0
        """The number of commits sent."""
        self._ready: list[W] = []

    # ---------------------------------------------------------------- partitions

    def track(self, partition: int, loaded: CommitMap, *, tag: bytes, partitions: int) -> None:
        """Start tracking a newly assigned partition.

        Args:
            loaded: the group's last commit.
            tag: the tag of the current topic.
            partitions: the topic's partition count that the queue was declared with.
        """
        self._books[partition] = _Book(loaded, tag, partitions, loaded.sequence)

    def untrack(self, partitions: Collection[int]) -> list[W]:
        """Stop tracking revoked partitions. Returns the waiters that can no longer be served."""
        gone = [book for partition in partitions if (book := self._books.pop(partition, None)) is not None]
        return [waiter for book in gone for _, _, waiter in book.waiters]

    def found(self, partition: int, stored: CommitMap) -> bool:
        """Check what the group holds; on a mismatch return False and schedule a rewrite.

        A mismatch means that something was written over our commit, by a member thought dead or by a late request. A
        check from before the last answer may also mismatch, and then costs one commit.
        """
        book = self._books.get(partition)
        if book is None:
            return True
        if book.durable.sequence <= stored.sequence <= book.sequence and stored.covers(book.durable):
            # With a commit in flight, what was found may predate it or may have been written over it.
            if book.doubted and not any(partition in flight.maps for flight in self._flights):
                book.doubted = False
                self._ledger.dirty.add(partition)  # somebody may wait for something that needs no commit
                if book.sure:
                    self._resolve(book, book.stored)
            return True
        book.sequence = max(book.sequence, stored.sequence)
        self._doubt(partition, book)
        return False

    def doubt(self) -> None:
        """Treat nothing as durable until the next check.

        Commits sent before may arrive once more, over later ones.
        """
        for book in self._books.values():
            book.doubted = True

    def renew(self, partitions: Collection[int]) -> None:
        """Send a commit for these partitions even if nothing has changed."""
        for partition in partitions:
            book = self._books[partition]
            self._want(partition, book)
            book.asked = book.wanted

    def _doubt(self, partition: int, book: _Book[W]) -> None:
        book.sure = False
        self._want(partition, book)

    def _want(self, partition: int, book: _Book[W]) -> None:
        book.wanted = book.attempts + 1
        self._ledger.dirty.add(partition)

    # ---------------------------------------------------------------- sending

    @property
    def doubted(self) -> bool:
        """True while a partition needs a check, which has to happen with no commit in flight."""
        return any(book.doubted for book in self._books.values())

    @property
    def in_flight(self) -> bool:
        """True while at least one commit is in flight."""
        return bool(self._flights)

    @property
    def longest(self) -> int:
        """The length of the longest text known to be stored, in characters."""
        return max((_size(book.durable) for book in self._books.values()), default=0)

    def prepare(self, partitions: Collection[int] | None = None, leaving: Collection[Item] = ()) -> Flight[W] | None:
        """Build the next commit, or return None if there is nothing new or no room for it.

        Commits in flight are repeated with their current state. They may still arrive, even after this one, so no
        waiter is notified of this one.

        Args:
            partitions: the partitions to commit; all by default.
            leaving: messages to commit as done. The ledger learns of it only once that has succeeded.
        """
        dirty = self._ledger.dirty
        for flight in self._flights:
            dirty |= flight.maps.keys() & self._books.keys()
        asked = set(self._books if partitions is None else partitions) & self._books.keys()
        touched = {item.partition for item in leaving}
        maps: dict[int, CommitMap] = {}
        for partition in sorted(asked & (dirty | touched)):
            dirty.discard(partition)
            book = self._books[partition]
            claim = self._claim(book, partition, leaving)
            if claim is not None:
                book.sequence = following(book.sequence)
                book.attempts += 1
                maps[partition] = replace(claim, sequence=book.sequence)
        if not maps:
            return None
        self.sent += 1
        books = {partition: self._books[partition] for partition in maps}
        alone = maps.keys() - {partition for flight in self._flights for partition in flight.maps}
        flight = Flight(maps, {partition: book.attempts for partition, book in books.items()}, books, alone)
        self._flights.append(flight)
        return flight

    def _claim(self, book: _Book[W], partition: int, leaving: Collection[Item]) -> CommitMap | None:
        whole = replace(
            self._ledger.claim(partition, leaving),
            topic_tag=book.tag,
            partitions=book.partitions,
            sequence=book.durable.sequence,
        )
        # Never take back what is stored (G11); a transaction's own messages come next.
        first = [item.offset for item in leaving if item.partition == partition]
        claim = whole.shortened(self._ledger.limit, stored=book.durable, first=first)
        book.unsaid = Unsaid((len(whole.runs) - len(claim.runs)) // 2, len(whole.counts) - len(claim.counts))
        if self._ledger.bounded and not leaving:
            self._ledger.wrote(partition, None if any(book.unsaid) else _size(claim))
        # A commit sent since may be stored, too, with counts of deliveries that were taken back meanwhile.
        if claim == book.durable and book.stored >= max(book.attempts, book.wanted):
            if book.sure and not book.doubted:
                self._resolve(book, book.attempts + 1)
            return None
        if claim.covers(book.durable):
            return claim
        # The limit has dropped below what is stored and promised; a shorter map would take that back (G11). More has to
        # be settled first, so nobody should wait for a count to be stored until then.
        self._ready += [waiter for offset, _, waiter in book.waiters if offset == _STATE]
        book.waiters = [waiting for waiting in book.waiters if waiting[0] != _STATE]
        # What is stored is still true, so it serves callers that only want to know whether the group accepts commits.
        # It may be too large by now: the group reports that only to its members.
        again = replace(book.durable, sequence=following(book.sequence))
        fits = book.stored < book.wanted and _size(again) <= self._ledger.limit
        return again if fits or book.attempts < book.asked else None

    def landed(self, flight: Flight[W], answers: Mapping[int, Answer] | Answer) -> None:
        """Process an answer, for all partitions of a commit or for each.

        It may be late or repeated.
        """
        if flight in self._flights:
            self._flights.remove(flight)
        too_large = 0
        for partition, commit_map in flight.maps.items():
            book, number = flight.books[partition], flight.numbers[partition]
            answer = answers if isinstance(answers, Answer) else answers.get(partition, Answer.UNKNOWN)
            if answer is Answer.TOO_LARGE:
                too_large = max(too_large, _size(commit_map))
            now = self._books.get(partition)
            if now is None or (now is book and number == book.stored):
                continue  # revoked meanwhile, or already known
            if now is not book or number < book.stored:  # unknown which of the two the group ends up with
                self._doubt(partition, now)
            elif number < book.attempts:
                continue  # a later commit that repeats it is in flight
            elif answer is Answer.STORED:
                book.durable, book.stored, book.sure = commit_map, number, partition in flight.alone
                if book.sure:
                    if not book.doubted:
                        self._resolve(book, number)
                elif not any(partition in older.maps for older in self._flights):
                    self._want(partition, book)
            else:
                # It may be stored, so even a claim equal to the last stored one has to be sent: counts go up and down.
                book.wanted = max(book.wanted, number)
                self._ledger.dirty.add(partition)
        if too_large:
            self._shorten(too_large)

    def _shorten(self, refused: int) -> None:
        """Halve the limit after a text was refused, but not below what the broker has stored."""
        self._refused = min(self._refused, refused)
        stored = self.longest
        limit = max(refused // 2, stored if stored < refused else 0, _SHORTEST_TEXT)
        self._ledger.limit = min(limit, self._ledger.limit)

    def allow(self, limit: int) -> None:
        """Raise the limit to what the broker accepts, but below any text that it refused.

        Parts of claims that had no room go into the next commit.
        """
        limit = min(limit, self._refused - 1)
        if limit > self._ledger.limit:
            self._ledger.limit = limit
            self._ledger.dirty |= self.unsaid.keys()

    def _resolve(self, book: _Book[W], number: int) -> None:
        """Resolve the waiters of this claim, which is stored for good."""
        waiters, book.waiters = book.waiters, []
        for waiting in waiters:
            offset, after, waiter = waiting
            if number >= after and (offset == _STATE or book.durable.done(offset)):
                self._ready.append(waiter)
            else:
                book.waiters.append(waiting)

    # ---------------------------------------------------------------- durability

    def last(self, partition: int) -> CommitMap:
        """Return the last commit that the group is known to hold for a partition."""
        return self._books[partition].durable

    def wait_done(self, partition: int, offset: int, waiter: W) -> None:
        """Notify the waiter once the group holds that this message is done."""
        book = self._books[partition]
        if book.durable.done(offset) and book.sure and not book.doubted:
            self._ready.append(waiter)
        else:
            book.waiters.append((offset, 0, waiter))
            self._ledger.dirty.add(partition)

    def wait_stored(self, partition: int, waiter: W) -> None:
        """Notify the waiter once the current state with counts is committed, or cannot fit."""
        book = self._books[partition]
        book.waiters.append((_STATE, book.attempts + 1, waiter))
        self._ledger.dirty.add(partition)

    def pop_ready(self) -> list[W]:
        """Return the waiters whose wait is over, each once. Call after every other method."""
        ready, self._ready = self._ready, []
        return ready

    @property
    def urgent(self) -> bool:
        """True while a waiter needs a commit, or a commit has to be repeated to be durable again.

        Waiters for room in the text wait for others to settle: no commit helps before something changes.
        """
        dirty = self._ledger.dirty
        return any(
            book.stored < book.wanted or (book.waiters and (partition in dirty or book.stored < book.attempts))
            for partition, book in self._books.items()
        )

    @property
    def is_crowded(self) -> bool:
        """True if anything is `unsaid`. Cheap, and needs no lock."""
        return any(any(book.unsaid) for book in tuple(self._books.values()))

    @property
    def unsaid(self) -> dict[int, Unsaid]:
        """Parts of claims that wait for room in the commit text, by partition."""
        return {partition: book.unsaid for partition, book in self._books.items() if any(book.unsaid)}


def _size(commit_map: CommitMap) -> int:
    return len(commit_map.encode(ANY_LENGTH))
