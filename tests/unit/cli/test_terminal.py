"""The output on a real terminal, and the effect of Ctrl-C."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.terminal import Terminal, terminal

PROGRAM = str(Path(__file__).with_name("memory_lvq.py"))


def lvq(*arguments: str, **size: Any) -> AbstractContextManager[Terminal]:
    return terminal([PROGRAM, *arguments], **size)


def test_the_board_shows_values_and_lights_up_what_changes() -> None:
    with lvq("watch", "prices") as screen:
        screen.read_until("prices", "2 values", "live", "KEY", "IBM", "118.50", r"MSFT +\d+\.00 ▲")
        assert "\x1b[1;30;42m" in screen.raw  # bright on green
        assert screen.interrupt() == 130
        assert "Traceback" not in screen.text


def test_the_board_fits_the_terminal() -> None:
    with lvq("watch", "prices", rows=8) as screen:
        screen.read_until("IBM", r"MSFT +\d+\.00 ▲")
        assert screen.interrupt() == 130
    with lvq("watch", "prices", rows=6) as screen:
        screen.read_until("and 2 more keys", "live")
        assert screen.interrupt() == 130


def test_a_terminal_that_cannot_go_back_gets_the_changes_line_by_line() -> None:
    with lvq("watch", "prices", kind="dumb") as screen:
        screen.read_until(r"KEY +VALUE.*IBM +118\.50.*2 values; following updates.*MSFT +4\d\d\.00.*MSFT +4")
        assert screen.interrupt() == 130
    assert "\x1b" not in screen.raw


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["browse", "prices", "--follow"], ["KEY.*IBM.*2 values; following updates.*MSFT +4"]),
        (["browse", "prices", "--updates-only"], ["MSFT.*MSFT"]),
        (["consume", "prices"], ["IBM.*MSFT.*MSFT"]),
        (["watch", "prices", "--json"], ['"event": "end-of-dump".*"key": "MSFT"']),
        (["watch", "prices", "--json", "--previous", "--every", "0.01"], ['"previous": {"key": "MSFT"']),
        (["watch", "prices", "--json", "--changed"], ['"event": "end-of-dump".*"key": "MSFT"']),
        (["watch", "prices", "--since", '{"0": 1}'], [r"KEY.*MSFT.*following updates.*MSFT +4"]),
    ],
    ids=lambda part: part[0] if part[0].islower() else "",
)
def test_ctrl_c_ends_what_goes_on_without_a_complaint(arguments: list[str], shown: list[str]) -> None:
    with lvq(*arguments) as screen:
        screen.read_until(*shown)
        assert screen.interrupt() == 130
        assert "Traceback" not in screen.text
        assert "lvq:" not in screen.text
        assert "Aborted" not in screen.text


def test_one_who_consumes_is_told_what_is_waited_for_and_at_the_end_how_many_there_were() -> None:
    with lvq("consume", "prices") as screen:
        screen.read_until("waiting for messages; Ctrl-C stops.*IBM.*MSFT")
        assert screen.interrupt() == 130
        rows = len(re.findall(r"^(?:IBM|MSFT) ", screen.text, re.MULTILINE))
        told = re.search(r"(\d+) messages? consumed\s*$", screen.text)
        assert told is not None
        assert int(told[1]) in (rows, rows - 1), "the last one may have been shown, and not acked yet"


def test_drop_asks_a_person() -> None:
    with lvq("drop", "prices") as screen:
        screen.read_until(r"Its topic prices stays, and what was consumed comes again .* queue prices\? \[y/N\]")
        screen.type("n\n")
        assert screen.wait() == 1
        assert "lvq: Nothing was deleted." in screen.text


def test_a_terminal_gets_tables_and_a_pipe_gets_json_lines() -> None:
    with lvq("get", "prices", "IBM") as screen:
        assert screen.wait() == 0
        assert screen.text.strip() == "118.50"
    piped = subprocess.run([sys.executable, PROGRAM, "get", "prices", "IBM"], capture_output=True, check=True)
    assert piped.stdout.startswith(b'{"key": "IBM", "value": "118.50"')
    assert piped.stderr == b""


def test_a_user_who_named_a_wrong_port_sees_the_address_that_is_waited_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nothing listens on it
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        with terminal(["-m", "lvq_kafka", "get", "prices", "IBM", "-b", servers]) as screen:
            screen.read_until(f"connecting to {servers} …")  # it gives up after ten seconds
            assert screen.interrupt() == 130
        assert screen.text.count("Traceback") == 0


def test_a_reader_that_goes_away_ends_the_run_silently() -> None:
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "browse", "prices", "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline().startswith(b'{"key": "IBM"')
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.stderr.close()


def test_a_reader_of_positions_that_goes_away_leaves_a_word_about_what_was_sent() -> None:
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "put", "prices", "--from-jsonl", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(b'{"key": "IBM", "value": "1"}\n')
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"key": "IBM", "position"')
        process.stdout.close()
        process.stdin.write(b'{"key": "IBM", "value": "2"}\n')
        process.stdin.flush()
        assert process.wait(30) == 141
        said = b"lvq: warning: stopped after 2 messages for prices; the rest was not sent\n"
        assert process.stderr.read() == said
    finally:
        process.kill()
        process.stdin.close()
        process.stderr.close()


def test_ctrl_c_ends_a_run_that_waits_for_stdin() -> None:
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "put", "prices", "--from-jsonl", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(b'{"key": "IBM", "value": "1"}\n')
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"key": "IBM", "position"')
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        _, errors = process.communicate()
    assert errors == b""
