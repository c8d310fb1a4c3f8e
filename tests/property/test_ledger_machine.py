"""A state machine that drives the ledger and a naive model side by side, over a log that compaction changes.

The model is the contract in its plainest form: the log as a list, a set of durably settled offsets, and a set of
offsets acked since the last start. Only the last stored commit and the compacted log survive a crash. After every step,
invariants I1 to I6, I9 and I11 of the design hold.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.latest.fold import Order
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled, LockLost
from tests.effort import examples
from tests.rules import new_ledger

PARTITIONS = (0, 1)
PARTITION = st.sampled_from([0, 0, 0, 1])
KEYS = st.sampled_from([b"a", b"a", b"b", b"c", b"d", None])
DELETES = st.sampled_from([False, False, False, True])
STEPS = [
    "acquire",
    "acquire",
    "acquire",
    "ack",
    "ack",
    "release",
    "delay",
    "reject",
    "leave",
    "commit",
    "abort",
    "bury",
]
STEPS += ["extend", "wake", "reserve", "hand over"]
RARELY = st.sampled_from([False, False, True])
FRAME = {"topic_tag": b"\xff" * 8, "partitions": (1 << 31) - 1, "sequence": (1 << 63) - 1}

Record = tuple[bytes | None, bytes | None]
REMOVES = {"ack": Ledger.ack, "reject": Ledger.reject, "commit": Ledger.commit, "bury": Ledger.bury}
GIVES_BACK = {"release": Ledger.release, "delay": Ledger.release, "abort": Ledger.give_back}


class Consuming(RuleBasedStateMachine):
    """A consumer that loses and regains two partitions and crashes. Offsets never repeat, and records can vanish."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, dict[int, Record]] = {partition: {} for partition in PARTITIONS}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.committed = dict.fromkeys(PARTITIONS, (0, CommitMap(0).encode()))
        self.settled: dict[int, set[int]] = {partition: set() for partition in PARTITIONS}
        self.durable_newest: dict[tuple[int, bytes], int] = {}
        self.durable_counts: dict[tuple[int, int], int] = defaultdict(int)
        self.ever_handed_out: set[tuple[int, int]] = set()
        self.now = 0.0
        self.order: Order = "tail"
        self.limit = 4095
        self.counted = True
        self.bounded = False
        self.new_life()

    @initialize(
        order=st.sampled_from(["tail", "in-place"]),
        limit=st.sampled_from([64, 95, 4095]),
        counted=st.booleans(),
        bounded=st.booleans(),
    )
    def choose(self, order: Order, limit: int, counted: bool, bounded: bool) -> None:
        self.order, self.limit, self.counted, self.bounded = order, limit, counted, bounded
        self.new_life()

    def new_life(self) -> None:
        self.ledger = new_ledger(
            order=self.order, limit=self.limit, count_deliveries=self.counted, bounded=self.bounded
        )
        self.loaded: dict[int, CommitMap] = {}
        self.targets: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.handed_out = 0
        self.held: list[Item] = []
        self.gone: list[Item] = []
        self.seen: dict[int, dict[int, Record]] = {}
        self.acked: dict[int, set[int]] = defaultdict(set)
        self.count: dict[tuple[int, int], int] = {}
        self.due: dict[tuple[int, int], float] = {}
        self.locks: dict[Item, float] = {}
        self.latest: dict[tuple[int, bytes], int] = {}
        for partition in PARTITIONS:
            self.assign(partition=partition)

    # --- the log ----------------------------------------------------------------------------------------------------

    @rule(partition=PARTITION, records=st.lists(st.tuples(KEYS, DELETES), min_size=1, max_size=5), unread=RARELY)
    def produce(self, partition: int, records: list[tuple[bytes | None, bool]], unread: bool) -> None:
        for key, delete in records:
            offset = self.ends[partition]
            self.logs[partition][offset] = (key, None if delete and key is not None else b"%d" % offset)
            self.ends[partition] = offset + 1
        if not (unread or self.catches_up(partition)):
            self.read_on(partition=partition, count=100)

    @rule(partition=PARTITION, keep=st.sets(st.integers(0, 40)))
    def mark_and_compact(self, partition: int, keep: set[int]) -> None:
        self.ends[partition] += 1
        log = self.logs[partition]
        newest = {key: offset for offset, (key, _) in log.items()}
        self.logs[partition] = {
            offset: (key, value)
            for offset, (key, value) in log.items()
            if key is None or newest[key] == offset or offset in keep or offset % 3 == 0
        }

    # --- the group --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.handed_out >= 3)
    @rule(partition=PARTITION, event=st.sampled_from(["revoke", "drop", "crash"]))
    def lose(self, partition: int, event: str) -> None:
        if event == "crash":
            self.new_life()
        elif partition in self.targets:
            self.revoke(partition, last_commit=event == "revoke")

    @rule(partition=PARTITION)
    def assign(self, partition: int) -> None:
        if partition in self.targets:
            return
        loaded = CommitMap.decode(*self.committed[partition])
        self.ledger.assign(partition, loaded, self.ends[partition])
        self.loaded[partition] = loaded
        self.targets[partition] = max(self.ends[partition], loaded.end)
        self.read[partition] = loaded.base
        self.seen[partition] = {}
        self.acked[partition] = set()
        for offset in range(self.ends[partition]):
            self.count[partition, offset] = loaded.counts.get(offset, 0)

    @rule(partition=PARTITION, answered=st.booleans())
    def commit(self, partition: int, answered: bool = True) -> None:
        if partition not in self.targets:
            return
        whole, stored = self.ledger.assignment.claim(partition), CommitMap.decode(*self.committed[partition])
        claim = whole.shortened(self.limit, stored=stored)
        text = claim.encode(self.limit)
        assert CommitMap.decode(claim.base, text) == claim, "I11"
        if self.bounded:
            assert claim == whole, "I9: something is left out"
        if not claim.covers(stored):
            assert len(stored.encode()) > self.limit - 16, "I3: takes back what is stored, though there is room"
            return
        self.committed[partition] = (claim.base, text)
        if self.counted and claim.counts == whole.counts:
            stored = {(partition, offset): count for offset, count in claim.counts.items()}
            assert all(stored.get(at, 0) == self.count[at] for at in self.pending_and_tried(partition))
        if not answered:
            return  # it may be stored, but nobody relies on it
        durable = {offset for offset in self.acked[partition] if claim.done(offset)}
        assert durable == self.acked[partition] or claim != whole, "an ack is left out"
        self.settled[partition] |= durable
        for offset in durable:
            key = self.seen[partition][offset][0]
            if key is not None:
                self.durable_newest[partition, key] = max(offset, self.durable_newest.get((partition, key), -1))

    def pending_and_tried(self, partition: int) -> list[tuple[int, int]]:
        pending = set(self.alive(partition).values())
        return [(partition, offset) for offset in pending if self.count[partition, offset]]

    def revoke(self, partition: int, *, last_commit: bool) -> None:
        if last_commit:
            aside = [item for item in self.aside() if item.partition == partition]
            self.ledger.withhold([partition])
            for item in aside:
                self.let_go(item)
            while (item := self.ledger.acquire()) is not None:
                assert item.partition != partition, "handed out something of a partition that is about to go"
                self.note(item)
            self.commit(partition=partition)
        mine = [item for item in self.held if item.partition == partition]
        lost = [item for item in mine if item not in self.aside()]
        assert sorted(item.offset for item in self.ledger.revoke([partition])) == sorted(i.offset for i in lost)
        for item in mine:
            self.let_go(item)
        self.due = {at: time for at, time in self.due.items() if at[0] != partition}
        self.latest = {lane: offset for lane, offset in self.latest.items() if lane[0] != partition}
        del self.targets[partition], self.read[partition]

    @rule(partition=PARTITION, count=st.sampled_from([1, 2, 5]))
    def read_on(self, partition: int, count: int) -> None:
        if partition not in self.targets:
            return
        position = self.read[partition]
        ahead = sorted(offset for offset in self.logs[partition] if offset >= position)
        for offset in ahead[:count]:
            key, value = self.logs[partition][offset]
            self.ledger.offer(partition, offset, key, value)
            self.seen[partition][offset] = (key, value)
            self.count.setdefault((partition, offset), 0)
            if key is not None:
                self.due = {
                    at: t for at, t in self.due.items() if self.lane(*at) != (partition, key) or at[1] == offset
                }
            position = offset + 1
        if len(ahead) <= count:
            position = self.ends[partition]
        self.ledger.advance({partition: position})
        self.read[partition] = position

    # --- holders ----------------------------------------------------------------------------------------------------

    @rule(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), min_size=1, max_size=5))
    def work(self, steps: list[tuple[str, int]]) -> None:
        for step, which in steps:
            if step == "acquire":
                self.acquire(locked=which == 0)
            elif step == "reserve":
                self.acquire(locked=False, reserved=True)
            elif step == "hand over":
                self.hand_over(which)
            elif step == "wake":
                self.wake()
            elif self.held and which < 5:
                self.settle(self.held[which % len(self.held)], step)
            elif self.gone:
                self.settle_again(self.gone[which % len(self.gone)], step)

    def acquire(self, *, locked: bool, reserved: bool = False) -> None:
        item = self.ledger.reserve() if reserved else self.ledger.acquire(self.now + 2 if locked else None)
        eligible = self.eligible()
        if item is None:
            gated = self.ledger.assignment.gated if self.bounded else 0
            assert len(eligible) <= gated, "something could be handed out and was not"
            for partition in self.targets:
                lowest = self.lowest(partition)
                assert (partition, lowest) not in eligible, "the message at the base can always be handed out"
            return
        assert (item.partition, item.offset) in eligible, "I4"
        if locked:
            self.locks[item] = self.now + 2
        self.note(item)

    @precondition(lambda self: not self.bounded)
    @rule()
    def everything_comes_though_all_fails(self) -> None:
        """Check liveness: every eligible message is handed out, even if all others come back at once."""
        starving = self.eligible()
        for _ in range(5 * len(starving)):
            item = self.ledger.acquire()
            assert item is not None
            self.note(item)
            starving.discard((item.partition, item.offset))
            self.settle(item, "release")
        assert not starving, "something starves"

    def hand_over(self, which: int) -> None:
        aside = self.aside()
        if aside:
            item = aside[which % len(aside)]
            self.ledger.hand_over(item, self.now + 2)
            self.locks[item] = self.now + 2

    def aside(self) -> list[Item]:
        return [
            item for item in self.held if item.reserved and item.state in (MessageState.ACQUIRED, MessageState.STALE)
        ]

    def note(self, item: Item) -> None:
        """Check a message that was handed out."""
        at = partition, offset = item.partition, item.offset
        assert not any(self.lane(i.partition, i.offset) == self.lane(*at) for i in self.held), "I2: one at a time (G13)"
        assert offset not in self.settled[partition], "I3: a durably acknowledged message came again (G11)"
        if item.key is not None:
            lane = partition, item.key
            assert offset >= self.durable_newest.get(lane, -1), "I5: stepped back behind a durable ack (G12)"
            assert offset >= self.latest.get(lane, -1), "I6: an older value after a newer one"
            self.latest[lane] = offset
        self.count[at] += 1
        assert item.deliveries == self.count[at]
        assert item.value == self.seen[partition][offset][1]
        mark = self.loaded[partition].delivered
        assert item.redelivered == (self.count[at] > 1 or (mark is not None and offset < mark))
        if at in self.ever_handed_out and self.count[at] == 1:
            assert item.redelivered or not self.was_stored(at), "it was handed out before, and the group knew"
        self.ever_handed_out.add(at)
        self.held.append(item)
        self.handed_out += 1

    def was_stored(self, at: tuple[int, int]) -> bool:
        mark = self.loaded[at[0]].delivered
        return mark is not None and at[1] < mark

    def settle(self, item: Item, step: str) -> None:
        leaving = item.state in (MessageState.LEAVING, MessageState.LEAVING_STALE)
        if leaving != (step in ("commit", "abort", "bury")):
            self.settle_again(item, step)
            return
        superseded = self.is_superseded(item.partition, item.offset)
        if step == "leave":
            self.ledger.leave(item)
            self.locks.pop(item, None)
            self.count[item.partition, item.offset] -= item.reserved  # it is never delivered
        elif step == "extend":
            self.ledger.extend(item, self.now + 3)
            self.locks[item] = self.now + 3
        elif step in REMOVES:
            REMOVES[step](self.ledger, item)
            self.let_go(item, left=leaving)
            self.acked[item.partition].add(item.offset)
        else:
            due = [self.now + 2] if step == "delay" and not item.reserved else []
            GIVES_BACK[step](self.ledger, item, *due)
            self.let_go(item, left=leaving)
            assert item.state is (MessageState.SUPERSEDED if superseded else MessageState.RELEASED)
            if due and not superseded:
                self.due[item.partition, item.offset] = self.now + 2

    def let_go(self, item: Item, *, left: bool = False) -> None:
        self.held.remove(item)
        self.gone.append(item)
        self.count[item.partition, item.offset] -= item.reserved and not left  # it was never delivered
        self.locks.pop(item, None)

    def wake(self) -> None:
        self.now += 1
        expected = min([*self.due.values(), *self.locks.values()], default=None)
        assert self.ledger.next_wake == expected
        self.ledger.wake(self.now)
        self.due = {at: time for at, time in self.due.items() if time > self.now}
        for item in [item for item, time in self.locks.items() if time <= self.now]:
            assert item.state is MessageState.LOST
            self.let_go(item)

    def settle_again(self, item: Item, step: str) -> None:
        before = item.state
        try:
            if step == "leave":
                self.ledger.leave(item)
            elif step == "extend":
                self.ledger.extend(item, self.now)
            else:
                (REMOVES | GIVES_BACK)[step](self.ledger, item)
        except LockLost:
            assert item.state is MessageState.LOST
        except AlreadySettled:
            assert item.state is not MessageState.LOST
        else:
            raise AssertionError("a handle was good for two settlements")
        assert item.state is before

    def catches_up(self, partition: int) -> bool:
        return partition in self.targets and self.read[partition] < self.targets[partition]

    # --- the naive contract ------------------------------------------------------------------------------------------

    def lane(self, partition: int, offset: int) -> tuple[int, bytes | int]:
        key = self.seen[partition][offset][0]
        return partition, offset if key is None else key

    def is_superseded(self, partition: int, offset: int) -> bool:
        seen = self.seen[partition]
        key = seen[offset][0]
        return key is not None and any(other == key and at > offset for at, (other, _) in seen.items())

    def is_done(self, partition: int, offset: int) -> bool:
        """Return whether a commit may mark an offset done (I1)."""
        if offset in self.acked[partition] or self.loaded[partition].done(offset):
            return True
        return self.seen[partition][offset][1] is None or self.is_superseded(partition, offset)

    def alive(self, partition: int) -> dict[bytes | int, int]:
        """Return the offset of the outstanding message of each lane."""
        seen = self.seen[partition]
        return {self.lane(partition, at)[1]: at for at in seen if not self.is_done(partition, at)}

    def lowest(self, partition: int) -> int | None:
        """Return the offset of the message that needs no room (I9).

        In place, the base may be the place of another one (R4), which waits for all acks to come before it gives way.
        """
        alive = self.alive(partition)
        if self.catches_up(partition) or not alive:
            return None
        base = self.ledger.assignment.base(partition)
        lowest = alive[self.lane(partition, base)[1]]
        newest_in_work = {item.offset for item in self.held if item.partition == partition} & set(alive.values())
        return None if lowest != base and newest_in_work else lowest

    def eligible(self) -> set[tuple[int, int]]:
        busy = {self.lane(item.partition, item.offset) for item in self.held}
        return {
            (partition, offset)
            for partition, target in self.targets.items()
            if self.read[partition] >= target
            for lane, offset in self.alive(partition).items()
            if (partition, lane) not in busy and (partition, offset) not in self.due
        }

    @invariant()
    def the_ledger_agrees_with_the_model(self) -> None:
        alive = {partition: self.alive(partition) for partition in self.targets}
        for partition in self.targets:
            lowest = min(alive[partition].values(), default=self.read[partition])
            base = self.ledger.assignment.base(partition)
            if self.catches_up(partition):  # then it may lag
                assert base <= lowest
            elif base < lowest:
                assert self.order == "in-place"
                assert self.lane(partition, base)[1] in alive[partition], "the base is the place of what is left"
            else:
                assert base == lowest
        assert self.ledger.assignment.outstanding == sum(map(len, alive.values()))
        assert self.ledger.in_work == len(self.held)
        fresh = sum(not self.is_superseded(item.partition, item.offset) for item in self.held)
        assert self.ledger.assignment.available == self.ledger.assignment.outstanding - fresh
        assert self.ledger.assignment.positions == self.read
        assert 0 <= self.ledger.assignment.gated <= self.ledger.assignment.available

    @invariant()
    def a_commit_of_now_would_be_true_and_short_enough(self) -> None:
        for partition in self.targets:
            leaving = [item for item in self.held if item.state is MessageState.LEAVING]
            for left in ([], leaving):
                claim = self.ledger.assignment.claim(partition, left)
                done = {item.offset for item in left if item.partition == partition}
                for offset in self.seen[partition]:
                    if claim.done(offset):
                        assert offset in done or self.is_done(partition, offset), "I1: nobody settled it"
                for offset in range(self.read[partition], self.ends[partition] + 3):
                    assert claim.done(offset) <= self.loaded[partition].done(offset), "I1: nobody has read it"
                if self.bounded and not self.ledger._partitions[partition].pending.places:  # which would give way
                    assert len(replace(claim, **FRAME).encode(1 << 30)) <= self.limit, "I9"

    def teardown(self) -> None:
        """Check G10: after a restart, every unsettled message is handed out."""
        expected = set()
        for partition in PARTITIONS:
            stored = CommitMap.decode(*self.committed[partition])
            newest = {
                offset if key is None else key: offset for offset, (key, _) in sorted(self.logs[partition].items())
            }
            for offset in newest.values():
                if self.logs[partition][offset][1] is None or stored.done(offset):
                    continue
                assert offset not in self.settled[partition], "a durable ack is forgotten"
                expected.add((partition, offset))
        self.new_life()
        for partition in PARTITIONS:
            self.read_on(partition=partition, count=1000)
        taken = set()
        while (item := self.ledger.acquire()) is not None:
            taken.add((item.partition, item.offset))
            self.ledger.ack(item)
        assert taken == expected


TestLedgerMachine = Consuming.TestCase
TestLedgerMachine.settings = settings(max_examples=examples(300), stateful_step_count=50, deadline=None)
