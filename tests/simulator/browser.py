"""A browser of a queue: one dump of its contents, with the group's commits read before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulator.group import Group
from tests.simulator.log import Entry, Log
from tests.simulator.proof import Proof, Violation, says_done

__all__ = ["Browser"]


class Browser:
    """A dump. It reads from the group's bases to the current ends and shows what is not done at the end of it.

    Args:
        now: returns the time, in seconds, by which messages are due.
    """

    def __init__(self, logs: Sequence[Log], group: Group, proof: Proof, now: Callable[[], float]) -> None:
        self._logs = logs
        self._group = group
        self._proof = proof
        self._now = now
        self._starts = [max(group.visible(p).base, log.start) for p, log in enumerate(logs)]
        self._positions = list(self._starts)
        self._ends = [log.stable_end for log in logs]
        self._entries: list[list[Entry]] = [[] for _ in logs]

    @property
    def finished(self) -> bool:
        return all(position >= end for position, end in zip(self._positions, self._ends))

    def read(self, most: int) -> bool:
        """Read the next records of every partition."""
        if self.finished:
            return False
        for partition, (log, position) in enumerate(zip(self._logs, self._positions)):
            entries, self._positions[partition] = log.read(position, most)
            self._entries[partition] += entries
        return True

    def show(self) -> bool:
        """End the dump: read the commits again, and show what they do not mark done. Checks I7 and I8."""
        if any(self._group.offsets(partition) is None for partition in range(len(self._logs))):
            return False
        time = self._now() * 1000
        for partition, log in enumerate(self._logs):
            commit = self._group.visible(partition)
            read = {entry.lane: entry for entry in self._entries[partition] if entry.due <= time}
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
            for entry in self._expected(partition, time):
                if not says_done(commit, entry.offset) and shown.get(entry.lane) != entry.offset:
                    if entry.offset < log.start and not self._group.fenced:
                        continue  # consumed and truncated, but an old commit was restored
                    raise Violation(
                        "I8", f"{entry.offset} of partition {partition}, the value of {entry.lane!r}, is not shown"
                    )
        return True

    def _expected(self, partition: int, time: float) -> list[Entry]:
        """Return the values that count, of what was there when the dump began.

        One that has superseded another since then may come with the updates instead.
        """
        log, start, end = self._logs[partition], self._starts[partition], self._ends[partition]
        found = [log.current(lane, time) for lane in log.newest]
        return [
            entry for entry in found if entry is not None and entry.value is not None and start <= entry.offset < end
        ]
