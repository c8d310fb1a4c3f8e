"""Content matchers: what they mean, as JSON and as selectors."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.content_matcher import ContentMatcher
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import ConfigError, LVQError, NoKeyTest, NotAString
from lvq_kafka.selectors.selector import Selector

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
names = st.text(characters, min_size=1, max_size=12) | st.sampled_from(["Symbol", "Exchange", "and", 'a"b', "JMSType"])
values = st.just(value=True) | st.text(characters, max_size=12) | st.sampled_from(["it's", "' AND \"x\" = '", ""])
matchers = st.dictionaries(names, values, max_size=5).map(ContentMatcher.of)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def declared(selector: str | None, key_header: str | None = "Symbol") -> QueueDefinition:
    return QueueDefinition(name="ticker", topic="ticker", key_header=key_header, selector=selector)


@given(matchers)
def test_a_matcher_is_the_same_after_it_was_written_as_json(matcher: ContentMatcher) -> None:
    assert ContentMatcher.of(str(matcher)) == matcher


@given(matchers)
def test_a_matcher_is_the_same_after_it_was_written_as_the_selector_of_a_queue(matcher: ContentMatcher) -> None:
    durable = matcher.generalized("Symbol")
    assert ContentMatcher.of_queue(declared(durable.selector("Symbol"))) == durable


@given(matchers, names, st.text(characters, max_size=5), st.text(characters, max_size=5))
def test_the_value_of_the_key_field_makes_no_other_durable(
    matcher: ContentMatcher, field: str, one: str, other: str
) -> None:
    first, second = (ContentMatcher.of({**matcher.clauses, field: value}) for value in (one, other))
    assert first.generalized(field) == second.generalized(field) == first.generalized(field).generalized(field)
    assert (first.key(field), second.key(field)) == (one, other)


@given(matchers, matchers)
def test_two_matchers_are_equal_if_their_selectors_are(one: ContentMatcher, other: ContentMatcher) -> None:
    assert (one == other) == (one.selector() == other.selector())


@given(matchers, st.dictionaries(names, st.text(characters, max_size=4), max_size=5))
def test_a_selector_selects_what_its_matcher_means(matcher: ContentMatcher, fields: dict[str, str]) -> None:
    fields = {name: value for name, value in fields.items() if name}
    headers = tuple((name, value.encode()) for name, value in fields.items())
    met = all(name in fields and value in (True, fields[name]) for name, value in matcher.clauses.items())
    selector = matcher.selector()
    assert met == (selector is None or Selector(selector, "ticker").matches(Record(0, 0, 0, b"k", b"v", headers)))


@given(st.permutations([("Symbol", "IBM"), ("Exchange", "NYSE"), ("Desk", True)]), st.sampled_from([None, 1, 4]))
def test_matchers_are_compared_by_meaning(clauses: list[tuple[str, Any]], indent: int | None) -> None:
    text = json.dumps(dict(clauses), indent=indent)
    assert ContentMatcher.of(text) == ContentMatcher.of({"Desk": True, "Exchange": "NYSE", "Symbol": "IBM"})


def test_s149_a_durable_is_for_any_value_of_the_key_field() -> None:
    asked = ContentMatcher.of('{"Symbol":"IBM","Exchange":"NYSE"}')
    assert str(asked.generalized("Symbol")) == '{"Exchange": "NYSE", "Symbol": true}'
    assert asked.generalized("Symbol").selector("Symbol") == "\"Exchange\" = 'NYSE'"


@pytest.mark.parametrize(
    ("selector", "clauses"),
    [
        (None, {}),
        ("Exchange = 'NYSE'", {"Exchange": "NYSE"}),
        (" \n\"Exchange\"='NYSE'and Desk is\tnot null ", {"Exchange": "NYSE", "Desk": True}),
        ("Symbol IS NOT NULL", {}),
        ("Symbol = 'IBM'", {"Symbol": "IBM"}),
        ("\"JMSType\" = 'it''s'", {"JMSType": "it's"}),
        ("('NYSE' = Exchange) AND (((Desk)) IS NOT NULL)", {"Exchange": "NYSE", "Desk": True}),
        (
            "(Exchange IS NOT NULL AND (Desk = ('a') AND 'NYSE' = Exchange)) AND Exchange='NYSE'",
            {"Exchange": "NYSE", "Desk": "a"},
        ),
    ],
)
def test_a_selector_that_somebody_wrote_is_a_matcher(selector: str | None, clauses: dict[str, Any]) -> None:
    matcher = ContentMatcher.of_queue(declared(selector))
    assert matcher == ContentMatcher.of({"Symbol": True, **clauses})


@pytest.mark.parametrize(
    "selector",
    [
        "price > 100",
        "Exchange <> 'NYSE'",
        "Exchange IS NULL",
        "Exchange = 'NYSE' OR Desk = 'a'",
        "NOT Exchange = 'NYSE'",
        "Exchange = 'NYSE' AND Exchange = 'LSE'",
        "Exchange = 5",
        "Exchange = Desk",
        "JMSPriority = '4'",
        "lvq_key = 'IBM'",
        "TRUE = 'IBM'",
        "Exchange = 'NYSE' AND",
        "Exchange = 'NYSE' Desk = 'a'",
        "AND Exchange = 'NYSE'",
        "Exchange = 'NYSE' AND AND Desk = 'a'",
        "(Exchange = 'NYSE') = TRUE",
        "'NYSE' = 'NYSE'",
        "'NYSE' IS NOT NULL",
        "Exchange IS NOT NULL AND Exchange = 'NYSE' AND 'LSE' = Exchange",
    ],
)
def test_another_selector_is_no_matcher(selector: str) -> None:
    assert ContentMatcher.of_queue(declared(selector)) is None


TOKENS = st.sampled_from(
    ["a", "b", '"a"', "'x'", "'y'", "=", "=", "(", ")", "AND", "and", "IS NOT NULL", "IS", "NOT", "OR"]
)


@given(
    st.lists(TOKENS, min_size=1, max_size=12).map(" ".join),
    st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from("xy")),
)
@example("( a = 'x' AND ( 'x' = a ) )", {"a": "x"})
def test_a_selector_that_is_a_matcher_selects_what_the_matcher_means(text: str, fields: dict[str, str]) -> None:
    matcher = ContentMatcher.of_queue(declared(text))
    try:
        selector = Selector(text, "ticker")
    except ConfigError:
        return  # nobody can read such a queue
    if matcher is not None:
        means = matcher.selector("Symbol")
        record = Record(0, 0, 0, b"k", b"v", tuple((name, value.encode()) for name, value in fields.items()))
        assert selector.matches(record) == (means is None or Selector(means, "ticker").matches(record))


def test_a_queue_without_a_key_header_has_no_matcher() -> None:
    assert ContentMatcher.of_queue(declared(None, key_header=None)) is None


@pytest.mark.parametrize("value", [False, None, 1, 1.5, ["NYSE"], {"a": "b"}])
def test_a_clause_that_is_no_string_is_refused(value: object) -> None:
    with pytest.raises(NotAString, match="not a string") as caught:
        ContentMatcher.of({"Exchange": value})
    assert (caught.value.field, caught.value.options) == ("Exchange", ("matcher",))
    assert pickle.loads(pickle.dumps(caught.value)).field == "Exchange"


@pytest.mark.parametrize("clauses", [{}, {"Exchange": "NYSE"}, {"Symbol": True}])
def test_a_subscriber_has_to_ask_for_a_value_of_the_key_field(clauses: dict[str, Any]) -> None:
    with pytest.raises(NoKeyTest, match="does not test the key field 'Symbol' for a value") as caught:
        ContentMatcher.of(clauses).key("Symbol")
    assert caught.value.key_field == "Symbol"
    assert '"Symbol": "VALUE"' in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "IBM",
        "[]",
        "null",
        '"Symbol"',
        '{"Symbol": "IBM", "Symbol": "MSFT"}',
        '{"Symbol": NaN}',
        '{"": "IBM"}',
        '{"a\\u0000b": "IBM"}',
        '{"\\ud800": "IBM"}',
        '{"Symbol": "\\ud800"}',
        '{"Symbol": "\\udc80"}',
        '{"a":' * 100_000,
        "[" * 100_000,
        '{"Symbol": ' + "[" * 600 + "]" * 600 + "}",
        '{"Symbol": "' + "x" * 70_000 + '"}',
        '{"Symbol": ' + "9" * 5000 + "}",
    ],
)
def test_text_that_is_no_matcher_is_an_error_of_a_few_words(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ContentMatcher.of(text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("given", [None, 5, ["Symbol"], {5: "IBM"}, {b"Symbol": "IBM"}, {"Symbol": "x" * 70_000}])
def test_an_object_that_is_no_matcher_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError):
        ContentMatcher.of(given)


@given(st.text(max_size=200) | anything.map(lambda value: json.dumps(value)))
def test_a_text_is_a_matcher_or_an_error_of_this_library(text: str) -> None:
    try:
        matcher = ContentMatcher.of(text)
    except LVQError:
        return
    assert ContentMatcher.of(str(matcher)) == matcher
