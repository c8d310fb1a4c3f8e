from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka import embedded
from lvq_kafka.embedded import BrokerStatus
from lvq_kafka.errors import JavaNotFound
from tests.unit.cli.conftest import Run

STATUS = BrokerStatus(
    pid=7, port=9093, data_dir=Path("/data"), temporary=False, log_path=Path("/log"), started_at=1732205000.0
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def start(**options: Any) -> BrokerStatus:
        options.pop("progress")("jars", 1, 2)
        calls.append(options)
        return STATUS

    monkeypatch.setattr(embedded, "start_daemon", start)
    monkeypatch.setattr(embedded, "stop_daemon", lambda: STATUS)
    monkeypatch.setattr(embedded, "daemon_status", lambda: STATUS if calls else None)
    return calls


def test_start_passes_its_options_on_and_says_where_the_broker_is(run: Run, calls: list[dict[str, Any]]) -> None:
    row = run("broker", "start", "--port", "0", "--data-dir", "d", "--heap", "1g", "--timeout", "9").row
    assert row == {
        "bootstrap_servers": "127.0.0.1:9093",
        "running": True,
        "started": True,
        "pid": 7,
        "port": 9093,
        "data_dir": "/data",
        "temporary": False,
        "log_path": "/log",
        "started_at": 1732205000.0,
    }
    assert calls == [{"port": None, "data_dir": Path("d"), "heap": "1g", "startup_timeout": 9.0}]
    assert run("broker", "start").row["started"] is False
    assert calls[1] == {"port": 9092, "data_dir": None, "heap": "512m", "startup_timeout": 60.0}


def test_a_person_is_told_where_it_is_and_what_becomes_of_its_data(run: Run, calls: list[dict[str, Any]]) -> None:
    text = run("broker", "start", person=True).text
    assert text.startswith("✓ Kafka runs at 127.0.0.1:9093\n")
    assert "data in /data, kept" in text
    assert "process 7, since 2024-11-2" in text
    again = run("broker", "start", person=True).text
    assert again.startswith("✓ Kafka runs already at 127.0.0.1:9093\n")
    assert run("broker", "stop", person=True).text == "✓ Kafka has stopped at 127.0.0.1:9093\n"


def test_status_and_stop_say_what_is_running(run: Run, calls: list[dict[str, Any]]) -> None:
    run("broker", "start")
    assert run("broker", "status").row["running"] is True
    assert run("broker", "stop").row["running"] is False


def test_logs_prints_the_last_lines_of_the_log(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("".join(f"line {number} of Kafka\n" for number in range(5_000)) + "\x1b[31mred\n")
    monkeypatch.setattr(embedded, "daemon_status", lambda: replace(STATUS, log_path=log))
    assert run("broker", "logs", "-n", "2", person=True).text == "line 4999 of Kafka\n\\x1b[31mred\n"
    assert run("broker", "logs", "-n", "1").row == {"line": "\x1b[31mred"}
    assert len(run("broker", "logs").rows) == 50
    assert len(run("broker", "logs", "-n", "9999").rows) == 5_001
    assert run("broker", "logs", "-n", "0").rows == []
    log.unlink()
    gone = run("broker", "logs")
    assert (gone.code, "broker.log" in gone.stderr) == (2, True)


def test_without_a_broker_status_and_stop_end_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "stop_daemon", lambda: None)
    monkeypatch.setattr(embedded, "daemon_status", lambda: None)
    for command in ("status", "stop", "logs"):
        ran = run("broker", command)
        assert ran.code == 1
        assert ran.stdout == b""
        assert "broker" in ran.stderr


def test_a_broker_that_cannot_start_ends_with_3_and_the_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(**_: object) -> None:
        raise JavaNotFound("No Java was found.", hint="Install one.")

    monkeypatch.setattr(embedded, "start_daemon", start)
    ran = run("broker", "start")
    assert ran.code == 3
    assert ran.stderr == "lvq: No Java was found. Install one.\n"
