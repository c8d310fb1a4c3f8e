"""A ledger that pages: the values in memory, and those on disk (R12)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.paging import LEAST_PAGED, PagedItem
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import PageUnreadable
from tests.page_store import Pages
from tests.rules import new_ledger
from tests.unit.core.queues import LedgerOfOne

SIZE = 1000


def value(text: str) -> bytes:
    return text.encode().ljust(SIZE, b".")


class Queue(LedgerOfOne):
    """A queue with limits beyond which values go to disk."""

    def __init__(self, limits: Limits | None = None, *, partitions: int = 1, **options: Any) -> None:
        self.pages = Pages()
        limits = limits or Limits(messages=2, policy="disk")
        super().__init__(CommitMap(0, partitions=partitions), limits=limits, pages=self.pages, **options)
        assert self.ledger.paging is not None
        self.paging = self.ledger.paging

    def send(self, *keys: str, content: bytes | None = None, headers: Any = None) -> None:
        for key in keys:
            body = value(f"{key}{self.end}") if content is None else content
            self.ledger.offer(0, self.end, key.encode(), body, headers=headers)
            self.end += 1
            self.ledger.advance({0: self.end})

    def delete(self, key: str) -> None:
        self.ledger.offer(0, self.end, key.encode(), None)
        self.end += 1

    @property
    def on_disk(self) -> list[int]:
        """Return the offsets of the messages whose values are on disk."""
        pending = self.ledger._partitions[0].pending
        paged = [item.offset for item in pending if isinstance(item, PagedItem) and item.page is not None]
        assert (self.paging.messages, self.paging.bytes) == (len(paged), sum(map(len, self.pages.live)))
        return paged


def test_new_values_beyond_the_limit_go_to_disk_and_come_back_when_they_are_handed_out() -> None:
    queue = Queue()
    queue.send("a", "b", "c", "d")
    assert queue.on_disk == [2, 3]
    taken = [queue.take() for _ in range(4)]
    assert [item.value for item in taken] == [value(text) for text in ("a0", "b1", "c2", "d3")]
    assert queue.on_disk == []
    assert not queue.pages.live


def test_a_value_is_read_again_for_whoever_needs_it_before() -> None:
    queue = Queue()
    queue.send("a", "b", "c")
    waiting = queue.ledger._partitions[0].waiting[b"c"]
    assert [waiting.value, waiting.value] == [value("c2")] * 2
    assert queue.on_disk == [2]


def test_memory_that_was_freed_is_used_for_new_values() -> None:
    queue = Queue()
    queue.send("a", "b", "c")
    queue.ledger.ack(queue.take())
    queue.send("d", "e")
    assert queue.on_disk == [2, 4]


def test_messages_in_work_count_until_they_are_done() -> None:
    queue = Queue()
    queue.send("a", "b")
    queue.take()
    queue.send("c")
    assert queue.on_disk == [2]


def test_bytes_are_those_of_the_values() -> None:
    queue = Queue(Limits(bytes=2 * SIZE, policy="disk"))
    queue.send("a" * 500, "b", "c", headers=[("x", b"y" * 500)])
    assert queue.on_disk == [2]


def test_each_partition_has_an_even_share() -> None:
    queue = Queue(Limits(messages=4, bytes=4 * SIZE, policy="disk"), partitions=4)
    queue.send("a", "b", "c")
    assert queue.on_disk == [1, 2]


def test_small_values_stay_in_memory_since_a_page_would_take_as_much() -> None:
    queue = Queue()
    queue.send("a", "b", "c", content=b"x" * (LEAST_PAGED - 1))
    assert queue.on_disk == []
    queue.send("d", content=b"x" * LEAST_PAGED)
    assert queue.on_disk == [3]


def test_a_newer_value_and_a_delete_drop_the_page() -> None:
    queue = Queue()
    queue.send("a", "b", "c", "d")
    queue.send("c")
    queue.delete("d")
    assert queue.on_disk == [4]
    assert queue.pages.live == [value("c4")]


def test_a_message_that_comes_back_may_go_to_disk_again() -> None:
    queue = Queue()
    queue.send("a", "b", "c")
    taken = [queue.take() for _ in range(3)]
    assert queue.on_disk == []
    queue.ledger.release(taken[2])
    assert queue.on_disk == [2]
    queue.ledger.ack(taken[0])
    queue.ledger.release(taken[1])
    assert queue.on_disk == [2]
    assert [queue.take().value for _ in range(2)] == [value("b1"), value("c2")]


def test_a_message_that_was_superseded_in_work_keeps_its_value_for_its_holder() -> None:
    queue = Queue()
    queue.send("a", "b", "c")
    held = [queue.take() for _ in range(3)][2]
    queue.send("c")
    assert held.value == value("c2")
    assert queue.on_disk == [3]
    queue.ledger.release(held)
    assert queue.take().value == value("c3")


def test_scheduled_messages_are_paged_too() -> None:
    queue = Queue(max_delay=100.0)
    queue.send("a", "b", headers=[(NOT_BEFORE_HEADER, b"50")])
    queue.send("c", "d", headers=[(NOT_BEFORE_HEADER, b"50")])
    queue.ledger.offer(0, 4, b"a", None, headers=[(NOT_BEFORE_HEADER, b"60")])
    assert queue.on_disk == [2, 3]
    queue.ledger.pass_time(0.055)
    assert [queue.take().value for _ in range(4)] == [value(text) for text in ("a0", "b1", "c2", "d3")]


def test_an_expired_message_is_read_from_disk_for_its_letter() -> None:
    queue = Queue(ttl=Ttl(default=1.0), expiry_topic="letters" if True else None)
    queue.send("a", "b", "c")
    queue.ledger.pass_time(2.0)
    assert queue.on_disk == [2]
    expired = queue.ledger.pop_expired(9)
    assert [item.value for item in expired] == [value(text) for text in ("a0", "b1", "c2")]
    for item in expired:
        queue.ledger.bury_expired(item)
    del item, expired
    assert queue.on_disk == []
    assert not queue.pages.live


def test_a_revoked_partition_leaves_nothing_on_disk() -> None:
    queue = Queue()
    queue.send("a", "b", "c", "d")
    queue.ledger.revoke([0])
    assert (queue.paging.messages, queue.paging.bytes) == (0, 0)
    assert not queue.pages.live


def test_a_value_that_cannot_be_written_stays_in_memory_and_is_counted() -> None:
    queue = Queue()
    queue.pages.full = True
    queue.send("a", "b", "c", "d")
    assert (queue.on_disk, queue.paging.refused) == ([], 2)
    queue.pages.full = False
    queue.send("e")
    assert queue.on_disk == [4]
    assert [queue.take().value for _ in range(5)] == [value(f"{key}{at}") for at, key in enumerate("abcde")]


def test_a_value_that_cannot_be_read_back_is_not_handed_out() -> None:
    queue = Queue()
    queue.send("a", "b", "c")
    taken = [queue.take(), queue.take()]
    queue.pages.damaged = True
    with pytest.raises(PageUnreadable):
        queue.ledger.acquire()
    assert (queue.ledger.in_work, queue.on_disk) == (2, [2])
    queue.ledger.ack(taken[0])
    queue.ledger.ack(taken[1])
    assert queue.ledger.assignment.claim(0).base == 2, "the next owner reads it from the log"


def test_while_a_partition_is_read_for_the_first_time_values_go_to_disk_as_well() -> None:
    pages = Pages()
    ledger = new_ledger(limits=Limits(messages=2, policy="disk"), pages=pages)
    ledger.assign(0, CommitMap(0), 9)
    for offset in range(5):
        ledger.offer(0, offset, b"%d" % offset, value(str(offset)))
    assert len(pages.live) == 3
    assert ledger.acquire() is None
