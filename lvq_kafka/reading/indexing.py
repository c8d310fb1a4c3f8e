"""Definitions of indexes: by a header, or by a function of entries (R45)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Generic

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.facts import Position
from lvq_kafka.core.latest.index_order import IndexValue, encode_text, encode_value
from lvq_kafka.core.latest.index_rules import IndexRule
from lvq_kafka.core.log.records import Record, header_value
from lvq_kafka.core.text.quoting import bounded, quoted
from lvq_kafka.core.text.validation import function, text, unfinished
from lvq_kafka.errors import ConfigError
from lvq_kafka.reading.entries import Entry, to_entry

__all__ = ["IndexBy", "Indexing"]

logger = logging.getLogger("lvq_kafka.index")

IndexBy = Callable[[Entry[V]], IndexValue | None]
"""Returns what an entry is found by and sorted by; None if it is not to be found."""


class Indexing(Generic[V]):
    """Makes the rules of a view's indexes, and counts the values that have no place in one.

    Args:
        topic: the topic, for positions.
        codec: decodes the values.
        raw_on_error: whether functions get bytes that cannot be decoded.
    """

    def __init__(self, topic: str, codec: Codec[V], *, raw_on_error: bool) -> None:
        self.unindexed = 0
        """The number of values of which an index could not tell the place."""
        self._topic = topic
        self._codec = codec
        self._raw_on_error = raw_on_error

    def rule(self, name: str, by: str | IndexBy[V], version: str | None) -> IndexRule:
        """Return the rule of an index.

        Raises:
            ConfigError: an argument is invalid.
        """
        text("name", name)
        if isinstance(by, str):
            text("by", by)
            if version is not None:
                raise ConfigError(
                    f"version={quoted(version)} is for functions, and by={quoted(by)} is a header.",
                    options=["version", "by"],
                    hint="Leave it out.",
                )
            return IndexRule(name, by, {"header": by}, lambda record: _place_by_header(record, by))
        function("by", by, "entry", hint="An entry is indexed at once, by a plain function.", classes=False)
        said = {"function": token_hex(8)} if version is None else {"version": text("version", version)}
        said["codec"] = self._codec.name  # somebody else may alter the declared format, and not the version
        return IndexRule(name, by, said, lambda record: self._place_by_function(record, by, name))

    def _place_by_function(self, record: Record, by: IndexBy[V], name: str) -> bytes | None:
        assert record.key is not None
        try:
            value = by(to_entry(record, self._topic, self._codec, raw_on_error=self._raw_on_error))
            if value is None:
                return None
            if what := unfinished(value):
                raise TypeError(f"it returned {what}")
            return encode_value(value) + record.key
        except Exception as error:  # noqa: BLE001  # a function may raise anything
            self._leave_out(record, name, error)
            return None

    def _leave_out(self, record: Record, name: str, error: Exception) -> None:
        self.unindexed += 1
        if self.unindexed == 1:
            said = (
                f"The value at {Position(self._topic, record.partition, record.offset)} is not in the index "
                f"{quoted(name)}, which cannot tell its place: {error!r}."
            )
            logger.warning("%s Further ones are only counted.", bounded(said))


def _place_by_header(record: Record, header: str) -> bytes | None:
    value = header_value(record.headers, header)
    return None if value is None or record.key is None else encode_text(value) + record.key
