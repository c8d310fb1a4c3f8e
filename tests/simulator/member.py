"""A consumer process: the order in which its engine drives the library's own `ConsumerCore`.

This is the engine's specification. A method runs without interruption; between two methods the world may do anything,
and the process may end. A method returns whether there was anything to do. Commits are in `tests.simulator.process`,
the holders' acts in `tests.simulator.working`.
"""

from __future__ import annotations

from dataclasses import replace

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.records import Fetch, RecordBatch
from tests.simulator.proof import Life
from tests.simulator.working import Working

__all__ = ["TAG", "Member"]

TAG = b"\1topic\1\1"


class Member(Working):
    """A consumer process that is a member of its group, or believes it is."""

    # ---------------------------------------------------------------- membership

    def heartbeat(self) -> bool:
        """Send a heartbeat. A revoked partition is withheld first, to let its holders finish."""
        if self.blocked:
            return False
        if self._moves_over():
            return True
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
        """Start the partitions that have no commit pending in a transaction: until then, it is unknown what is done."""
        maps: dict[int, CommitMap] = {}
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        taken_back: list[int] = []
        for partition, target in list(self._coming.items()):
            commit = self._group.offsets(partition)
            if commit is None or self.blocked:
                continue
            commit_map = CommitMap.decode(*commit)
            promise = self.core.promises.broken(partition, commit_map, self._clock())
            if promise is not None:
                commit_map = promise.map
                taken_back.append(partition)
            maps[partition] = commit_map
            starts[partition] = start = max(commit_map.base, self._logs[partition].start)
            ends[partition] = target
            self.lives[partition] = Life(partition, commit_map, target, start)
            del self._coming[partition]
        if maps:
            epochs = dict.fromkeys(maps, -1)
            self.core.assign(maps, starts, ends, self._clock(), epochs=epochs, tag=TAG, taken_back=taken_back)
        return bool(maps)

    def close(self) -> bool:
        """Give up all partitions, then leave the group."""
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

    def _moves_over(self) -> bool:
        """Leave the group and rejoin, by the terms of an alteration that was noticed since (R39).

        It does so at once, as one that holders keep too long: what is not committed by then comes again.
        """
        times = self._options.times.until(int((self._clock() + self.notice) * 1000))
        if times == self.rules.times:
            return False
        if self.number in self._group.members:
            self._group.remove(self.number)
        self._forget(list(self.lives))
        self._coming.clear()
        self.fetched = None
        self.rules = replace(self.rules, times=times)
        self.core.adopt(self._options.limits, self.rules, None)
        self._group.join(self.number)
        return True

    # ---------------------------------------------------------------- reading

    def fetch(self, partition: int, most: int, *, at_once: bool) -> bool:
        """Fetch the next records, and take them in now or in the next call."""
        if self.blocked:
            return False
        if self._moves_over():
            return True
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
            [entry.timestamp for entry in entries],
            [entry.key for entry in entries],
            [entry.value for entry in entries],
            [entry.headers or None for entry in entries],
        )
        self.core.read(Fetch(batch, {partition: position}), batch.keys, 0)
        self.newest_at = max([self.newest_at, *batch.timestamps])
        self.lives[partition].read(entries, position, self.time)
        self._observe()
        return True
