"""The fate of a record that feeds a queue (R29): a message with lifted fields, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.log.records import UNREADABLE, Headers, Record, header_value
from lvq_kafka.core.producer.feed_rules import FeedRules, LeftOut
from lvq_kafka.core.producer.field_lifter import FieldLifter
from lvq_kafka.core.queue.content_matcher import ContentMatcher
from lvq_kafka.core.queue.rules import KeyRule
from lvq_kafka.selectors.selector import Selector
from tests.effort import examples

TICK = b'{"Symbol": "IBM", "Exchange": "NYSE", "price": 118.5}'


def record(value: bytes | None, headers: Headers = (), key: bytes | None = None) -> Record:
    return Record(0, 0, 0, key, value, headers)


def rules(selector: str | None = None, header: str | None = "Symbol", *, conflates: bool = True) -> FeedRules:
    selects = None if selector is None else Selector(selector, "ticker")
    return FeedRules(
        KeyRule("ticker", header, conflates=conflates),
        () if selects is None else selects.reads,
        None if selects is None else selects.matches,
    )


def reason(verdict: Record | LeftOut) -> str:
    return verdict.reason if isinstance(verdict, LeftOut) else "a message"


def test_a_field_becomes_the_key_and_its_header_and_the_body_stays_as_it_is() -> None:
    message = rules("Exchange = 'NYSE'").message_of(record(TICK, (("seen", b"1"),), b"other"))
    assert message == record(TICK, (("seen", b"1"), ("Exchange", b"NYSE"), ("Symbol", b"IBM")), b"IBM")


def test_a_header_counts_before_a_field_of_its_name() -> None:
    message = rules().message_of(record(TICK, (("Symbol", b"MSFT"),)))
    assert message == record(TICK, (("Symbol", b"MSFT"),), b"MSFT")


def test_a_body_is_not_read_if_the_headers_have_all_that_is_wanted() -> None:
    headers = (("Symbol", b"IBM"), ("Exchange", b"NYSE"))
    assert rules("Exchange = 'NYSE'").message_of(record(b"\xff no JSON", headers)) == record(
        b"\xff no JSON", headers, b"IBM"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [("IBM", b"IBM"), ("", b""), ("ä", "ä".encode()), (5, b"5"), (True, b"true"), (2**70, b"%d" % 2**70)],
)
def test_a_field_of_json_is_text_in_a_header(value: Any, text: bytes) -> None:
    message = rules().message_of(record(json.dumps({"Symbol": value}).encode()))
    assert isinstance(message, Record)
    assert (message.key, message.headers) == (text, (("Symbol", text),))


@pytest.mark.parametrize("value", ["null", "1.5", "[]", '{"a": 1}', '"\\ud800"'])
def test_a_field_that_cannot_be_a_key_is_none(value: str) -> None:
    verdict = rules().message_of(record(f'{{"Symbol": {value}}}'.encode()))
    assert isinstance(verdict, LeftOut)
    assert verdict.reason == "keyless"
    assert "no header 'Symbol'" in verdict.told


def test_a_fraction_can_be_selected_though_it_cannot_be_a_key() -> None:
    assert reason(rules("price > 100").message_of(record(TICK))) == "a message"
    assert reason(rules("price > 200").message_of(record(TICK))) == "unselected"


@pytest.mark.parametrize(
    "body",
    [b"", b"IBM", b"\xff", b"[]", b'"Symbol"', b"NaN", b'{"Symbol": "IBM"', b'{"a": ' * 5000, b"9" * 5000],
)
@pytest.mark.parametrize("selector", [None, "Exchange = 'NYSE'"])
def test_a_body_that_is_no_object_of_json_is_left_out_with_the_remedy(body: bytes, selector: str | None) -> None:
    verdict = rules(selector).message_of(record(body))
    assert isinstance(verdict, LeftOut)
    assert verdict.reason == "unreadable"
    assert "its body is not" in verdict.told
    assert "Send objects of JSON" in verdict.told
    assert len(verdict.told) < 600


def test_a_record_whose_headers_cannot_be_read_is_left_out() -> None:
    assert reason(rules().message_of(record(TICK, UNREADABLE))) == "unreadable"
    assert reason(rules(header=None).message_of(record(TICK, UNREADABLE, b"IBM"))) == "unreadable"


def test_the_record_key_is_the_key_if_no_header_is() -> None:
    assert rules(header=None).message_of(record(b"x", key=b"IBM")) == record(b"x", key=b"IBM")
    assert reason(rules(header=None).message_of(record(b"x"))) == "keyless"


def test_r35_a_standard_queue_gets_messages_without_a_key() -> None:
    assert rules(conflates=False).message_of(record(b"no JSON")) == record(b"no JSON")
    assert reason(rules("Exchange = 'NYSE'", conflates=False).message_of(record(b"no JSON"))) == "unreadable"


def test_a_delete_has_to_name_its_key_and_to_meet_the_selector_by_headers() -> None:
    key, exchange = ("Symbol", b"IBM"), ("Exchange", b"NYSE")
    assert rules().message_of(record(None, (key,))) == record(None, (key,), b"IBM")
    assert reason(rules().message_of(record(None))) == "keyless"
    assert reason(rules("Exchange = 'NYSE'").message_of(record(None, (key,)))) == "unselected"
    assert reason(rules("Exchange = 'NYSE'").message_of(record(None, (key, exchange)))) == "a message"


def test_a_reserved_header_is_not_looked_for_in_a_body() -> None:
    lifter = FieldLifter({"lvq-ttl", "Symbol"}, "Symbol")
    lifted, _ = lifter.lift(record(b'{"lvq-ttl": 5, "Symbol": "IBM"}'))
    assert lifted.headers == (("Symbol", b"IBM"),)


NAMES = st.sampled_from(["Symbol", "Exchange", "Desk"])
TEXTS = st.sampled_from(["IBM", "NYSE", "", "it's", "ä"])
MATCHERS = st.dictionaries(NAMES, st.just(value=True) | TEXTS, max_size=3)
FIELDS = st.dictionaries(NAMES, TEXTS | st.none() | st.lists(st.none()), max_size=3)
HEADERS = st.dictionaries(NAMES, TEXTS, max_size=3)


@settings(max_examples=examples(600), deadline=None)
@given(MATCHERS, FIELDS, HEADERS, st.sampled_from(["object", "no JSON", "delete"]))
def test_r29_a_queue_is_fed_with_the_messages_that_its_matcher_means(
    clauses: dict[str, Any], fields: dict[str, Any], headers: dict[str, str], kind: str
) -> None:
    """The oracle looks each name up in the headers, then in the body, and compares."""
    matcher = ContentMatcher.of(clauses).generalized("Symbol")
    body = {"object": json.dumps(fields).encode(), "no JSON": b"{", "delete": None}[kind]
    given = record(body, tuple((name, text.encode()) for name, text in headers.items()))
    seen = {**{name: v for name, v in fields.items() if isinstance(v, str) and kind == "object"}, **headers}
    meets = all(name in seen and value in (True, seen[name]) for name, value in matcher.clauses.items())
    verdict = rules(matcher.selector("Symbol")).message_of(given)
    assert isinstance(verdict, Record) == meets
    if isinstance(verdict, Record):
        assert verdict.key == seen["Symbol"].encode()
        assert all(header_value(verdict.headers, name) == seen[name].encode() for name in matcher.clauses)
        assert verdict.headers[: len(headers)] == given.headers
        assert verdict.value == given.value
    else:
        assert (verdict.told == "") == (verdict.reason == "unselected")


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60), st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3))
def test_any_record_is_judged_and_never_raises(body: bytes, headers: list[tuple[str, bytes | None]]) -> None:
    verdict = rules("Exchange = 'NYSE' OR price > 5").message_of(record(body, tuple(headers)))
    assert reason(verdict) in {"a message", "unselected", "unreadable", "keyless"}
