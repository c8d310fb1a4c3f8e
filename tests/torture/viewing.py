"""A view of the queue throughout a run: what it shows must follow from the log, as of its time (G8, R10)."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lvq_kafka.codecs import TEXT
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import LVQError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.reading.view import View
from tests.torture.feed import Place, Sent
from tests.torture.tape import Logged

__all__ = ["Sight", "Viewing", "check_sights"]

_EVERY = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Sight:
    """A look at a view: its offsets, its time in ms since the epoch, and the place of each key's value."""

    offsets: Mapping[int, int]
    as_of: int
    shown: Mapping[str, Place]


class Viewing:
    """A thread that looks at a view again and again."""

    def __init__(self, cluster: KafkaCluster, definition: QueueDefinition) -> None:
        self._view = View(cluster, definition, TEXT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sights: list[Sight] = []
        self.failures: list[Exception] = []

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """Look for the last time."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._view:
                while not self._stop.wait(_EVERY):
                    self._look()
                self._view.barrier()
                self._look()
        except LVQError as error:
            self.failures.append(error)

    def _look(self) -> None:
        snapshot = self._view.snapshot()
        shown = {entry.key: (entry.position.partition, entry.position.offset) for entry in snapshot.iter_entries()}
        self.sights.append(Sight(snapshot.offsets, round(snapshot.as_of * 1000), shown))


def check_sights(
    sights: Sequence[Sight],
    log: Mapping[Place, Logged],
    stored: Mapping[Place, Sent],
    find: Callable[[str], None],
) -> None:
    """Check that a view showed of each key the newest record that counted, unless that was a delete or had expired.

    Args:
        log: all records of the topic, but for some that compaction has removed.
        stored: all messages that producers know to be stored.
    """
    lanes: dict[tuple[int, str], list[int]] = defaultdict(list)
    for partition, offset in sorted(log, reverse=True):
        lanes[partition, log[partition, offset].key].append(offset)
    unread: dict[str | None, list[Place]] = defaultdict(list)
    for place in stored.keys() - log.keys():
        unread[stored[place][0]].append(place)
    for sight in sights:
        right = {
            key: (partition, current)
            for (partition, key), offsets in lanes.items()
            if (current := _current(sight, partition, offsets, log)) is not None
        }
        for key in right.keys() | sight.shown.keys():
            expected, shown = right.get(key), sight.shown.get(key)
            if expected != shown and not any(offset < sight.offsets[partition] for partition, offset in unread[key]):
                find(f"G8: a view at {sight.offsets} as of {sight.as_of} shows {shown} of {key}, not {expected}")


def _current(sight: Sight, partition: int, offsets: Sequence[int], log: Mapping[Place, Logged]) -> int | None:
    """Return the offset of the value that counts at this moment, if any."""
    for offset in offsets:
        record = log[partition, offset]
        if offset < sight.offsets.get(partition, 0) and record.due <= sight.as_of:
            return None if record.value is None or record.expires < sight.as_of else offset
    return None
