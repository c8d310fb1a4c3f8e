from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.records import UNREADABLE
from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run


def values(run: Run, *arguments: str) -> list[tuple[str, str]]:
    ran = run(*arguments)
    assert ran.code == 0
    return [(row["key"], row["value"]) for row in ran.rows if "event" not in row]


# ---------------------------------------------------------------- get


def test_get_gives_the_newest_value_with_its_position_time_and_headers(prices: Run) -> None:
    row = prices("get", "prices", "IBM").row
    assert (row["key"], row["value"], row["position"]) == ("IBM", "118.50", "prices/0/0")
    assert row["headers"] == {"ticker": "IBM", "exchange": "NYSE"}
    prices("put", "prices", "IBM", "119")
    assert prices("get", "prices", "IBM").row["value"] == "119"


def test_get_of_a_missing_key_ends_with_1_and_gives_the_others(prices: Run) -> None:
    ran = prices("get", "prices", "IBM", "NOPE", "IBM")
    assert ran.code == 1
    assert [row["key"] for row in ran.rows] == ["IBM"]
    assert ran.stderr == "lvq: prices has no value for NOPE.\n"


def test_get_of_a_prefix_gives_the_keys_that_begin_with_it_in_their_order(prices: Run) -> None:
    prices("put", "prices", "INTC", "31")
    prices("put", "prices", "IBB", "130")
    assert values(prices, "get", "prices", "--prefix", "I") == [("IBB", "130"), ("IBM", "118.50"), ("INTC", "31")]
    assert prices("get", "prices", "--prefix", "IB", "--raw").stdout == b"130\n118.50\n"
    assert prices("get", "prices", "--prefix", "MS", "--raw").stdout == b"402.10\n", "one line for each, however many"
    assert prices("get", "prices", "--prefix", "I", person=True).text.splitlines()[0].startswith("KEY")
    assert len(values(prices, "get", "prices", "--prefix", "")) == 4


def test_get_of_a_prefix_that_no_key_begins_with_ends_with_1_and_gives_the_others(prices: Run) -> None:
    ran = prices("get", "prices", "--prefix", "IB", "--prefix", "X", "--prefix", "Y")
    assert (ran.code, [row["key"] for row in ran.rows]) == (1, ["IBM"])
    assert ran.stderr == "lvq: prices has no value for keys that begin with X, keys that begin with Y.\n"


def test_get_takes_keys_or_a_prefix(prices: Run) -> None:
    assert "Name a key, or give --prefix TEXT." in prices("get", "prices").stderr
    both = prices("get", "prices", "IBM", "--prefix", "I")
    assert (both.code, "not both" in both.stderr) == (2, True)


def test_the_bare_value_is_byte_for_byte_what_was_stored(prices: Run) -> None:
    data = b"\xff\x00\r\n"
    prices("put", "prices", "bin", "-", stdin=data)
    assert prices("get", "prices", "bin", "--raw").stdout == data
    assert prices("get", "prices", "IBM", "MSFT", "--raw").stdout == b"118.50\n402.10\n"
    assert prices("get", "prices", "IBM", "--raw", "--format", "text").stdout == b"118.50"
    assert prices("get", "prices", "IBM", "--raw", "--format", "json").stdout == b"118.5"


def test_a_bare_value_that_utf_8_cannot_write_ends_with_5(prices: Run) -> None:
    prices("put", "prices", "half", '"\\ud800"')
    ran = prices("get", "prices", "half", "--raw", "--format", "json")
    assert (ran.code, ran.stdout) == (5, b"")
    assert ran.stderr == ("lvq: The value of half has an unpaired surrogate, which UTF-8 cannot encode. Omit --raw.\n")
    assert prices("get", "prices", "half", "--format", "json").row["value"] == "\ud800"


def test_get_of_a_value_that_the_format_cannot_read_ends_with_5(prices: Run) -> None:
    prices("put", "prices", "bad", "{")
    ran = prices("get", "prices", "bad", "IBM", "--format", "json")
    assert ran.code == 5
    assert [row.get("undecodable") for row in ran.rows] == ["{", None]
    assert "could not be read as json" in ran.stderr


def test_a_person_gets_the_value_itself_or_a_table_of_several(prices: Run) -> None:
    assert prices("get", "prices", "IBM", person=True).text == "118.50\n"
    assert prices("get", "prices", "IBM", "MSFT", person=True).text.splitlines()[0].startswith("KEY")
    prices("put", "prices", "text", "one\n\x1b[31mtwo")
    assert prices("get", "prices", "text", person=True).text == "one\n\\x1b[31mtwo\n"
    prices("put", "prices", "obj", '{"a": [1]}')
    text = prices("get", "prices", "obj", "--format", "json", person=True).text
    assert json.loads(text) == {"a": [1]}
    assert len(text.splitlines()) > 1


def test_a_queue_that_is_not_declared_or_cannot_be_reached_has_its_exit_code(
    prices: Run, memory_cluster: MemoryCluster
) -> None:
    ran = prices("get", "nope", "IBM")
    assert ran.code == 4
    assert "lvq declare nope" in ran.stderr
    assert "`lvq queues`" in ran.stderr
    assert prices("get", "pricse", "IBM").stderr == (
        "lvq: No queue pricse is declared. Did you mean prices? `lvq queues` lists all queues.\n"
    )
    assert "declare a queue" in prices("get", "--bare", "nope", "IBM").stderr
    memory_cluster.fail_next("logs.start_offsets", BrokerUnavailable("Nobody answers.", code="_TRANSPORT"))
    assert prices("get", "prices", "IBM").code == 3


def test_an_open_transaction_that_hides_values_is_said_and_not_waited_for_for_ever(
    prices: Run, memory_cluster: MemoryCluster
) -> None:
    writer = memory_cluster.writer(transactional_id="tx")
    writer.begin_transaction()
    writer.append("prices", b"IBM", b"120").result(5)
    ran = prices("get", "prices", "IBM", "--timeout", "0.2")
    assert ran.code == 3
    assert "transaction" in ran.stderr
    browsed = prices("browse", "prices")
    assert browsed.code == 0
    assert browsed.rows[-1]["blocked"] == [{"partition": 0, "open_since": 2, "target": 3}]
    assert "transaction" in browsed.stderr
    writer.abort_transaction()
    assert prices("get", "prices", "IBM").row["value"] == "118.50"


# ---------------------------------------------------------------- browse


def test_browse_gives_the_values_of_now_in_queue_order_and_says_that_they_are_complete(prices: Run) -> None:
    prices("put", "prices", "IBM", "119")
    ran = prices("browse", "prices")
    assert [(row["key"], row["value"]) for row in ran.rows[:-1]] == [("MSFT", "402.10"), ("IBM", "119")]
    assert ran.rows[-1]["as_of"] == pytest.approx(time.time(), abs=60)
    assert ran.rows[-1].items() >= {"event": "end-of-dump", "offsets": {"0": 3}, "blocked": []}.items()


def test_browse_of_an_empty_queue_says_so(run: Run) -> None:
    run("declare", "q", "-k", "id")
    ran = run("browse", "q")
    assert ran.code == 0
    assert ran.row.items() >= {"event": "end-of-dump", "offsets": {"0": 0}, "blocked": []}.items()


def test_browse_filters_by_key_and_header(prices: Run) -> None:
    assert values(prices, "browse", "prices", "-k", "MSFT", "-k", "NOPE") == [("MSFT", "402.10")]
    assert values(prices, "browse", "prices", "-H", "exchange=NYSE") == [("IBM", "118.50")]
    assert values(prices, "browse", "prices", "-H", "exchange=") == []
    assert values(prices, "browse", "prices", "-H", "exchange") == [("IBM", "118.50")]
    assert prices("browse", "prices", "-H", "=NYSE").code == 2


def test_browse_export_and_watch_select_by_a_condition(prices: Run) -> None:
    assert values(prices, "browse", "prices", "--selector", "exchange = 'NYSE' AND lvq_key LIKE 'I%'") == [
        ("IBM", "118.50")
    ]
    header, row = prices("export", "prices", "--selector", "exchange IS NULL").rows
    assert header["selection"] == {"selector": "exchange IS NULL"}
    assert row["key"] == "MSFT"
    for wrong, said in (("exchange >", "at column 11"), ("", "empty")):
        for command in ("browse", "watch", "export"):
            ran = prices(command, "prices", "--selector", wrong)
            assert ran.code == 2
            assert said in ran.stderr


def test_browse_and_export_select_by_prefix_and_partition(prices: Run) -> None:
    assert values(prices, "browse", "prices", "--prefix", "M", "--prefix", "X") == [("MSFT", "402.10")]
    assert len(values(prices, "browse", "prices", "--partition", "0")) == 2
    missing = prices("browse", "prices", "--partition", "1")
    assert missing.code == 2
    assert "no partition 1" in missing.stderr
    header, *rows = prices("export", "prices", "-H", "exchange=NYSE", "--prefix", "I").rows
    assert header["selection"] == {"prefix": ["I"], "headers": {"exchange": "NYSE"}}
    assert header["values"] == len(rows) == 1
    assert "selection" not in prices("export", "prices").rows[0]


@pytest.mark.parametrize(
    "since",
    [
        "7",
        "{",
        '{"offsets": {"a": 1}}',
        '{"0": "x"}',
        "[]",
        '{"0": 1e400}',
        f'{{"offsets": {{}}, "as_of": 1{"0" * 400}}}',
        "[" * 2000,
    ],
)
def test_a_watch_cannot_resume_from_something_else(prices: Run, since: str) -> None:
    refused = prices("watch", "prices", "--since", since)
    assert refused.code == 2
    assert "--since" in refused.stderr


def test_a_watch_that_cannot_resume_says_why(prices: Run, tmp_path: Path) -> None:
    line = tmp_path / "end-of-dump.json"
    end = prices("browse", "prices").rows[-1]
    line.write_text(json.dumps(end | {"offsets": {"0": 99}}))
    beyond = prices("watch", "prices", "--since", f"@{line}")
    assert beyond.code == 2
    assert "offset 99" in beyond.stderr
    line.write_text(json.dumps(end | {"topic_id": "another"}))
    assert "re-created" in prices("watch", "prices", "--since", f"@{line}").stderr
    missing = prices("watch", "prices", "--since", "@nowhere.json")
    assert missing.code == 2


def test_browse_hides_what_was_consumed_unless_all_is_asked_for(prices: Run) -> None:
    assert prices("consume", "prices", "--count", "1").code == 0
    assert values(prices, "browse", "prices") == [("MSFT", "402.10")]
    assert len(values(prices, "browse", "prices", "--all")) == 2
    assert prices("get", "prices", "IBM").code == 0


def test_browse_replays_what_is_young_enough(prices: Run) -> None:
    assert len(values(prices, "browse", "prices", "--replay", "3600")) == 2
    assert values(prices, "browse", "prices", "--replay", "0") == []
    assert prices("browse", "prices", "--replay", "-1").code == 2
    both = prices("browse", "prices", "--replay", "60", "--updates-only")
    assert both.code == 2
    assert "--updates-only skips the values that --replay selects" in both.stderr


def test_browse_goes_on_behind_values_that_it_cannot_read(prices: Run) -> None:
    prices("put", "prices", "bad", "{")
    prices("put", "prices", "good", "1")
    ran = prices("browse", "prices", "--format", "json")
    assert ran.code == 5
    assert [row.get("value", "-") for row in ran.rows[:-1]] == [118.5, 402.1, "-", 1]
    assert ran.stderr == "lvq: 1 value could not be read as json; see --format.\n"


def test_a_person_browses_a_table(prices: Run) -> None:
    ran = prices("browse", "prices", person=True)
    assert [line.split()[:2] for line in ran.text.splitlines()] == [
        ["KEY", "VALUE"],
        ["IBM", "118.50"],
        ["MSFT", "402.10"],
    ]
    assert ran.stderr == "2 values\n"


def test_json_can_be_asked_for_by_a_person(prices: Run) -> None:
    assert prices("browse", "prices", "--json", person=True).rows[-1]["event"] == "end-of-dump"
    assert prices("--json", "browse", "prices", person=True).rows[-1]["event"] == "end-of-dump"


# ---------------------------------------------------------------- export


def test_g8_an_export_holds_the_rows_of_a_snapshot_at_the_same_cut(prices: Run, memory_cluster: MemoryCluster) -> None:
    prices("put", "prices", "IBM", "119")
    prices("put", "prices", "bin", "-", stdin=b"\xff")
    prices("delete", "prices", "MSFT")
    head, *rows = prices("export", "prices").rows
    with LastValueQueue.open("prices", cluster=memory_cluster).view() as view:
        snapshot = view.snapshot()
    assert head.pop("as_of") <= snapshot.as_of
    assert head == {
        "lvq_export": 1,
        "queue": "prices",
        "topic": "prices",
        "topic_id": snapshot.topic_id,
        "key_header": "ticker",
        "offsets": {str(partition): offset for partition, offset in snapshot.offsets.items()},
        "state": "caught-up",
        "format": "bytes",
        "values": len(snapshot),
    }
    assert [(row["key"], row["position"], row["timestamp"]) for row in rows] == [
        (entry.key, str(entry.position), entry.timestamp) for entry in snapshot.entries()
    ]
    assert [row["value"] for row in rows] == ["119", {"base64": "/w=="}]


def test_an_export_to_a_file_is_there_when_it_is_complete(
    prices: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prices.jsonl"
    ran = prices("export", "prices", str(file), person=True)
    assert ran.code == 0
    assert ran.stderr == f"2 values of prices in {file}, caught-up at offset 2 of partition 0\n"
    complete = file.read_bytes()
    assert len(complete.splitlines()) == 3
    assert stat.S_IMODE(file.stat().st_mode) & 0o400

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr("lvq_kafka.cli.commands.export.value_line", full)
    ran = prices("export", "prices", str(file))
    assert ran.code == 2
    assert ran.stderr == f"lvq: {file}: No space left on device\n"
    assert file.read_bytes() == complete
    assert list(tmp_path.iterdir()) == [file]


def test_an_export_that_cannot_be_written_is_an_error_of_usage(prices: Run, tmp_path: Path) -> None:
    file = tmp_path / "none" / "x"
    ran = prices("export", "prices", str(file))
    assert ran.code == 2
    assert str(file) in ran.stderr
    assert "No such file or directory" in ran.stderr


def test_an_export_is_json_lines_for_a_person_too(prices: Run) -> None:
    assert prices("export", "prices", person=True).rows[0]["lvq_export"] == 1


def test_headers_that_cannot_be_read_are_said_to_be_so_and_counted(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.write("prices", b"evil", b"1", UNREADABLE)
    assert prices("get", "prices", "evil").code == 0
    (row,) = [row for row in prices("browse", "prices").rows if row.get("key") == "evil"]
    assert row["headers"] == {"lvq-unreadable": "1"}
    assert prices("stats", "prices").row["mismatched"] == 1
    assert "or cannot be read" in " ".join(prices("stats", "prices", person=True).text.split())
