"""Following a watch: values that are kept up to date with its events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from lvq_kafka import Deleted, Entry

T = TypeVar("T")

__all__ = ["keep_up"]


def keep_up(kept: dict[str, T], events: Iterable[Any]) -> None:
    """Apply events as a listener does that keeps what it is given."""
    for event in events:
        if isinstance(event, Entry):
            kept[event.key] = event.value
        elif isinstance(event, Deleted):
            kept.pop(event.key, None)
