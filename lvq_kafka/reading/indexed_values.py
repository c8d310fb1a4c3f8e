"""Values found and sorted by something else than their keys (R45)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, cast

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.latest.index_order import (
    IndexValue,
    encode_text,
    encode_value,
    equal_to,
    from_greatest,
    from_least,
    key_at,
    kind_of,
)
from lvq_kafka.core.log.keys import Key, encode_header, encode_key, key_text
from lvq_kafka.core.log.records import header_value
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import at_least_one
from lvq_kafka.errors import ConfigError, MixedIndex
from lvq_kafka.reading.entries import Entry, to_entry
from lvq_kafka.reading.index_queries import Indexes
from lvq_kafka.reading.scan import KeyScan
from lvq_kafka.runtime.aio import in_thread

__all__ = ["IndexedValues"]

_MOST = 1_000_000  # entries


class IndexedValues(Generic[V]):
    """Values that can be found, and sorted, by the indexes of a view."""

    _topic: str
    _codec: Codec[V]
    _raw_on_error: bool
    _indexes: Indexes

    def find(self, name: str, value: IndexValue) -> KeyScan[V]:
        """Return the entries with this value in an index, in byte order of their keys.

        All are of one moment, and are what a scan of all entries of that moment would find. Values are decoded when
        they are reached.

        Args:
            name: the index.
            value: a number, text or bytes. Numbers are found by what they are: ``1`` is ``1.0``. For an index by a
                header, a number stands for its text, as in a header.

        Raises:
            ConfigError: there is no such index, or nothing has this value.
            StateError: this view is attached, and the index is not complete yet.
            StoreFailed: the index has to be built, and the store cannot be written.
            ReaderFailed, Closed: the view no longer follows the queue.
        """
        encoding = self._encoded("value", value, self._indexes.by(name))
        found = self._indexes.ask(name, lambda places: equal_to(places, encoding), None).found
        return KeyScan(found, self._topic, self._codec, raw_on_error=self._raw_on_error)

    async def find_async(self, name: str, value: IndexValue) -> KeyScan[V]:
        """Like `find`, for asyncio: the first question to an index builds it."""
        return await in_thread(partial(self.find, name, value))

    def top(
        self, n: int, *, by: str, ascending: bool = False, after: Entry[V] | tuple[IndexValue, Key] | None = None
    ) -> list[Entry[V]]:
        """Return the entries with the greatest values of an index, the greatest first.

        Those with the same value are in byte order of their keys. All are of one moment, and are what a sort of all
        entries of that moment would begin with. Numbers sort as numbers, text and bytes by their bytes.

        To go on, give the last entry as ``after``: what follows is then of a later moment. A key whose value has
        changed meanwhile may come again, or not at all; each that keeps its value comes once.

        Args:
            n: the greatest number of entries.
            by: the index.
            ascending: whether to begin with the least values.
            after: return what follows this entry; or what follows an entry with this value and this key, whether there
                is one or not.

        Raises:
            MixedIndex: the index has values of several kinds, which have no order.
            ConfigError: ``n`` is no positive number; there is no such index; or ``after`` has no place in it.
            DecodeError: a value cannot be decoded, and the policy is ``"raise"``.
            StateError, StoreFailed, ReaderFailed, Closed: as for `find`.
        """
        at_least_one(_MOST, n=n)
        start = None if after is None else self._place(after, by)
        select = from_least if ascending else from_greatest
        ends, found = self._indexes.ask(by, lambda places: select(places, start), n)
        if ends is not None and kind_of(ends[0]) != kind_of(ends[1]):
            keys = {kind_of(place): key_text(key_at(place)) for place in ends}
            (one, key), (other, other_key) = keys.items()
            raise MixedIndex(
                f"The index {quoted(by)} has {one}, for example of the key {quoted(key)}, and {other}, of "
                f"{quoted(other_key)}: they have no order.",
                index=by,
                keys=keys,
                hint="Let its function return values of one kind, or None. `find` works all the same.",
            )
        return [to_entry(one, self._topic, self._codec, raw_on_error=self._raw_on_error) for one in found.records()]

    async def top_async(
        self, n: int, *, by: str, ascending: bool = False, after: Entry[V] | tuple[IndexValue, Key] | None = None
    ) -> list[Entry[V]]:
        """Like `top`, for asyncio: the first question to an index builds it."""
        return await in_thread(partial(self.top, n, by=by, ascending=ascending, after=after))

    def _place(self, after: object, name: str) -> bytes:
        by = self._indexes.by(name)
        if isinstance(after, Entry):
            return self._place_of_entry(after, by) + encode_key(after.key)
        if not isinstance(after, tuple | list) or len(after) != 2:
            raise ConfigError(
                f"after={quoted(after)} is no place in an index.",
                options=["after"],
                hint="Give the last entry, or its value in the index and its key: after=(118.5, 'IBM').",
            )
        return self._encoded("after", after[0], by) + encode_key(after[1])

    def _place_of_entry(self, entry: Entry[V], by: object) -> bytes:
        if isinstance(by, str):
            header = header_value(entry.headers, by)
            if header is not None:
                return encode_text(header)
            value: object = None
        elif by is None:
            raise ConfigError(
                "The index is by a function, which only the process that writes the store has.",
                options=["after"],
                hint="Give the value of the last entry in the index, and its key: after=(118.5, 'IBM').",
            )
        else:
            try:
                value = cast("Callable[[Any], object]", by)(entry)
            except Exception as error:
                raise ConfigError(
                    f"after={quoted(entry)} has no place in the index: {error!r}.", options=["after"]
                ) from error
        return self._encoded("after", value, by)

    def _encoded(self, option: str, value: object, by: object) -> bytes:
        """Encode a value that is asked for.

        Raises:
            ConfigError: nothing in an index can have it.
        """
        try:
            if isinstance(by, str) and value is not None:
                return encode_text(encode_header(value))
            return encode_value(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{option}={quoted(value)} is nothing that an index can have: {error}.",
                options=[option],
                hint="Give a number, text or bytes.",
            ) from error
