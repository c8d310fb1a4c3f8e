"""Scans of keys: the entries of a range of keys at one moment, in order of keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.latest.sorted_keys import after_prefix
from lvq_kafka.core.latest.tables import KeyRange
from lvq_kafka.core.log.keys import Key, encode_key, key_text
from lvq_kafka.core.log.records import Headers
from lvq_kafka.reading.entries import Entry, to_entry

__all__ = ["KeyScan", "key_bounds"]


class KeyScan(Generic[V]):
    """The entries of a range of keys at one moment, in byte order of keys.

    `View.scan` and `Snapshot.scan` return it.
    Iterate over it for entries, as often as you like; values are decoded one by one. `keys` and `headers` decode none.

    In a view with a store, a scan is a cut through the file: it costs nothing at first, and as long as the program has
    it, the file keeps what it covers.
    """

    def __init__(self, found: KeyRange, topic: str, codec: Codec[V], *, raw_on_error: bool) -> None:
        self._found = found
        self._topic = topic
        self._codec = codec
        self._raw_on_error = raw_on_error

    def __len__(self) -> int:
        """Return the number of keys.

        In a store, this goes through the range, unless it is the whole.
        """
        return len(self._found)

    def __iter__(self) -> Iterator[Entry[V]]:
        """Yield the entries.

        Raises:
            DecodeError: the codec cannot decode a value, and the policy is ``"raise"``.
        """
        for record in self._found.records():
            yield to_entry(record, self._topic, self._codec, raw_on_error=self._raw_on_error)

    def keys(self) -> Iterator[str]:
        """Yield the keys."""
        return map(key_text, self._found.keys())

    def headers(self) -> Iterator[tuple[str, Headers]]:
        """Yield the keys with the headers of their values, which are not decoded."""
        for key, headers in self._found.headers():
            yield key_text(key), headers

    def __repr__(self) -> str:
        return f"<KeyScan of {self._topic}>"


def key_bounds(prefix: Key | None, start: Key | None, stop: Key | None) -> tuple[bytes, bytes | None]:
    """Return the first key of a range, and the first one after it.

    None stands for no such bound.

    Raises:
        UnencodableKey: one of the arguments cannot be a key.
    """
    low = b"" if start is None else encode_key(start)
    high = None if stop is None else encode_key(stop)
    if prefix is not None:
        begin = encode_key(prefix)
        after = after_prefix(begin)
        low = max(low, begin)
        high = after if high is None else high if after is None else min(high, after)
    return low, high
