"""Writes that clients may repeat, by ``Idempotency-Key``.

The header is that of draft-ietf-httpapi-idempotency-key-header.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, TypeVar

from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["RepeatedWrites", "WriteName", "fingerprint_of", "idempotency_key"]

W = TypeVar("W")
R = TypeVar("R")

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_OVERHEAD = 600  # bytes of an entry beside its name: its objects, and places in two tables

WriteName = tuple[bytes, str]
"""A client's identity, and the key that it has given a write. Clients cannot repeat each other's writes."""


def idempotency_key(header: str | None) -> str | None:
    """Return the key of a header; None if there is none.

    It is without the quotation marks that the draft asks for.

    Raises:
        HttpRefusal: it is empty, too long, or not text of visible characters of ASCII.
    """
    if header is None:
        return None
    key = header.strip()
    if len(key) > 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if _KEY.fullmatch(key) is None:
        raise HttpRefusal(
            400,
            "The Idempotency-Key is not text of 1 to 255 visible characters of ASCII.",
            hint="Give each write another one, for example a UUID, and its repetitions the same.",
        )
    return key


def fingerprint_of(parts: Iterable[bytes]) -> bytes:
    """Return a digest of all that makes a request this one, and no other."""
    digest = sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class _Remembered(Generic[R]):
    fingerprint: bytes
    result: R
    until: float
    size: int


class RepeatedWrites(Generic[W, R]):
    """Remembers writes that have a name.

    These are all that are under way, and for a while those that were done. It knows no clock, thread or socket.

    Args:
        seconds: the time for which a write that was done is remembered.
        most: how many of these there may be; beyond that, the oldest is forgotten early.
        most_bytes: how much memory they may take, likewise.
    """

    def __init__(self, *, seconds: float, most: int, most_bytes: int) -> None:
        self._seconds = seconds
        self._most = most
        self._most_bytes = most_bytes
        self._running: dict[WriteName, tuple[bytes, W]] = {}
        self._done: OrderedDict[WriteName, _Remembered[R]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._running) + len(self._done)

    @property
    def size(self) -> int:
        """About how much memory the writes that were done take."""
        return self._bytes

    def running(self, name: WriteName, fingerprint: bytes) -> W | None:
        """Return the write of this name that is under way; None if there is none.

        Raises:
            HttpRefusal: the name is that of another request.
        """
        found = self._running.get(name)
        return None if found is None else _checked(found[0], fingerprint, found[1])

    def done(self, name: WriteName, fingerprint: bytes, now: float) -> R | None:
        """Return the result of the write of this name, if it is remembered.

        Raises:
            HttpRefusal: the name is that of another request.
        """
        self._forget_old(now)
        kept = self._done.get(name)
        return None if kept is None else _checked(kept.fingerprint, fingerprint, kept.result)

    def begin(self, name: WriteName, fingerprint: bytes, write: W) -> None:
        """Note that a write is under way. Nothing of this name is, or is remembered."""
        self._running[name] = fingerprint, write

    def end(self, name: WriteName, result: R | None, now: float) -> None:
        """Note the end of a write that was under way.

        Args:
            result: what it has come to; None if it failed or nobody knows, so that a repetition writes again.
        """
        fingerprint, _ = self._running.pop(name)
        if result is None:
            return
        size = len(name[0]) + len(name[1]) + len(fingerprint) + _OVERHEAD
        self._done[name] = _Remembered(fingerprint, result, now + self._seconds, size)
        self._bytes += size
        self._forget_old(now)

    def _forget_old(self, now: float) -> None:
        """Forget writes that are too old, or too many."""
        while self._done:  # the oldest comes first: all are kept for the same time
            name, kept = next(iter(self._done.items()))
            if kept.until > now and len(self._done) <= self._most and self._bytes <= self._most_bytes:
                return
            del self._done[name]
            self._bytes -= kept.size


def _checked(known: bytes, fingerprint: bytes, found: R) -> R:
    if known != fingerprint:
        raise HttpRefusal(
            422,
            "This Idempotency-Key is that of another request.",
            hint="Give each write another one, and its repetitions the same.",
        )
    return found
