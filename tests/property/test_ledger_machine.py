"""A state machine drives the ledger and a naive model side by side, over a log that is compacted in between.

The model is the contract in its plainest form: the log as a list, a set of what is done for good, a set of what is
acknowledged in this life. The group's durable state is the committed base alone.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.lifecycle import State
from lvq_kafka.errors import AlreadySettled, LockLost

PARTITIONS = (0, 1)
PARTITION = st.sampled_from([0, 0, 0, 1])
KEYS = st.sampled_from([b"a", b"a", b"b"])
DELETES = st.sampled_from([False, False, False, True])
STEPS = ["acquire", "acquire", "acquire", "ack", "release", "reject"]
RARELY = st.sampled_from([False, False, True])


class Consuming(RuleBasedStateMachine):
    """One consumer of two partitions that loses, regains and crashes; offsets never repeat, records can vanish."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, dict[int, tuple[bytes, bytes | None]]] = {partition: {} for partition in PARTITIONS}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.durable_newest: dict[tuple[int, bytes], int] = {}
        self.settled: dict[int, set[int]] = {partition: set() for partition in PARTITIONS}
        self.new_life()

    def new_life(self) -> None:
        self.ledger = Ledger()
        self.assigned: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.handed_out = 0
        self.held: list[Item] = []
        self.gone: list[Item] = []
        self.seen: dict[int, dict[int, tuple[bytes, bytes | None]]] = {}
        self.acked: dict[int, set[int]] = defaultdict(set)
        self.count: dict[tuple[int, int], int] = defaultdict(int)
        for partition in PARTITIONS:
            self.assign(partition=partition)

    # --- the world --------------------------------------------------------------------------------------------------

    @rule(partition=PARTITION, records=st.lists(st.tuples(KEYS, DELETES), min_size=1, max_size=3), unread=RARELY)
    def produce(self, partition: int, records: list[tuple[bytes, bool]], unread: bool) -> None:
        for key, delete in records:
            offset = self.ends[partition]
            self.logs[partition][offset] = (key, None if delete else b"%d" % offset)
            self.ends[partition] = offset + 1
        if not unread:
            self.read_on(partition=partition, count=100)

    @rule(partition=PARTITION, keep=st.sets(st.integers(0, 40)))
    def mark_and_compact(self, partition: int, keep: set[int]) -> None:
        self.ends[partition] += 1
        log = self.logs[partition]
        newest = {key: offset for offset, (key, _) in log.items()}
        self.logs[partition] = {
            offset: (key, value)
            for offset, (key, value) in log.items()
            if newest[key] == offset or offset in keep or offset % 3 == 0
        }

    # --- the group --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.handed_out >= 3)
    @rule(partition=PARTITION, event=st.sampled_from(["revoke", "drop", "crash"]))
    def lose(self, partition: int, event: str) -> None:
        if event == "crash":
            self.new_life()
        elif partition in self.assigned:
            self.revoke(partition, last_commit=event == "revoke")

    @rule(partition=PARTITION)
    def assign(self, partition: int) -> None:
        if partition not in self.assigned:
            base = self.committed[partition]
            self.ledger.assign(partition, base, self.ends[partition])
            self.assigned[partition] = self.ends[partition]
            self.read[partition] = base
            self.seen[partition] = {}
            self.acked[partition] = set()
            for offset in range(self.ends[partition]):
                self.count[partition, offset] = 0

    @rule(partition=PARTITION)
    def commit(self, partition: int) -> None:
        if partition in self.assigned:
            base = self.ledger.base(partition)
            assert base >= self.committed[partition], "the commit went back"
            for offset in self.seen[partition]:
                if offset < base:
                    assert self.is_done(partition, offset), f"the commit claims {offset}, which nobody settled (G10)"
            self.committed[partition] = base
            durable = {offset for offset in self.acked[partition] if offset < base}
            self.settled[partition] |= durable
            for offset in durable:
                key = self.seen[partition][offset][0]
                self.durable_newest[partition, key] = max(offset, self.durable_newest.get((partition, key), -1))

    def revoke(self, partition: int, *, last_commit: bool) -> None:
        if last_commit:
            self.ledger.withhold([partition])
            while (item := self.ledger.acquire()) is not None:
                assert item.partition != partition, "handed out something of a partition that is about to go"
                self.held.append(item)
                self.count[item.partition, item.offset] += 1
            self.commit(partition=partition)
        mine = [item for item in self.held if item.partition == partition]
        assert sorted(item.offset for item in self.ledger.revoke([partition])) == sorted(i.offset for i in mine)
        self.held = [item for item in self.held if item.partition != partition]
        self.gone += mine
        del self.assigned[partition], self.read[partition]

    @rule(partition=PARTITION, count=st.integers(1, 2))
    def read_on(self, partition: int, count: int) -> None:
        if partition not in self.assigned:
            return
        position = self.read[partition]
        ahead = sorted(offset for offset in self.logs[partition] if offset >= position)
        for offset in ahead[:count]:
            key, value = self.logs[partition][offset]
            self.ledger.offer(partition, offset, key, value)
            self.seen[partition][offset] = (key, value)
            position = offset + 1
        if len(ahead) <= count:
            position = self.ends[partition]
        self.ledger.advance({partition: position})
        self.read[partition] = position

    # --- the holders ------------------------------------------------------------------------------------------------

    @rule(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), min_size=1, max_size=4))
    def work(self, steps: list[tuple[str, int]]) -> None:
        for step, which in steps:
            if step == "acquire":
                self.acquire()
            elif self.held and which < 5:
                self.settle(self.held[which % len(self.held)], step)
            elif self.gone:
                self.settle_again(self.gone[which % len(self.gone)], step)

    def acquire(self) -> None:
        item = self.ledger.acquire()
        if item is None:
            assert not self.eligible(), "something could be handed out and was not"
            return
        partition, offset, key = item.partition, item.offset, item.key
        assert key is not None
        assert (partition, offset) in self.eligible()
        assert not any((i.partition, i.key) == (partition, key) for i in self.held), "two values of a key in work (G13)"
        assert offset not in self.settled[partition], "a durably acknowledged message came again (G11)"
        assert offset >= self.durable_newest.get((partition, key), -1), "stepped back behind a durable ack (G12)"
        self.count[partition, offset] += 1
        assert item.deliveries == self.count[partition, offset]
        self.held.append(item)
        self.handed_out += 1

    def settle(self, item: Item, outcome: str) -> None:
        superseded = self.is_superseded(item.partition, item.offset)
        getattr(self.ledger, outcome)(item)
        self.held.remove(item)
        self.gone.append(item)
        if outcome != "release":
            self.acked[item.partition].add(item.offset)
        else:
            assert item.state is (State.SUPERSEDED if superseded else State.RELEASED)

    def settle_again(self, item: Item, outcome: str) -> None:
        try:
            getattr(self.ledger, outcome)(item)
        except LockLost:
            assert item.state is State.LOST
        except AlreadySettled:
            assert item.state is not State.LOST
        else:
            raise AssertionError("a handle was good for two settlements")

    # --- the contract, naively --------------------------------------------------------------------------------------

    def is_superseded(self, partition: int, offset: int) -> bool:
        seen = self.seen[partition]
        return any(key == seen[offset][0] and at > offset for at, (key, _) in seen.items())

    def is_done(self, partition: int, offset: int) -> bool:
        value = self.seen[partition][offset][1]
        return value is None or offset in self.acked[partition] or self.is_superseded(partition, offset)

    def alive(self, partition: int) -> dict[bytes, int]:
        """By key, the offset of the message that is outstanding."""
        seen = self.seen[partition]
        return {key: at for at, (key, _) in seen.items() if not self.is_done(partition, at)}

    def eligible(self) -> set[tuple[int, int]]:
        busy = {(item.partition, item.key) for item in self.held}
        return {
            (partition, offset)
            for partition, target in self.assigned.items()
            if self.read[partition] >= target
            for key, offset in self.alive(partition).items()
            if (partition, key) not in busy
        }

    @invariant()
    def the_ledger_agrees_with_the_model(self) -> None:
        alive = {partition: self.alive(partition) for partition in self.assigned}
        for partition in self.assigned:
            lowest = min(alive[partition].values(), default=self.read[partition])
            assert self.ledger.base(partition) == lowest
        assert self.ledger.outstanding == sum(map(len, alive.values()))
        assert self.ledger.in_work == len(self.held)
        fresh = sum(not self.is_superseded(item.partition, item.offset) for item in self.held)
        assert self.ledger.available == self.ledger.outstanding - fresh
        assert self.ledger.positions == self.read
        assert min(self.ledger.available, self.ledger.in_work, self.ledger.outstanding) >= 0

    def teardown(self) -> None:
        """G10: whatever was never settled is handed out in the next life."""
        expected = {}
        for partition in PARTITIONS:
            newest = {key: offset for offset, (key, _) in sorted(self.logs[partition].items())}
            for offset in newest.values():
                if self.logs[partition][offset][1] is not None and offset not in self.settled[partition]:
                    if offset >= self.committed[partition]:
                        expected[partition, offset] = True
                    else:
                        raise AssertionError(f"offset {offset} of partition {partition} is lost (G10)")
        self.new_life()
        for partition in PARTITIONS:
            self.read_on(partition=partition, count=1000)
        taken = set()
        while (item := self.ledger.acquire()) is not None:
            taken.add((item.partition, item.offset))
            self.ledger.ack(item)
        assert taken == set(expected)


TestLedgerMachine = Consuming.TestCase
TestLedgerMachine.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
