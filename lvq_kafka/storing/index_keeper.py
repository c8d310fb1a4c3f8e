"""The indexes in a file, kept by the transactions that change its records (R45)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lvq_kafka.core.latest.index_rules import IndexRule, IndexRules
from lvq_kafka.core.log.records import Record
from lvq_kafka.storing.record_format import INDEX, entry_of, pack_place, place_in
from lvq_kafka.storing.stored_places import INDEXES, NotedIndex, note_of, parse_indexes
from lvq_kafka.storing.value_file import ENTRIES, PLACES, ValueFile

if TYPE_CHECKING:
    from lvq_kafka.storing.value_file import Txn

__all__ = ["IndexKeeper"]

_SOME = 4096  # keys that are entered or removed in one step, which takes some 40 ms
_PER_KEY = 1100  # bytes that a place and an entry may take


class RecordsByKey(Protocol):
    """The records of a file."""

    def some_after(self, packed: bytes, most: int) -> list[tuple[bytes, Record]]:
        """Return the first records after a packed key, in the order of the file.

        Each comes with its own packed key.
        """


class IndexKeeper:
    """Keeps the indexes of a file to what is asked for.

    Each index has a number, and a key its place in it, which is remembered: a function may not return the same for the
    record before. A file whose indexes are others than those asked for is changed in steps. Meanwhile, each key that
    changes is entered at once, so that nothing is missed.

    Args:
        file: the file.
        rules: the indexes that are asked for.
    """

    def __init__(self, file: ValueFile, rules: IndexRules) -> None:
        self._file = file
        self._rules = rules
        self._there: list[NotedIndex] = []
        self._kept: list[tuple[int, IndexRule]] = []  # those that are asked for, and their numbers
        self._done: Sequence[IndexRule] | None = None  # what was asked for when nothing was left to do
        self._as_of = -1  # the number of aborts of the file when this was read

    # ---------------------------------------------------------------- what there is

    def _refresh(self) -> None:
        if self._as_of != self._file.aborts:
            self._see(parse_indexes(self._file.noted(INDEXES)))
            self._done, self._as_of = None, self._file.aborts

    def _see(self, there: list[NotedIndex]) -> None:
        self._there = there
        asked = {rule.name: rule for rule in self._rules.all}
        self._kept = [
            (noted.number, asked[noted.name])
            for noted in there
            if noted.name in asked and noted.said == asked[noted.name].said
        ]

    def _note(self, there: list[NotedIndex]) -> None:
        self._file.note(INDEXES, note_of(there))
        self._see(there)

    @property
    def room(self) -> int:
        """The bytes that the places of a record may take."""
        return _PER_KEY * len(self._rules.all)

    def __bool__(self) -> bool:
        """Return whether records have to be entered."""
        self._refresh()
        return bool(self._kept)

    # ---------------------------------------------------------------- what is asked for

    @property
    def done(self) -> bool:
        """True if the file has the indexes that are asked for, complete, and no others."""
        return self._done is self._rules.all and self._as_of == self._file.aborts

    def advance(self, table: RecordsByKey) -> bool:
        """Do some of what is left to do; return whether more may be left.

        The first step of a process says which indexes are not kept any more. It has to be committed before any change.

        Args:
            table: the table of the file.

        Raises:
            StoreFailed: that was not possible.
        """
        if self.done:
            return False
        asked = self._rules.all
        self._refresh()
        kept, known = {number for number, _ in self._kept}, {rule.name for _, rule in self._kept}
        missing = [rule for rule in asked if rule.name not in known]
        if missing or any(noted.said and noted.number not in kept for noted in self._there):
            left = [noted if noted.number in kept else replace(noted, said={}) for noted in self._there]
            self._note([*left, *self._begun(missing)])
        elif (noted := next((noted for noted in self._there if not noted.said), None)) is not None:
            self._remove_some(noted)
        elif (noted := next((noted for noted in self._there if not noted.complete), None)) is not None:
            self._build_some(noted, table)
        else:
            self._done = asked
        return not self.done

    def _begun(self, rules: Iterable[IndexRule]) -> Iterator[NotedIndex]:
        taken = {noted.number for noted in self._there}
        free = (number for number in range(len(taken) + len(self._rules.all) + 1) if number not in taken)
        return (NotedIndex(rule.name, number, rule.said, built="") for number, rule in zip(free, rules))

    def _remove_some(self, noted: NotedIndex) -> None:
        self._file.reserve(_SOME * _PER_KEY)
        if not self._file.attempt(lambda txn: _emptied_some(txn, self._file, noted.number)):
            self._note([other for other in self._there if other is not noted])

    def _build_some(self, noted: NotedIndex, table: RecordsByKey) -> None:
        self._file.reserve(_SOME * _PER_KEY)
        rule = next(rule for number, rule in self._kept if number == noted.number)
        found = table.some_after(bytes.fromhex(noted.built or ""), _SOME)
        self._file.attempt(
            lambda txn: self._enter(txn, noted.number, [(packed, rule.place(record)) for packed, record in found])
        )
        noted.built = found[-1][0].hex() if len(found) == _SOME else None
        self._note(self._there)

    # ---------------------------------------------------------------- changes

    def enter(self, txn: Txn, records: Sequence[tuple[bytes, Record]]) -> None:
        """Enter records, by their packed keys."""
        for number, rule in self._kept:
            self._enter(txn, number, [(packed, rule.place(record)) for packed, record in records])

    def remove(self, txn: Txn, packed: bytes) -> None:
        """Remove a key, which is packed."""
        for number, _ in self._kept:
            self._enter(txn, number, [(packed, None)])

    def _enter(self, txn: Txn, number: int, places: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put packed keys at other places of an index, or nowhere."""
        in_order, entries = self._file.tables[PLACES], self._file.tables[ENTRIES]
        for packed, place in places:
            name = entry_of(number, packed)
            found = txn.get(name, None, entries)
            before = None if found is None else bytes(found)
            now = None if place is None else pack_place(number, place)
            if now == before:
                continue
            if before is not None:
                txn.delete(before, db=in_order)
            if now is None or place is None:
                txn.delete(name, db=entries)
                continue
            txn.put(name, now, db=entries)
            txn.put(now, place if place_in(now, b"")[1] else b"", db=in_order)


def _emptied_some(txn: Txn, file: ValueFile, number: int) -> bool:
    """Remove some of an index; return whether there was any."""
    any_there, begin = False, INDEX.pack(number)
    for table in (PLACES, ENTRIES):
        cursor = txn.cursor(file.tables[table])
        cursor.set_range(begin)
        for _ in range(_SOME):
            if bytes(cursor.key()[: INDEX.size]) != begin:
                break
            cursor.delete()
            any_there = True
    return any_there
