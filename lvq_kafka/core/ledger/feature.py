"""The seam for options of a queue that change what a partition does with its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lvq_kafka.core.waiting.pending import Item

__all__ = ["Feature", "overrides_of"]


class Feature:
    """The part of an option in an assigned partition.

    A partition calls these hooks of all its features, in their order. A feature overrides those that it needs; here
    they do nothing.
    """

    __slots__ = ()

    buffers = True
    """Whether records may wait in the buffer of catch-up, where nothing is a message yet."""

    @property
    def without_room(self) -> int:
        """The number of messages that wait for room in the commit map, beside the gated ones."""
        return 0

    def prepare(self) -> None:
        """Note that records are about to be added, or scheduled messages to count."""

    def update(self) -> None:
        """Note that this is done, or that the read position has moved."""

    def enter(self, item: Item) -> None:
        """Note that a scheduled message counts from now on."""

    def wait(self, item: Item) -> None:
        """Note that a message waits that is not ready: it is delayed, or its key is in work."""

    def hold(self, item: Item) -> None:
        """Note that a message is about to be in work. An error keeps it from that."""

    def free(self, item: Item) -> None:
        """Note that a message is no longer in work."""

    def replace(self, item: Item, twin: Item) -> None:
        """Note that a message waits again, under a new handle."""

    def come_back(self, item: Item) -> None:
        """Note that a holder has returned a message, which waits again and may be handed out."""

    def keep(self, item: Item) -> None:
        """Note that a message has expired, and stays pending until it is stored elsewhere."""

    def revoke(self) -> None:
        """Forget all messages after a revocation."""


def overrides_of(features: Iterable[Feature], hook: str) -> tuple[Callable[..., Any], ...]:
    """Return a hook of the features that override it. Use it for what each message calls."""
    base = getattr(Feature, hook)
    return tuple(getattr(feature, hook) for feature in features if getattr(type(feature), hook) is not base)
