"""Current values as Arrow record batches, one row for each key (R49)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Generic

import pyarrow as pa

from lvq_kafka.codecs import BYTES, TEXT, Codec, V
from lvq_kafka.core.facts import Position
from lvq_kafka.core.latest.tables import KeyRange
from lvq_kafka.core.log.records import Record, header_value
from lvq_kafka.core.queue.ranking import Ranking
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError, DecodeError, LVQError
from lvq_kafka.tabular.declared_shapes import declared_shape, is_settled
from lvq_kafka.tabular.value_shapes import NOTHING, Listed, Plain, ValueShape, counting, fitting, joined, shape_of

__all__ = ["COLUMNS", "METADATA", "USUAL", "ArrowRows"]

METADATA = "lvq"
"""The name of the schema's metadata that describes the rows, as JSON."""

_MOST_ROWS, _MOST_BYTES = 8192, 8 << 20  # of a batch; a single message may be larger
_MOST_CELLS = 1 << 19  # of the values of a batch; a single value may have some more:
_MOST_CELLS_OF_ONE = 1 << 22
_LAST = 253_402_300_799_999  # ms: the end of the year 9999, the last that others can express

_TIME = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

USUAL = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "expires")
"""The columns of rows for which none are named."""

COLUMNS = (*USUAL, "priority", "sort_key", "group", "key_raw", "value_raw")
"""All columns, with the names that `lvq_spark` has for them.

``key`` is text, and null if its bytes are not UTF-8. ``key_raw`` has the bytes of each key, and ``value_raw`` those of
each value that cannot be decoded.
"""

_TYPES: Mapping[str, pa.DataType] = {
    "key": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
    "headers": _HEADERS,
    "expires": _TIME,
    "priority": pa.int32(),
    "sort_key": pa.string(),
    "group": pa.binary(),
    "key_raw": pa.binary(),
    "value_raw": pa.binary(),
}

_PLAIN_TYPES: Mapping[str, pa.DataType] = {
    "nothing": pa.string(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "moment": _TIME,
    "local": pa.timestamp("us"),
    "day": pa.date32(),
    "json": pa.string(),
    "foreign": pa.binary(),
}


def _type_of(shape: ValueShape) -> pa.DataType:
    if isinstance(shape, Plain):
        return _PLAIN_TYPES[shape.kind]
    if isinstance(shape, Listed):
        return pa.list_(_type_of(shape.items))
    if not shape.fields:
        return pa.string()
    return pa.struct([pa.field(name, _type_of(inner)) for name, inner in shape.fields.items()])


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrowRows(Generic[V]):
    """The rows of one cut.

    Nothing is read before it is asked for, and each stream reads again. A stream holds one batch at a time: at most
    some 8,000 rows, 8 MB or 500,000 cells of values, or one message that is larger.

    Args:
        found: the records.
        expiry: returns the last moment at which a key's value counts, in ms; `NEVER` for always.
        topic: their topic.
        codec: decodes the values.
        raw_on_error: whether values that cannot be decoded are null, with their bytes in ``value_raw``.
        rules: the rules of the queue.
        columns: the names of the columns; None for the `USUAL` ones.
        about: what the schema's metadata says of the rows.

    Raises:
        ConfigError: there is no such column, or one is named twice.
    """

    found: KeyRange
    expiry: Callable[[bytes], int]
    topic: str
    codec: Codec[V]
    raw_on_error: bool
    rules: QueueRules
    columns: Sequence[str] | None
    about: Mapping[str, Any]
    _lock: Lock = field(default_factory=Lock, init=False)  # a cut through a file is read by one thread at a time

    def __post_init__(self) -> None:
        if self.columns is not None:
            _check_columns(self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        if self.columns is not None:
            return tuple(self.columns)
        return (*USUAL, "value_raw") if self.raw_on_error and self.codec not in (BYTES, TEXT) else USUAL

    @cached_property
    def shape(self) -> ValueShape:
        """The shape of the values. To know it, all of them are decoded, unless their type says it."""
        if self.codec is BYTES or "value" not in self.names:
            return Plain("bytes")
        if self.codec is TEXT:
            return Plain("text")
        shape = NOTHING if self.codec.model is None else declared_shape(self.codec.model)
        if is_settled(shape):
            return shape
        for part, _ in self._parts():
            for record in part:
                try:
                    shape = joined(shape, shape_of(self._decoded(record)))
                except ValueError:
                    continue  # reported when its row is made
            if shape == Plain("foreign"):
                break
        return shape

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema."""
        types = {**_TYPES, "value": _type_of(self.shape)}
        fields = [pa.field(name, types[name]) for name in self.names]
        return pa.schema(fields, metadata={METADATA: json.dumps(self.about)})

    def reader(self, failed: Callable[[LVQError], object] = lambda error: None) -> pa.RecordBatchReader:
        """Return a new stream of the rows.

        Reading from it raises `DecodeError` if a value cannot be decoded, unless these are null.

        Args:
            failed: called with the error that ends the stream. Others, such as databases, pass on its text only.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(failed))

    def _batches(self, failed: Callable[[LVQError], object]) -> Iterator[pa.RecordBatch]:
        schema, cells = self.schema, self._cells()
        try:
            for part, expiries, (values, unread) in self._filled():
                made = {name: pa.array([cell(record) for record in part], _TYPES[name]) for name, cell in cells.items()}
                made["expires"] = pa.array(map(_microseconds, expiries), _TIME, size=len(expiries))
                if self._has_values:
                    made["value"] = pa.array(values, _type_of(self.shape))
                    made["value_raw"] = pa.array(unread, pa.binary())
                yield pa.RecordBatch.from_arrays([made[name] for name in self.names], schema=schema)
        except LVQError as error:
            failed(error)
            raise

    def _filled(self) -> Iterator[tuple[list[Record], list[int], tuple[list[Any], list[bytes | None]]]]:
        """Yield what each batch is made of: records, when they expire, and values."""
        for part, expiries in self._parts():
            while part:
                found = self._values(part) if self._has_values else ([], [])
                rows = len(found[0]) if self._has_values else len(part)
                yield part[:rows], expiries[:rows], found
                part, expiries = part[rows:], expiries[rows:]

    @property
    def _has_values(self) -> bool:
        return not {"value", "value_raw"}.isdisjoint(self.names)

    def _parts(self) -> Iterator[tuple[list[Record], list[int]]]:
        """Yield the records in parts, and when they expire, if a column has that."""
        records, times = self.found.records(), "expires" in self.names
        while True:
            with self._lock:
                part = _next_part(records)
                expiries = [self.expiry(record.key or b"") for record in part] if times else []
            if not part:
                return
            yield part, expiries

    def _decoded(self, record: Record) -> V:
        assert record.value is not None
        at = (self.topic, record.partition, record.offset)
        return self.codec.decode_at(record.value, at, headers=record.headers)

    # ---------------------------------------------------------------- columns

    def _cells(self) -> Mapping[str, Callable[[Record], Any]]:
        """Return what makes the cells of the columns, but those of values."""
        groups = self.rules.groups
        cells: dict[str, Callable[[Record], Any]] = {
            "key": lambda record: _text_or_none(record.key),
            "topic": lambda record: self.topic,
            "partition": lambda record: record.partition,
            "offset": lambda record: record.offset,
            "timestamp": lambda record: _microseconds(record.timestamp),
            "headers": lambda record: record.headers or None,
            "priority": self._priority(),
            "sort_key": self._sort_key(),
            "group": lambda record: None if groups is None else groups.group(record.headers),
            "key_raw": lambda record: record.key,
        }
        return {name: cells[name] for name in self.names if name in cells}

    def _values(self, part: Sequence[Record]) -> tuple[list[Any], list[bytes | None]]:
        """Return the values of the first records, and the bytes of those without a place.

        These are at least one, and as many as a batch has room for.
        """
        if self.shape in (Plain("bytes"), Plain("foreign")):
            return [record.value for record in part], [None] * len(part)
        fit, count, cells = fitting(self.shape), counting(self.shape), 0
        values: list[Any] = []
        unread: list[bytes | None] = []
        for record in part:
            value, raw = None, None
            try:
                decoded = self._decoded(record)
                cells += (filled := count(decoded))
                if cells > _MOST_CELLS and values:
                    break
                if filled > _MOST_CELLS_OF_ONE:
                    raise ValueError(f"its lists of objects would fill {filled:,} cells")
                value = fit(decoded)
            except DecodeError:
                if not self.raw_on_error:
                    raise
                raw = record.value
            except (ValueError, TypeError, OverflowError) as error:
                if not self.raw_on_error:
                    raise self._unfitting(record, error) from error
                raw = record.value
            values.append(value)
            unread.append(raw)
        return values, unread

    def _unfitting(self, record: Record, error: Exception) -> DecodeError:
        position = Position(self.topic, record.partition, record.offset)
        return DecodeError(
            f"The value at {position} has no place in a column: {error}.",
            position=position,
            raw=record.value or b"",
            hint='With undecodable="raw", such values are null, and their bytes are in value_raw.',
        )

    def _priority(self) -> Callable[[Record], int | None]:
        if self.rules.order.order != "priority":
            return lambda record: None
        ranking = Ranking.of("priority", priorities=None, sort_header=None)  # tells all priorities apart
        assert ranking is not None
        return lambda record: -int(ranking.rank(record.headers))  # a higher one ranks lower

    def _sort_key(self) -> Callable[[Record], str | None]:
        ranking = self.rules.order.ranking() if self.rules.order.order == "sorted" else None
        if ranking is None:
            return lambda record: None

        def sort_key(record: Record) -> str | None:
            text = header_value(record.headers, ranking.header)
            return None if text is None else text.decode(errors="replace")

        return sort_key


def _next_part(records: Iterator[Record]) -> list[Record]:
    part: list[Record] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record.value or b"") + sum(len(name) + len(value or b"") for name, value in record.headers)
        if len(part) >= _MOST_ROWS or size >= _MOST_BYTES:
            break
    return part


def _microseconds(time: int) -> int | None:
    """Return a time in ms as one of a column; None if it is beyond what others can express."""
    return time * 1000 if -_LAST <= time <= _LAST else None


def _text_or_none(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _check_columns(columns: Sequence[str]) -> None:
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise ConfigError(f"columns={quoted(columns)} is not a list of names.", options=["columns"])
    for name in columns:
        if name not in COLUMNS:
            near = nearest(str(name), COLUMNS, alike=0.5)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"There is no column {quoted(name)}.",
                options=["columns"],
                hint=f"{meant}The columns are {', '.join(COLUMNS)}.",
            )
    if not columns or len(set(columns)) < len(columns):
        why = "names a column twice" if columns else "names no column"
        raise ConfigError(f"columns= {why}.", options=["columns"], hint=f"The columns are {', '.join(COLUMNS)}.")
