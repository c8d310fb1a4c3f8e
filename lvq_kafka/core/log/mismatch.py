"""The choice of a key if header and record key disagree or headers are unreadable (R16)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import eq, itemgetter
from typing import Literal

from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import UNREADABLE, RawHeaders, RecordBatch, header_value
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import KeyMismatch

__all__ = ["KeyMismatchPolicy", "choose_keys", "only_key_headers"]

KeyMismatchPolicy = Literal["record", "header", "fail"]
"""The record key counts, as for compaction; or the header; or such a record is an error.

If headers cannot be read, the record key also counts in place of the header.
"""


def choose_keys(
    batch: RecordBatch, topic: str, key_header: str | None, policy: KeyMismatchPolicy
) -> tuple[list[bytes | None], int]:
    """Return the key of each record of a batch, and the number of mismatches.

    A record is a mismatch if its header disagrees with its key or its headers cannot be read.

    Raises:
        KeyMismatch: there is a mismatch, and the policy is ``"fail"``.
    """
    if key_header is None or not any(batch.headers):
        return batch.keys, 0
    keys = list(batch.keys)
    mismatched = 0
    for at, headers in enumerate(batch.headers):
        if not headers:
            continue
        name, said = headers[0]
        if len(headers) > 1 or name != key_header:
            said = header_value(headers, key_header)
        if said is None:
            if headers is not UNREADABLE:
                continue
        elif said == keys[at]:
            continue
        mismatched += 1
        if policy == "fail":
            raise _mismatch(Position(topic, batch.partitions[at], batch.offsets[at]), keys[at], key_header, said)
        if policy == "header" and said is not None:
            keys[at] = said
    return keys, mismatched


def _mismatch(position: Position, key: bytes | None, key_header: str, said: bytes | None) -> KeyMismatch:
    if said is None:
        return KeyMismatch(
            f"The record at {position} has the key {quoted(key)}, but its header {quoted(key_header)} is unknown: "
            "its headers cannot be read, because one of their names is not UTF-8.",
            position=position,
            hint="Fix the writer, or declare key_mismatch='record'.",
        )
    return KeyMismatch(
        f"The record at {position} has the key {quoted(key)}, but its header {quoted(key_header)} says {quoted(said)}.",
        position=position,
        hint="Compaction goes by the record key. Fix the writer, or declare key_mismatch='record'.",
    )


def only_key_headers(name: str, keys: Sequence[bytes | None], headers: Sequence[RawHeaders]) -> bool:
    """Return whether each record has one header only, the key header, equal to its record key."""
    if not all(headers):
        return False
    given: Sequence[Sequence[tuple[str, bytes | None]]] = headers  # type: ignore[assignment]
    return sum(map(len, given)) == len(keys) and all(map(eq, map(itemgetter(0), given), zip(repeat(name), keys)))
