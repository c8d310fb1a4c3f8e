"""One consumer process: the order in which its engine drives what it holds, with nothing else around it.

This is the engine's specification; what it drives is the library's own `ConsumerCore`. A method is what happens without
interruption; between any two of them the world may do what it likes, and the process may end. Methods return whether
there was anything to do. The engine's part in commits is in `tests.simulator.process`, what holders do in
`tests.simulator.working`.
"""

from __future__ import annotations

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.records import Fetch, RecordBatch
from tests.simulator.proof import Life
from tests.simulator.working import Working

__all__ = ["TAG", "Member"]

TAG = b"\1topic\1\1"


class Member(Working):
    """A consumer process that is, or takes itself for, a member of its group."""

    # ---------------------------------------------------------------- the group's comings and goings

    def heartbeat(self) -> bool:
        """Ask the group. A partition that has to go is withheld first, so that its holders can finish."""
        if self.blocked:
            return False
        standing = self._group.heartbeat(self.number)
        if standing is None:
            self._forget(list(self.lives))
            self._coming.clear()
            self._group.join(self.number)
            return True
        learned = standing.epoch != self.epoch
        self.epoch = standing.epoch
        for partition in standing.new:
            self._coming[partition] = self._logs[partition].stable_end if self._options.ends_known else 0
        for partition in standing.gone:
            self._coming.pop(partition, None)
        self.going = [partition for partition in standing.gone if partition in self.lives]
        if len(self.going) < len(standing.gone):
            self._group.given_up(self.number, [p for p in standing.gone if p not in self.lives])
        self._withhold()
        return learned or bool(standing.new or standing.gone)

    def load(self) -> bool:
        """Begin with the partitions whose commit is decided: only then it is known what is done."""
        maps: dict[int, CommitMap] = {}
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        for partition, target in list(self._coming.items()):
            commit = self._group.offsets(partition)
            if commit is None or self.blocked:
                continue
            maps[partition] = commit_map = CommitMap.decode(*commit)
            starts[partition] = start = max(commit_map.base, self._logs[partition].start)
            ends[partition] = target
            self.lives[partition] = Life(partition, commit_map, target, start)
            del self._coming[partition]
        if maps:
            self.core.assign(maps, starts, ends, self._clock(), epochs=dict.fromkeys(maps, -1), tag=TAG)
        return bool(maps)

    def close(self) -> bool:
        """Leave the group: give everything up first."""
        if self.blocked or self.closing or self.core.transaction.excludes_commits:
            return False
        self.abort()
        self.closing = True
        self.going = list(self.lives)
        self._withhold()
        if not self.going:
            self._end_going()
        return True

    def _withhold(self) -> None:
        self.ledger.withhold(self.going)
        self._observe()

    # ---------------------------------------------------------------- reading

    def fetch(self, partition: int, most: int, *, at_once: bool) -> bool:
        """Get the next records, and take them in, at once or next time."""
        if self.blocked:
            return False
        if self.fetched is None:
            generation = self.lives.get(partition)
            if generation is None:
                return False
            entries, position = self._logs[partition].read(generation.position, most)
            if position == generation.position:
                return False
            self.fetched = partition, entries, position
            if not at_once:
                return True
        partition, entries, position = self.fetched
        self.fetched = None
        count = len(entries)
        batch = RecordBatch(
            [partition] * count,
            [entry.offset for entry in entries],
            [0] * count,
            [entry.key for entry in entries],
            [entry.value for entry in entries],
            [None] * count,
        )
        self.core.read(Fetch(batch, {partition: position}), batch.keys, 0)
        self.lives[partition].read(entries, position)
        return True
