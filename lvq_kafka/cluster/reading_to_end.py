"""Reading up to a target: the one loop of every reader that ends, rather than follows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import TransportError

__all__ = ["GiveUp", "read_to_end"]

GiveUp = Callable[[list[Shortfall], TransportError | None], NoReturn]
"""Raises the error of a reading that ran out of time.

Gets the partitions below their target, and the error of the last poll if it failed: the likely cause.
"""


def read_to_end(
    poll: Callable[[], Fetch],
    progress: Progress,
    ends: Mapping[int, int],
    *,
    give_up: GiveUp,
    timeout: float = math.inf,
    patience: float = math.inf,
) -> Iterator[Fetch]:
    """Yield fetches until ``progress``, advanced before each, reaches ``ends``.

    Retriable errors are waited out: the reader continues by itself once the cluster is back. Fetches without records
    are yielded, too. The last fetches may go beyond the ends. If these move, call this again with the same progress.

    Args:
        poll: the next fetch of a `LogReader`, after waiting for as long as the caller likes to wait at a time.
        ends: offsets by partition. These are positions, which the last records need not reach (see `Progress`).
        give_up: see `GiveUp`.
        timeout: seconds for the whole reading, including the caller's own work on the fetches.
        patience: seconds without any progress. The caller's work does not count.

    Raises:
        TransportError: an error of ``poll`` that is not retriable.
    """
    left = progress.lag(ends)
    moved_at = time.monotonic()
    deadline = moved_at + timeout
    trouble: TransportError | None = None
    while left:
        now = time.monotonic()
        if now > deadline or now - moved_at > patience:
            give_up(progress.shortfalls(ends), trouble)
        try:
            fetch = poll()
        except TransportError as error:
            if not error.retriable:
                raise
            trouble = error
            continue
        trouble = None
        progress.advance(fetch.positions)
        before, left = left, progress.lag(ends)
        yield fetch
        if left < before:
            moved_at = time.monotonic()
