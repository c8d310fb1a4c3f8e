"""The selection of a reader or a watch: keys, partitions, and conditions on values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypedDict

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.facts import Position
from lvq_kafka.core.latest.conditions import ByHeaders, Condition, HeaderCondition, KeySelection
from lvq_kafka.core.log.keys import HeaderValue, Key, chosen_keys, encode_header, encode_key
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.text.quoting import bounded, quoted
from lvq_kafka.core.text.validation import function, mapping, unfinished
from lvq_kafka.errors import ConfigError, PredicateFailed
from lvq_kafka.reading.entries import Entry, to_entry
from lvq_kafka.selectors.selector import Selector

__all__ = ["Selection", "SelectionOptions"]

logger = logging.getLogger("lvq_kafka.selection")


class SelectionOptions(TypedDict, Generic[V], total=False):
    """The options that select. A value has to meet all that are given.

    None is the same as leaving an option out. A key is *selected* while its newest value is. If its newest value is not
    selected, the key is absent, as if it was deleted: an older value never takes its place (R7).

    Attributes:
        keys: only these keys.
        prefix: only keys that begin with this text, or with one of several.
        headers: only values whose last header of each of these names has this value; None for any value.
        selector: only values that meet this condition, in the syntax of JMS selectors, for example ``"price > 100 AND
            exchange IN ('NYSE', 'LSE')"``. Needs the extra ``selectors``.
        where: only values for which this function returns something true. It is called with an `Entry`, by the thread
            that reads or iterates, without any lock. A value for which it raises an error, or which cannot be decoded,
            is not selected; it is counted in ``unjudged``, and the first one is logged (R31).
        partitions: only records in these partitions. A view or browser does not even read the others.
    """

    keys: Iterable[Key] | None
    prefix: Key | Iterable[Key] | None
    headers: Mapping[str, HeaderValue | None] | None
    selector: str | None
    where: Callable[[Entry[V]], object] | None
    partitions: Iterable[int] | None


class Selection(Generic[V]):
    """A selection, and the number of failures of its predicate.

    ``keys`` depend on the key alone; ``conditions`` on each record, so that a key can leave with a new value.

    Args:
        topic: the topic, for positions.
        codec: decodes the values for ``where``.
        raw_on_error: whether ``where`` gets bytes that cannot be decoded.
        judged: further conditions, such as the queue's selector.

    For the others see `SelectionOptions`.

    Raises:
        ConfigError: an argument is invalid.
        MissingExtra: there is a selector, and the extra ``selectors`` is not installed.
    """

    def __init__(
        self,
        topic: str,
        codec: Codec[V],
        *judged: Condition,
        raw_on_error: bool = False,
        keys: Iterable[Key] | None = None,
        prefix: Key | Iterable[Key] | None = None,
        headers: Mapping[str, HeaderValue | None] | None = None,
        selector: str | None = None,
        where: Callable[[Entry[V]], object] | None = None,
        partitions: Iterable[int] | None = None,
    ) -> None:
        chosen, prefixes = chosen_keys(keys), _prefixes(prefix)
        self.keys = KeySelection(chosen, prefixes)
        self.partitions = _partitions(partitions)
        self._failed = 0
        self.failure: PredicateFailed | None = None
        """The first error of the predicate."""
        self._topic = topic
        wanted = mapping("headers", headers, 'For example headers={"exchange": "NYSE"}; None for any value.')
        conditions = list(judged)
        if wanted:
            conditions.append(HeaderCondition({name: _header(value) for name, value in wanted.items()}))
        if selector is not None:
            conditions.append(Selector(selector, topic))
        if where is not None:
            function("where", where, "entry", hint="A value is judged at once, by a plain function.", classes=False)
            conditions.append(_Predicate(where, topic, codec, raw_on_error=raw_on_error))
        self.conditions: tuple[Condition, ...] = tuple(conditions)
        self.by_function = where is not None
        """True if a function selects. Nobody can tell whether that is the same one in another process."""
        self.said: dict[str, object] = {
            "keys": chosen and sorted(key.hex() for key in chosen),
            "prefix": prefixes and sorted(one.hex() for one in prefixes),
            "headers": wanted and {name: repr(value) for name, value in wanted.items()},
            "selector": selector,
            "partitions": self.partitions and sorted(self.partitions),
        }
        """The options, in the types of JSON."""

    def of_what_is_read(self) -> Selection[V]:
        """Return this selection, with its partitions as a condition: all of them are read."""
        if self.partitions is not None:
            self.conditions = (_InPartitions(self.partitions), *self.conditions)
            self.partitions = None
        return self

    @property
    def unjudged(self) -> int:
        """The number of values that could not be judged, and so were not selected."""
        return self._failed + sum(each.unjudged for each in self.conditions if isinstance(each, Selector))

    def matches(self, record: Record) -> bool:
        """Return whether a record, which holds a value, meets all conditions."""
        try:
            for condition in self.conditions:
                if not condition.matches(record):
                    return False
        except Exception as error:  # noqa: BLE001  # a predicate may raise anything
            self._fail(record, error)
            return False
        return True

    @property
    def by_headers(self) -> ByHeaders | None:
        """See `Condition.by_headers`."""
        return self.conditions[0].by_headers if len(self.conditions) == 1 else None

    def _fail(self, record: Record, error: Exception) -> None:
        self._failed += 1
        if self.failure is None:
            position = Position(self._topic, record.partition, record.offset)
            self.failure = PredicateFailed(
                f"The value at {position} could not be judged, so it is not selected: {error!r}.",
                position=position,
                hint="Make where= return False for values that it does not know.",
            )
            self.failure.__cause__ = error
            logger.warning("%s Further ones are only counted.", bounded(str(self.failure)))


class _Predicate(Generic[V]):
    """A caller's predicate over entries."""

    by_headers = None

    def __init__(self, where: Callable[[Entry[V]], object], topic: str, codec: Codec[V], *, raw_on_error: bool) -> None:
        self._where = where
        self._topic = topic
        self._codec = codec
        self._raw_on_error = raw_on_error

    def matches(self, record: Record) -> bool:
        """Call the predicate with the record's entry."""
        outcome = self._where(to_entry(record, self._topic, self._codec, raw_on_error=self._raw_on_error))
        if outcome is not True and outcome is not False and (what := unfinished(outcome)):
            raise TypeError(f"it returned {what}")
        return bool(outcome)


class _InPartitions:
    """Records of some partitions."""

    by_headers = None

    def __init__(self, partitions: frozenset[int]) -> None:
        self._partitions = partitions

    def matches(self, record: Record) -> bool:
        """Return whether a record is in one of the partitions."""
        return record.partition in self._partitions


def _header(value: HeaderValue | None) -> bytes | None:
    return None if value is None else encode_header(value)


def _prefixes(prefix: Key | Iterable[Key] | None) -> tuple[bytes, ...] | None:
    if prefix is None:
        return None
    several = isinstance(prefix, Iterable) and not isinstance(prefix, str | bytes)
    prefixes = tuple(map(encode_key, prefix if several else [prefix]))  # type: ignore[arg-type]
    return None if b"" in prefixes else prefixes


def _partitions(partitions: object) -> frozenset[int] | None:
    if partitions is None:
        return None
    named = isinstance(partitions, Iterable) and not isinstance(partitions, str | bytes)  # bytes are numbers, too
    chosen: frozenset[Any] = frozenset(partitions if named else ())  # type: ignore[call-overload]
    if not chosen or any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in chosen):
        raise ConfigError(
            f"partitions={quoted(partitions)} does not name partitions.",
            options=["partitions"],
            hint="Give a list of their numbers, for example partitions=[0, 1].",
        )
    return chosen
