"""A ledger by rank against a model that sorts all that waits (R20).

Within the window, the next message is always the one of the lowest rank, and of these the oldest, whatever was
superseded, released, delayed, scheduled or expired before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER, QueueOrder
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.core.waiting.ready_queue import TRIED_OFTEN
from tests.effort import examples
from tests.rules import new_ledger

HEADER: dict[QueueOrder, str] = {"priority": PRIORITY_HEADER, "sorted": SORT_HEADER}
ORDERS = st.sampled_from(list(HEADER))
RANKS = st.sampled_from([None, b"0", b"4", b"5", b"9", b"x"])
KEYS = st.sampled_from([None, b"a", b"b", b"c", b"d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), KEYS, RANKS, st.sampled_from(["now", "now", "now", "delete", "later", "ttl"])),
        st.tuples(st.sampled_from(["take", "take", "ack", "ack", "release", "delay", "time"]), st.integers(0, 9)),
    ),
    min_size=20,
    max_size=60,
)


@dataclass
class Model:
    """Everything that was sent, and what has become of it, in the plainest form."""

    order: QueueOrder
    time: int = 0  # ms
    sent: list[tuple[bytes | None, bytes | None, str]] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)  # ms, when it was sent
    done: set[int] = field(default_factory=set)
    held: dict[int, Item] = field(default_factory=dict)
    until: dict[int, float] = field(default_factory=dict)  # seconds, of delays
    tried: dict[int, int] = field(default_factory=dict)
    place: dict[int, int] = field(default_factory=dict)  # of arrival, or since it is due

    def rank(self, offset: int) -> object:
        text = self.sent[offset][1]
        if self.order == "sorted":
            return (text is not None, text or b"")
        return -int(text) if text is not None and text.isdigit() else -4

    def counts(self, offset: int) -> bool:
        return self.sent[offset][2] != "later" or self.time >= self.at[offset] + 1000

    def newest(self, offset: int) -> bool:
        key = self.sent[offset][0]
        return key is None or not any(
            at > offset and self.sent[at][0] == key and self.counts(at) for at in range(len(self.sent))
        )

    def waiting(self) -> list[int]:
        busy = {self.sent[offset][0] for offset in self.held} - {None}
        return [
            offset
            for offset, (key, _, kind) in enumerate(self.sent)
            if kind != "delete"
            and offset not in self.done
            and offset not in self.held
            and key not in busy
            and self.counts(offset)
            and self.newest(offset)
            and not (kind == "ttl" and self.time > self.at[offset] + 500)
            and self.until.get(offset, 0.0) <= self.time / 1000
        ]

    def best(self) -> int | None:
        return min(self.waiting(), key=lambda offset: (self.rank(offset), self.place[offset]), default=None)


class Run:
    def __init__(self, order: QueueOrder, *, conflate: bool, counted: bool) -> None:
        self.model = Model(order)
        self.ledger = new_ledger(
            order=order,
            ttl=Ttl(),
            max_delay=3600.0,
            conflate=conflate,
            count_deliveries=counted,
        )
        self.ledger.assign(0, CommitMap(0), 0)
        self.conflate = conflate
        self.places = iter(range(1 << 30))

    def send(self, key: bytes | None, rank: bytes | None, kind: str) -> None:
        model, offset = self.model, len(self.model.sent)
        kind = "now" if kind == "delete" and (key is None or not self.conflate) else kind
        headers: list[tuple[str, bytes | None]] = [] if rank is None else [(HEADER[model.order], rank)]
        headers += [("lvq-not-before", b"%d" % (model.time + 1000))] if kind == "later" else []
        headers += [(TTL_HEADER, b"500")] if kind == "ttl" else []
        model.sent.append((key if self.conflate else None, rank, kind))
        model.at[offset] = model.time
        if kind != "later":
            model.place[offset] = next(self.places)
        self.ledger.offer(0, offset, key, None if kind == "delete" else b"v", model.time, headers)
        self.ledger.advance({0: offset + 1})

    def pass_time(self) -> None:
        model = self.model
        before = [offset for offset in range(len(model.sent)) if model.counts(offset)]
        model.time += 400
        for offset in range(len(model.sent)):
            if model.counts(offset) and offset not in before:
                model.place[offset] = next(self.places)
        self.ledger.pass_time(model.time / 1000)
        self.ledger.wake(model.time / 1000)

    def take(self) -> None:
        model = self.model
        item = self.ledger.acquire()
        waiting = model.waiting()
        if item is None:
            assert not waiting
            return
        assert item.offset in waiting
        fresh = [offset for offset in waiting if model.tried.get(offset, 0) < TRIED_OFTEN]
        often = [offset for offset in waiting if offset not in fresh]
        if item.offset in often:
            assert model.rank(item.offset) == min(model.rank(offset) for offset in often)
        else:
            assert item.offset == min(fresh, key=lambda offset: (model.rank(offset), model.place[offset]))
        if not often:
            assert item.offset == model.best()
        model.held[item.offset] = item
        model.tried[item.offset] = model.tried.get(item.offset, 0) + 1

    def settle(self, step: str, which: int) -> None:
        model = self.model
        if not model.held:
            return
        offset = sorted(model.held)[which % len(model.held)]
        item = model.held.pop(offset)
        if step == "ack":
            self.ledger.ack(item)
            model.done.add(offset)
        elif step == "release":
            self.ledger.release(item)
        else:
            self.ledger.release(item, model.time / 1000 + 1)
            model.until[offset] = model.time / 1000 + 1
        if step != "ack" and not (model.newest(offset) and offset in model.place):
            model.done.add(offset)
        if model.sent[offset][2] == "ttl" and model.time > model.at[offset] + 500:
            model.done.add(offset)
        self.ledger.pass_time(model.time / 1000)


@pytest.mark.parametrize("conflate", [True, False])
@given(order=ORDERS, counted=st.booleans(), steps=STEPS)
@settings(deadline=None, max_examples=examples(200))
def test_the_next_message_is_the_lowest_by_rank_and_arrival(
    conflate: bool, order: QueueOrder, counted: bool, steps: list[tuple]
) -> None:
    run = Run(order, conflate=conflate, counted=counted)
    for step, *how in steps:
        if step == "send":
            run.send(*how)
        elif step == "time":
            run.pass_time()
        elif step == "take":
            run.take()
        else:
            run.settle(step, *how)
    assert run.ledger.stats.out_of_order == 0
    assert run.ledger.ranking is not None
    if order == "priority":
        offered = sum(rank == b"x" and kind != "delete" for _, rank, kind in run.model.sent)
        assert run.ledger.ranking.malformed == offered, "each is counted once"
