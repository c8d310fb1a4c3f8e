"""Conditions on a record, with the three truth values of SQL.

Unknown is None. A term or clause takes a record's headers by name, and the record. Headers have no types on the
wire, so each term reads them as its clause needs: text stays bytes, and text that is not a number or a boolean is
unknown.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from lvq_kafka.core.log.records import Record
from lvq_kafka.selectors.like_patterns import LONGEST_TEXT, LikePattern

__all__ = [
    "COMPARISONS",
    "LARGEST_EXACT",
    "Clause",
    "Fields",
    "Number",
    "Term",
    "all_hold",
    "any_holds",
    "boolean_of",
    "calculated",
    "compared",
    "compared_with",
    "constant",
    "is_missing",
    "is_one_of",
    "negated",
    "number_of",
    "opposite",
    "read_as",
    "resembles",
    "within",
]

T = TypeVar("T")
Number = int | float
Fields = Mapping[str, bytes | None]
"""The headers of a record by name; the last one of a name."""
Term = Callable[[Fields, Record], T | None]
"""Computes a value from a record; None if it has none."""
Clause = Term[bool]
"""Judges a record; None if the outcome is unknown."""

LARGEST_EXACT = 2**63
"""Exact numbers have 64 bits, as in JMS: they are below this one, and not below its opposite."""

_NUMBER = re.compile(rb"[+-]?(?:\d+|(?P<approximate>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+))")
_LONGEST_NUMBER = 400  # characters; more than any number has that a double can hold
_SHORT = 18  # digits that always fit into 64 bits

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# ---------------------------------------------------------------- reading text


def number_of(data: bytes) -> Number | None:
    """Return the number that this text is.

    None if it is none, or too large for 64 bits or a double.
    """
    if len(data) <= _SHORT:  # what most headers have is quicker to see without the pattern
        if data.isdigit():
            return int(data)
        if data.replace(b".", b"", 1).isdigit():
            return float(data)
    if len(data) > _LONGEST_NUMBER or (match := _NUMBER.fullmatch(data)) is None:
        return None
    return _bounded(float(data) if match.lastgroup else int(data))


def boolean_of(data: bytes) -> bool | None:
    """Return the boolean that this text is, in any case of letters; None if it is none."""
    text = data.lower()
    return True if text == b"true" else False if text == b"false" else None


def _bounded(number: Number) -> Number | None:
    if isinstance(number, int):
        return number if -LARGEST_EXACT <= number < LARGEST_EXACT else None
    return number if math.isfinite(number) else None


def read_as(read: Callable[[bytes], T | None], term: Term[bytes]) -> Term[T]:
    """Return the term that reads another one's text."""

    def value(fields: Fields, record: Record) -> T | None:
        data = term(fields, record)
        return None if data is None else read(data)

    return value


def constant(value: T) -> Term[T]:
    """Return the term that has this value for every record."""
    return lambda fields, record: value


# ---------------------------------------------------------------- arithmetic


def calculated(first: Term[Number], rest: Sequence[tuple[str, Term[Number]]]) -> Term[Number]:
    """Return the result of operators, applied from left to right.

    It is unknown if an operand is, or if it cannot be computed. As in Java, the result of two exact numbers is exact:
    their quotient is rounded towards zero.
    """
    steps = [(_ARITHMETIC[symbol], term) for symbol, term in rest]

    def value(fields: Fields, record: Record) -> Number | None:
        result = first(fields, record)
        for operate, term in steps:
            operand = None if result is None else term(fields, record)
            if result is None or operand is None:
                return None
            result = operate(result, operand)
        return result

    return value


def opposite(term: Term[Number]) -> Term[Number]:
    """Return the number with the other sign."""

    def value(fields: Fields, record: Record) -> Number | None:
        number = term(fields, record)
        return None if number is None else _bounded(-number)

    return value


def _quotient(dividend: Number, divisor: Number) -> Number | None:
    if divisor == 0:
        return None
    if isinstance(dividend, int) and isinstance(divisor, int):
        size = abs(dividend) // abs(divisor)
        return _bounded(size if (dividend < 0) == (divisor < 0) else -size)
    try:
        return _bounded(dividend / divisor)
    except OverflowError:
        return None


_ARITHMETIC: Mapping[str, Callable[[Number, Number], Number | None]] = {
    "+": lambda one, other: _bounded(one + other),
    "-": lambda one, other: _bounded(one - other),
    "*": lambda one, other: _bounded(one * other),
    "/": _quotient,
}

# ---------------------------------------------------------------- clauses


def compared(symbol: str, left: Term[T], right: Term[T]) -> Clause:
    """Return the comparison of two terms by a symbol of `COMPARISONS`."""
    holds = COMPARISONS[symbol]

    def judge(fields: Fields, record: Record) -> bool | None:
        one = left(fields, record)
        if one is None:
            return None
        other = right(fields, record)
        return None if other is None else holds(one, other)

    return judge


def compared_with(symbol: str, name: str, read: Callable[[bytes], T | None] | None, value: T) -> Clause:
    """Return the comparison of a header with a constant.

    Most selectors are that, and this takes one call less for each of its parts.

    Args:
        symbol: one of `COMPARISONS`.
        name: that of the header.
        read: reads its text; None to compare that itself.
        value: the constant, on the right.
    """
    holds = COMPARISONS[symbol]

    def judge(fields: Fields, record: Record) -> bool | None:
        data = fields.get(name)
        one = data if data is None or read is None else read(data)
        return None if one is None else holds(one, value)

    def judge_number(fields: Fields, record: Record) -> bool | None:
        data = fields.get(name)
        if data is None:
            return None
        if data.isdigit() and len(data) <= _SHORT:  # as in `number_of`, without the call
            return holds(int(data), value)
        one = number_of(data)
        return None if one is None else holds(one, value)

    return judge_number if read is number_of else judge


def within(term: Term[Number], low: Term[Number], high: Term[Number]) -> Clause:
    """Return whether a number lies between two others, or equals one."""
    return all_hold([compared(">=", term, low), compared("<=", term, high)])


def is_one_of(term: Term[bytes], texts: Collection[bytes]) -> Clause:
    """Return whether a text is one of these."""
    chosen = frozenset(texts)

    def judge(fields: Fields, record: Record) -> bool | None:
        data = term(fields, record)
        return None if data is None else data in chosen

    return judge


def resembles(term: Term[bytes], pattern: LikePattern) -> Clause:
    """Return whether the whole of a text matches a pattern.

    That is unknown of a text longer than `LONGEST_TEXT`. A byte that is not UTF-8 counts as a character.
    """
    matches = pattern.matches

    def judge(fields: Fields, record: Record) -> bool | None:
        data = term(fields, record)
        if data is None or len(data) > LONGEST_TEXT:
            return None
        return matches(data.decode("utf-8", "surrogateescape"))

    return judge


def is_missing(term: Term[object]) -> Clause:
    """Return whether a term has no value, which is never unknown."""
    return lambda fields, record: term(fields, record) is None


def negated(clause: Clause) -> Clause:
    """Return the opposite: unknown stays unknown."""

    def judge(fields: Fields, record: Record) -> bool | None:
        outcome = clause(fields, record)
        return None if outcome is None else not outcome

    return judge


def all_hold(clauses: Sequence[Clause]) -> Clause:
    """Return whether all hold: false if one is false, else unknown if one is."""

    def judge(fields: Fields, record: Record) -> bool | None:
        outcome: bool | None = True
        for clause in clauses:
            one = clause(fields, record)
            if one is None:
                outcome = None
            elif not one:
                return False
        return outcome

    return judge


def any_holds(clauses: Sequence[Clause]) -> Clause:
    """Return whether one holds: true if one is true, else unknown if one is."""

    def judge(fields: Fields, record: Record) -> bool | None:
        outcome: bool | None = False
        for clause in clauses:
            one = clause(fields, record)
            if one is None:
                outcome = None
            elif one:
                return True
        return outcome

    return judge
