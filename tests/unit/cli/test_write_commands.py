from __future__ import annotations

import json

from lvq_kafka.errors import BrokerUnavailable, DeliveryFailed
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run


def stored(
    cluster: MemoryCluster, topic: str = "prices"
) -> list[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
    return [(record.key, record.value, dict(record.headers)) for record in cluster.records(topic)]


def lines(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_send_takes_the_key_from_the_header(prices: Run, memory_cluster: MemoryCluster) -> None:
    ran = prices("send", "prices", "119", "-H", "ticker=IBM", "-H", "note=a=b")
    assert ran.row == {"key": "IBM", "position": "prices/0/2"}
    assert stored(memory_cluster)[2] == (b"IBM", b"119", {"ticker": b"IBM", "note": b"a=b"})


def test_headers_are_bytes_as_keys_and_values_are(prices: Run, memory_cluster: MemoryCluster) -> None:
    """An argument that is not UTF-8 used to end lvq with an internal error."""
    odd = b"\xff".decode("utf-8", "surrogateescape")
    assert prices("send", "prices", "119", "-H", f"ticker={odd}").row["key"] == {"base64": "/w=="}
    assert prices("put", "prices", "IBM", "119", "-H", f"note={odd}").code == 0
    assert [headers for _, _, headers in stored(memory_cluster)[2:]] == [
        {"ticker": b"\xff"},
        {"note": b"\xff", "ticker": b"IBM"},
    ]


def test_send_without_the_key_header_passes_as_the_queue_says(run: Run, memory_cluster: MemoryCluster) -> None:
    run("declare", "loose", "-k", "id")
    run("declare", "strict", "-k", "id", "--keyless", "refuse")
    assert run("send", "loose", "x").row == {"position": "loose/0/0"}
    ran = run("send", "strict", "x")
    assert ran.code == 5
    assert "id" in ran.stderr
    assert not memory_cluster.records("strict")


def test_put_adds_the_key_header(prices: Run, memory_cluster: MemoryCluster) -> None:
    assert prices("put", "prices", "IBM", "119").row == {"key": "IBM", "position": "prices/0/2"}
    assert stored(memory_cluster)[2] == (b"IBM", b"119", {"ticker": b"IBM"})


def test_a_negative_number_is_a_value_and_a_mistyped_option_is_not(prices: Run, memory_cluster: MemoryCluster) -> None:
    for value in ("-5", "-118.50", "-1.5e-3"):
        assert prices("put", "prices", "IBM", value).code == 0
    assert [value for _, value, _ in stored(memory_cluster)[2:]] == [b"-5", b"-118.50", b"-1.5e-3"]
    ran = prices("put", "prices", "IBM", "--qiet")
    assert ran.code == 2
    assert "--qiet" in ran.stderr
    assert prices("put", "prices", "IBM", "--", "--qiet").code == 0


def test_a_hyphen_takes_the_value_from_stdin_byte_for_byte(prices: Run, memory_cluster: MemoryCluster) -> None:
    data = bytes(range(256)) + b"\n"
    assert prices("put", "prices", "IBM", "-", stdin=data).code == 0
    assert prices("send", "prices", "-", "-H", "ticker=MSFT", stdin=data).code == 0
    assert [value for _, value, _ in stored(memory_cluster)[2:]] == [data, data]


def test_an_empty_value_is_a_value(prices: Run) -> None:
    assert prices("put", "prices", "IBM", "").code == 0
    assert prices("get", "prices", "IBM").row["value"] == ""


def test_the_format_checks_and_writes_the_value(prices: Run, memory_cluster: MemoryCluster) -> None:
    assert prices("put", "prices", "IBM", '{"bid":  1.5}', "--format", "json").code == 0
    assert stored(memory_cluster)[2][1] == b'{"bid":1.5}'
    ran = prices("put", "prices", "IBM", "{", "--format", "json")
    assert ran.code == 5
    assert "not JSON" in ran.stderr
    assert len(stored(memory_cluster)) == 3


def test_delete_removes_keys(prices: Run) -> None:
    assert [row["key"] for row in prices("delete", "prices", "IBM", "MSFT").rows] == ["IBM", "MSFT"]
    assert prices("get", "prices", "IBM").code == 1


def test_many_messages_come_from_json_lines(prices: Run, memory_cluster: MemoryCluster) -> None:
    given = lines(
        {"lvq_export": 1},
        {"key": "IBM", "value": "119"},
        {"key": "new", "value": {"base64": "/wA="}, "headers": {"a": "1"}},
        {"event": "deleted", "key": "MSFT"},
        {"event": "end-of-dump", "offsets": {}, "blocked": []},
    )
    ran = prices("put", "prices", "--from-jsonl", "-", "-H", "source=test", stdin=f"\n{given}")
    assert [row["position"] for row in ran.rows] == ["prices/0/2", "prices/0/3", "prices/0/4"]
    assert stored(memory_cluster)[2:] == [
        (b"IBM", b"119", {"ticker": b"IBM", "source": b"test"}),
        (b"new", b"\xff\x00", {"ticker": b"new", "source": b"test", "a": b"1"}),
        (b"MSFT", None, {"ticker": b"MSFT", "source": b"test"}),
    ]


def test_send_from_json_lines_needs_headers_only(prices: Run, memory_cluster: MemoryCluster) -> None:
    ran = prices("send", "prices", "--from-jsonl", "-", stdin=lines({"value": "1", "headers": {"ticker": "IBM"}}))
    assert ran.row == {"key": "IBM", "position": "prices/0/2"}


def test_the_output_of_one_queue_is_input_for_another(prices: Run) -> None:
    prices("put", "prices", "bin", "-", stdin=b"\xff")
    prices("send", "prices", "an ordinary message", "-H", "source=test")
    prices("declare", "copy", "-k", "ticker")
    for command in ("browse", "export"):
        given = prices(command, "prices").stdout
        assert prices("put", "copy", "--from-jsonl", "-", stdin=given).code == 0
    rows = [
        [{**row, "position": "", "timestamp": 0} for row in prices("export", name).rows[1:]]
        for name in ("prices", "copy")
    ]
    assert rows[0] == rows[1]
    [unkeyed] = [row for row in rows[1] if row["value"] == "an ordinary message"]
    assert unkeyed["headers"] == {"source": "test", "lvq-unkeyed": "1"}


def test_a_bad_line_is_named_and_those_before_it_are_reported(prices: Run, memory_cluster: MemoryCluster) -> None:
    given = lines({"key": "a", "value": "1"}) + "\nnonsense\n" + lines({"key": "b", "value": "2"})
    ran = prices("put", "prices", "--from-jsonl", "-", stdin=given)
    assert ran.code == 5
    assert ran.row == {"key": "a", "position": "prices/0/2"}
    assert "Line 3 is not JSON" in ran.stderr
    assert len(stored(memory_cluster)) == 3


def test_a_line_that_is_not_utf8_is_named(prices: Run) -> None:
    ran = prices("put", "prices", "--from-jsonl", "-", stdin=b'{"key": "\xff"}\n')
    assert ran.code == 5
    assert "Line 1 is not UTF-8" in ran.stderr


def test_a_message_that_was_not_stored_is_an_error(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.fail_next("append", DeliveryFailed("The message was not stored.", key=b"IBM", code="X"))
    ran = prices("put", "prices", "IBM", "1")
    assert ran.code == 3
    assert ran.stdout == b""
    assert ran.stderr == "lvq: The message was not stored.\n"


def test_a_cluster_that_is_gone_is_an_error(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.fail_next("topics.describe", BrokerUnavailable("Nobody answers.", code="_TRANSPORT"), 9)
    memory_cluster.fail_next("logs.start_offsets", BrokerUnavailable("Nobody answers.", code="_TRANSPORT"), 9)
    assert prices("put", "prices", "IBM", "1").code == 3


def test_one_message_or_many_but_not_both_or_none(prices: Run) -> None:
    for arguments in (["put", "prices"], ["put", "prices", "IBM"], ["put", "prices", "a", "b", "--from-jsonl", "-"]):
        assert prices(*arguments).code == 2
    for arguments in (["send", "prices"], ["send", "prices", "x", "--from-jsonl", "-"]):
        assert prices(*arguments).code == 2


def test_quiet_writes_nothing(prices: Run) -> None:
    assert prices("put", "prices", "IBM", "1", "--quiet").stdout == b""
    assert prices("delete", "prices", "IBM", "-q").stdout == b""


def test_a_person_is_told_of_one_message_and_gets_the_sum_of_many(prices: Run) -> None:
    assert prices("put", "prices", "IBM", "1", person=True).text == "✓ IBM at prices/0/2\n"
    assert prices("delete", "prices", "IBM", person=True).text == "✓ IBM deleted at prices/0/3\n"
    assert prices("send", "prices", "1", person=True).text == "✓ message without a key at prices/0/4\n"
    many = prices("put", "prices", "--from-jsonl", "-", stdin=lines(*[{"key": "a", "value": "1"}] * 9), person=True)
    assert many.stdout == b""
    assert many.stderr.startswith("9 messages sent to prices in ")


def test_a_bare_topic_takes_messages_without_a_registry(run: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    assert run("put", "t", "k", "1").code == 4
    assert run("put", "--bare", "t", "k", "1").code == 0
    assert run("put", "--bare", "--key-header", "id", "t", "k", "2").code == 0
    assert stored(memory_cluster, "t") == [(b"k", b"1", {}), (b"k", b"2", {"id": b"k"})]
    ran = run("put", "--key-header", "id", "t", "k", "2")
    assert ran.code == 2
    assert "--bare" in ran.stderr


def test_r22_a_reserved_header_is_refused_before_anything_is_sent(prices: Run, memory_cluster: MemoryCluster) -> None:
    before = memory_cluster.logs.end_offsets("prices")
    lines = '{"key": "IBM", "value": "1", "headers": {"lvq-ttl": "5"}}\n'
    for command, stdin in (
        (["put", "prices", "IBM", "1", "-H", "lvq-ttl=5"], None),
        (["send", "prices", "1", "-H", "ticker=IBM", "-H", "lvq-ttl=5"], None),
        (["send", "prices", "--from-jsonl", "-"], lines),
        (["declare", "more", "-k", "lvq-ttl"], None),
    ):
        ran = prices(*command, stdin=stdin)
        assert ran.code == 2
        assert "'lvq-ttl'" in ran.stderr
        assert "reserved" in ran.stderr
    assert memory_cluster.logs.end_offsets("prices") == before


def test_r22_readers_take_reserved_headers_of_others_for_ordinary_ones(
    prices: Run, memory_cluster: MemoryCluster
) -> None:
    memory_cluster.write("prices", b"IBM", b"1", [("ticker", b"IBM"), ("lvq-ttl", b"0")])
    assert prices("get", "prices", "IBM").row["headers"] == {"ticker": "IBM", "lvq-ttl": "0"}
