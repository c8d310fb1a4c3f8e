"""Several fetches as one, for a store: with fewer transactions, it writes less."""

from __future__ import annotations

from collections.abc import Callable

from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import LVQError

__all__ = ["GatheredFetches"]

_MOST = 10_000  # records
_MOST_BYTES = 16 << 20


class GatheredFetches:
    """Polls a reader, and adds to the first fetch those that are there already.

    An error that comes after records is raised by the next poll, as the reader itself does.
    """

    def __init__(self) -> None:
        self._error: LVQError | None = None

    def poll(self, poll: Callable[[float], Fetch], timeout: float) -> Fetch:
        """Return what is there, after at most ``timeout`` seconds. Raises what ``poll`` raises."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        whole = poll(timeout)
        size = whole.batch.size
        while whole.positions and len(whole.batch) < _MOST and size < _MOST_BYTES:
            try:
                more = poll(0)
            except LVQError as met:
                self._error = met
                break
            if not more.positions:
                break
            size += more.batch.size
            whole = _joined(whole, more)
        return whole


def _joined(first: Fetch, second: Fetch) -> Fetch:
    """Return two fetches as one. The columns of the first grow."""
    mine, other = first.batch, second.batch
    mine.partitions += other.partitions
    mine.offsets += other.offsets
    mine.timestamps += other.timestamps
    mine.keys += other.keys
    mine.values += other.values
    mine.headers += other.headers
    return Fetch(mine, {**first.positions, **second.positions}, {**first.epochs, **second.epochs})
