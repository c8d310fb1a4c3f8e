"""``lvq put`` and ``lvq send`` with scheduled messages (R11)."""

from __future__ import annotations

import time

import pytest

from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_write_commands import lines, stored

NOW = 1_800_000_000.25


@pytest.fixture
def memory_cluster() -> MemoryCluster:
    """Return a cluster whose time stands still."""
    return MemoryCluster(clock=lambda: NOW)


@pytest.fixture
def rates(run: Run) -> Run:
    """Return ``run``, with a queue ``rates`` whose messages may be scheduled an hour ahead."""
    assert run("declare", "rates", "-k", "currency", "--max-delay", "3600", "--ttl").code == 0
    return run


def due(cluster: MemoryCluster) -> list[bytes | None]:
    """Return when the stored messages count, as their headers say it."""
    return [headers.get("lvq-not-before") for _, _, headers in stored(cluster, "rates")]


def test_r11_messages_are_scheduled_for_a_time_or_with_a_delay(rates: Run, memory_cluster: MemoryCluster) -> None:
    line = lines({"key": "EUR", "value": "1"})
    for arguments, stdin in (
        (["put", "rates", "EUR", "1", "--not-before", "2027-01-15T08:30:00Z"], None),
        (["put", "rates", "EUR", "1", "--not-before", "2027-01-15T09:30:00+01:00", "--ttl", "5"], None),
        (["put", "rates", "EUR", "1", "--not-before", "1800001800.5"], None),
        (["put", "rates", "EUR", "1", "--delay", "1.5"], None),
        (["send", "rates", "1", "-H", "currency=EUR", "--delay", "3600"], None),
        (["send", "rates", "1", "-H", "currency=EUR", "--not-before", "0"], None),
        (["put", "rates", "--from-jsonl", "-", "--delay", "2"], line),
        (["send", "rates", "--from-jsonl", "-", "--not-before", "1800000001"], line),
        (["put", "rates", "EUR", "1"], None),
    ):
        assert rates(*arguments, stdin=stdin).code == 0
    assert due(memory_cluster) == [
        *(b"1800001800000", b"1800001800000", b"1800001800500", b"1800000001750", b"1800003600250", b"0"),
        *(b"1800000002250", b"1800000001000", None),
    ]


def test_r11_a_time_without_a_zone_is_local(
    rates: Run, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert rates("put", "rates", "EUR", "1", "--not-before", "2027-01-15T13:35").code == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert due(memory_cluster) == [b"1800000300000"]


def test_r11_the_time_of_a_line_counts_before_that_of_the_options(rates: Run, memory_cluster: MemoryCluster) -> None:
    own = lines({"key": "EUR", "value": "1", "headers": {"lvq-not-before": "5"}}, {"key": "USD", "value": "2"})
    assert rates("put", "rates", "--from-jsonl", "-", "--delay", "1", stdin=own).code == 0
    assert due(memory_cluster) == [b"5", b"1800000001250"]
    own = lines({"key": "EUR", "value": "1", "headers": {"x-opt-delivery-time": "7"}}, {"key": "USD", "value": "2"})
    assert rates("put", "rates", "--from-jsonl", "-", "--delay", "1", stdin=own).code == 0
    assert due(memory_cluster)[2:] == [b"7", b"1800000001250"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--delay", "3600.001"], "--delay is 3,600.001 s ahead, but the queue's --max-delay is 3,600 s"),
        (["--not-before", "2027-01-16"], "s ahead, but the queue's --max-delay is 3,600 s"),
        (["-H", "lvq-not-before=1800003600251"], "lvq-not-before is 3,600.001 s ahead, but the queue's --max-delay"),
        (["-H", "lvq-not-before=soon"], "lvq-not-before is b'soon', not a number of milliseconds"),
        (["--delay", "-1"], "-1.0 is not in the range x>=0"),
        (["--delay", "nan"], "'nan' is not a valid number of seconds"),
        (["--delay", "inf"], "--delay must be a point in time, not inf"),
        (["--delay", "soon"], "'soon' is not a valid number of seconds"),
        (["--not-before", "soon"], "'soon' is not a time, in seconds since the epoch or like 2026-08-01T12:30"),
        (["--not-before", "nan"], "'nan' is not a time"),
        (["--not-before", "1e300"], "'1e300' is not a time"),
        (["--not-before", "-5"], "--not-before must be a point in time, not -5"),
        (["--delay", "1", "--not-before", "5"], "--not-before and --delay are mutually exclusive"),
        (["--delay", "1", "-H", "_AMQ_SCHED_DELIVERY=5"], "--delay and the header _AMQ_SCHED_DELIVERY are mutually"),
        (["-H", "x-opt-delivery-delay=soon"], "x-opt-delivery-delay is b'soon', not a number of milliseconds"),
    ],
)
@pytest.mark.parametrize("command", [["put", "rates", "EUR", "1"], ["send", "rates", "1", "-H", "currency=EUR"]])
def test_r11_a_message_that_cannot_be_scheduled_is_an_error_of_usage(
    rates: Run, memory_cluster: MemoryCluster, command: list[str], arguments: list[str], said: str
) -> None:
    ran = rates(*command, *arguments)
    assert ran.code == 2
    assert said in ran.stderr
    assert due(memory_cluster) == []


def test_r22_a_queue_without_delays_takes_no_scheduled_message(run: Run, memory_cluster: MemoryCluster) -> None:
    assert run("declare", "rates", "-k", "currency").code == 0
    for option in (["--delay", "1"], ["--not-before", "5"], ["-H", "lvq-not-before=5"]):
        ran = run("put", "rates", "EUR", "1", *option)
        assert ran.code == 2
        assert "'lvq-not-before' is reserved" in ran.stderr
        assert "--max-delay 3600" in ran.stderr
    assert due(memory_cluster) == []


def test_r11_a_delete_in_a_file_is_not_scheduled(rates: Run, memory_cluster: MemoryCluster) -> None:
    given = lines({"key": "EUR", "value": "1"}, {"event": "deleted", "key": "EUR"}, {"key": "EUR", "value": "2"})
    ran = rates("put", "rates", "--from-jsonl", "-", "--delay", "1", stdin=given)
    assert ran.code == 2
    assert "The delete of EUR cannot be scheduled: leave out --not-before and --delay" in ran.stderr
    assert [value for _, value, _ in stored(memory_cluster, "rates")] == [b"1"], "what came before it is sent"
