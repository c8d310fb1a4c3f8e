from __future__ import annotations

import io
import sys

import pytest

from lvq_kafka.embedded import download_bar, ensure_jars
from tests.unit.embedded.serving import FakeRepository


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A download takes long from its beginning."""
    monkeypatch.setattr(download_bar, "DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return what a user sees of standard error from here on; pytest replaces it before each phase of a test."""
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr


def test_a_long_download_shows_a_bar_and_removes_it(
    repository: FakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = terminal(monkeypatch)
    ensure_jars()
    assert "downloading: broker's jars" in seen.getvalue()
    assert "2/2" in seen.getvalue()
    assert seen.getvalue().endswith("\x1b[2K"), "the line is empty again"


def test_without_rich_it_shows_lines(repository: FakeRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    seen = terminal(monkeypatch)
    ensure_jars()
    assert seen.getvalue().splitlines() == [f"downloading: broker's jars: {done} of 2" for done in range(3)]


def test_a_short_download_shows_nothing(repository: FakeRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_bar, "DELAY", 60.0)
    seen = terminal(monkeypatch)
    ensure_jars()
    assert seen.getvalue() == ""


def test_nothing_is_shown_where_nobody_looks(
    repository: FakeRepository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ensure_jars()
    assert capsys.readouterr().err == ""


def test_a_wait_for_another_process_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_bar, "DELAY", 60.0)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    seen = terminal(monkeypatch)
    with download_bar.shown("broker's jars") as show:
        show("waiting for another download", 0, 2)
    assert seen.getvalue() == "waiting for another download: broker's jars: 0 of 2\n"
