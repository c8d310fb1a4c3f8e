"""Views and browsers that nobody closes: they end with the last reference to them, and say so."""

from __future__ import annotations

import gc
import threading
from contextlib import AbstractContextManager

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    queue = LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster, value=TEXT)
    with queue.producer() as producer:
        producer.put("a", "1")
    return queue


def left_behind() -> AbstractContextManager[object]:
    return pytest.warns(ResourceWarning, match=r"unclosed reader of prices: .* opened at .*test_unclosed_readers\.py:")


def at_work() -> list[str]:
    """Return the threads that read, observe or browse."""
    names = ("lvq-read-", "lvq-observe-", "lvq-browse-")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


@pytest.mark.parametrize("undecodable", ["raise", "skip"])
def test_a_view_that_is_left_behind_ends_and_says_so(
    queue: LastValueQueue[str], caplog: pytest.LogCaptureFixture, undecodable: str
) -> None:
    view = queue.view(undecodable=undecodable, metadata_interval=0.05).open()  # type: ignore[arg-type]
    assert view["a"] == "1"
    with left_behind():
        del view
    eventually(lambda: at_work() == [])
    assert "closing a reader of prices, which was dropped without being closed" in caplog.text


def test_a_browser_that_is_left_behind_ends_too(queue: LastValueQueue[str]) -> None:
    browser = queue.browser(refresh=0.01, metadata_interval=0.05)
    assert next(browser)
    with left_behind():
        del browser
        eventually(lambda: gc.collect() >= 0 and at_work() == [])


def test_a_view_lives_as_long_as_its_watches(queue: LastValueQueue[str]) -> None:
    watch = queue.view(metadata_interval=0.05).open().watch()
    gc.collect()
    with queue.producer() as producer:
        producer.put("a", "2")
    event = watch.poll(10)
    assert event is not None
    with left_behind():
        del watch
    eventually(lambda: at_work() == [])


def test_one_that_was_closed_or_never_opened_is_left_without_a_word(queue: LastValueQueue[str]) -> None:
    view = queue.view()
    del view
    with queue.view() as view, queue.browser() as browser:
        assert next(browser)
    del view, browser
    gc.collect()
