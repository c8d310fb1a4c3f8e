"""Traces of changes that the newest records do not show (R44)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Self

from lvq_kafka.core.latest.checkpoints import Checkpoint, Checkpoints
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.tables import Table
from lvq_kafka.storing.record_format import is_long, pack_key
from lvq_kafka.storing.value_file import CHECKPOINTS, TRACES, Pages, ValueFile

if TYPE_CHECKING:
    from lvq_kafka.storing.value_file import Txn

__all__ = ["ChangeTraces", "Trace", "checkpoints_of", "traces_of"]

_HEAD = Struct(">QqB")  # the number of the checkpoint before, the moment, and the bits below
_CAUSES: tuple[Cause | None, ...] = (None, "deselected", "expired")
_CAUSE, _BY_TIME, _VALUED = 3, 4, 8
_NUMBER = Struct(">Q")
_SOME = 4096  # old traces that are looked for at once


class Trace(NamedTuple):
    """The last change of a key that its newest record does not show.

    The key has no record, or the record is older than the change.
    """

    number: int
    """That of the checkpoint before the change."""
    moment: int
    """The time of the change, in ms since the epoch."""
    cause: Cause | None
    """Why the key lost its value; None if it was deleted, or has one."""
    by_time: bool
    """Whether it would not have been one at an earlier time, for those who had read as much."""
    valued: bool
    """Whether the key had a value after it."""

    def to_bytes(self, key: bytes) -> bytes:
        """Return it as bytes, with the key unless that is in its packed one."""
        bits = _CAUSES.index(self.cause) | self.by_time * _BY_TIME | self.valued * _VALUED
        head = _HEAD.pack(self.number, self.moment, bits)
        return head + key if is_long(pack_key(key)) else head

    @classmethod
    def from_bytes(cls, packed: memoryview, data: memoryview) -> tuple[bytes, Self]:
        """Return a key and its trace."""
        number, moment, bits = _HEAD.unpack_from(data)
        key = bytes(data[_HEAD.size :] if is_long(packed) else packed[1:])
        return key, cls(number, moment, _CAUSES[bits & _CAUSE], bool(bits & _BY_TIME), bool(bits & _VALUED))


class ChangeTraces:
    """The writer's side of the traces of a file.

    Each key has one trace, that of its last such change. They are written in the transaction that makes the change.

    Nothing is traced before the first checkpoint, which is the end of the first read.
    """

    def __init__(self, file: ValueFile) -> None:
        self._file = file
        self._checkpoints = Checkpoints()
        self._moment = 0
        self._fresh = False  # whether something was traced since the last checkpoint
        self._swept = b""  # old traces were removed up to this key
        self._as_of = -1  # the number of aborts of the file when this was right

    @property
    def begun(self) -> bool:
        """True once there is a checkpoint."""
        self._load()
        return bool(self._checkpoints)

    def _load(self) -> None:
        if self._as_of != self._file.aborts:
            self._checkpoints = checkpoints_of(self._file)
            self._fresh = not self._checkpoints
            self._moment = self._checkpoints.last.moment if self._checkpoints else 0
            self._as_of = self._file.aborts

    def _pass_time(self, moment: int) -> None:
        self._moment = max(self._moment, moment)  # clocks may be set back

    def add(
        self,
        keys: Iterable[bytes],
        table: Table,
        moment: int,
        *,
        cause: Cause | None = None,
        by_time: Collection[bytes] = (),
        since: Mapping[int, int] | None = None,
    ) -> None:
        """Trace those of these keys whose change their records do not show. Raises `StoreFailed`.

        Args:
            keys: keys that have changed.
            table: the newest records.
            moment: the time, in ms since the epoch.
            cause: why the keys lost their values, if they did, and were not deleted.
            by_time: those of the keys that would not have changed at an earlier time.
            since: the positions before the records were read that have made it; None if it were no records.
        """
        self._load()
        self._pass_time(moment)
        number, found = self._checkpoints.last.number, []
        for key in keys:
            slot, timed = table.slot(key), key in by_time
            if slot is not None and not timed and since is not None:
                partition, offset = table.position(slot)
                if offset >= since.get(partition, 0):
                    continue  # as any reader sees
            valued = slot is not None
            trace = Trace(number, self._moment, None if valued else cause, timed, valued)
            found.append((pack_key(key), trace.to_bytes(key)))
        if found:
            found.sort()
            self._file.attempt(lambda txn: txn.cursor(self._file.tables[TRACES]).putmulti(found))
            self._fresh = True

    def check_in(self, moment: int, positions: Mapping[int, int], retention: float) -> None:
        """Make the current cut a checkpoint, if something was traced since the last one.

        Args:
            moment: the time, in ms since the epoch.
            positions: the next offset of each partition.
            retention: the seconds for which removals are kept.

        Raises:
            StoreFailed: that was not possible.
        """
        self._load()
        if not self._fresh:
            return
        self._pass_time(moment)
        added = self._checkpoints.add(self._moment, positions)
        dropped = self._checkpoints.forget(self._moment - round(1000 * retention))
        self._file.attempt(lambda txn: self._check_in(txn, added, dropped))
        self._fresh = False

    def _check_in(self, txn: Txn, added: Checkpoint, dropped: Iterable[Checkpoint]) -> None:
        table = self._file.tables[CHECKPOINTS]
        said = json.dumps([added.moment, sorted(added.positions.items())], separators=(",", ":"))
        txn.put(_NUMBER.pack(added.number), said.encode(), db=table, append=True)
        for one in dropped:
            txn.delete(_NUMBER.pack(one.number), db=table)

    def sweep(self) -> None:
        """Remove some traces that no point needs any longer. Raises `StoreFailed`."""
        self._load()
        if self._checkpoints and self._checkpoints.first.number:
            self._file.attempt(self._sweep)

    def _sweep(self, txn: Txn) -> None:
        cursor = txn.cursor(self._file.tables[TRACES])
        there = cursor.set_range(self._swept) if self._swept else cursor.first()
        for _ in range(_SOME):
            if not there:
                self._swept = b""
                return
            self._swept = bytes(cursor.key())
            old = _HEAD.unpack_from(cursor.value())[0] < self._checkpoints.first.number
            if old:
                cursor.delete()  # which goes on to the next one, if there is one
            there = bool(cursor.key()) if old else cursor.next()


def checkpoints_of(pages: Pages) -> Checkpoints:
    """Return the checkpoints of a file, or of a cut of it."""
    found = []
    for number, said in pages.txn.cursor(pages.file.tables[CHECKPOINTS]):
        moment, pairs = json.loads(bytes(said))
        found.append(Checkpoint(_NUMBER.unpack(number)[0], moment, dict(pairs)))
    return Checkpoints(found)


def traces_of(pages: Pages, offsets: Mapping[int, int], moment: int | None) -> list[tuple[bytes, Trace]] | None:
    """Return the traces that a reader at a point lacks, in the order of the changes.

    None if that is not known.

    Args:
        pages: a cut of a file.
        offsets: the next offset of each partition, at the point.
        moment: its time, in ms; None if messages neither expire nor are scheduled.
    """
    before = checkpoints_of(pages).preceding(offsets, moment)
    if before is None:
        return None
    found = []
    for packed, data in pages.txn.cursor(pages.file.tables[TRACES]):
        number, changed, bits = _HEAD.unpack_from(data)
        if number >= before.number or (bits & _BY_TIME and moment is not None and changed > moment):
            found.append(Trace.from_bytes(packed, data))
    found.sort(key=lambda one: one[1][:2])
    return found
