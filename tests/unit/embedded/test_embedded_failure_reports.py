from __future__ import annotations

import os
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from lvq_kafka.embedded import failure_reports
from lvq_kafka.embedded.ports import free_ports, is_free
from lvq_kafka.errors import BrokerStartFailed, DiskFull

KAFKA_DIED = """\
2026-01-01 ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)
java.lang.RuntimeException: wrapped
\tat kafka.Kafka.main(Kafka.java)
Caused by: org.apache.kafka.common.config.ConfigException: Invalid value abc for configuration num.io.threads: Not a no.
\t... 5 more
"""

Usage = namedtuple("Usage", "total used free")


def test_the_deepest_cause_is_what_kafka_said(tmp_path: Path) -> None:
    error = failure_reports.explain("It ended.", log_path=Path("/the/log"), log=KAFKA_DIED, directory=tmp_path)
    assert isinstance(error, BrokerStartFailed)
    assert 'Kafka said: "Invalid value abc for configuration num.io.threads: Not a no."' in str(error)
    assert "/the/log" in str(error)
    assert error.log == KAFKA_DIED


def test_a_complaint_of_java_is_quoted_by_its_first_line(tmp_path: Path) -> None:
    log = "Invalid maximum heap size: -Xmxfoo\nError: Could not create the Java Virtual Machine.\n"
    error = failure_reports.explain("It ended.", log_path=Path("/the/log"), log=log, directory=tmp_path)
    assert 'Java said: "Invalid maximum heap size: -Xmxfoo"' in str(error)


def test_an_empty_log_is_not_quoted(tmp_path: Path) -> None:
    error = failure_reports.explain("It ended.", log_path=Path("/the/log"), log="", directory=tmp_path)
    assert str(error) == "It ended. Its log is in /the/log."


def test_a_full_disk_is_recognised_in_the_log(tmp_path: Path) -> None:
    log = "java.io.IOException: No space left on device"
    error = failure_reports.explain("It died.", log_path=Path("/the/log"), log=log, directory=tmp_path)
    assert isinstance(error, DiskFull)
    assert error.path == tmp_path
    assert str(tmp_path) in str(error)


def test_a_disk_too_full_for_the_log_to_say_so_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_reports.shutil, "disk_usage", lambda path: Usage(100, 100, 0))
    error = failure_reports.explain("It died.", log_path=Path("/the/log"), log="", directory=tmp_path)
    assert isinstance(error, DiskFull)


def test_too_little_room_is_refused_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_reports.shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 5_000_000))
    with pytest.raises(DiskFull, match=r"5 MB free.*at least 67 MB") as caught:
        failure_reports.check_space(tmp_path)
    assert caught.value.path == tmp_path


def test_only_the_newest_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_CACHE_DIR", str(tmp_path / "cache"))
    for number in range(12):
        home = tmp_path / f"lvq-kafka-{number:02}"
        home.mkdir()
        (home / "broker.log").write_text(f"log {number}")
        kept = failure_reports.keep_log(home / "broker.log")
        os.utime(kept, (number, number))
    names = sorted(path.name for path in (tmp_path / "cache" / "logs").iterdir())
    assert names == [f"lvq-kafka-{number:02}.log" for number in range(2, 12)]


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_chosen_ports_are_free_different_and_out_of_the_range_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) and port < 32_768 for port in ports)
