"""Which values a browser is about: those of some keys, with some headers, of some time."""

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
    """What of a topic one browser gives, whatever was consumed. For the arguments see `lvq_kafka.Browser`.

    Raises:
        ConfigError: an argument is no such thing, or two contradict each other.
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
                f"dump=False leaves out what replay_period={replay_period!r} is about.",
                options=["dump", "replay_period"],
                hint="Give one of them.",
            )
        self._horizon = _horizon(replay_period)
        self._dump = dump and replay_period != 0
        self._keys = chosen_keys(keys)
        wanted = mapping("headers", headers, 'For example headers={"exchange": "NYSE"}; None for any value.')
        self._headers = {name: None if value is None else encode_header(value) for name, value in wanted.items()}
        self._opened_at: Mapping[int, int] = {}
        self._given: set[bytes] = set()  # keys, where headers select

    def first(self, cluster: Cluster, topic: str) -> dict[int, int]:
        """Before which offset of each partition nothing is selected, as of now: 0 where it is not named.

        It is never behind what an open transaction hides yet.
        """
        if self._dump and self._horizon is None:
            return {}
        visible = cluster.end_offsets(topic, stable=True)
        if not self._dump or self._horizon is None:
            return visible
        recent = cluster.offsets_at(topic, self._horizon)
        return {partition: min(offset, visible.get(partition, 0)) for partition, offset in recent.items()}

    def opened(self, positions: Mapping[int, int]) -> None:
        """What lies below these is for the dump; what comes from there on is an update."""
        self._opened_at = dict(positions)

    def to_event(self, key: bytes, record: Record | None) -> Record | Deleted | None:
        """What to tell of a key with this record (None: deleted); None for nothing."""
        if self._keys is not None and key not in self._keys:
            return None
        if record is None:
            # Who selects by headers is told only of the end of what they were given; a delete carries none.
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
        """What was given of a key is over; whether anything was, which is known where headers select."""
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
    """The earliest time, in ms, that a replay period from now on includes; checked as R15 asks."""
    if replay_period is None:
        return None
    delays(replay_period=replay_period)
    return max(0, round((time.time() - as_float(replay_period)) * 1000))  # before 0 lies what the protocol reserves
