"""The live board in a real browser: what it shows, when it says that this is old, by keyboard, on a phone (R47)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.serve import app, token_file
from lvq_kafka.testing import MemoryCluster
from tests.browser import Browser, Page, open_browser
from tests.listening import CutLine, listening
from tests.unit.serve.scenes import values_of
from tests.waiting import eventually

IN_TIME = 15.0
"""Seconds within which the board shows that nobody answers."""

ROWS = """[...document.querySelectorAll("#space .row")]
    .sort((one, other) => one.ariaRowIndex - other.ariaRowIndex)
    .map((row) => [...row.children].map((cell) => cell.textContent))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


class Shown:
    """A queue in memory that is served with a board, over a line."""

    def __init__(self, browser: Browser, opened: ExitStack, **options: Any) -> None:
        self._browser = browser
        self._opened = opened
        self.cluster = MemoryCluster()
        self.view: Any = opened.enter_context(
            values_of(self.cluster, TEXT).view(metadata_interval=0.05, undecodable="raw")
        )
        self.app = app(self.view, board=True, **options)
        self.line = opened.enter_context(CutLine(opened.enter_context(listening(self.app))))
        opened.callback(self.app.end_streams)
        self.address = f"http://127.0.0.1:{self.line.port}/"

    def put(self, key: str, value: str | None) -> None:
        self.cluster.write("prices", key.encode(), None if value is None else value.encode())

    def open(self, **options: Any) -> Page:
        page = self._browser.page(self.address, **options)
        self._opened.callback(page.close)
        return page


@pytest.fixture
def showing(browser: Browser) -> Iterator[Callable[..., Shown]]:
    with ExitStack() as opened:
        yield lambda **options: Shown(browser, opened, **options)


def rows(page: Page) -> list[list[str]]:
    """Return the rows of the board that are in the page: key, value, age."""
    found: list[list[str]] = page.run(ROWS)
    return found


def test_r47_the_board_shows_values_and_counts_each_update(showing: Callable[..., Shown]) -> None:
    on = showing()
    for number in range(20):
        on.put(f"k{number:02}", "0")
    page = on.open()
    page.shows("#state", "Caught up")
    page.shows("#keys", "20")
    assert page.text("#changes") == "0", "what was there is no change"
    for number in range(300):
        on.put(f"k{number % 100:02}x{number // 100}", str(number))
    page.shows("#changes", "300")
    on.put("k00", None)
    page.shows("#changes", "301")
    gone = next(row for row in rows(page) if row[0] == "k00")
    assert gone == ["k00", "0", "deleted"], "what is gone stays in sight for a moment"
    eventually(lambda: "k00" not in [key for key, _, _ in rows(page)])
    on.put("k01", "new")
    assert eventually(lambda: page.run("document.querySelector('.row.changed')?.innerText.includes('new')"))
    eventually(lambda: not page.run("document.querySelector('.row.changed')"))
    page.shows("#keys", "319")
    assert [row[:2] for row in rows(page)][:3] == [["k00x0", "0"], ["k00x1", "100"], ["k00x2", "200"]]
    assert page.faults == []


def test_g4_r47_the_board_shows_within_15_seconds_that_nobody_answers(showing: Callable[..., Shown]) -> None:
    on = showing()
    on.put("IBM", "118.50")
    page = on.open()
    page.shows("#state", "Caught up")
    assert page.run("document.body.dataset.mood") == "good"
    for breaks, mends, state, what in (
        (on.cluster.disconnect, on.cluster.reconnect, "Disconnected", "The server cannot reach Kafka."),
        (on.line.refuse, on.line.mend, "Cut off", "This page cannot reach its server."),
        (on.line.fall_dumb, on.line.mend, "Cut off", "This page cannot reach its server."),
    ):
        begun = time.monotonic()
        breaks()
        page.shows("#state", state, IN_TIME)
        assert time.monotonic() - begun < IN_TIME
        assert page.text("#what").startswith(f"{what} These values are as of")
        assert page.run("document.title").endswith(f"{state} · prices")
        assert page.run("document.body.dataset.mood") == "bad"
        assert rows(page)[0][:2] == ["IBM", "118.50"], "old values stay"
        mends()
        page.shows("#state", "Caught up")
        assert page.run("document.title") == "prices · lvq"
    page.run("globalThis.requestAnimationFrame = () => 0")  # as in a tab that nobody looks at
    on.cluster.disconnect()
    assert eventually(lambda: page.run("document.title").endswith("Disconnected · prices"), IN_TIME)
    assert page.faults == []


def test_g1_r47_the_board_shows_that_a_view_was_never_complete(browser: Browser, showing: Callable[..., Shown]) -> None:
    cluster = MemoryCluster()
    queue = values_of(cluster)
    with ExitStack() as opened, ExitStack() as transaction:
        producer = opened.enter_context(queue.producer(transactional_id="t"))
        transaction.enter_context(producer.transaction())
        producer.put("IBM", "1")
        view = queue.view(metadata_interval=0.05).start()
        opened.callback(view.close)
        served = app(view, board=True)
        port = opened.enter_context(listening(served))
        opened.callback(served.end_streams)
        with browser.page(f"http://127.0.0.1:{port}/") as page:
            page.shows("#state", "Not complete: blocked")
            page.shows("#why", "hides later records")
            assert page.text("#none") == "There is nothing to show yet."
            assert (page.text("#keys"), page.run("document.body.dataset.mood")) == ("–", "warn")
            transaction.close()
            page.shows("#state", "Caught up")
            assert rows(page)[0][:2] == ["IBM", "1"]


def test_r47_a_client_in_a_browser_that_is_cut_off_a_hundred_times_has_what_the_view_has_each_time(
    showing: Callable[..., Shown],
) -> None:
    on = showing()
    page = on.open()
    page.shows("#state", "Caught up")
    page.run(
        """const { follow } = await import("/lvq.js");
        globalThis.prices = follow("prices", { pause: 0.005, longestPause: 0.05 });"""
    )
    for number in range(100):
        on.put(f"k{number % 13}", str(number))
        on.put(f"k{number % 5}", None)
        if number % 4 == 0:
            on.line.limits = [number * 7, number * 31]
        on.line.cut()
        on.put(f"k{number % 7}", f"{number} again")
        on.view.barrier(10)
        wanted = json.dumps(dict(sorted(on.view.items())))
        held = """JSON.stringify([prices.state,
            Object.fromEntries([...prices.entries].map(([key, { value }]) => [key, value]).sort())])"""
        eventually(lambda wanted=wanted, held=held: json.loads(page.run(held)) == ["caught-up", json.loads(wanted)], 20)
    page.run("prices.close()")
    page.shows("#state", "Caught up", 30)
    assert eventually(lambda: {key: value for key, value, _ in rows(page)} == dict(on.view))
    assert page.faults == []


def test_r47_the_board_works_by_keyboard_alone(showing: Callable[..., Shown]) -> None:
    on = showing()
    for number in range(200):
        on.put(f"k{number:03}", f"value {number}")
    page = on.open()
    page.shows("#keys", "200")
    focus = "document.activeElement.id"
    page.press("Tab")
    assert page.run(focus) == "filter"
    page.press("Tab", "Tab")
    assert page.run(focus) == "grid"
    page.press("ArrowDown", "ArrowDown")
    page.shows("#space .chosen .key", "k001")
    page.press("End")
    page.shows("#space .chosen .key", "k199")
    page.press("PageUp", "Home", "ArrowUp")
    page.shows("#space .chosen .key", "k000")
    active = "document.getElementById(grid.getAttribute('aria-activedescendant'))?.innerText"
    assert eventually(lambda: "k000" in (page.run(active) or ""))
    page.press("Enter")
    page.shows("#details-value", "value 0")
    on.put("k000", "newer")
    page.shows("#details-value", "newer")
    on.put("k000", None)
    page.shows("#details-state", "This key has no value any more")
    page.press("Escape")
    assert not page.run("details.open")
    assert page.run(focus) == "grid"
    page.press("/")
    assert page.run(focus) == "filter"
    page.write("VALUE 15")
    page.shows("#shown", "11 of 199")
    page.press("ArrowDown", "ArrowDown", "Enter")
    page.shows("#details-key", "k150")
    page.press("Escape", "/", "Escape")
    assert page.run("filter.value") == ""
    page.press("Escape")
    assert page.run(focus) == "grid"
    assert page.faults == []


def test_r47_the_board_fits_a_phone(showing: Callable[..., Shown]) -> None:
    on = showing()
    on.put("a-long-key-" * 20, "a long value " * 200)
    for number in range(50):
        on.put(f"k{number:03}", f"value {number}")
    page = on.open(width=375, height=667)
    page.shows("#keys", "51")
    assert page.run("document.documentElement.scrollWidth") == 375
    assert page.run("grid.scrollWidth - grid.clientWidth") == 0
    sizes = "[...document.querySelectorAll('button, input, select')].map((each) => each.getBoundingClientRect())"
    seen = page.run(f"{sizes}.filter(({{ width }}) => width).map(({{ height, right }}) => [height, right])")
    assert seen
    assert all(height >= 44 and right <= 375 for height, right in seen)
    page.click("#space .row:nth-child(2)")
    page.shows("#details-value", "value 0")
    assert page.run("details.getBoundingClientRect().width") <= 375
    page.click("#close")
    on.line.refuse()
    page.shows("#state", "Cut off")
    assert page.run("document.documentElement.scrollWidth") == 375
    assert page.faults == []


def test_r47_ten_thousand_keys_stay_usable_as_only_rows_in_sight_are_in_the_page(
    showing: Callable[..., Shown],
) -> None:
    on = showing()
    for number in range(10_000):
        on.put(f"k{number:05}", f"value {number}")
    page = on.open()
    page.shows("#keys", "10,000")
    assert len(rows(page)) < 60
    page.run("grid.scrollTop = grid.scrollHeight")
    assert eventually(lambda: rows(page)[-1][0] == "k09999")
    assert len(rows(page)) < 60
    page.press("/")
    page.write("value 4321")
    page.shows("#shown", "1 of 10,000")
    assert [row[:2] for row in rows(page)] == [["k04321", "value 4321"]]
    page.run(
        "order.value = 'newest'; order.dispatchEvent(new Event('change')); filter.value = '';"
        "filter.dispatchEvent(new Event('input'))"
    )
    on.put("k05000", "newest")
    assert eventually(lambda: rows(page)[0][:2] == ["k05000", "newest"])
    assert page.faults == []


def test_r47_a_value_that_looks_like_markup_is_text(showing: Callable[..., Shown]) -> None:
    on = showing()
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    on.cluster.write("prices", evil.encode(), evil.encode(), [(evil, evil.encode())])
    on.cluster.write("prices", b"", b"of the empty key")
    on.cluster.write("prices", b"\xff\x00k", b"\xfe\xff")
    on.cluster.write("prices", "turned\u202ekey".encode(), "two\nlines\u202e".encode())
    page = on.open()
    page.shows("#keys", "4")
    assert sorted(row[:2] for row in rows(page)) == sorted(
        [
            [evil, evil],
            ["(empty key)", "of the empty key"],
            ["\\xff\\x00k", "fe ff"],
            ["turned\\u202ekey", "two ⏎ lines\\u202e"],
        ]
    )
    for row in range(1, 5):
        page.click(f"#space .row:nth-child({row})")
        assert eventually(lambda: page.run("details.open"))
        page.press("Escape")
    page.run(f"filter.value = {json.dumps(evil + 'x')}; filter.dispatchEvent(new Event('input'))")
    page.shows("#none", "No key or value contains")
    assert page.run("document.querySelectorAll('img, body script').length") == 0
    assert page.faults == []
    page.run("try { document.body.innerHTML = 'x' } catch {}")
    assert "This document requires 'TrustedHTML'" in "".join(page.faults), "the policy holds, too"
    assert page.text("#state") == "Caught up"


def test_r47_characters_that_nobody_sees_are_escaped_on_the_board(showing: Callable[..., Shown]) -> None:
    """Keys that differ in one of them only do not look the same."""
    on = showing()
    unseen = (
        "\x00\x9f\xad\u034f\u0600\u061c\u115f\u180e\u200b\u200d\u2028\u202e\u2060\u3164\ufe0f\ufeff\ufff9\U000e0041"
    )
    shown = [f"\\x{ord(each):02x}" if each < "\x80" else f"\\u{ord(each):04x}" for each in unseen[:-1]] + ["\\u{e0041}"]
    on.put("seen é\u0301 ☃ 😀", "seen é\u0301 ☃ 😀")
    for each in unseen:
        on.cluster.write("prices", f"IBM{each}".encode(), f"1{each}".encode(), [(f"h{each}", f"v{each}".encode())])
    page = on.open()
    page.shows("#keys", str(len(unseen) + 1))
    wanted = [["seen é\u0301 ☃ 😀"] * 2, *([f"IBM{each}", f"1{each}"] for each in shown)]
    assert sorted(row[:2] for row in rows(page)) == sorted(wanted)
    page.press("/", "Escape", "Home", "Enter")
    page.shows("#details-key", "IBM\\x00")
    page.shows("#details-value", "1\\x00")
    page.shows("#details-facts", "h\\x00 v\\x00")
    assert page.faults == []


def test_r46_r47_the_board_asks_for_a_token_and_keeps_it_in_the_tab_only(
    showing: Callable[..., Shown], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("reader-of-prices-1 prices\nreader-of-other-12345 other\n")
    on = showing(token_file=tmp_path / "tokens")
    on.put("IBM", "118.50")
    page = on.open()
    page.shows("#ask", "This server asks for a token")
    assert page.run("document.activeElement.id") == "token"
    page.write("reader-of-nothing-1")
    page.press("Enter")
    page.shows("#ask-why", "The bearer token is not known here.")
    page.write("reader-of-other-12345")
    page.press("Enter")
    page.shows("#what", "This token may not read any queue here.")
    page.click("#forget")
    page.shows("#ask", "This server asks for a token")
    page.write("reader-of-prices-1")
    page.press("Enter")
    page.shows("#state", "Caught up")
    assert rows(page)[0][:2] == ["IBM", "118.50"]
    page.go(on.address)
    page.shows("#state", "Caught up")
    asked = "JSON.stringify([location.href, performance.getEntriesByType('resource').map(({ name }) => name)])"
    assert "reader-of" not in page.run(asked)
    assert page.run("[localStorage.length, document.cookie, sessionStorage.length]") == [0, "", 1]
    page.click("#forget")
    page.shows("#ask", "This server asks for a token")
    assert page.run("[sessionStorage.length, document.querySelectorAll('.row').length]") == [0, 0]
    other = on.open()
    other.shows("#ask", "This server asks for a token")
    assert page.faults == []


def test_r46_r47_the_board_tries_a_queue_again_that_it_was_refused_and_shows_its_values_as_old_until_then(
    showing: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(token_file, "_EVERY", 0.0)
    tokens = tmp_path / "tokens"
    tokens.write_text("reader-of-prices-1 prices\n")
    on = showing(token_file=tokens)
    on.put("IBM", "118.50")
    page = on.open()
    page.shows("#ask", "This server asks for a token")
    page.write("reader-of-prices-1")
    page.press("Enter")
    page.shows("#state", "Caught up")
    tokens.write_text("reader-of-prices-1 other\n")
    page.shows("#state", "Refused")
    page.shows("#what", "These values are as of")
    page.shows("#why", "does not allow to read 'prices'")
    assert rows(page)[0][:2] == ["IBM", "118.50"]
    on.put("IBM", "119.00")
    tokens.write_text("reader-of-prices-1 prices\n")
    page.click("#retry")
    page.shows("#state", "Caught up")
    page.shows("#space .row .value", "119.00")
    assert page.faults == []


def test_the_board_shows_one_of_several_queues_and_an_empty_one_as_empty(browser: Browser) -> None:
    cluster = MemoryCluster()
    with ExitStack() as opened:
        views = []
        for name in ("first", "second"):
            queue = LastValueQueue.declare(name, key_header="k", value=TEXT, cluster=cluster)
            views.append(opened.enter_context(queue.view()))
        cluster.write("first", b"a", b"1")
        served = app(*views, board=True)
        port = opened.enter_context(listening(served))
        opened.callback(served.end_streams)
        with browser.page(f"http://127.0.0.1:{port}/#second") as page:
            page.shows("#none", "No key has a value.")
            page.shows("#state", "Caught up")
            assert page.run("document.getElementById('queue').value") == "second"
            page.run("location.hash = 'first'")
            page.shows("#keys", "1")
            assert rows(page)[0][:2] == ["a", "1"]
            assert page.run("document.getElementById('queue').value") == "first"
            assert page.faults == []
