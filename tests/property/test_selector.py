"""Random selectors over random headers, against an evaluator that shares nothing with the library's."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.log.records import Record
from lvq_kafka.selectors.selector import Selector
from tests.effort import examples

NAMES = ("a", "b", "_c$", "content-type", "and", "lvq_key")
TEXTS = ("", "a", "ab", "it's", "5", "-2", "2.5", "true", "FALSE", "1e3", "é_%", "9223372036854775807", " 5")
HEADERS = st.dictionaries(st.sampled_from(NAMES[:-1]), st.sampled_from([None, *TEXTS]))

# An expression is a tuple: its kind, then its parts.
headers = st.tuples(st.just("name"), st.sampled_from(NAMES))
numbers = st.one_of(
    st.tuples(st.just("exact"), st.one_of(st.integers(0, 9), st.integers(2**63 - 2, 2**63 - 1))),
    st.tuples(st.just("approximate"), st.sampled_from([0.0, 0.5, 2.5, 1e3, 1e308])),
    headers,
)
arithmetic = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(st.just("arithmetic"), st.sampled_from("+-*/"), inner, inner), st.tuples(st.just("minus"), inner)
    ),
    max_leaves=4,
)
# The characters of a pattern, and whether each stands for itself.
units = st.one_of(st.tuples(st.sampled_from("ab%_!é"), st.just(True)), st.tuples(st.sampled_from("%_"), st.just(False)))
patterns = st.lists(units, max_size=6)
texts = st.tuples(st.just("text"), st.sampled_from(TEXTS))
ORDER = ("=", "<>", "<", "<=", ">", ">=")
atoms = st.one_of(
    headers,
    st.tuples(st.just("boolean"), st.booleans()),
    st.tuples(st.just("compare"), st.sampled_from(ORDER), arithmetic, arithmetic),
    st.tuples(st.just("compare"), st.sampled_from(ORDER[:2]), headers, texts),
    st.tuples(st.just("compare"), st.sampled_from(ORDER[:2]), texts, headers),
    st.tuples(st.just("between"), st.booleans(), arithmetic, arithmetic, arithmetic),
    st.tuples(st.just("in"), st.booleans(), headers, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3)),
    st.tuples(st.just("like"), st.booleans(), headers, patterns),
    st.tuples(st.just("null"), st.booleans(), headers),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("all"), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("any"), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(
            st.just("compare"),
            st.sampled_from(ORDER[:2]),
            st.tuples(st.just("not"), inner),
            inner.filter(lambda expression: expression[0] not in ("name", "text")),
        ),
    ),
    max_leaves=8,
)

# -------------------------------------------------------------------- rendering, with parentheses and spaces at random


def written(expression: Any, chance: random.Random) -> str:
    text = _written(expression, chance)
    loose = expression[0] in ("name", "exact", "approximate", "text", "boolean")
    if not loose or chance.random() < 0.2:
        text = f"({text})"
    return text + " " * chance.randrange(2)


def _word(word: str, chance: random.Random) -> str:
    return "".join(chance.choice((c.upper(), c.lower())) for c in word)


def _written(expression: Any, chance: random.Random) -> str:
    kind, *parts = expression
    negation = f" {_word('not', chance)}" if kind in ("between", "in", "like") and parts[0] else ""
    match kind:
        case "name":
            plain = parts[0] not in ("content-type", "and") and chance.random() < 0.8
            return parts[0] if plain or parts[0] == "lvq_key" else f'"{parts[0]}"'
        case "exact":
            return chance.choice((str(parts[0]), f"{parts[0]}L", hex(parts[0])))
        case "approximate":
            return chance.choice((repr(parts[0]), f"{parts[0]!r}d"))
        case "text":
            return _text(parts[0])
        case "boolean":
            return _word(str(parts[0]), chance)
        case "minus":
            return f"- {written(parts[0], chance)}"
        case "arithmetic" | "compare":
            return f"{written(parts[1], chance)}{parts[0]} {written(parts[2], chance)}"
        case "between":
            term, low, high = (written(part, chance) for part in parts[1:])
            return f"{term}{negation} {_word('between', chance)} {low} {_word('and', chance)} {high}"
        case "in":
            return f"{written(parts[1], chance)}{negation} {_word('in', chance)} ({', '.join(map(_text, parts[2]))})"
        case "like":
            escaped = any(plain and character in "%_!" for character, plain in parts[2]) or chance.random() < 0.5
            escape = f" {_word('escape', chance)} '!'" if escaped else ""
            return f"{written(parts[1], chance)}{negation} {_word('like', chance)} {_pattern(parts[2])}{escape}"
        case "null":
            return f"{written(parts[1], chance)} {_word('is', chance)}{' not' if parts[0] else ''} null"
        case "not":
            return f"{_word('not', chance)} {written(parts[0], chance)}"
    joint = " and " if kind == "all" else " or "
    return joint.join(written(part, chance) for part in parts[0])


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _pattern(units: list[tuple[str, bool]]) -> str:
    return _text("".join(f"!{character}" if plain and character in "%_!" else character for character, plain in units))


# -------------------------------------------------------------------- the naive evaluator


def value(expression: Any, fields: dict[str, str | None]) -> Any:
    """Return a number (int or float), or None."""
    kind, *parts = expression
    if kind == "name":
        return parsed(fields.get(parts[0]))
    if kind in ("exact", "approximate"):
        return parts[0]
    if kind == "minus":
        one = value(parts[0], fields)
        return None if one is None else checked(-one)
    one, other = value(parts[1], fields), value(parts[2], fields)
    if one is None or other is None:
        return None
    exact = isinstance(one, int) and isinstance(other, int)
    if parts[0] == "/":
        if other == 0:
            return None
        if exact:
            quotient = Fraction(one, other)
            return checked(int(quotient))  # towards zero
        return checked(float(one) / float(other))
    if not exact:
        one, other = float(one), float(other)
    return checked({"+": one + other, "-": one - other, "*": one * other}[parts[0]])


def checked(number: int | float) -> int | float | None:
    if isinstance(number, int):
        return number if -(2**63) <= number <= 2**63 - 1 else None
    return None if number != number or abs(number) == float("inf") else number


def parsed(text: str | None) -> int | float | None:
    if text is None:
        return None
    if re.fullmatch("-?[0-9]+", text):
        return checked(int(text))
    return float(text) if text in ("2.5", "1e3") else None


def truth(expression: Any, fields: dict[str, str | None]) -> bool | None:
    kind, *parts = expression
    match kind:
        case "name":
            return {"true": True, "false": False}.get((fields.get(parts[0]) or "").lower())
        case "boolean":
            return parts[0]
        case "compare":
            return compared(*parts, fields)
        case "between":
            low = compared(">=", parts[1], parts[2], fields)
            high = compared("<=", parts[1], parts[3], fields)
            return inverted(worst([low, high]), parts[0])
        case "in":
            text = fields.get(parts[1][1])
            return None if text is None else (text in parts[2]) != parts[0]
        case "like":
            text = fields.get(parts[1][1])
            return None if text is None else like(text, parts[2]) != parts[0]
        case "null":
            return (fields.get(parts[1][1]) is None) != parts[0]
        case "not":
            return inverted(truth(parts[0], fields), True)
        case "all":
            return worst([truth(part, fields) for part in parts[0]])
    return inverted(worst([inverted(truth(part, fields), True) for part in parts[0]]), True)


def inverted(outcome: bool | None, really: bool) -> bool | None:
    return (not outcome) if really and outcome is not None else outcome


def worst(outcomes: list[bool | None]) -> bool | None:
    return False if False in outcomes else None if None in outcomes else True


CONDITIONS = ("boolean", "compare", "between", "in", "like", "null", "not", "all", "any")


def compared(symbol: str, left: Any, right: Any, fields: dict[str, str | None]) -> bool | None:
    kinds = {left[0], right[0]}
    if kinds & set(CONDITIONS):
        one, other = truth(left, fields), truth(right, fields)
    elif "text" in kinds or (kinds == {"name"} and symbol in ("=", "<>")):
        one, other = (part[1] if part[0] == "text" else fields.get(part[1]) for part in (left, right))
    else:
        one, other = value(left, fields), value(right, fields)
    if one is None or other is None:
        return None
    if isinstance(one, int | float) and not isinstance(one, bool):
        one, other = Fraction(one), Fraction(other)
    return {
        "=": one == other,
        "<>": one != other,
        "<": symbol == "<" and one < other,
        "<=": symbol == "<=" and one <= other,
        ">": symbol == ">" and one > other,
        ">=": symbol == ">=" and one >= other,
    }[symbol]


def like(text: str, pattern: list[tuple[str, bool]]) -> bool:
    if not pattern:
        return not text
    (character, plain), *rest = pattern
    if plain:
        return text[:1] == character and like(text[1:], rest)
    if character == "_":
        return bool(text) and like(text[1:], rest)
    return any(like(text[at:], rest) for at in range(len(text) + 1))


# -------------------------------------------------------------------- the property


@settings(max_examples=examples(300), deadline=None)
@given(conditions, st.lists(HEADERS, min_size=1, max_size=4), st.sampled_from(TEXTS), st.integers(0, 2**32))
def test_a_selector_judges_as_the_naive_evaluator_does(
    condition: Any, samples: list[dict[str, str | None]], key: str, seed: int
) -> None:
    text = written(condition, random.Random(seed))
    selected, rejected = Selector(text, "prices"), Selector(f"NOT ({text})", "prices")
    for fields in samples:
        encoded = tuple((name, None if found is None else found.encode()) for name, found in fields.items())
        record = Record(0, 1, 2, key.encode(), b"", encoded)
        expected = truth(condition, {**fields, "lvq_key": key})
        assert (selected.matches(record), rejected.matches(record)) == (expected is True, expected is False), text
        if selected.by_headers is not None:
            assert selected.by_headers(encoded) == (expected is True), text
        assert (selected.by_headers is None) == ("lvq_key" in text)
