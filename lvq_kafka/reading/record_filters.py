"""Filters of a reader: each drops or changes records before they are folded.

The reading thread calls them without any lock. It refers to these objects only, and not to the reader.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from operator import add
from typing import Any

from lvq_kafka.codecs import Codec
from lvq_kafka.core.latest.conditions import UNSELECTED, KeySelection
from lvq_kafka.core.log.mismatch import only_key_headers
from lvq_kafka.core.log.records import RecordBatch, new_record
from lvq_kafka.core.queue.limits import size_of
from lvq_kafka.core.queue.rules import KeyRule
from lvq_kafka.errors import DecodeError
from lvq_kafka.reading.entries import to_entry
from lvq_kafka.reading.reader_thread import RecordFilter
from lvq_kafka.reading.selection import Selection

__all__ = ["KeyFilter", "UndecodableFilter", "ValueFilter", "ValuesToSizes", "in_turn"]

_SIZES = 4096  # different sizes that are kept as text


def in_turn(*filters: RecordFilter | None) -> RecordFilter | None:
    """Return a filter that applies these in turn; None if there are none."""
    wanted = [one for one in filters if one is not None]

    def filtered(batch: RecordBatch) -> RecordBatch:
        for one in wanted:
            batch = one(batch)
        return batch

    return filtered if wanted else None


class KeyFilter:
    """Drops the records of keys that are not selected."""

    def __init__(self, rule: KeyRule, keys: KeySelection) -> None:
        self._rule = rule
        self._selected = keys

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the records of selected keys."""
        rows = self._selected.rows(self._rule.of(batch))
        return batch if len(rows) == len(batch) else batch.pick(rows)


class UndecodableFilter:
    """Hides values that their codec cannot decode."""

    def __init__(self, topic: str, codec: Codec[Any]) -> None:
        self.skipped = 0
        self._topic = topic
        self._codec = codec

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch, with deletes in place of values that cannot be decoded."""
        for row, record in enumerate(batch):
            if record.key is not None and record.value is not None:
                try:
                    to_entry(record, self._topic, self._codec)
                except DecodeError:
                    batch.values[row] = None
                    self.skipped += 1
        return batch


class ValueFilter:
    """Marks the values that do not meet a selection's conditions."""

    def __init__(self, rule: KeyRule, selection: Selection[Any]) -> None:
        self._rule = rule
        self._selection = selection

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch, with `UNSELECTED` in place of values that do not match."""
        keys, values, by_headers = self._rule.of(batch), batch.values, self._selection.by_headers
        if by_headers is not None:
            for row in [row for row, headers in enumerate(batch.headers) if not by_headers(headers or ())]:
                if keys[row] is not None and values[row] is not None:
                    values[row] = UNSELECTED
            return batch
        matches = self._selection.matches
        rows = zip(count(), batch.partitions, batch.offsets, batch.timestamps, keys, batch.values, batch.headers)
        for row, partition, offset, timestamp, key, value, headers in rows:
            if key is None or value is None:
                continue
            own = tuple(headers) if headers else ()
            if not matches(new_record((partition, offset, timestamp, key, value, own))):
                values[row] = UNSELECTED
        return batch


class ValuesToSizes:
    """Replaces each value by the size of its message, in decimal digits.

    So a follower keeps sizes instead of values.

    Args:
        needed: the names of the headers that the fold reads, beside the key header; the others are dropped.
        key_header: the header that mostly stands alone, and repeats the key; None if there is none.
    """

    def __init__(self, needed: Collection[str], key_header: str | None) -> None:
        self._needed = {*needed, key_header}
        self._key_header = key_header
        self._texts = _Texts()

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch with sizes for values. Values that are not selected stay marked."""
        texts = self._texts
        if len(texts) > _SIZES:
            texts.clear()
        sizes = self._sizes_of_plain(batch)
        if sizes is not None:
            batch.values = list(map(texts.__getitem__, sizes))
            batch.headers = [None] * len(sizes)
            return batch
        values, all_headers, needed = batch.values, batch.headers, self._needed
        for row, (key, value, headers) in enumerate(zip(batch.keys, values, all_headers)):
            if value is None or value is UNSELECTED:
                continue
            values[row] = texts[size_of(key, value, headers)]
            if headers and len(headers) > 1:
                all_headers[row] = [pair for pair in headers if pair[0] in needed]
        return batch

    def _sizes_of_plain(self, batch: RecordBatch) -> list[int] | None:
        """Return the sizes of messages that have no header but the key header.

        Most batches hold only such messages, so there is no statement per message. Returns None for other batches.
        """
        keys, values, headers, name = batch.keys, batch.values, batch.headers, self._key_header
        if None in keys or None in values or UNSELECTED in values:
            return None
        lengths = list(map(len, keys))  # type: ignore[arg-type]  # no key is null, and no value
        sizes = map(add, lengths, map(len, values))  # type: ignore[arg-type]
        if not any(headers):
            return list(sizes)
        if name is None or not only_key_headers(name, keys, headers):
            return None
        return list(map(add, sizes, map(len(name.encode()).__add__, lengths)))


class _Texts(dict[int, bytes]):
    """The digits of numbers: one object for each number, in place of one for each message."""

    def __missing__(self, number: int) -> bytes:
        text = self[number] = b"%d" % number
        return text
