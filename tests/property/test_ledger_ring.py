"""The ledger of a ring against a model that looks at everything, over crashes and rebalances (R12)."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from tests.effort import examples
from tests.rules import new_ledger

KEYS = [b"a", b"b", b"c", b"d", b"e"]


class Stored(NamedTuple):
    """A record in the log."""

    key: bytes
    value: bytes | None
    priority: int

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"") + len(PRIORITY_HEADER) + 1


class Model:
    """A partition of a ring: what waits and what is in work, by key."""

    def __init__(self, log: list[Stored], share: Limits, *, ranked: bool) -> None:
        self.log = log
        self.share = share
        self.ranked = ranked
        self.waiting: dict[bytes, int] = {}
        self.in_work: dict[bytes, int] = {}
        self.newest = -1

    def load(self, claim: CommitMap) -> list[int]:
        for offset in range(claim.base, len(self.log)):
            self._fold(offset, done=claim.done(offset))
        return self.judge()

    def read(self, offset: int) -> list[int]:
        messages, size = self.depth
        self._fold(offset, done=False)
        evicted = self._evict_oversized()
        longer, larger = self.depth[0] > messages, self.depth[1] > size
        return evicted + self._evict_surplus(longer=longer, larger=larger)

    def _fold(self, offset: int, *, done: bool) -> None:
        key, value, _ = self.log[offset]
        self.in_work.pop(key, None)
        self.waiting.pop(key, None)
        if value is not None and not done:
            self.waiting[key] = offset

    def judge(self) -> list[int]:
        """Evict; return the offsets."""
        return self._evict_oversized() + self._evict_surplus(longer=True, larger=True)

    @property
    def depth(self) -> tuple[int, int]:
        held = [*self.waiting.values(), *self.in_work.values()]
        return len(held), sum(self.log[at].size for at in held)

    def _evict_oversized(self) -> list[int]:
        most = self.share.bytes
        evicted = [at for at in self.waiting.values() if most is not None and self.log[at].size > most]
        self._drop(evicted)
        self.newest = max([self.newest, *self.waiting.values()])
        return evicted

    def _evict_surplus(self, *, longer: bool, larger: bool) -> list[int]:
        """Evict what is beyond a limit by a measure that has grown."""
        evicted: list[int] = []
        messages, most = self.share.messages, self.share.bytes
        while (
            (longer and messages is not None and self.depth[0] > messages)
            or (larger and most is not None and self.depth[1] > most)
        ) and (rest := [at for at in self.waiting.values() if at != self.newest]):
            evicted.append(min(rest, key=self._precedence))
            self._drop(evicted[-1:])
        return evicted

    def _precedence(self, offset: int) -> tuple[int, int]:
        return (self.log[offset].priority if self.ranked else 0), offset

    def _drop(self, offsets: list[int]) -> None:
        for offset in offsets:
            del self.waiting[self.log[offset].key]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 30), st.integers(0, 9)),
        st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 3), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from(KEYS)),
        st.tuples(
            st.sampled_from(["take", "take", "ack", "release", "commit", "crash", "rebalance"]), st.integers(0, 9)
        ),
    ),
    max_size=60,
)
LIMITS = st.sampled_from(
    [
        Limits(policy="ring", messages=1),
        Limits(policy="ring", messages=3),
        Limits(policy="ring", bytes=50),
        Limits(policy="ring", messages=4, bytes=60),
    ]
)


@settings(deadline=None, max_examples=examples(400))
@given(STEPS, LIMITS, st.booleans())
def test_the_ledger_evicts_as_the_model_does(steps: list[tuple[object, ...]], limits: Limits, ranked: bool) -> None:
    log: list[Stored] = []
    stored = CommitMap(0)
    settled: set[int] = set()  # evicted, and so said by a commit that is stored
    order = "priority" if ranked else "tail"

    def begin() -> tuple[Ledger, Model, list[Item], set[int]]:
        ledger, model = new_ledger(limits=limits, order=order), Model(log, limits, ranked=ranked)
        ledger.assign(0, stored, len(log))
        for offset in range(stored.base, len(log)):
            offer(ledger, offset)
        ledger.advance({0: len(log)})
        return ledger, model, [], set(model.load(stored))

    def offer(ledger: Ledger, offset: int) -> None:
        key, value, priority = log[offset]
        ledger.offer(0, offset, key, value, headers=[(PRIORITY_HEADER, b"%d" % priority)])

    ledger, model, held, evicted = begin()
    before = 0
    for what, *how in steps:
        number = how[0] if isinstance(how[0], int) else 0
        gone: list[int] = []
        if what in ("put", "delete"):
            key = how[0]
            assert isinstance(key, bytes)
            is_update = key in model.waiting or key in model.in_work
            value = b"x" * how[1] if isinstance(how[-1], int) and isinstance(how[1], int) else None
            log.append(Stored(key, value, how[-1] if isinstance(how[-1], int) else 4))
            offer(ledger, len(log) - 1)
            gone = model.read(len(log) - 1)
            if is_update and limits.bytes is None:
                assert not gone, "an update has cost another key its value"
        elif what == "take":
            item = ledger.acquire()
            if item is not None:
                assert item.offset not in evicted | settled, "it was evicted"
                assert model.waiting.pop(item.lane) == item.offset  # type: ignore[arg-type]
                model.in_work[item.lane] = item.offset  # type: ignore[index]
                held.append(item)
        elif what in ("ack", "release") and held:
            item = held.pop(number % len(held))
            newest = model.in_work.get(item.lane) == item.offset  # type: ignore[call-overload]
            if newest:
                del model.in_work[item.lane]  # type: ignore[arg-type]
            if what == "ack":
                ledger.ack(item)
            else:
                ledger.release(item)
                if newest:
                    model.waiting[item.lane] = item.offset  # type: ignore[index]
                    gone = model.judge()
        elif what == "commit":
            stored = ledger.assignment.claim(0)
            settled |= evicted
        elif what in ("crash", "rebalance"):
            if what == "rebalance":
                ledger.end_locks([0])
                stored = ledger.assignment.claim(0)
                settled |= evicted
            ledger, model, held, evicted = begin()
            before = 0
            gone = []
        evicted |= set(gone)
        waits = {item.lane: item.offset for item in ledger._partitions[0].waiting.values()}
        assert waits == model.waiting
        assert settled.isdisjoint(waits.values()), "what a commit calls evicted waits again"
        assert ledger.stats.evicted >= before
        before = ledger.stats.evicted
        claim = ledger.assignment.claim(0)
        assert all(claim.done(offset) for offset in evicted)
        if limits.messages is not None and gone:
            assert len(waits) <= max(limits.messages - len(model.in_work), 1)
    assert ledger.stats.evicted == len(evicted)
