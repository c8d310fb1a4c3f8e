"""Paging: consumers keep values on disk beyond the limits of their queue (R12).

Only values go to disk. Keys and headers stay: conflation, ranks, groups and times need them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from lvq_kafka.core.ledger.feature import Feature
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.waiting.pending import Item, PendingList
from lvq_kafka.errors import LockLost

__all__ = ["LEAST_PAGED", "Page", "PageStore", "PagedItem", "PagedPartition", "Paging"]

LEAST_PAGED = 256
"""The bytes of the smallest value that is paged. A page of a smaller one would take as much memory."""


class Page(Protocol):
    """A value on disk. It stays there for as long as something refers to this object."""

    @property
    def length(self) -> int:
        """The bytes of the value."""

    def read(self) -> bytes:
        """Return the value.

        Raises:
            PageUnreadable: it cannot be read back.
        """


class PageStore(Protocol):
    """The disk, as `Paging` needs it."""

    def write(self, value: bytes) -> Page | None:
        """Write a value. Returns None if that fails now."""


class Paging:
    """The common part of the paging of a ledger's partitions.

    Args:
        limits: the limits of the whole queue. Each partition has an even share.
        store: where pages are written.
    """

    def __init__(self, limits: Limits, store: PageStore) -> None:
        self.limits = limits
        self.store = store
        self.messages = 0
        """The messages whose values are on disk."""
        self.bytes = 0
        """The bytes of these values."""
        self.refused = 0
        """How often a value stayed in memory beyond the limits, since it could not be written."""


if TYPE_CHECKING:
    _Stored = bytes | Page


class PagedItem(Item):
    """A message whose value may be on disk, where it is read each time that it is needed."""

    __slots__ = ()

    @property
    def value(self) -> bytes:
        """The value, from wherever it is.

        Raises:
            PageUnreadable: it cannot be read back.
        """
        stored = _stored(self)
        return stored if isinstance(stored, bytes) else stored.read()

    @value.setter
    def value(self, stored: _Stored) -> None:
        _store(self, stored)

    @property
    def page(self) -> Page | None:
        """The page of its value; None if it is in memory."""
        stored = _stored(self)
        return None if isinstance(stored, bytes) else stored


_stored = Item.__dict__["value"].__get__
_store = Item.__dict__["value"].__set__


class _Gone:
    """The page of a message that is done, or whose partition was revoked, and nobody holds."""

    length = 0

    def read(self) -> bytes:
        """Refuse.

        Raises:
            LockLost: always.
        """
        raise LockLost("The value is no longer here: its message is done, or its partition was revoked.")


_GONE = _Gone()


class PagedPartition(Feature):
    """The pages of an assigned partition: the values of new messages beyond its share.

    A message whose value is in memory counts until it is done, and with the bytes of its value only. Values are read
    back into memory before their messages are in work: a message whose value cannot be read is never handed out.
    """

    __slots__ = ("_entered", "_most_bytes", "_most_messages", "_paging", "_pending", "bytes", "messages")

    buffers = False  # a buffer would keep all waiting values in memory

    def __init__(self, pending: PendingList, paging: Paging) -> None:
        share = paging.limits.share(max(1, pending.loaded.partitions))
        self._pending = pending
        self._paging = paging
        self._most_messages = math.inf if share.messages is None else share.messages
        self._most_bytes = math.inf if share.bytes is None else share.bytes
        self._entered = 0  # the offset below which all messages have entered
        self.messages = 0
        """The messages whose values are in memory."""
        self.bytes = 0
        """The bytes of these values."""
        pending.meter = self

    # ---------------------------------------------------------------- the partition

    def update(self) -> None:
        """See `Feature.update`."""
        for item in self._pending.since(self._entered):
            self._enter(item)
        self._entered = self._pending.position

    def hold(self, item: Item) -> None:
        """Read the value of a message back into memory, if it is on disk.

        Raises:
            PageUnreadable: it cannot be read back. Nothing has changed.
        """
        assert isinstance(item, PagedItem)
        page = item.page
        if page is not None:
            item.value = value = page.read()
            self._paging.messages -= 1
            self._paging.bytes -= page.length
            self._keep(value)

    # ---------------------------------------------------------------- the pending list

    def exclude(self, item: Item) -> None:
        """See `Meter.exclude`."""
        if not isinstance(item, PagedItem) or item.offset >= self._entered:
            return
        page, paging = item.page, self._paging
        if page is not None:
            item.value = _GONE  # something may still refer to the message, such as a timer
            paging.messages -= 1
            paging.bytes -= page.length
        else:
            self.messages -= 1
            self.bytes -= len(item.value)

    def swap(self, item: Item, twin: Item) -> None:
        """See `Meter.swap`."""
        self.exclude(item)
        self._enter(twin)

    def clear(self) -> None:
        """See `Meter.clear`."""
        for item in self._pending:
            self.exclude(item)

    def _enter(self, item: Item) -> None:
        if not isinstance(item, PagedItem):
            return
        value, paging = item.value, self._paging
        size = len(value)
        if size >= LEAST_PAGED and (self.messages >= self._most_messages or self.bytes + size > self._most_bytes):
            page = paging.store.write(value)
            if page is not None:
                item.value = page
                paging.messages += 1
                paging.bytes += page.length
                return
            paging.refused += 1
        self._keep(value)

    def _keep(self, value: bytes) -> None:
        self.messages += 1
        self.bytes += len(value)
