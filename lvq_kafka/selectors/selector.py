"""A selector, compiled."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lvq_kafka.core.latest.conditions import ByHeaders
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.default_filters import check_selector
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.runtime.extras import needing
from lvq_kafka.selectors.like_patterns import LONGEST_TEXT
from lvq_kafka.selectors.sql_logic import Fields

if TYPE_CHECKING:
    from lvq_kafka.selectors.grammar import Compiled

__all__ = ["Selector"]

logger = logging.getLogger("lvq_kafka.selection")

_NO_RECORD = Record(-1, -1, -1, None, None, ())
"""Stands for the record where a clause reads headers only."""
_NO_FIELDS: Fields = {}


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

    __slots__ = ("_clause", "_likes", "by_headers", "reads", "text", "topic", "unjudged")

    def __init__(self, text: str, topic: str, *, option: str = "selector") -> None:
        self.text = check_selector(text, option)
        self.topic = topic
        compiled = _compiled(text, topic, option)
        self._clause = compiled.clause
        self._likes = compiled.likes
        self.by_headers = None if compiled.of_record else self._for_headers(compiled)
        """See `Condition.by_headers`."""
        self.reads = compiled.reads
        """The names of the headers that it reads."""
        self.unjudged = 0
        """The number of messages with a text too long for a pattern, by which it is unknown whether they match."""

    def matches(self, record: Record) -> bool:
        """Return whether the condition is true for a record. Where it is unknown, it is not."""
        return self._judge(dict(record.headers), record)

    def _judge(self, fields: Fields, record: Record) -> bool:
        outcome = self._clause(fields, record)
        if outcome is None and self._likes:
            self._note(fields, record)
        return outcome is True

    def _note(self, fields: Fields, record: Record) -> None:
        """Note that the outcome is unknown, if a text is too long for its pattern."""
        longest = max(len(like(fields, record) or b"") for like in self._likes)
        if longest <= LONGEST_TEXT:
            return
        self.unjudged += 1
        if self.unjudged == 1:
            logger.warning(
                "a message of %s is not selected: LIKE takes %s bytes, and a text has %s, so it is unknown whether it "
                "meets %s. Further ones are only counted.",
                self.topic,
                f"{LONGEST_TEXT:,}",
                f"{longest:,}",
                quoted(self.text),
            )

    def _for_headers(self, compiled: Compiled) -> ByHeaders:
        """Return the condition on headers alone.

        Most selectors read a single header. They look for that one, which takes half the time of a dictionary.
        """
        if len(compiled.reads) != 1:
            return lambda headers: self._judge(dict(headers), _NO_RECORD)
        clause, likes = compiled.clause, compiled.likes
        (name,) = compiled.reads

        def matches(headers: Sequence[tuple[str, bytes | None]]) -> bool:
            for cell in reversed(headers):  # the last one counts
                if cell[0] == name:
                    outcome = clause({name: cell[1]}, _NO_RECORD)
                    if outcome is None and likes:
                        self._note({name: cell[1]}, _NO_RECORD)
                    return outcome is True
            return clause(_NO_FIELDS, _NO_RECORD) is True

        return matches

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
    with needing("selectors", f"The option `{option}`", options=[option]):
        from lvq_kafka.selectors.grammar import compile_selector
    return compile_selector(text, topic, option)
