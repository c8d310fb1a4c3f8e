"""A selector, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lvq_kafka.core.quoting import quoted
from lvq_kafka.core.records import Record
from lvq_kafka.core.selector_text import check_selector
from lvq_kafka.extras import needing

if TYPE_CHECKING:
    from lvq_kafka.selectors.grammar import Compiled

__all__ = ["Selector"]

_NO_RECORD = Record(-1, -1, -1, None, None, ())
"""Stands for the record where a clause reads headers only."""


class Selector:
    """A condition on messages, in the syntax of JMS selectors.

    For example ``price > 100 AND exchange IN ('NYSE', 'LSE')``. It can be pickled. Comparing two compares their texts.

    Args:
        text: the condition.
        topic: the topic of the messages, for ``JMSMessageID``.
        option: the option that errors name.

    Raises:
        ConfigError: the text is not a selector; says where, and what was expected there.
        MissingExtra: the packages of the extra ``selectors`` are not installed.
    """

    __slots__ = ("_clause", "by_headers", "text", "topic")

    def __init__(self, text: str, topic: str, *, option: str = "selector") -> None:
        self.text = check_selector(text, option)
        self.topic = topic
        compiled = _compiled(text, topic, option)
        self._clause = compiled.clause
        self.by_headers = None if compiled.of_record else self._matches_headers
        """See `Condition.by_headers`."""

    def matches(self, record: Record) -> bool:
        """Return whether the condition is true for a record. Where it is unknown, it is not."""
        return self._clause(dict(record.headers), record) is True

    def _matches_headers(self, headers: Sequence[tuple[str, bytes | None]]) -> bool:
        return self._clause(dict(headers), _NO_RECORD) is True

    def __reduce__(self) -> tuple[Any, ...]:
        return Selector, (self.text, self.topic)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and (self.text, self.topic) == (other.text, other.topic)

    def __hash__(self) -> int:
        return hash((self.text, self.topic))

    def __repr__(self) -> str:
        return f"Selector({quoted(self.text)})"


@lru_cache(maxsize=64)
def _compiled(text: str, topic: str, option: str) -> Compiled:
    with needing("selectors", f"The option {option}"):
        from lvq_kafka.selectors.grammar import compile_selector
    return compile_selector(text, topic, option)
