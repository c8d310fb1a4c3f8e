"""Content matchers: the messages of a durable, as JSON and as a selector.

A matcher is an object of JSON. Each field is a clause: ``true`` asks for the field, a string for that value of it. A
message has to meet all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lvq_kafka.core.queue.default_filters import LONGEST_SELECTOR
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.headers import header_fault
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError, NoKeyTest, NotAString

__all__ = ["ContentMatcher"]

_SPACE = " \t\f\r\n"
_TOKEN = re.compile(
    rf"""[{_SPACE}]* (?: (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")+") | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<mark>[()=]) ) [{_SPACE}]*""",
    re.VERBOSE,
)
_KINDS = {"=": "=", "and": "&", "is": "i", "not": "n", "null": "0"}
_CLAUSES = re.compile("(?:(?:w=t|t=w|win0)(?:&(?=.)|$))*")
"""A conjunction of tests, by the kinds of its tokens: a word that names a header, and a text."""

_NO_HEADERS = re.compile(r"JMS\w*|lvq_key|(?i:true|false)")
"""Words of selectors that are not, or not always, the name of a header."""


@dataclass(frozen=True, slots=True)
class ContentMatcher:
    """The clauses of a matcher, by field: a string for that value, True for any.

    Two are equal if they mean the same, whatever the order and the spaces of their texts.
    """

    clauses: Mapping[str, str | bool]

    @classmethod
    def of(cls, given: str | Mapping[str, Any]) -> ContentMatcher:
        """Return the matcher that a caller gives, as the text of JSON or as a mapping.

        Raises:
            ConfigError: it is not an object of JSON, it names a field twice, a name or value cannot be a header's, or
                it is longer than a selector may be.
            NotAString: a clause is neither a string nor ``true``.
        """
        if isinstance(given, str):
            given = _read(given)
        if not isinstance(given, Mapping):
            raise _malformed(f"it is {quoted(given)}")
        for name, value in given.items():
            _check_clause(name, value)
        matcher = cls(MappingProxyType(dict(given)))
        if len(matcher.selector() or "") > LONGEST_SELECTOR:
            raise _too_long()
        return matcher

    @classmethod
    def of_queue(cls, definition: QueueDefinition) -> ContentMatcher | None:
        """Return the matcher of a durable, given its queue: its key clause and its selector.

        None if the queue has no key header, or a selector that is no matcher.
        """
        if definition.key_header is None:
            return None
        clauses = _clauses_of(definition.selector or "")
        return None if clauses is None else cls(MappingProxyType({definition.key_header: True, **clauses}))

    def generalized(self, key_field: str) -> ContentMatcher:
        """Return the matcher of the durable of a subscriber: one for any value of the key field."""
        return ContentMatcher(MappingProxyType({**self.clauses, key_field: True}))

    def key(self, key_field: str) -> str:
        """Return the value of the key field that a subscriber asks for.

        Raises:
            NoKeyTest: it asks for none.
        """
        value = self.clauses.get(key_field)
        if isinstance(value, str):
            return value
        raise NoKeyTest(
            f"The content matcher {self} does not test the key field {quoted(key_field)} for a value.",
            key_field=key_field,
            hint=f"A subscriber gets the messages of one key: {ContentMatcher({**self.clauses, key_field: 'VALUE'})}.",
        )

    def selector(self, key_field: str | None = None) -> str | None:
        """Return the selector that means the same; None if all messages meet it.

        Args:
            key_field: the key header of a queue, whose messages have one; its presence is not tested again.
        """
        parts = [
            f'"{_doubled(name, chr(34))}" '
            + ("IS NOT NULL" if value is True else f"= '{_doubled(str(value), chr(39))}'")
            for name, value in sorted(self.clauses.items())
            if not (name == key_field and value is True)
        ]
        return " AND ".join(parts) or None

    def __str__(self) -> str:
        """Return the matcher as JSON, with its fields in order."""
        return json.dumps(dict(self.clauses), sort_keys=True, ensure_ascii=False)


def _read(text: str) -> Any:
    if len(text) > LONGEST_SELECTOR:
        raise _too_long()
    try:
        return read_json(text, once=True)
    except ValueError as error:
        raise _malformed(str(error)) from None


def _check_clause(name: object, value: object) -> None:
    if not isinstance(name, str) or not name:
        raise _malformed(f"{quoted(name)} cannot be the name of a field")
    if (fault := header_fault(name)) is not None:
        raise _malformed(f"{quoted(name)} cannot be the name of a field: {fault}")
    if value is True:
        return
    if not isinstance(value, str):
        raise NotAString(
            f"The content matcher tests the field {quoted(name)} for {quoted(value)}, which is not a string.",
            field=name,
            hint="Give a string for that value, or true for any.",
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _malformed(f"{quoted(name)} is tested for text that UTF-8 cannot encode") from None


def _malformed(why: str) -> ConfigError:
    return ConfigError(
        f"The content matcher is not an object of JSON with a clause for each field: {why}.",
        options=["matcher"],
        hint='For example {"Symbol": "IBM", "Exchange": "NYSE"}.',
    )


def _too_long() -> ConfigError:
    return ConfigError(
        f"The content matcher has more than {LONGEST_SELECTOR:,} characters.",
        options=["matcher"],
        hint="Match a field that says in fewer words which messages are meant.",
    )


def _clauses_of(selector: str) -> dict[str, str | bool] | None:
    """Return the clauses of a selector that is a conjunction of them; None of another one.

    `ContentMatcher.selector` writes such a selector, but somebody who declares a durable may write one, too.
    """
    found = _named_tokens(selector)
    if found is None or _CLAUSES.fullmatch("".join(kind for kind, _ in found)) is None:
        return None
    clauses: dict[str, str | bool] = {}
    tests: list[dict[str, str]] = [{}]
    for kind, said in found:
        if kind == "&":
            tests.append({})
        else:
            tests[-1][kind] = said
    for test in filter(None, tests):
        value = test.get("t", True)
        before = clauses.setdefault(test["w"], value)
        if before is True:  # a field that equals a text is there, too
            clauses[test["w"]] = value
        elif value not in (True, before):
            return None
    return clauses


def _named_tokens(selector: str) -> list[tuple[str, str]] | None:
    """Return the tokens of a selector, with their kinds; None if no clause has one.

    Parentheses are left out: in a valid selector of clauses alone, they change nothing.
    """
    found: list[tuple[str, str]] = []
    at, end = 0, len(selector := selector.strip(_SPACE))
    while at < end:
        token = _TOKEN.match(selector, at)
        if token is None:
            return None
        at, said = token.end(), token[token.lastgroup or 0]
        if token.lastgroup == "text":
            found.append(("t", said[1:-1].replace("''", "'")))
        elif token.lastgroup == "quoted":
            found.append(("w", said[1:-1].replace('""', '"')))
        elif kind := _KINDS.get(said.lower()):
            found.append((kind, said))
        elif token.lastgroup == "word":
            if _NO_HEADERS.fullmatch(said):
                return None
            found.append(("w", said))
    return found


def _doubled(text: str, quote: str) -> str:
    return text.replace(quote, quote * 2)
