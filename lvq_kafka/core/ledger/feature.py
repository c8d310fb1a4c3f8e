"""The hooks by which options of a queue change how a partition treats its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lvq_kafka.core.waiting.pending import Item

__all__ = ["Feature", "overrides_of"]


class Feature:
    """The effect of one option of a queue on an assigned partition.

    A partition calls these hooks of all its features, in order. A feature overrides the hooks that it needs; by
    default, they do nothing.
    """

    __slots__ = ()

    buffers = True
    """Whether records may be buffered during catch-up, before they become messages."""

    @property
    def without_room(self) -> int:
        """The number of messages that wait for room in the commit map, beside the gated ones."""
        return 0

    def prepare(self) -> None:
        """Note that records are about to be added, or that scheduled messages are about to count."""

    def update(self) -> None:
        """Note that these changes are done, or that the read position has moved."""

    def enter(self, item: Item) -> None:
        """Note that a scheduled message counts from now on."""

    def wait(self, item: Item) -> None:
        """Note that a message waits that is not ready: it is delayed, or its key is in work."""

    def hold(self, item: Item) -> None:
        """Note that a message is about to be in work. An error prevents that."""

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
    """Return the overrides of a hook. Use this for hooks that are called for each message."""
    base = getattr(Feature, hook)
    return tuple(getattr(feature, hook) for feature in features if getattr(type(feature), hook) is not base)
