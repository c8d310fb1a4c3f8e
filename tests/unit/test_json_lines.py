from __future__ import annotations

import json
from typing import Any

import pytest

from lvq_kafka.core.facts import Format, Position, Shortfall
from lvq_kafka.errors import DecodeError, EncodeError
from lvq_kafka.json_lines import event_line, parse_line, parse_value, to_line, value_line
from lvq_kafka.reading.entries import Deleted, EndOfDump, Entry, Replacement

BINARY = b"\xff\x00"


def entry(key: str = "IBM", value: Any = b"118.50", headers: Any = (("ticker", b"IBM"),)) -> Entry[Any]:
    return Entry(key, value, Position("prices", 0, 41), 1732205000.123, headers)


def test_a_value_is_a_line_with_text_where_its_bytes_are_text() -> None:
    assert json.loads(value_line(entry(), "bytes")) == {
        "key": "IBM",
        "value": "118.50",
        "position": "prices/0/41",
        "timestamp": 1732205000.123,
        "headers": {"ticker": "IBM"},
    }


def test_bytes_that_are_no_text_are_base64_and_marked_so() -> None:
    row = json.loads(value_line(entry("\udcff", BINARY, (("id", BINARY), ("none", None))), "bytes"))
    assert row["key"] == {"base64": "/w=="}
    assert row["value"] == {"base64": "/wA="}
    assert row["headers"] == {"id": {"base64": "/wA="}, "none": None}


def test_a_value_that_the_format_cannot_read_is_not_shown_as_a_value() -> None:
    row = json.loads(value_line(entry(value=b"no json"), "json"))
    assert "value" not in row
    assert row["undecodable"] == "no json"


def test_all_headers_are_there_when_a_name_repeats() -> None:
    row = json.loads(value_line(entry(headers=(("a", b"1"), ("a", b"2"))), "bytes"))
    assert row["headers"] == {"a": "2"}
    assert row["all_headers"] == [["a", "1"], ["a", "2"]]


def test_events_other_than_values_say_their_kind() -> None:
    assert json.loads(event_line(Deleted("IBM"), "bytes")) == {"event": "deleted", "key": "IBM"}
    consumed = event_line(Deleted("IBM", consumed=True), "bytes")
    assert json.loads(consumed) == {"event": "consumed", "key": "IBM"}
    assert json.loads(event_line(Deleted("IBM", left=True), "bytes")) == {"event": "left", "key": "IBM"}
    end = EndOfDump({0: 42}, (Shortfall(1, 5, 9, 5),), as_of=1732205001.5, topic_id="N1JB")
    assert json.loads(event_line(end, "bytes")) == {
        "event": "end-of-dump",
        "offsets": {"0": 42},
        "as_of": 1732205001.5,
        "blocked": [{"partition": 1, "open_since": 5, "target": 9}],
        "topic_id": "N1JB",
    }


def test_a_value_and_a_deletion_are_lines_with_the_value_before() -> None:
    before, now = entry(value=b"1"), entry(value=b"2")
    changed = Replacement(now.key, now.value, now.position, now.timestamp, now.headers, before)
    assert json.loads(event_line(changed, "bytes")) == json.loads(value_line(now, "bytes")) | {
        "previous": json.loads(value_line(before, "bytes"))
    }
    first = Replacement(now.key, now.value, now.position, now.timestamp)
    assert json.loads(event_line(first, "bytes"))["previous"] is None
    gone = json.loads(event_line(Deleted("IBM", previous=before), "bytes"))
    assert gone == {"event": "deleted", "key": "IBM", "previous": json.loads(value_line(before, "bytes"))}


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("bytes", entry()),
        ("bytes", entry("\udcff", BINARY, (("id", BINARY), ("none", None)))),
        ("bytes", entry("", b"", (("a", b"1"), ("b", b""), ("a", b"2")))),
        ("text", entry(value="Größe")),
        ("json", entry(value={"bid": 1.5, "base64": "x"})),
        ("json", entry(value=None)),
    ],
)
def test_a_line_that_was_written_reads_as_the_same_message(form: Format, given: Entry[Any]) -> None:
    line = parse_line(value_line(given, form).decode(), form)
    assert line is not None
    assert line.key == given.key.encode("utf-8", "surrogateescape")
    assert line.value == given.value
    assert tuple(line.headers) == given.headers
    assert not line.delete


def test_a_deletion_reads_as_one_and_other_events_are_passed_over() -> None:
    line = parse_line('{"event": "deleted", "key": "IBM"}', "bytes")
    assert line is not None
    assert line.delete
    assert line.key == b"IBM"
    assert parse_line('{"event": "consumed", "key": "IBM"}', "bytes") is None
    assert parse_line('{"event": "end-of-dump", "offsets": {}, "blocked": []}', "bytes") is None
    assert parse_line('{"lvq_export": 1, "topic": "prices"}', "bytes") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"key": "IBM"}', "has no value"),
        (
            '{"lvq_export": 1, "format": "json"}',
            r"of values as json, but .* read as bytes\. Give --format json here too",
        ),
        ('{"lvq_export": 2, "format": "bytes"}', "version 2, which needs a newer lvq"),
        ('{"event": "deleted"}', "is a delete without a key"),
        ('{"key": "IBM", "value": 118.5}', "--format json"),
        ('{"key": "IBM", "value": {"base64": "!"}}', "not base64"),
        ('{"key": [], "value": ""}', "has a key that is neither text nor"),
        ('{"key": "\\ud800", "value": ""}', "UTF-8 cannot encode"),
        ('{"key": "IBM", "value": "", "headers": 7}', "neither an object nor pairs"),
        ('{"key": "IBM", "value": "", "headers": {"a": []}}', "has a header a"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        parse_line(text, "bytes")


def test_an_export_is_read_in_the_form_that_it_was_written_in() -> None:
    """Text that was JSON used to lose its quotes, or to get a second pair."""
    assert parse_line('{"lvq_export": 1, "format": "text"}', "bytes") is None
    assert parse_line('{"lvq_export": 1, "format": "json"}', "json") is None
    with pytest.raises(DecodeError, match="of values as bytes"):
        parse_line('{"lvq_export": 1, "format": "bytes"}', "json")


def test_numbers_may_be_keys_and_headers_as_everywhere() -> None:
    line = parse_line('{"key": 7, "value": "x", "headers": {"n": 1, "b": true, "f": 1.50}}', "bytes")
    assert line is not None
    assert (line.key, line.headers) == (b"7", [("n", b"1"), ("b", b"true"), ("f", b"1.5")])
    with pytest.raises(DecodeError, match="has a key that is neither text"):
        parse_line('{"key": 1.5, "value": "x"}', "bytes")


def test_a_value_that_could_not_be_read_as_json_is_carried_on_as_bytes_only() -> None:
    text = json.dumps({"key": "IBM", "undecodable": "no json"})
    line = parse_line(text, "bytes")
    assert line is not None
    assert line.value == b"no json"
    with pytest.raises(DecodeError, match="--format bytes"):
        parse_line(text, "json")


def test_a_value_from_the_command_line_follows_the_format() -> None:
    assert parse_value(BINARY, "bytes") == BINARY
    assert parse_value(b"x", "text") == "x"
    assert parse_value(b'{"a": 1}', "json") == {"a": 1}
    with pytest.raises(EncodeError, match="not JSON"):
        parse_value(b"{", "json")
    with pytest.raises(EncodeError, match="not UTF-8 text"):
        parse_value(BINARY, "text")


def test_half_a_surrogate_pair_in_json_does_not_stop_the_stream() -> None:
    line = to_line({"value": json.loads('"\\ud800"')})
    assert json.loads(line) == {"value": "\ud800"}
