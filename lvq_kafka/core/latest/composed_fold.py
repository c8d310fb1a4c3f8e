"""The fold of a queue with all of its options, and what it remembers outside its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lvq_kafka.core.latest.fold import LatestValues, ReaderStats
from lvq_kafka.core.latest.memory_tables import IN_MEMORY
from lvq_kafka.core.latest.scheduled_values import ScheduledValues
from lvq_kafka.core.latest.selected_values import SelectedValues, StrayKeys
from lvq_kafka.core.latest.tables import Tables
from lvq_kafka.core.latest.value_store import ValueStore
from lvq_kafka.core.queue.foreign_headers import ForeignHeaders
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.core.timing.expiry_times import ExpiryTimes

__all__ = ["ComposedFold"]

_MOST_STRAYS = 10_000


@dataclass(slots=True)
class ComposedFold:
    """The newest values of a queue: of those that are due (R11), and selected (R30)."""

    store: ValueStore
    """The whole."""
    values: LatestValues
    selected: SelectedValues | None
    strays: StrayKeys | None
    due_times: DueTimes | None
    """The judge of due times; None if all messages count at once."""
    epochs: dict[int, int] = field(default_factory=dict)
    """The leader epoch of the last record of each partition, where known."""

    @classmethod
    def of(
        cls,
        rules: QueueRules,
        partitions: int,
        *,
        retention: float,
        foreign: ForeignHeaders | None = None,
        strays: StrayKeys | None = None,
        several: bool = False,
        tables: Tables = IN_MEMORY,
    ) -> ComposedFold:
        """Compose the fold of a queue.

        Args:
            rules: the rules of the queue.
            partitions: the topic's partition count.
            retention: seconds for which the topic keeps deletes.
            foreign: looks for headers of other systems.
            strays: the keys noted by earlier reads, if values are selected; see `SelectedValues`.
            several: whether several partitions are read.
            tables: makes what the records are kept in.
        """
        values = LatestValues(
            partitions, rules, tombstone_memory=_tombstone_memory(rules, retention), foreign=foreign, tables=tables
        )
        selected = None if strays is None else SelectedValues(values, rules, strays, several=several)
        inner, due_times = selected or values, rules.times.due_times()
        store = inner if due_times is None else ScheduledValues(inner, rules, due_times, tables=tables)
        return cls(store, values, selected, strays, due_times)

    @property
    def expiry_times(self) -> ExpiryTimes | None:
        """The judge of lifetimes; None if nothing expires."""
        return self.values.expiry_times

    # ---------------------------------------------------------------- what it remembers

    def note(self) -> bytes:
        """Return all that is not in the tables: positions, counts, and what selection has to know.

        It stays short: with very many strays, all keys count as strays.
        """
        selected, strays = self.selected, self.strays
        said: dict[str, object] = {
            "partitions": self.store.table.partitions,
            "positions": self.store.progress.positions,
            "epochs": self.epochs,
            "stats": asdict(self.store.stats),
            "newest": self.values.newest_timestamp,
            "prune_at": self.values.prune_at,
        }
        if selected is not None and strays is not None:
            if strays.keys is not None and len(strays.keys) > _MOST_STRAYS:
                strays.keys = None  # the last one that was noted makes the topic be read again anyway
            said["forgetful"] = sorted(selected.forgetful)
            said["reread"] = selected.needs_reread
            said["doubts"] = strays.doubts
            said["strays"] = None if strays.keys is None else sorted(key.hex() for key in strays.keys)
        return json.dumps(said, separators=(",", ":")).encode()

    def recall(self, note: bytes) -> None:
        """Take over what another fold of this kind remembered, whose tables this one has."""
        said: Mapping[str, Any] = json.loads(note)
        self.values.table.grow(max(said["partitions"], self.values.table.partitions))
        self.store.progress.advance(_by_partition(said["positions"]))
        self.epochs.update(_by_partition(said["epochs"]))
        stats = ReaderStats(**said["stats"])
        for name, count in asdict(stats).items():
            setattr(self.store.stats, name, count)
        self.values.newest_timestamp, self.values.prune_at = said["newest"], said["prune_at"]
        if self.selected is not None and self.strays is not None:
            self.selected.forgetful.update(said["forgetful"])
            self.selected.needs_reread = said["reread"]
            self.strays.doubts = said["doubts"]
            self.strays.keys = None if said["strays"] is None else set(map(bytes.fromhex, said["strays"]))


def _by_partition(said: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): number for partition, number in said.items()}


def _tombstone_memory(rules: QueueRules, retention: float) -> int:
    """Return how many ms deletes are remembered: none in a standard queue, without rivals."""
    return round(1000 * (retention + (rules.times.longest_delay or 0.0))) if rules.keys.conflates else 0
