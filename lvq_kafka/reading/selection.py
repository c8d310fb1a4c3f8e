"""The values that a browser selects: by key, by header and by time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.keys import HeaderValue, Key, encode_header, key_text
from lvq_kafka.core.records import Record, header_value
from lvq_kafka.core.validation import as_float, chosen_keys, delays, mapping
from lvq_kafka.entries import Deleted
from lvq_kafka.errors import ConfigError

__all__ = ["Selection"]


class Selection:
    """Selects the records of a topic that a browser returns, regardless of consumption.

    For the arguments see `lvq_kafka.Browser`.

    Raises:
        ConfigError: an argument is invalid, or two contradict each other.
    """

    def __init__(
        self,
        *,
        dump: bool,
        replay_period: float | None,
        keys: Iterable[Key] | None,
        headers: Mapping[str, HeaderValue | None] | None,
    ) -> None:
        if replay_period and not dump:
            raise ConfigError(
                f"dump=False skips the values that replay_period={replay_period!r} selects.",
                options=["dump", "replay_period"],
                hint="Give one of them.",
            )
        self._horizon = _horizon(replay_period)
        self._dump = dump and replay_period != 0
        self._keys = chosen_keys(keys)
        wanted = mapping("headers", headers, 'For example headers={"exchange": "NYSE"}; None for any value.')
        self._headers = {name: None if value is None else encode_header(value) for name, value in wanted.items()}
        self._opened_at: Mapping[int, int] = {}
        self._given: set[bytes] = set()  # keys; only used if headers select

    def first(self, cluster: Cluster, topic: str) -> dict[int, int]:
        """Return, by partition, the offset below which nothing is currently selected.

        It is 0 for partitions that are missing, and never beyond records that an open transaction still hides.
        """
        if self._dump and self._horizon is None:
            return {}
        visible = cluster.logs.end_offsets(topic, stable=True)
        if not self._dump or self._horizon is None:
            return visible
        recent = cluster.logs.offsets_at(topic, self._horizon)
        return {partition: min(offset, visible.get(partition, 0)) for partition, offset in recent.items()}

    def opened(self, positions: Mapping[int, int]) -> None:
        """Set the boundary: records below these positions are for the dump, later ones updates."""
        self._opened_at = dict(positions)

    def to_event(self, key: bytes, record: Record | None) -> Record | Deleted | None:
        """Return the event for a key with this record (None: deleted), or None for no event."""
        if self._keys is not None and key not in self._keys:
            return None
        if record is None:
            # A delete carries no headers. So if headers select, it is an event only for a key that was returned.
            return Deleted(key_text(key)) if self.forget(key) or not self._headers else None
        if self._horizon is not None and record.timestamp < self._horizon and self._was_there(record):
            return None
        if not self._headers:
            return record
        if self._matches(record):
            self._given.add(key)
            return record
        return Deleted(key_text(key), left=True) if self.forget(key) else None

    def forget(self, key: bytes) -> bool:
        """Forget that a key was returned; return whether it was. Only tracked if headers select."""
        if key not in self._given:
            return False
        self._given.remove(key)
        return True

    def _was_there(self, record: Record) -> bool:
        return record.offset < self._opened_at.get(record.partition, 0)

    def _matches(self, record: Record) -> bool:
        for name, wanted in self._headers.items():
            found = header_value(record.headers, name)
            if found is None or (wanted is not None and found != wanted):
                return False
        return True


def _horizon(replay_period: object) -> int | None:
    """Return the earliest time, in ms, within a replay period that ends now (R15)."""
    if replay_period is None:
        return None
    delays(replay_period=replay_period)
    return max(0, round((time.time() - as_float(replay_period)) * 1000))  # the protocol reserves negative times
