"""Pending offsets, compared with a model that remembers everything: the log, the acks and the superseded values."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.waiting.pending import Item, PendingList
from tests.effort import examples


class Model:
    """Every offset of one partition: pending, acked, or irrelevant (superseded, deleted or missing)."""

    def __init__(self, loaded: CommitMap, start: int) -> None:
        self.loaded = loaded
        self.pending = PendingList(loaded, start)
        self.start = start
        self.expected: dict[int, Item] = {}
        self.acked: set[int] = set()

    @property
    def position(self) -> int:
        return self.pending.position

    def read(self, gap: int) -> None:
        """Read a record after a gap of this many offsets."""
        offset = self.position + gap
        self.pass_over(offset)
        if not self.loaded.done(offset):
            self.expected[offset] = item = Item(0, offset, 0, None, b"", None, 0)
            self.pending.append(item)
        self.pending.position = offset + 1

    def skip(self, count: int) -> None:
        """Skip markers and holes."""
        self.pending.position += count
        self.pass_over(self.position - 1)

    def pass_over(self, offset: int) -> None:
        if offset >= self.pending.next_done:
            assert self.pending.pass_over(offset) > offset

    def pick(self, which: int) -> Item | None:
        return self.expected[sorted(self.expected)[which % len(self.expected)]] if self.expected else None

    def remove(self, item: Item, *, acked: bool) -> None:
        del self.expected[item.offset]
        if acked:
            self.acked.add(item.offset)
        self.pending.remove(item, acked=acked)

    def replace(self, item: Item) -> None:
        self.expected[item.offset] = twin = item.again()
        self.pending.replace(item, twin)

    def renew(self, item: Item, gap: int) -> None:
        """Read a newer value of the same key after a gap, past everything in the loaded commit."""
        offset = max(self.position, self.loaded.end) + gap
        del self.expected[item.offset]
        self.pending.renew(item, offset)
        self.expected[offset] = item
        self.pending.position = offset + 1

    def must_be_done(self, leaving: set[Item]) -> set[int]:
        """Return the acks, and those of the loaded commit, which were promised to last."""
        done = self.acked | {item.offset for item in leaving}
        return done | {offset for offset in range(self.start, self.loaded.end) if self.loaded.done(offset)}

    def must_be_pending(self, leaving: set[Item]) -> set[int]:
        """Return the offsets that are neither acked nor dead; of unread ones, all that the group had not done."""
        expected = {offset for offset, item in self.expected.items() if item not in leaving}
        expected |= {offset for offset in range(self.position, self.loaded.end) if not self.loaded.done(offset)}
        beyond = max(self.position, self.loaded.end)
        return expected | set(range(beyond, beyond + 20))

    def check(self, leaving: set[Item]) -> None:
        base, runs = self.pending.claim(leaving)
        claim = CommitMap(base, runs)
        expected, done = self.must_be_pending(leaving), self.must_be_done(leaving)
        assert base == min(expected), "the base is the lowest that is not done"
        assert not [offset for offset in expected if claim.done(offset)], "I1: claims what is not done"
        assert all(map(claim.done, done)), "an ack is forgotten"
        # Offsets that matter, in order: a run ends only where the next one is of the other kind.
        kinds = [offset in done for offset in sorted(done | expected) if base <= offset < claim.end]
        assert len(runs) == sum(a != b for a, b in zip(kinds, [*kinds[1:], None])), "a gap splits a run"
        assert claim.end == base or claim.done(claim.end - 1)
        assert CommitMap.decode(base, claim.encode(1 << 30)) == claim, "I11"
        if not leaving:
            if self.position >= self.loaded.end:
                assert self.pending.splits == len(runs) // 2
            assert list(self.pending) == [self.expected[offset] for offset in sorted(self.expected)]
            assert self.pending.count == len(self.expected)
            assert self.pending.base == min(self.expected, default=self.position)


WHICH = st.integers(0, 30)
GAPS = st.sampled_from([0, 0, 0, 1, 5])
STEPS = st.one_of(
    *[st.tuples(st.just("read"), GAPS)] * 4,
    *[st.tuples(st.just("ack"), WHICH)] * 2,
    st.tuples(st.just("supersede"), WHICH),
    st.tuples(st.just("replace"), WHICH),
    st.tuples(st.just("renew"), WHICH),
    st.tuples(st.just("skip"), GAPS),
)
MAPS = st.lists(st.integers(1, 4), max_size=8).map(lambda runs: CommitMap(3, tuple(runs[: len(runs) // 2 * 2])))


def play(model: Model, steps: list[tuple[str, int]]) -> None:
    for step, number in steps:
        item = model.pick(number)
        if step == "read":
            model.read(number)
        elif step == "skip":
            model.skip(number)
        elif item is None:
            continue
        elif step == "ack":
            model.remove(item, acked=True)
        elif step == "supersede":
            model.remove(item, acked=False)
        elif step == "replace":
            model.replace(item)
        elif model.position >= model.loaded.end:
            model.renew(item, number % 3)


@given(MAPS, st.integers(0, 6), st.lists(STEPS, min_size=30, max_size=50), st.sets(WHICH, max_size=6))
@settings(max_examples=examples(200))
def test_a_claim_is_true_complete_and_as_short_as_can_be(
    loaded: CommitMap, late: int, steps: list[tuple[str, int]], leaving: set[int]
) -> None:
    model = Model(loaded, loaded.base + late)
    for step in steps:
        play(model, [step])
        model.check(set())
    ordered = sorted(model.expected)
    model.check({model.expected[offset] for place, offset in enumerate(ordered) if place in leaving})


@given(st.lists(STEPS, min_size=25, max_size=40), st.lists(st.tuples(st.just("read"), GAPS), max_size=20))
@example([("read", 0)] * 30 + [("ack", 1)] * 29, [("read", 1)])  # in a long map, all is done except what has gone
def test_a_claim_holds_when_the_log_is_read_again_with_more_gaps(
    steps: list[tuple[str, int]], again: list[tuple[str, int]]
) -> None:
    model = Model(CommitMap(0), 0)
    play(model, steps)
    loaded = CommitMap(*model.pending.claim())
    reread = Model(loaded, loaded.base)
    play(reread, again)
    reread.check(set())
    claim = CommitMap(*reread.pending.claim())
    assert claim.covers(loaded), "less is claimed than before"
    assert len(claim.runs) <= len(loaded.runs) + 2 * (reread.position > loaded.end)


def test_an_ack_is_not_forgotten_when_the_message_before_it_goes() -> None:
    for how in ("supersede", "ack", "replace", "renew"):
        model = Model(CommitMap(0), 0)
        play(model, [("read", 0)] * 5)
        play(model, [("ack", 2), (how, 1)])
        model.check(set())
        play(model, [(how, 0), ("read", 0)])
        model.check(set())


def test_a_map_stays_short_however_much_is_acked_above_a_message() -> None:
    model = Model(CommitMap(0), 0)
    for _ in range(1000):
        model.read(1)
    while len(model.expected) > 1:
        item = model.pick(1)
        assert item is not None
        model.remove(item, acked=True)
    assert model.pending.claim() == (1, (1, 1998))
    assert model.pending.splits == 1


def test_nothing_refers_to_what_was_cleared() -> None:
    model = Model(CommitMap(0), 0)
    for _ in range(3):
        model.read(0)
    items = list(model.pending)
    model.pending.clear()
    assert not list(model.pending)
    assert all(item.before is None and item.after is None for item in items)
