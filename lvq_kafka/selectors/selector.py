"""A selector, compiled."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lvq_kafka.core.quoting import quoted
from lvq_kafka.core.records import Record
from lvq_kafka.core.selector_text import check_selector
from lvq_kafka.core.sql_logic import Clause
from lvq_kafka.extras import needing

__all__ = ["Selector"]


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

    __slots__ = ("_clause", "text", "topic")

    def __init__(self, text: str, topic: str, *, option: str = "selector") -> None:
        self.text = check_selector(text, option)
        self.topic = topic
        self._clause = _compiled(text, topic, option)

    def matches(self, record: Record) -> bool:
        """Return whether the condition is true for a record. Where it is unknown, it is not."""
        return self._clause(dict(record.headers), record) is True

    def __reduce__(self) -> tuple[Any, ...]:
        return Selector, (self.text, self.topic)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and (self.text, self.topic) == (other.text, other.topic)

    def __hash__(self) -> int:
        return hash((self.text, self.topic))

    def __repr__(self) -> str:
        return f"Selector({quoted(self.text)})"


@lru_cache(maxsize=64)
def _compiled(text: str, topic: str, option: str) -> Clause:
    with needing("selectors", f"The option {option}"):
        from lvq_kafka.selectors.grammar import compile_selector
    return compile_selector(text, topic, option)
