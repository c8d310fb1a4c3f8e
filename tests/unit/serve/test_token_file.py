"""The token file: it is read again when it changes, and a fault in it locks nobody out or in (R46)."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from lvq_kafka.errors import ConfigError
from lvq_kafka.serve import token_file
from lvq_kafka.serve.problems import HttpRefusal
from lvq_kafka.serve.token_file import TokenFile
from tests.clock import Clock
from tests.unit.serve.scenes import scene

OLD, NEW = "an-old-token-123456", "a-new-token-1234567"


class Kept:
    """A token file in a directory, and who looks at it."""

    def __init__(self, place: Path) -> None:
        self.path = place / "tokens"
        self.write(f"{OLD} prices\n")
        self.clock = Clock()
        self.file = TokenFile(self.path, lambda: self.clock.now)

    def write(self, text: str | bytes, mode: int = 0o600) -> None:
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.path.chmod(mode)

    def accepted(self) -> str:
        """Return the tokens that are accepted a second later."""
        self.clock.now += 1
        return " ".join(token for token in (OLD, NEW) if self.accepts(token))

    def accepts(self, token: str) -> bool:
        try:
            return self.file.current().bearer(f"Bearer {token}").rights.readable == {"prices"}
        except HttpRefusal:
            return False


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_r46_a_token_file_is_read_again_when_it_changes_at_most_once_a_second(kept: Kept) -> None:
    before = kept.file.current()
    assert kept.accepted() == OLD
    assert kept.file.current() is before
    kept.write(f"{NEW} prices\n")
    assert kept.accepts(OLD)
    assert kept.accepted() == NEW
    kept.path.write_text(f"{OLD} prices\n")  # in place, as long, perhaps within the same tick of the file system
    assert kept.accepted() == OLD


@pytest.mark.parametrize("fault", ["", "short prices", b"\xff", f"{NEW}", f"{NEW} prices\n{NEW} prices", None, "dir"])
def test_r46_a_fault_in_a_new_token_file_keeps_the_old_tokens_and_is_logged_once(
    kept: Kept, fault: str | bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    kept.path.unlink()
    if fault == "dir":
        kept.path.mkdir()
    elif fault is not None:
        kept.write(fault)
    assert [kept.accepted() for _ in range(3)] == [OLD] * 3
    (record,) = caplog.records
    assert record.getMessage().startswith("the tokens from before still count: ")
    assert (record.name, record.levelno) == ("lvq_kafka.serve", logging.WARNING)
    assert NEW not in caplog.text
    if fault == "dir":
        kept.path.rmdir()
    kept.write(f"{NEW} prices")
    assert kept.accepted() == NEW
    kept.path.unlink()
    assert kept.accepted() == NEW
    assert len(caplog.records) == 2, "it was right in between"


@pytest.mark.skipif(os.name != "posix", reason="the mode of a file")
def test_r46_a_token_file_that_others_can_read_is_logged_once(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    assert kept.accepted() == OLD
    assert caplog.records == []
    kept.path.chmod(0o644)
    for text in (f"{OLD} prices", f"{NEW} prices", f"{NEW} prices"):
        kept.write(text, 0o644)
        assert text.startswith(kept.accepted())
    (record,) = caplog.records
    assert "every user of this machine can read it. Run: chmod 600" in record.getMessage()
    assert len([TokenFile(kept.path) for _ in range(2)]) + 1 == len(caplog.records)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, f"{OLD} prices".encode())
    os.close(writing)
    clock = Clock()
    file = TokenFile(f"/dev/fd/{reading}", lambda: clock.now)
    clock.now += 2
    assert file.current().bearer(f"Bearer {OLD}").rights.readable == {"prices"}
    os.close(reading)


def test_a_token_file_may_come_from_an_editor_of_another_system(kept: Kept) -> None:
    kept.write(b"\xef\xbb\xbf" + f"{NEW} prices\r\n".encode())
    assert kept.accepted() == NEW


def test_a_token_file_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="is larger than"):
        TokenFile("/dev/zero")


async def test_r46_a_stream_ends_when_its_token_may_no_longer_read_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_file, "_EVERY", 0.0)
    path = tmp_path / "tokens"
    path.write_text(f"{OLD} prices\n{NEW} prices\n")
    path.chmod(0o600)
    events = "/v1/queues/prices/events"
    async with scene(token_file=path) as on:
        async with (
            on.client.stream(events, authorization=f"Bearer {OLD}") as old,
            on.client.stream(events, authorization=f"Bearer {NEW}") as new,
        ):
            for stream in (old, new):
                await stream.until("end-of-dump")
            path.write_text(f"{OLD} other\n{NEW} prices orders\n")
            with pytest.raises(EOFError):
                await old.event()
            on.put(IBM="119.00")
            assert (await new.event("value")).json["value"] == "119.00"
            path.write_text(f"{OLD} prices\n")
            with pytest.raises(EOFError):
                await new.event()
        assert (await on.client.get(events, authorization=f"Bearer {NEW}")).status == 401
