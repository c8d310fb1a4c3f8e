"""The temporary files that a consumer pages values to."""

from __future__ import annotations

import errno
import os
import random
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lvq_kafka.consuming import page_file
from lvq_kafka.consuming.page_file import FilePage, PageFile
from lvq_kafka.errors import PageUnreadable
from tests.clock import Clock


@pytest.fixture
def lost() -> list[PageUnreadable]:
    """Return the errors that the file has reported."""
    return []


@pytest.fixture
def file(tmp_path: Path, lost: list[PageUnreadable]) -> Iterator[PageFile]:
    file = PageFile(str(tmp_path), lost.append)
    yield file
    file.close()


def written(file: PageFile, value: bytes) -> FilePage:
    page = file.write(value)
    assert page is not None
    return page


def descriptor(file: PageFile) -> int:
    """Return the descriptor of the only file."""
    (segment,) = file._segments
    return segment.file.fileno()


def test_nothing_is_opened_before_it_is_needed(file: PageFile) -> None:
    assert file.size == 0
    assert not file._segments


def test_values_come_back_as_they_were(file: PageFile) -> None:
    values = [os.urandom(length) for length in (0, 1, 255, 256, 1000, 65_537)]
    pages = [written(file, value) for value in values]
    assert [page.read() for page in reversed(pages)] == values[::-1]
    assert [page.length for page in pages] == [len(value) for value in values]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere, the file has a name until it is closed")
def test_nobody_else_can_open_the_file_and_a_crash_leaves_nothing(file: PageFile, tmp_path: Path) -> None:
    written(file, b"secret")
    assert list(tmp_path.iterdir()) == []
    found = os.fstat(descriptor(file))
    assert (found.st_nlink, stat.S_IMODE(found.st_mode)) == (0, 0o600)


def test_the_room_of_dropped_pages_is_used_again(file: PageFile) -> None:
    pages = [written(file, bytes([number]) * 1000) for number in range(10)]
    size = file.size
    for number in range(100, 150):
        del pages[0]
        pages.append(written(file, bytes([number]) * (1000 + number % 20)))
    assert file.size == size
    assert [page.read()[0] for page in pages] == list(range(140, 150))


def test_a_file_without_pages_is_closed_at_the_next_look(file: PageFile) -> None:
    pages = [written(file, b"x" * 1000) for _ in range(3)]
    file.trim()
    assert file.size > 0
    pages.clear()
    file.trim()
    assert (file.size, file._segments) == (0, [])
    assert written(file, b"again").read() == b"again"


def test_files_are_limited_in_size_unless_a_value_is_larger(file: PageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_file, "_SEGMENT", 4096)
    small = [written(file, b"x" * 1000) for _ in range(10)]
    large = written(file, b"y" * 10_000)
    assert [segment.pages for segment in file._segments] == [4, 4, 2, 1]
    del small[4:8]
    file.trim()
    assert [segment.pages for segment in file._segments] == [4, 2, 1]
    assert large.read() == b"y" * 10_000
    assert all(page.read() == b"x" * 1000 for page in small)


def test_pages_are_never_mixed_up(file: PageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_file, "_SEGMENT", 20_000)
    dice, pages = random.Random(7), dict[int, tuple[FilePage, bytes]]()
    for number in range(2990):
        value = b"%d" % number * dice.randrange(1, 300)
        pages[number] = written(file, value), value
        for gone in dice.sample(sorted(pages), min(len(pages), dice.randrange(3))):
            page, value = pages.pop(gone)
            assert page.read() == value
        if not number % 50:
            file.trim()
        if not number % 500:
            pages.clear()
    assert all(page.read() == value for page, value in pages.values())
    assert pages
    pages.clear()
    del page, value
    file.trim()
    assert file.size == 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(page_file, "time", SimpleNamespace(monotonic=clock))
    return clock


class Broken:
    """A file that fails with this error, after it has written a part."""

    def __init__(self, error: OSError, *, partly: bool = False) -> None:
        self.error = error
        self.partly = partly
        self.closed = False
        self.tries = 0

    def seek(self, at: int) -> int:
        return at

    def write(self, content: bytes) -> int:
        if self.partly:
            self.partly = False
            return len(content) - 1
        self.tries += 1
        raise self.error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("partly", [False, True])
def test_a_full_disk_is_reported_with_a_remedy_and_tried_again_later(
    file: PageFile, clock: Clock, monkeypatch: pytest.MonkeyPatch, partly: bool, tmp_path: Path
) -> None:
    broken = Broken(OSError(errno.EFBIG, "File too large"), partly=partly)
    monkeypatch.setattr(page_file, "TemporaryFile", lambda **_: broken)
    assert file.write(b"1") is None
    assert file.write(b"2") is None
    assert broken.tries == 1, "each try may take long"
    assert str(tmp_path) in file.failure
    assert "File too large" in file.failure
    assert "page_directory or TMPDIR" in file.failure
    clock.now += 1.1
    file._segments.clear()
    monkeypatch.undo()
    monkeypatch.setattr(page_file, "time", SimpleNamespace(monotonic=clock))
    assert written(file, b"3").read() == b"3"
    assert file.failure == ""


def test_a_value_that_is_written_in_parts_comes_back_whole(file: PageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    page = written(file, b"1" * 1000)
    raw = file._segments[0].file

    class InParts:
        def __getattr__(self, name: str) -> Any:
            return getattr(raw, name)

        def write(self, content: bytes) -> int:
            return raw.write(content[:300])

    file._segments[0].file = InParts()  # type: ignore[assignment]
    parts = written(file, b"2" * 1000)
    assert (page.read(), parts.read()) == (b"1" * 1000, b"2" * 1000)


def test_too_many_open_files_have_a_remedy_of_their_own(file: PageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(page_file, "TemporaryFile", refused)
    assert file.write(b"1") is None
    assert file.failure.endswith("Too many open files. Raise the limit of open files")


def test_a_relative_directory_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pages").mkdir()
    monkeypatch.chdir(tmp_path)
    file = PageFile("pages", lambda _: None)
    monkeypatch.chdir("/")
    assert file.directory == tmp_path / "pages"
    assert written(file, b"1").read() == b"1"
    file.close()


def test_a_failure_is_over_when_nothing_is_left_to_write(
    file: PageFile, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_file, "TemporaryFile", lambda **_: Broken(OSError("broken")))
    assert file.write(b"1") is None
    clock.now += 10
    file.trim()
    assert file.failure
    clock.now += 2
    file.trim()
    assert file.failure == ""


def test_without_any_directory_values_stay_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere(*_: object, **__: object) -> Any:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(page_file, "gettempdir", nowhere)
    monkeypatch.setattr(page_file, "TemporaryFile", nowhere)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    file = PageFile(None, lambda _: None)
    assert file.write(b"1") is None
    assert f"cannot be written to {tmp_path}: No usable temporary directory found" in file.failure


@pytest.mark.parametrize("damage", ["changed", "cut off"])
def test_a_damaged_page_is_an_error_and_never_another_value(
    file: PageFile, lost: list[PageUnreadable], damage: str
) -> None:
    page = written(file, b"x" * 1000)
    if damage == "changed":
        os.pwrite(descriptor(file), b"y", 500)
    else:
        os.ftruncate(descriptor(file), 500)
    with pytest.raises(PageUnreadable, match="it is not what was written") as caught:
        page.read()
    assert lost == [caught.value]
    assert "a new consumer reads it from the log" in str(caught.value)


def test_an_input_error_is_the_cause(file: PageFile, lost: list[PageUnreadable], tmp_path: Path) -> None:
    page = written(file, b"x" * 1000)
    (segment,) = file._segments
    actual, segment.file = segment.file, open(os.devnull, "wb", buffering=0)  # noqa: SIM115
    actual.close()
    with pytest.raises(PageUnreadable, match="not open for reading") as caught:
        page.read()
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value.__cause__, OSError)
    assert (caught.value.path, lost) == (tmp_path, [caught.value])


def test_after_the_end_nothing_is_written_and_nothing_reported(file: PageFile, lost: list[PageUnreadable]) -> None:
    page = written(file, b"1")
    file.close()
    assert file.write(b"2") is None
    assert file.failure == ""
    with pytest.raises(PageUnreadable):
        page.read()
    assert lost == []
    del page
    file.trim()
    file.close()
