"""G3, the newest value comes last. Readers may skip earlier ones; memory is bounded by the number of keys."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from lvq_kafka import Deleted, EndOfDump, Entry, LastValueQueue
from tests.integration.guarantees.conftest import QueueOf
from tests.integration.guarantees.writing import put, ticking
from tests.waiting import eventually


def test_g3_a_browser_that_does_not_read_is_given_each_key_once_with_its_newest_value(
    queue: LastValueQueue[str],
) -> None:
    def key(number: int) -> str:
        return f"k{number % 50}"

    with ticking(queue, key, limit=50) as ticker:
        ticker.await_count(50)
    with queue.browser() as browser:
        with ticking(queue, key, limit=20_000) as ticker:  # before the dump is read
            ticker.await_count(20_000)
            last = ticker.stop()
        *dump, end = browser.drain()
        assert isinstance(end, EndOfDump)
        assert {event.key: int(event.value) for event in dump if isinstance(event, Entry)} == last
        assert len(dump) == 50
        with ticking(queue, key, limit=20_000) as ticker:  # while it waits for updates
            ticker.await_count(20_000)
            last = ticker.stop()
        updates = browser.drain()
        assert {event.key: int(event.value) for event in updates if isinstance(event, Entry)} == last
        assert len(updates) == 50


def test_g3_the_memory_of_a_slow_browser_is_bounded_by_the_keys(queue: LastValueQueue[str]) -> None:
    value = "x" * 10_000
    with queue.browser() as browser, queue.producer() as producer:
        for key in range(20):
            producer.put(key, value)
        producer.flush(30)
        browser.drain()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(2000):
                producer.put(number % 20, value)
                if number % 100 == 99:
                    producer.flush(30)
            eventually(lambda: browser.lag == 0)
            after = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert len(browser.drain()) == 20
    # 20 MB were written, of which 0.2 MB are current. The reading thread may hold one batch.
    assert after - before < 3_000_000


def test_g3_a_reader_that_cannot_keep_up_skips_values_and_ends_with_the_newest(queue_of: QueueOf) -> None:
    queue = queue_of(3)
    with (
        ticking(queue, limit=10_000) as ticker,
        queue.browser() as browser,
        queue.view() as view,
        view.watch(dump=True) as watch,
    ):
        seen: dict[Callable[[], object], dict[str, int]] = {browser.poll: {}, watch.poll: {}}
        count = 0
        while ticker.running:  # one event of each reader for every hundred messages
            count += 1
            ticker.await_count(min(100 * count, 10_000))
            for reader in (browser, watch):
                event = reader.poll(0)
                if isinstance(event, Entry):
                    seen[reader.poll][event.key] = int(event.value)
        last = ticker.stop()
        view.barrier(60)  # it may lag itself, on a busy machine
        for reader in (browser, watch):
            for event in reader.drain():
                if isinstance(event, Entry):
                    seen[reader.poll][event.key] = int(event.value)
        assert list(seen.values()) == [last, last]


def test_g3_a_slow_callback_is_called_with_the_newest_value_in_the_end(queue: LastValueQueue[str]) -> None:
    called: list[tuple[str, int]] = []
    with ticking(queue, limit=5000) as ticker, queue.view() as view:

        def callback(event: object) -> None:
            assert isinstance(event, Entry)
            ticker.await_count(min(5000, 50 * len(called)))  # much slower than the producer
            called.append((event.key, int(event.value)))

        view.on_change(callback)
        ticker.await_count(5000)
        last = ticker.stop()
        eventually(lambda: dict(called) == last, 30)
    assert len(called) < 1000


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and put again"])
def test_g3_a_key_that_changes_before_its_turn_in_the_dump_is_told_as_it_is_then(
    queue: LastValueQueue[str], again: bool
) -> None:
    put(queue, a="1", b="1", c="1")
    with queue.browser() as browser:
        assert browser.poll(10) is not None
        put(queue, b=None, c="2")
        if again:
            put(queue, b="3")
        rest = browser.drain()
    told = [(event.key, event.value) if isinstance(event, Entry) else event for event in rest]
    b = [("b", "3")] if again else []
    assert told == [*b, ("c", "2"), EndOfDump({0: 3})]
    assert Deleted("b") not in rest
