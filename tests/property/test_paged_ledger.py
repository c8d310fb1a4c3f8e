"""A ledger that pages values to disk hands out the same as one that keeps all in memory (R12)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.ledger.paging import LEAST_PAGED, PagedItem, PagedPartition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from tests.effort import examples
from tests.page_store import Pages
from tests.rules import new_ledger

GROUP = "g"
KEYS = st.sampled_from([None, b"a", b"b", b"c", b"d"])
WHEN = st.sampled_from(["now", "now", "now", "later", "soon gone", "delete"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), KEYS, st.integers(0, 9), st.sampled_from([10, LEAST_PAGED, 900]), WHEN),
        st.tuples(st.just("send"), KEYS, st.integers(0, 9), st.sampled_from([10, LEAST_PAGED, 900]), WHEN),
        st.tuples(st.sampled_from(["take", "take", "ack", "release", "delay", "time", "letters"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["disk full", "disk empty", "rebalance"]), st.integers(0, 9)),
    ),
    min_size=10,
    max_size=60,
)
LIMITS = st.sampled_from(
    [
        Limits(policy="disk", messages=1),
        Limits(policy="disk", messages=3),
        Limits(policy="disk", bytes=1),
        Limits(policy="disk", bytes=2000),
        Limits(policy="disk", messages=4, bytes=2500),
    ]
)
OPTIONS = st.fixed_dictionaries(
    {
        "order": st.sampled_from(["tail", "in-place", "priority"]),
        "conflate": st.booleans(),
        "grouped": st.booleans(),
        "timed": st.booleans(),
        "count_deliveries": st.booleans(),
    }
)


def ledger_with(paged: tuple[Limits, Pages] | None, options: dict[str, Any]) -> Ledger:
    order, timed = options["order"], options["timed"]
    limits, pages = (None, None) if paged is None else paged
    return new_ledger(
        order=order,
        conflate=options["conflate"] or order == "in-place",
        groups=Groups(header=GROUP) if options["grouped"] else None,
        ttl=Ttl() if timed else None,
        max_delay=100.0 if timed else None,
        expiry_topic="letters" if timed else None,
        count_deliveries=options["count_deliveries"],
        limits=limits,
        pages=pages,
    )


class Consumer:
    """A consumer of a log, by the ledger alone."""

    def __init__(self, paged: tuple[Limits, Pages] | None, options: dict[str, Any]) -> None:
        self.ledger = ledger_with(paged, options)
        self.stored = CommitMap(0)
        self.log: list[tuple[bytes | None, bytes | None, Any]] = []
        self.held: list[Item] = []
        self.now = 0
        self.begin()

    def begin(self) -> None:
        self.ledger.assign(0, self.stored, len(self.log))
        for offset in range(self.stored.base, len(self.log)):
            self.offer(offset)
        self.ledger.advance({0: len(self.log)})

    def offer(self, offset: int) -> None:
        key, value, headers = self.log[offset]
        self.ledger.offer(0, offset, key, value, 0, headers)

    def step(self, what: str, how: tuple[Any, ...]) -> object:
        """Take a step; return all that can be seen of it."""
        ledger, held = self.ledger, self.held
        if what == "send":
            self.send(*how)
        elif what == "take":
            item = ledger.acquire()
            if item is not None:
                held.append(item)
                return item.offset, item.key, item.value, tuple(item.headers or ()), item.deliveries, item.redelivered
        elif what in ("ack", "release", "delay") and held:
            item = held.pop(how[0] % len(held))
            if what == "ack":
                ledger.ack(item)
            else:
                ledger.release(item, self.now / 1000 + 0.3 if what == "delay" else None)
        elif what == "time":
            self.now += 100 * how[0]
            ledger.wake(self.now / 1000)
            ledger.pass_time(self.now / 1000)
        elif what == "letters":
            letters = [(item, item.value) for item in ledger.pop_expired(1000)]
            for item, _ in letters:
                ledger.bury_expired(item)
            return sorted((item.offset, value) for item, value in letters)  # they come in any order
        elif what == "rebalance":
            ledger.end_locks([0])
            self.stored = ledger.assignment.claim(0)
            ledger.revoke([0])
            held.clear()
            self.begin()
        return None

    def send(self, key: bytes | None, priority: int, length: int, when: str) -> None:
        value = None if when == "delete" else b"%d" % len(self.log) * length
        headers = [(PRIORITY_HEADER, b"%d" % priority), (GROUP, b"%d" % (priority % 3))]
        if when == "later":
            headers.append((NOT_BEFORE_HEADER, b"%d" % (self.now + 500)))
        if when == "soon gone":
            headers.append((TTL_HEADER, b"%d" % (self.now + 400)))
        self.log.append((key, value, headers))
        self.offer(len(self.log) - 1)
        self.ledger.advance({0: len(self.log)})


@settings(deadline=None, max_examples=examples(400))
@given(STEPS, LIMITS, OPTIONS)
def test_a_paged_ledger_hands_out_the_same(
    steps: list[tuple[Any, ...]], limits: Limits, options: dict[str, Any]
) -> None:
    pages = Pages()
    plain, paged = Consumer(None, options), Consumer((limits, pages), options)
    paging = paged.ledger.paging
    assert paging is not None
    most_messages, most_bytes = limits.messages or 1 << 30, limits.bytes or 1 << 30
    refused = 0
    for what, *how in steps:
        if what.startswith("disk"):
            pages.full = what == "disk full"
            continue
        assert paged.step(what, tuple(how)) == plain.step(what, tuple(how))
        assert paged.ledger.stats == plain.ledger.stats
        assert paged.ledger.assignment.claim(0) == plain.ledger.assignment.claim(0)
        part = paged.ledger._partitions[0]
        pending, pages_of_part = part.pending, part.features[-1]
        assert isinstance(pages_of_part, PagedPartition)
        on_disk = [item for item in pending if isinstance(item, PagedItem) and item.page is not None]
        in_memory = [item.value for item in pending if isinstance(item, PagedItem) and item.page is None]
        assert (paging.messages, paging.bytes) == (len(on_disk), sum(map(len, pages.live)))
        assert len(pages.live) == len(on_disk), "what nobody can get is still on disk"
        assert (pages_of_part.messages, pages_of_part.bytes) == (len(in_memory), sum(map(len, in_memory)))
        refused += paging.refused
        if not refused:
            waiting = [item.value for item in pending if item.page is None and item.state == "available"]  # type: ignore[attr-defined]
            large = [value for value in waiting if len(value) >= LEAST_PAGED]
            assert len(large) <= most_messages
            assert sum(map(len, large)) <= most_bytes
