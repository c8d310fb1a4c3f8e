"""The truth about one queue, kept apart from the code under test, and the checks against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from operator import attrgetter

from lvq_kafka.core.commit_map.commit_map import LONGEST_TEXT, CommitMap
from lvq_kafka.core.ledger.ledger import Item
from tests.simulator.group import Group, Offsets
from tests.simulator.log import Entry, Lane, Log

__all__ = ["Life", "Proof", "Violation", "done_ranges", "forgets", "says_done"]


class Violation(AssertionError):
    """A broken invariant. ``invariant`` is its name, such as I1."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def done_ranges(commit: CommitMap) -> list[tuple[int, int]]:
    """Return the ranges that a commit marks done, each with its first offset and the offset after its last."""
    ranges, at = [(0, commit.base)], commit.base
    for pending, done in zip(commit.runs[::2], commit.runs[1::2]):
        ranges.append((at + pending, at + pending + done))
        at += pending + done
    return ranges


def says_done(commit: CommitMap, offset: int) -> bool:
    """Return whether a commit marks this offset done."""
    return any(first <= offset < after for first, after in done_ranges(commit))


def forgets(commit: CommitMap, before: CommitMap) -> bool:
    """Return whether a commit marks less done than an earlier one."""
    mine = done_ranges(commit)
    return any(not any(begin <= first and after <= end for begin, end in mine) for first, after in done_ranges(before))


class Life:
    """A naive model of one assignment of a partition: the messages read, outstanding and held."""

    __slots__ = (
        "acked", "came_back", "came_last", "depth", "due", "expires", "given", "gone", "headers", "holding", "last",
        "loaded", "newest", "out", "partition", "place", "position", "replaced", "returned", "scheduled", "target",
    )  # fmt: skip

    def __init__(self, partition: int, loaded: CommitMap, target: int, start: int) -> None:
        self.partition = partition
        self.loaded = loaded
        self.target = target
        self.position = start
        self.newest: dict[Lane, int] = {}
        """By lane, the newest record read that counts."""
        self.scheduled: dict[int, Entry] = {}
        """By offset, the records read above those that do not count yet."""
        self.out: dict[Lane, int] = {}
        """By lane, the newest value read that counts, unless it is settled."""
        self.place: dict[Lane, int] = {}
        """By lane, the record that gives such a value its place in a queue in place, where nothing expires."""
        self.replaced: set[Lane] = set()
        """Lanes of whose last value only the place counts: what replaced it was done before this assignment."""
        self.expires: dict[int, float] = {}
        """By offset, the last moment at which a message counts, in ms."""
        self.due: dict[int, float] = {}
        """By offset, the first moment at which a message counts, in ms."""
        self.headers: dict[int, list[tuple[str, bytes]]] = {}
        """By offset."""
        self.holding: dict[Lane, int] = {}
        self.last: dict[Lane, int] = {}
        """By lane, the last message handed out."""
        self.returned: set[int] = set()
        """Messages that came back after they were handed out."""
        self.acked: list[int] = []
        self.depth = 0
        """The number of messages that waited or were in work, when it was last looked."""
        self.came_last = -1
        """The message that was the last to count."""
        self.came_back: set[int] = set()
        """Messages that have come back since."""
        self.gone: set[int] = set()
        """Messages that were evicted."""
        self.given: Counter[int] = Counter()
        """The number of deliveries, by offset."""

    def read(self, entries: Iterable[Entry], position: int, time: float) -> None:
        """Note what was read at a time, in ms."""
        entries = list(entries)
        for entry in entries:
            self.expires[entry.offset] = entry.expires
            self.due[entry.offset] = entry.due
            self.headers[entry.offset] = entry.headers
            if entry.due > max(time, entry.timestamp) and not says_done(self.loaded, entry.offset):
                self.scheduled[entry.offset] = entry
            else:
                self._counts(entry)
        self.position = position
        if position >= max(self.target, self.loaded.end):  # nothing was handed out before
            self.replaced.clear()
        self._note_last(entries)

    def pass_time(self, time: float) -> None:
        """Let count what is due at a time, in ms."""
        due = [entry for entry in self.scheduled.values() if entry.due <= time]
        for entry in sorted(due, key=attrgetter("due", "offset")):
            if entry.offset in self.scheduled:
                self._counts(entry)
        self._note_last(due)

    def _note_last(self, entries: list[Entry]) -> None:
        here = [entry.offset for entry in entries if self.out.get(entry.lane) == entry.offset]
        self.came_last = max(here, default=self.came_last)

    def _counts(self, entry: Entry) -> None:
        lane = entry.lane
        for lower in [at for at, one in self.scheduled.items() if one.lane == lane and at <= entry.offset]:
            del self.scheduled[lower]
        self.newest[lane] = entry.offset
        waits = lane in self.replaced or (lane in self.out and self.holding.get(lane) != self.out[lane])
        self.replaced.discard(lane)
        if entry.value is None or says_done(self.loaded, entry.offset):
            self.out.pop(lane, None)
            if waits and entry.value is not None:
                self.replaced.add(lane)
        else:
            place = self.place[lane] if waits else entry.offset
            keeps = (self.due[place], place) < (entry.due, entry.offset)
            self.place[lane] = place if keeps else entry.offset
            self.out[lane] = entry.offset

    def settled(self, item: Item, *, acked: bool) -> None:
        """Note that a message was settled or lost."""
        lane, offset = item.lane, item.offset
        del self.holding[lane]
        if not acked:
            self.returned.add(offset)
            self.came_back.add(offset)
        else:
            self.acked.append(offset)
            if self.out.get(lane) == offset:
                del self.out[lane]

    def evicted(self, item: Item) -> None:
        """Note that a message was evicted."""
        self.gone.add(item.offset)
        self.acked.append(item.offset)
        del self.out[item.lane]

    def delivered(self, offset: int) -> int:
        """Return the number of deliveries of a message that this assignment can know."""
        return self.loaded.counts.get(offset, 0) + self.given[offset]


class Proof:
    """The true state of one queue, and its checks.

    Args:
        logs: the partitions.
        base: the offset of each partition where the queue begins. Lower offsets are not part of it.
        counted: whether there is always room for delivery counts. If the text limit may sink, there is not.
        keeps: whether what has expired is done only once it was stored elsewhere.
    """

    def __init__(self, logs: list[Log], base: list[int], *, counted: bool, keeps: bool = False) -> None:
        self._keeps = keeps
        self._lettered: set[tuple[int, int]] = set()  # by partition and offset, what was stored elsewhere
        self.group: Group
        self.alive: list[dict[Lane, int]] = [{} for _ in logs]
        """By lane, the newest value that counts, unless it was consumed. No commit may mark it done: it would be lost.

        It counts by the most advanced time of any consumer.
        """
        self.scheduled: list[dict[int, Entry]] = [{} for _ in logs]
        """By offset, the records that do not count for any consumer. No commit may mark them done."""
        self.effects: dict[tuple[int, int], int] = {}
        """The number of deliveries, by partition and offset."""
        self._logs = logs
        self._base = base
        self._counted = counted
        self._durable: list[set[int]] = [set() for _ in logs]  # acks that were reported durable
        self._durable_newest: list[dict[Lane, int]] = [{} for _ in logs]
        self._promised: list[list[int]] = [[] for _ in logs]  # durable acks that no base has passed yet
        self._outputs: set[tuple[int, int]] = set()
        self.latest = 0
        """The most advanced time of any consumer of the queue, in ms."""
        self._expires: list[dict[int, float]] = [{} for _ in logs]  # by offset
        self.late = False
        """Whether a current member's commit is arriving late. Until it is repaired, commits may step back."""

    # ---------------------------------------------------------------- time

    def later(self, time: int) -> None:
        """Note the time of a consumer."""
        if time <= self.latest:
            return
        self.latest = time
        for partition, scheduled in enumerate(self.scheduled):
            for entry in [entry for entry in scheduled.values() if entry.due <= time]:
                if entry.offset in scheduled:
                    self._counts(partition, entry)

    def has_expired(self, partition: int, offset: int) -> bool:
        """Return whether a message has expired for at least one consumer, and may be done for that reason."""
        stored = not self._keeps or (partition, offset) in self._lettered
        return stored and self._expires[partition][offset] < self.latest and offset not in self.scheduled[partition]

    def kept(self, item: Item, *, owner: bool) -> None:
        """Check I19 for a message that has expired, and must be stored elsewhere.

        A value that its consumer reads later, however soon that one is acked, takes nothing back.
        """
        if self._expires[item.partition][item.offset] >= self.latest:
            raise Violation("I19", f"{item} must go to the expiry topic, and has not expired")
        newest = self._durable_newest[item.partition].get(item.lane, -1)
        if owner and self.group.fenced and item.offset < newest:
            raise Violation("I19", f"{item} must go to the expiry topic, and {newest} was durably acked before")

    def lettered(self, item: Item) -> None:
        """Note that an expired message was stored elsewhere."""
        self._lettered.add((item.partition, item.offset))

    def left(self, partition: int) -> dict[Lane, int]:
        """Return what is `alive` and has not expired, and what does not count yet."""
        scheduled = {entry.offset: entry.offset for entry in self.scheduled[partition].values()}
        return scheduled | {
            lane: at for lane, at in self.alive[partition].items() if not self.has_expired(partition, at)
        }

    # ---------------------------------------------------------------- events

    def readable(self, partition: int, entry: Entry) -> None:
        """Note that a record became readable."""
        self._expires[partition][entry.offset] = entry.expires
        if entry.due > max(self.latest, entry.timestamp) and entry.offset >= self._base[partition]:
            self.scheduled[partition][entry.offset] = entry
        else:
            self._counts(partition, entry)

    def _counts(self, partition: int, entry: Entry) -> None:
        alive, scheduled = self.alive[partition], self.scheduled[partition]
        for lower in [at for at, one in scheduled.items() if one.lane == entry.lane and at <= entry.offset]:
            del scheduled[lower]
        if entry.value is None or entry.offset < self._base[partition]:
            alive.pop(entry.lane, None)
        else:
            alive[entry.lane] = entry.offset

    def acked(self, item: Item) -> None:
        """Note that a holder with a valid handle acked or rejected a message."""
        alive = self.alive[item.partition]
        if alive.get(item.lane) == item.offset:
            del alive[item.lane]

    def transacted(self, items: Collection[Item]) -> None:
        """Note that a transaction committed outputs made from these messages. Checks I13."""
        for item in items:
            self.acked(item)
            at = item.partition, item.offset
            if at in self._outputs and self.group.fenced:
                raise Violation("I13", f"{item} is in the outputs of two committed transactions")
            self._outputs.add(at)

    # ---------------------------------------------------------------- invariants

    def true(self, partition: int, claim: CommitMap, leaving: Collection[int] = ()) -> None:
        """Check I1 for a commit that was sent or could be sent."""
        log, done = self._logs[partition], done_ranges(claim)
        if done[-1][1] > log.stable_end:
            raise Violation("I1", f"{claim} speaks of partition {partition} beyond its end {log.stable_end}")
        for offset, entry in self.scheduled[partition].items():
            if claim.done(offset):
                raise Violation("I1", f"{claim} of partition {partition} says {offset} is done, due at {entry.due}")
        for lane, offset in self.alive[partition].items():
            # A record that was compacted away has a newer one, which counts by the brokers' time.
            gone = offset in leaving or self.has_expired(partition, offset) or not log.has(offset)
            if claim.done(offset) and not gone:
                raise Violation(
                    "I1", f"{claim} of partition {partition} says {offset} is done, the newest value of {lane!r}"
                )

    def faithful(self, generation: Life, claim: CommitMap, stored: CommitMap, leaving: Collection[int] = ()) -> None:
        """Check I11, I3 and I14 for a claim that was not shortened.

        It marks exactly the done offsets, no less than the stored commit, and counts only messages that were or are
        being handed out.
        """
        for offset, count in claim.counts.items():
            if not 0 <= count - generation.delivered(offset) <= (offset in generation.holding.values()):
                raise Violation("I14", f"{claim} counts {count} times {offset}, which was handed out less often")
        done = done_ranges(claim)
        for offset, entry in generation.scheduled.items():
            if any(first <= offset < after for first, after in done):
                raise Violation(
                    "I11", f"{claim} says {offset} of partition {generation.partition} is done, {entry.due}"
                )
        for lane, offset in generation.out.items():
            if generation.holding.get(lane) != offset and self.has_expired(generation.partition, offset):
                continue
            if offset not in leaving and any(first <= offset < after for first, after in done):
                raise Violation(
                    "I11", f"{claim} says {offset} of partition {generation.partition} is done, which waits or is held"
                )
        acked = generation.acked = [offset for offset in generation.acked if offset >= claim.base]
        for offset in acked:
            if not any(first <= offset < after for first, after in done):
                raise Violation(
                    "I11", f"{claim} says {offset} of partition {generation.partition} is pending, which was acked"
                )
        if forgets(claim, stored):
            raise Violation("I3", f"{claim} of partition {generation.partition} forgets what was committed: {stored}")

    def sent(self, offsets: Offsets, maps: dict[int, CommitMap], limit: int, leaving: dict[int, set[int]]) -> None:
        """Check I1, I9 and I11 for a commit that is sent."""
        for partition, (base, text) in offsets.items():
            if len(text) > min(limit, LONGEST_TEXT):
                raise Violation("I9", f"a text of {len(text)} characters where {limit} are allowed")
            read = CommitMap.decode(base, text)
            if read != maps[partition]:
                raise Violation("I11", f"{maps[partition]} was written, {read} was read")
            self.true(partition, read, leaving.get(partition, ()))

    def roomy(self, said: CommitMap, claim: CommitMap, limit: int) -> None:
        """Check I9: a commit leaves nothing out that it has room for."""
        frame = {"topic_tag": said.topic_tag, "partitions": said.partitions, "sequence": said.sequence}
        whole = replace(claim, **frame)
        if said.runs != claim.runs and len(whole.encode(1 << 30)) <= limit:
            raise Violation("I9", f"{said} leaves out what is done: {claim}")

    def last(self, generation: Life, said: CommitMap) -> None:
        """Check I14 for the last commit before a partition is given up: it no longer counts undelivered messages."""
        for offset, count in said.counts.items():
            if self._counted and count > generation.delivered(offset):
                raise Violation(
                    "I14", f"{said} ends partition {generation.partition}; {offset} was delivered less often"
                )

    def accepted(self, generation: Life, last: CommitMap) -> None:
        """Check I16 for a partition given up after its last commit is stored."""
        for offset in generation.acked:
            if not says_done(last, offset):
                raise Violation(
                    "I16", f"{last} ends partition {generation.partition}, and {offset} was acked before it had gone"
                )

    def stored(self, partition: int, commit: CommitMap) -> None:
        """Check I3 for a commit that became visible."""
        promised = self._promised[partition]
        if self.group.fenced and not self.late:
            for offset in promised:
                if not says_done(commit, offset):
                    raise Violation(
                        "I3", f"{commit} of partition {partition} forgets {offset}, which was reported durable"
                    )
            self._promised[partition] = [offset for offset in promised if offset >= commit.base]

    def mended(self, partition: int) -> None:
        """Check I3 once a current member has looked after a late commit: all durable acks are committed again."""
        for offset in self._durable[partition]:
            if not says_done(self.group.visible(partition), offset):
                raise Violation("I3", f"{offset} of partition {partition} was durable, and is not after a late commit")

    def reported(self, item: Item) -> None:
        """Note that an ack was reported durable. Checks I3."""
        partition, offset, lane = item.partition, item.offset, item.lane
        if self.group.fenced and not says_done(self.group.visible(partition), offset):
            raise Violation("I3", f"{offset} of partition {partition} was reported durable and is not")
        newest = self._durable_newest[partition]
        newest[lane] = max(offset, newest.get(lane, -1))
        self._durable[partition].add(offset)
        self._promised[partition].append(offset)

    def is_durable(self, partition: int, offset: int) -> bool:
        return offset in self._durable[partition]

    def handed_out(self, generation: Life, item: Item, *, owner: bool) -> None:
        """Check I2 to I6 for a message handed out by the current or a former owner of its partition."""
        lane, offset, partition = item.lane, item.offset, generation.partition
        if lane in generation.holding:
            raise Violation("I2", f"{item} is handed out while {generation.holding[lane]} of its key is held")
        if generation.position < generation.target:
            raise Violation(
                "I4", f"{item} is handed out at {generation.position}, before {generation.target} is reached"
            )
        last = generation.last.get(lane, -1)
        if offset < last:
            raise Violation("I6", f"{item} is handed out after {last}")
        if generation.newest.get(lane) != offset:
            raise Violation("I4", f"{item} is handed out, {generation.newest.get(lane)} of its key was read")
        if offset in generation.gone:
            raise Violation("I23", f"{item} is handed out, and was evicted")
        if offset == last and offset not in generation.returned:
            raise Violation("I2", f"{item} is handed out twice")
        if owner and self.group.fenced:
            if offset in self._durable[partition]:
                raise Violation("I3", f"{item} is handed out, whose ack was reported durable")
            if offset < self._durable_newest[partition].get(lane, -1):
                raise Violation("I5", f"{item} is handed out, a newer value was durably acked")
        generation.holding[lane] = offset
        generation.last[lane] = offset
        generation.returned.discard(offset)

    def delivered(self, item: Item, *, counted: bool) -> None:
        """Check I14 for a delivery. ``counted`` says that its number must be at least the true one."""
        at = item.partition, item.offset
        times = self.effects[at] = self.effects.get(at, 0) + 1
        counted = counted and self._counted and self.group.fenced
        # A superseded message does not count: it is not handed out again once the newer one is read.
        if counted and item.deliveries < times and self.alive[item.partition].get(item.lane) == item.offset:
            raise Violation("I14", f"{item} says delivery {item.deliveries}, it is at least the {times}.")

    def reclaimed(self, partition: int, gone: Iterable[Entry]) -> None:
        """Check I12 for truncated records."""
        alive = self.alive[partition]
        for entry in gone:
            if entry.offset in self.scheduled[partition]:
                raise Violation("I12", f"{entry.offset} of partition {partition} was truncated before it was due")
            if alive.get(entry.lane) == entry.offset and not self.has_expired(partition, entry.offset):
                raise Violation("I12", f"{entry.offset} of partition {partition} was truncated and not consumed")

    def converged(self, partition: int) -> None:
        """Check I10 once everything is quiet."""
        log, commit = self._logs[partition], self.group.visible(partition)
        if left := self.left(partition):
            raise Violation("I10", f"of partition {partition} these were never consumed: {left}")
        if (commit.base, commit.runs) != (log.end, ()):
            raise Violation("I10", f"partition {partition} ends at {log.end}, committed is {commit}")

    def told(self, awaited: Collection[Item]) -> None:
        """Check I10 for waiters for durable acks."""
        if awaited:
            raise Violation("I10", f"somebody waits forever to hear whether the acks of these are durable: {awaited}")
