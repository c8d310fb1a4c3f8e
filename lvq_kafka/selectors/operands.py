"""The parts of a selector by type, and the operators that each may have.

Every error names a place in the selector's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, JMS_GROUP_HEADER
from lvq_kafka.core.queue.ranking import DEFAULT_PRIORITY, PRIORITY_HEADER
from lvq_kafka.errors import UnencodableKey
from lvq_kafka.selectors import sql_logic
from lvq_kafka.selectors.like_patterns import LONGEST_PATTERN, LikePattern
from lvq_kafka.selectors.sql_logic import Clause, Fields, Number, Term, boolean_of, constant, number_of, read_as

__all__ = [
    "KEY_NAME",
    "Misplaced",
    "Operand",
    "all_of",
    "any_of",
    "between",
    "calculation",
    "clause_of",
    "comparison",
    "header",
    "identifier",
    "is_null",
    "like",
    "literal",
    "membership",
    "negation",
    "number",
    "signed",
]

Kind = Literal["header", "text", "number", "boolean"]
"""The type of an operand. A header's is not known before something is compared with it."""

KEY_NAME = "lvq_key"
"""The identifier of the record key."""

_DEEPEST = 100  # operators within operators; each is a call within a call when a record is judged
_OCTAL = re.compile("0[0-7]+")


class Misplaced(Exception):
    """Something does not fit at a place of the text; becomes a `ConfigError`."""

    def __init__(self, message: str, at: int, *, hint: str = "") -> None:
        super().__init__(message)
        self.at = at
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Operand:
    """A part of a selector."""

    kind: Kind
    term: Term[Any]
    """Yields bytes for a header and for text."""
    at: int
    """The place where it begins, in characters."""
    depth: int = 0
    name: str = ""
    """The identifier, of a part that is only that."""
    header_name: str = ""
    """The name of a header, of a part that is only that."""
    constant: Any = None
    """The value, of a part that is only that."""
    of_record: bool = False
    """Whether it needs more of a record than its headers."""
    reads: frozenset[str] = frozenset()
    """The names of the headers that it reads."""
    likes: tuple[Term[bytes], ...] = ()
    """The texts that it compares with patterns."""


# ---------------------------------------------------------------- atoms


def literal(kind: Kind, value: object, at: int) -> Operand:
    """Return an operand with a fixed value."""
    if isinstance(value, str):
        try:
            value = encode_key(value)
        except UnencodableKey:
            raise Misplaced("this text has a character that UTF-8 cannot encode", at) from None
    return Operand(kind, constant(value), at, constant=value)


def number(text: str, at: int) -> Operand:
    """Return the operand for a number as Java writes it.

    It is approximate with a decimal point or an exponent, else exact, in hexadecimal and octal, too.
    """
    digits = text.lower()
    if not digits.startswith("0x") and any(mark in digits for mark in ".edf"):
        value: Number = float(digits.rstrip("fd"))
        if value == float("inf"):
            raise Misplaced("this number is too large for a double", at)
        return literal("number", value, at)
    digits = digits.rstrip("l")
    if len(digits) > 64:
        raise _too_large(at)
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] != "x"
    if octal and not _OCTAL.fullmatch(digits):
        raise Misplaced("a number that begins with 0 is octal, and has only the digits 0 to 7", at)
    value = int(digits, 8 if octal else 16 if digits.startswith("0x") else 10)
    if value > sql_logic.LARGEST_EXACT:  # itself allowed, since its opposite is
        raise _too_large(at)
    return literal("number", value, at)


def _too_large(at: int) -> Misplaced:
    hint = "Write it with a decimal point if an approximate number will do."
    return Misplaced("this number is too large for 64 bits", at, hint=hint)


def header(name: str, at: int) -> Operand:
    """Return the operand for the last header of a name."""
    reads = frozenset((name,))
    return Operand("header", lambda fields, record: fields.get(name), at, name=name, header_name=name, reads=reads)


def identifier(name: str, at: int, topic: str) -> Operand:
    """Return the operand for an unquoted name.

    JMS or this library defines it, or it is that of a header.
    """
    if name == "JMSPriority":
        return Operand("number", _priority, at, name=name, reads=frozenset((PRIORITY_HEADER,)))
    if name == "JMSTimestamp":
        return Operand("number", _timestamp, at, name=name, of_record=True)
    term = _defined(name, topic)
    if term is None:
        return header(name, at)
    reads = frozenset((GROUP_HEADER, name)) if name == JMS_GROUP_HEADER else frozenset[str]()
    return Operand("header", term, at, name=name, of_record=name in ("JMSMessageID", KEY_NAME), reads=reads)


def _defined(name: str, topic: str) -> Term[bytes] | None:
    if name == "JMSMessageID":
        return lambda fields, record: str(Position(topic, record.partition, record.offset)).encode()
    if name == "JMSDeliveryMode":
        return constant(b"PERSISTENT")
    if name == JMS_GROUP_HEADER:
        return lambda fields, record: fields.get(GROUP_HEADER, fields.get(name))
    if name == KEY_NAME:
        return lambda fields, record: record.key
    return None


def _priority(fields: Fields, record: Record) -> Number | None:
    data = fields.get(PRIORITY_HEADER)
    return DEFAULT_PRIORITY if data is None else number_of(data)


def _timestamp(fields: Fields, record: Record) -> Number | None:
    return record.timestamp if record.timestamp >= 0 else None


# ---------------------------------------------------------------- operators


def calculation(first: Operand, rest: Sequence[tuple[str, Operand]]) -> Operand:
    """Return the result of arithmetic operators of one rank."""
    term = sql_logic.calculated(_number_term(first), [(symbol, _number_term(operand)) for symbol, operand in rest])
    return _over("number", term, [first, *(operand for _, operand in rest)])


def signed(sign: str, operand: Operand, at: int) -> Operand:
    """Return a number with a sign."""
    term = _number_term(operand)
    return replace(_over("number", sql_logic.opposite(term) if sign == "-" else term, [operand]), at=at)


def comparison(left: Operand, symbol: str, right: Operand, at: int) -> Operand:
    """Return a comparison, whose sides are read as what the other side is."""
    terms = _alike(left, symbol, right, at)
    if left.header_name and right.constant is not None:
        clause = sql_logic.compared_with(symbol, left.header_name, _READERS[right.kind], right.constant)
    else:
        clause = sql_logic.compared(symbol, *terms)
    return _over("boolean", clause, [left, right])


def _alike(left: Operand, symbol: str, right: Operand, at: int) -> tuple[Term[Any], Term[Any]]:
    kinds = {left.kind, right.kind} - {"header"}
    if len(kinds) > 1:
        raise Misplaced(f"{_NAMES[left.kind]} is compared with {_NAMES[right.kind]}", at)
    equality = symbol in ("=", "<>")
    kind = kinds.pop() if kinds else ("text" if equality else "number")
    if kind == "number":
        return _number_term(left), _number_term(right)
    if not equality:
        hint = "Only numbers have an order." + (" Write a number without quotes." if kind == "text" else "")
        raise Misplaced(f"{_NAMES[kind]} can only be compared with = and <>", at, hint=hint)
    return (_boolean_term(left), _boolean_term(right)) if kind == "boolean" else (left.term, right.term)


def between(operand: Operand, low: Operand, high: Operand) -> Operand:
    """Return whether a number lies between two others."""
    term = sql_logic.within(_number_term(operand), _number_term(low), _number_term(high))
    return _over("boolean", term, [operand, low, high])


def membership(operand: Operand, texts: Sequence[str]) -> Operand:
    """Return whether a header's text is one of these."""
    chosen = [text.encode("utf-8", "surrogateescape") for text in texts]
    return _over("boolean", sql_logic.is_one_of(_header_term(operand, "IN"), chosen), [operand])


def like(operand: Operand, pattern: str, pattern_at: int, escape: str | None, escape_at: int) -> Operand:
    """Return whether a header's text has this pattern."""
    if escape is not None and len(escape) != 1:
        raise Misplaced(f"ESCAPE needs one character, not {len(escape):,}", escape_at)
    if len(pattern) > LONGEST_PATTERN:
        message = f"this pattern has {len(pattern):,} characters; {LONGEST_PATTERN:,} are allowed"
        raise Misplaced(message, pattern_at)
    try:
        compiled = LikePattern(pattern, escape)
    except ValueError as error:
        hint = "It must precede %, _ or itself."
        raise Misplaced(f"in this pattern the escape character {error}", pattern_at, hint=hint) from None
    term = _header_term(operand, "LIKE")
    return replace(_over("boolean", sql_logic.resembles(term, compiled), [operand]), likes=(term,))


def is_null(operand: Operand) -> Operand:
    """Return whether there is no such header."""
    if not operand.name:
        raise Misplaced("IS NULL needs the name of a header", operand.at)
    return _over("boolean", sql_logic.is_missing(operand.term), [operand])


def negation(operand: Operand, at: int) -> Operand:
    """Return the opposite of a condition."""
    return replace(_over("boolean", sql_logic.negated(clause_of(operand)), [operand]), at=at)


def all_of(operands: Sequence[Operand]) -> Operand:
    """Return the conjunction of conditions."""
    return _over("boolean", sql_logic.all_hold(list(map(clause_of, operands))), operands)


def any_of(operands: Sequence[Operand]) -> Operand:
    """Return the disjunction of conditions."""
    return _over("boolean", sql_logic.any_holds(list(map(clause_of, operands))), operands)


def clause_of(operand: Operand) -> Clause:
    """Return the clause that an operand is; a header is read as a boolean."""
    if operand.kind in ("text", "number"):
        hint = "Compare it, for example price > 100."
        raise Misplaced(f"{_NAMES[operand.kind]} is not a condition", operand.at, hint=hint)
    return _boolean_term(operand)


# ---------------------------------------------------------------- types

_NAMES: dict[Kind, str] = {
    "header": "a header",
    "text": "text in quotes",
    "number": "a number",
    "boolean": "a condition",
}


_READERS: dict[Kind, Callable[[bytes], Any] | None] = {"number": number_of, "boolean": boolean_of, "text": None}
"""How a header is read where it is compared with a constant."""


def _number_term(operand: Operand) -> Term[Number]:
    if operand.kind == "header":
        return read_as(number_of, operand.term)
    if operand.kind != "number":
        raise Misplaced(f"{_NAMES[operand.kind]} is not a number", operand.at)
    return operand.term


def _boolean_term(operand: Operand) -> Clause:
    return cast(Clause, read_as(boolean_of, operand.term) if operand.kind == "header" else operand.term)


def _header_term(operand: Operand, what: str) -> Term[bytes]:
    if operand.kind != "header":
        raise Misplaced(f"{what} needs the name of a header, and this is {_NAMES[operand.kind]}", operand.at)
    return operand.term


def _over(kind: Kind, term: Term[Any], operands: Sequence[Operand]) -> Operand:
    """Return the operand above others, within the depth that is allowed."""
    depth = 1 + max(operand.depth for operand in operands)
    if depth > _DEEPEST:
        hint = "Join conditions with AND, OR and IN instead."
        raise Misplaced(f"operators are nested more than {_DEEPEST} deep", operands[-1].at, hint=hint)
    of_record = any(operand.of_record for operand in operands)
    reads = frozenset[str]().union(*(operand.reads for operand in operands))
    likes = tuple(dict.fromkeys(like for operand in operands for like in operand.likes))
    return Operand(kind, term, operands[0].at, depth, of_record=of_record, reads=reads, likes=likes)
