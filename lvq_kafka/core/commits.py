"""The commit pipeline: what has to be committed, the one commit that is on its way, and what is durable.

A broker takes some hundred commits a second, and a consumer acks many thousand messages: so acks are gathered, and the
next commit leaves when the one before is answered. Each carries the whole truth about its partitions. If an answer says
no, or never comes, nothing is known and nothing is lost: the next commit says it all again.
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
_STATE = -1  # the "offset" of those who wait for no message, but for what is counted


class Answer(Enum):
    """What became of a commit in one partition."""

    STORED = "stored"
    UNKNOWN = "unknown"
    """It was refused, or no answer came: it may be stored, now or later."""
    TOO_LARGE = "too large"
    """The broker's limit for the text is lower. Of a commit for several partitions others may be stored all the same,
    though the client reports all of them so."""


class Unsaid(NamedTuple):
    """What a commit text has no room for."""

    runs: int
    """Of acked messages. They come again after a crash."""
    counts: int
    """Deliveries of so many messages. They are forgotten after a crash."""


_ALL_SAID = Unsaid(0, 0)


@dataclass(eq=False, slots=True)
class _Book(Generic[W]):
    """What is known of one partition's commits, from its assignment to its end."""

    durable: CommitMap
    """The last that is known to be stored."""
    tag: bytes
    partitions: int
    sequence: int
    """Of the last commit that was sent."""
    attempts: int = 0
    """Claims that were sent. A later claim contains all that was settled, and counted, before an earlier one."""
    stored: int = 0
    """The last of them that is known to be stored."""
    sure: bool = True
    """Whether none of the commits that were sent before it can have been written over that."""
    doubted: bool = False
    """Whether one may arrive late, and a look has not shown since that none has."""
    wanted: int = 0
    """The first of them that may be the last to be stored. Until it is, one is sent though nothing has changed."""
    asked: int = 0
    """The last of them that somebody has asked for, to hear whether the group accepts one."""
    unsaid: Unsaid = _ALL_SAID
    """What the last of them had no room for."""
    waiters: list[tuple[int, int, W]] = field(default_factory=list)
    """Who waits: for the message at which offset to be done, and for which claim to be stored."""


@dataclass(frozen=True, eq=False, slots=True)
class Flight(Generic[W]):
    """A commit that was sent and is not answered."""

    maps: Mapping[int, CommitMap]
    """By partition, what it says."""
    numbers: Mapping[int, int]
    books: Mapping[int, _Book[W]]
    alone: Collection[int]
    """Where no older one was on its way: the client may send that again, behind this one, if it was refused for now."""


class Commits(Generic[W]):
    """The commits of all partitions of a consumer. ``W`` is whatever its owner uses to tell those who wait.

    Args:
        ledger: says what may be committed, in how many characters: its ``limit`` sinks where the broker allows less.
        limit: to begin with another one.
    """

    def __init__(self, ledger: Ledger, *, limit: int | None = None) -> None:
        self._ledger = ledger
        if limit is not None:
            ledger.limit = limit
        self._books: dict[int, _Book[W]] = {}
        self._flights: list[Flight[W]] = []
        self._refused = ANY_LENGTH  # characters of the shortest text that was too large
        self.sent = 0
        """Commits that were sent."""
        self._ready: list[W] = []

    # ---------------------------------------------------------------- partitions

    def track(self, partition: int, loaded: CommitMap, *, tag: bytes, partitions: int) -> None:
        """A partition was assigned, with what the group had committed.

        Args:
            tag: of the topic as it is.
            partitions: the topic's partition count that the queue was declared with.
        """
        self._books[partition] = _Book(loaded, tag, partitions, loaded.sequence)

    def untrack(self, partitions: Collection[int]) -> list[W]:
        """These partitions are gone. Returns who waited in vain."""
        gone = [book for partition in partitions if (book := self._books.pop(partition, None)) is not None]
        return [waiter for book in gone for _, _, waiter in book.waiters]

    def found(self, partition: int, stored: CommitMap) -> bool:
        """A look at what the group holds; False when it is not what was written, which is then written again.

        Something has written over it: a member that was thought dead, or a request that was late. A look from before
        the last answer may find that, too, and then costs a commit.
        """
        book = self._books.get(partition)
        if book is None:
            return True
        if book.durable.sequence <= stored.sequence <= book.sequence and stored.covers(book.durable):
            # While one is on its way, what is found may be from before it, or what was written over it.
            if book.doubted and not any(partition in flight.maps for flight in self._flights):
                book.doubted = False
                self._ledger.dirty.add(partition)  # somebody may wait for what needs no commit
                if book.sure:
                    self._resolve(book, book.stored)
            return True
        book.sequence = max(book.sequence, stored.sequence)
        self._doubt(partition, book)
        return False

    def doubt(self) -> None:
        """What was sent before may arrive once more, over what was sent later: nothing is durable before a look."""
        for book in self._books.values():
            book.doubted = True

    def renew(self, partitions: Collection[int]) -> None:
        """Send a commit for these though nothing may have changed."""
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
        """Whether something waits for a look; it has to come while nothing is on its way."""
        return any(book.doubted for book in self._books.values())

    @property
    def in_flight(self) -> bool:
        """Whether a commit is on its way, or more than one."""
        return bool(self._flights)

    @property
    def longest(self) -> int:
        """How many characters the longest text has that is known to be stored."""
        return max((_size(book.durable) for book in self._books.values()), default=0)

    def prepare(self, partitions: Collection[int] | None = None, leaving: Collection[Item] = ()) -> Flight[W] | None:
        """What to commit now, for these partitions or for all; None when there is nothing new, or no room for it.

        What is on its way is said again, as it is now. It may still arrive, even behind this one: so nobody is told of
        this one.

        Args:
            leaving: messages to commit as done, which the ledger is told of only when that has succeeded.
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
        # What is stored stays so (G11), and a transaction is about its own messages first.
        first = [item.offset for item in leaving if item.partition == partition]
        claim = whole.shortened(self._ledger.limit, stored=book.durable, first=first)
        book.unsaid = Unsaid((len(whole.runs) - len(claim.runs)) // 2, len(whole.counts) - len(claim.counts))
        if self._ledger.bounded and not leaving:
            self._ledger.wrote(partition, None if any(book.unsaid) else _size(claim))
        # What was sent since may be stored, too. It counts deliveries that have been taken back meanwhile.
        if claim == book.durable and book.stored >= max(book.attempts, book.wanted):
            if book.sure and not book.doubted:
                self._resolve(book, book.attempts + 1)
            return None
        if claim.covers(book.durable):
            return claim
        # The limit has sunk below what one that is stored has promised, which a shorter map would take back (G11). More
        # has to be settled first: so let nobody wait before that for a count to be stored.
        self._ready += [waiter for offset, _, waiter in book.waiters if offset == _STATE]
        book.waiters = [waiting for waiting in book.waiters if waiting[0] != _STATE]
        # What is stored is true still: it serves whoever only asks for a commit, to hear whether the group accepts one.
        # Be it too large by now: the group says so to its members only.
        again = replace(book.durable, sequence=following(book.sequence))
        fits = book.stored < book.wanted and _size(again) <= self._ledger.limit
        return again if fits or book.attempts < book.asked else None

    def landed(self, flight: Flight[W], answers: Mapping[int, Answer] | Answer) -> None:
        """An answer came, for all partitions of a commit or for each of them; perhaps late, perhaps once more."""
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
                continue  # it went away meanwhile; or this is known
            if now is not book or number < book.stored:  # nobody knows which of the two the group has in the end
                self._doubt(partition, now)
            elif number < book.attempts:
                continue  # the one that says it again is on its way
            elif answer is Answer.STORED:
                book.durable, book.stored, book.sure = commit_map, number, partition in flight.alone
                if book.sure:
                    if not book.doubted:
                        self._resolve(book, number)
                elif not any(partition in older.maps for older in self._flights):
                    self._want(partition, book)
            else:
                # It may be stored. To say what is known to be stored is no news then: counts go up and down.
                book.wanted = max(book.wanted, number)
                self._ledger.dirty.add(partition)
        if too_large:
            self._shorten(too_large)

    def _shorten(self, refused: int) -> None:
        """The broker refuses texts of that size: halve the limit, but not below what it has stored before."""
        self._refused = min(self._refused, refused)
        stored = self.longest
        limit = max(refused // 2, stored if stored < refused else 0, _SHORTEST_TEXT)
        self._ledger.limit = min(limit, self._ledger.limit)

    def allow(self, limit: int) -> None:
        """The broker says that it takes texts of so many characters: so write them, unless it has refused shorter ones.

        What waits for room is said in the next commit.
        """
        limit = min(limit, self._refused - 1)
        if limit > self._ledger.limit:
            self._ledger.limit = limit
            self._ledger.dirty |= self.unsaid.keys()

    def _resolve(self, book: _Book[W], number: int) -> None:
        """What this claim says is stored, and stays so."""
        waiters, book.waiters = book.waiters, []
        for waiting in waiters:
            offset, after, waiter = waiting
            if number >= after and (offset == _STATE or book.durable.done(offset)):
                self._ready.append(waiter)
            else:
                book.waiters.append(waiting)

    # ---------------------------------------------------------------- what is durable

    def last(self, partition: int) -> CommitMap:
        """What the group is known to hold of an assigned partition."""
        return self._books[partition].durable

    def wait_done(self, partition: int, offset: int, waiter: W) -> None:
        """Have the waiter told when the group holds that this message is done."""
        book = self._books[partition]
        if book.durable.done(offset) and book.sure and not book.doubted:
            self._ready.append(waiter)
        else:
            book.waiters.append((offset, 0, waiter))
            self._ledger.dirty.add(partition)

    def wait_stored(self, partition: int, waiter: W) -> None:
        """Have the waiter told when the group holds the state of now, with delivery counts; or has no room for it."""
        book = self._books[partition]
        book.waiters.append((_STATE, book.attempts + 1, waiter))
        self._ledger.dirty.add(partition)

    def pop_ready(self) -> list[W]:
        """Those whose wait is over, each once. Ask after every other call."""
        ready, self._ready = self._ready, []
        return ready

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for a commit, or what was durable may not be any more, and has to be said again.

        Who waits for room in the text waits for others to settle: no commit helps before something has changed.
        """
        dirty = self._ledger.dirty
        return any(
            book.stored < book.wanted or (book.waiters and (partition in dirty or book.stored < book.attempts))
            for partition, book in self._books.items()
        )

    @property
    def is_crowded(self) -> bool:
        """Whether anything is `unsaid`. Cheap, and no lock is needed."""
        return any(any(book.unsaid) for book in tuple(self._books.values()))

    @property
    def unsaid(self) -> dict[int, Unsaid]:
        """What waits for room in the commit text, by partition, where there is anything."""
        return {partition: book.unsaid for partition, book in self._books.items() if any(book.unsaid)}


def _size(commit_map: CommitMap) -> int:
    return len(commit_map.encode(ANY_LENGTH))
