"""A browser of a queue: one dump of its contents, with the group's commits read before and after."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulator.group import Group
from tests.simulator.log import Entry, Lane, Log
from tests.simulator.proof import Proof, Violation, says_done

__all__ = ["Browser"]


class Browser:
    """A dump. It reads from the group's bases to the current ends and shows what is not done at the end of it."""

    def __init__(self, logs: Sequence[Log], group: Group, proof: Proof) -> None:
        self._logs = logs
        self._group = group
        self._proof = proof
        self._positions = [max(group.visible(p).base, log.start) for p, log in enumerate(logs)]
        self._ends = [log.stable_end for log in logs]
        self._newest: list[dict[Lane, Entry]] = [{} for _ in logs]
        self._expected = [
            [entry for entry in log.newest.values() if entry.value is not None and entry.offset >= start]
            for log, start in zip(logs, self._positions)
        ]

    @property
    def finished(self) -> bool:
        return all(position >= end for position, end in zip(self._positions, self._ends))

    def read(self, most: int) -> bool:
        """Read the next records of every partition."""
        if self.finished:
            return False
        for partition, (log, position) in enumerate(zip(self._logs, self._positions)):
            entries, self._positions[partition] = log.read(position, most)
            self._newest[partition].update((entry.lane, entry) for entry in entries)
        return True

    def show(self) -> bool:
        """End the dump: read the commits again, and show what they do not mark done. Checks I7 and I8."""
        if any(self._group.offsets(partition) is None for partition in range(len(self._logs))):
            return False
        for partition, log in enumerate(self._logs):
            commit = self._group.visible(partition)
            read = self._newest[partition]
            shown = {
                lane: entry.offset
                for lane, entry in read.items()
                if entry.value is not None and not says_done(commit, entry.offset)
            }
            for lane, offset in shown.items():
                if self._group.fenced and self._proof.is_durable(partition, offset):
                    raise Violation(
                        "I7", f"{offset} of partition {partition}, the value of {lane!r}, is shown and was consumed"
                    )
            for entry in self._expected[partition]:
                # A value that has superseded another since the dump began may come with the updates instead.
                if (
                    log.newest[entry.lane] is entry
                    and not says_done(commit, entry.offset)
                    and shown.get(entry.lane) != entry.offset
                ):
                    if entry.offset < log.start and not self._group.fenced:
                        continue  # consumed and truncated, but an old commit was restored
                    raise Violation(
                        "I8", f"{entry.offset} of partition {partition}, the value of {entry.lane!r}, is not shown"
                    )
        return True
