"""Questions to the indexes of a view, in memory or in a store (R45).

Each is answered as of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import Lock, local
from typing import NamedTuple, Protocol

from lvq_kafka.core.latest.columns import ColumnRange, ColumnTable
from lvq_kafka.core.latest.index_order import OrderedPlaces, key_at
from lvq_kafka.core.latest.index_rules import IndexRule, IndexRules, known_index
from lvq_kafka.core.latest.tables import KeyRange
from lvq_kafka.core.latest.value_index import ValueIndex
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import StateError
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.storing.stored_places import IndexedRange, NotedIndex, StoredPlaces, indexes_noted
from lvq_kafka.storing.stored_table import StoredTable

__all__ = ["AttachedIndexes", "IndexAnswer", "Indexes", "MemoryIndexes", "Select", "WriterIndexes"]

Select = Callable[[OrderedPlaces], Iterator[bytes]]
"""Yields the places of an index that are asked for, in the order in which they are wanted."""

_SOME = 4096  # records that are looked up at once, which takes some 4 ms
_MORE = 8  # further such steps, while values change faster than an index can judge them

_DECLARE = 'Call view.index(...) first, for example view.index("desk", by="desk").'
_BY_WRITER = "The process that writes the store has to call view.index(...) with that name, before it opens the view."


class IndexAnswer(NamedTuple):
    """The answer of an index, as of one moment."""

    ends: tuple[bytes, bytes] | None
    """The first and the last of all its places; None if it is empty."""
    found: KeyRange
    """The records that were asked for, in the order in which they are wanted."""


class Indexes(Protocol):
    """The indexes of a view. All methods raise `ConfigError` if there is none of that name."""

    def by(self, name: str) -> object:
        """Return the header or the function that an index is by."""

    def ask(self, name: str, select: Select, most: int | None) -> IndexAnswer:
        """Return what an index holds now, with at most so many of the records that are asked for."""


def _ends(places: OrderedPlaces) -> tuple[bytes, bytes] | None:
    last = places.before(None)
    return None if last is None else (next(places.walk(b"", None)), last)


class _Declared:
    """The indexes that a program has defined."""

    def __init__(self, rules: IndexRules, shared: FollowerState) -> None:
        self._rules = rules
        self._shared = shared

    def by(self, name: str) -> object:
        """See `Indexes.by`."""
        return self._rule(name).by

    def _rule(self, name: str) -> IndexRule:
        return known_index(name, {rule.name: rule for rule in self._rules.all}, _DECLARE)


# ---------------------------------------------------------------- in memory


class MemoryIndexes(_Declared):
    """The indexes of a view in memory.

    Nothing is done for them before they are asked. From then on, the table notes which keys change, and the next
    question has those judged, without the lock of the view.

    Args:
        rules: the definitions.
        shared: the state of the view.
    """

    def __init__(self, rules: IndexRules, shared: FollowerState) -> None:
        super().__init__(rules, shared)
        self._asked: dict[str, _MemoryIndex] = {}

    def ask(self, name: str, select: Select, most: int | None) -> IndexAnswer:
        """See `Indexes.ask`."""
        rule = self._rule(name)
        self._shared.catch_up.check()  # before a mutex that a forked child may never get
        index = self._asked.get(name) or self._asked.setdefault(name, _MemoryIndex(rule, self._shared))
        return index.ask(select, most)


class _Asking(local):
    """The index that a thread is asking, by its name."""

    name: str | None = None


_asking = _Asking()


class _MemoryIndex:
    """One index.

    The mutex guards all of it, except the keys that have changed, which the lock of the view guards.
    """

    def __init__(self, rule: IndexRule, shared: FollowerState) -> None:
        self._name, self._place = rule.name, rule.place
        self._shared = shared
        self._mutex = Lock()
        self._index = ValueIndex()
        self._changed: set[bytes] = set()

    def ask(self, select: Select, most: int | None) -> IndexAnswer:
        if _asking.name is not None:  # two threads would wait for each other, if the other's function asked this one
            raise StateError(
                f"The function of the index {quoted(_asking.name)} has asked the index {quoted(self._name)}.",
                hint="Let it go by its entry alone.",
            )
        _asking.name = self._name
        try:
            with self._mutex:
                return self._ask(select, most)
        finally:
            _asking.name = None

    def _ask(self, select: Select, most: int | None) -> IndexAnswer:
        try:
            self._judge_in_steps()
            return self._answer(select, most)
        except BaseException:  # such as an interrupt: nobody knows what is left to judge
            self._changed = set()  # which no table knows, so the next question makes it again
            raise

    def _judge_in_steps(self) -> None:
        """Judge the keys that have changed, but for some that were not worth a step."""
        steps = None
        while True:
            with self._shared.lock:
                table, changed = self._table(), self._changed
                steps = len(changed) // _SOME + _MORE if steps is None else steps - 1
                if len(changed) <= _SOME or not steps:
                    break
                keys = [changed.pop() for _ in range(_SOME)]
                records = list(map(table.record, keys))
            self._enter(keys, records)
        self._index.order()

    def _table(self) -> ColumnTable:
        """Return the table shown. The lock is held.

        This index has all of its keys, but for those that have changed.
        """
        table = self._shared.current_whole()
        assert isinstance(table, ColumnTable)
        if not table.notes(self._changed):
            self._index, self._changed = ValueIndex(), set(table.index)
            table.note_changes(self._changed)
        return table

    def _answer(self, select: Select, most: int | None) -> IndexAnswer:
        """Answer as of one moment.

        Only the keys that have changed by then are left to judge. So what can be in the answer is known before: they,
        and the first of all others. Their records are taken at that moment, and judged after it.
        """
        with self._shared.lock:
            table = self._table()
            changed = set(self._changed)
            self._changed.clear()
            others = (key for key in map(key_at, select(self._index)) if key not in changed)
            record = table.as_now([*islice(others, most), *changed])
        keys = list(changed)
        self._enter(keys, list(map(record, keys)))
        found = [key_at(place) for place in islice(select(self._index), most)]
        return IndexAnswer(_ends(self._index), ColumnRange(found, _held(record)))

    def _enter(self, keys: Sequence[bytes], records: Sequence[Record | None]) -> None:
        self._index.enter((key, None if one is None else self._place(one)) for key, one in zip(keys, records))


def _held(record: Callable[[bytes], Record | None]) -> Callable[[bytes], Record]:
    """Return a look-up of keys that have a record."""
    return record  # type: ignore[return-value]


# ---------------------------------------------------------------- in a store


class WriterIndexes(_Declared):
    """The indexes of a view with a store, which are kept with its values."""

    def ask(self, name: str, select: Select, most: int | None) -> IndexAnswer:
        """See `Indexes.ask`. Raises `StoreFailed` if the index has to be built, and cannot be."""
        self._rule(name)
        while True:
            table = _cut_of(self._shared, self._shared.build_indexes)
            noted = indexes_noted(table.pages).get(name)
            if noted is not None and noted.complete:  # else another file is shown since
                return _asked(table, noted.number, select, most)


class AttachedIndexes:
    """The indexes that the writer of a store keeps, for a reader in any process (R41).

    Args:
        shared: the state of the reader.
    """

    def __init__(self, shared: FollowerState) -> None:
        self._shared = shared

    def by(self, name: str) -> object:
        """See `Indexes.by`. None stands for a function, which is in the process of the writer."""
        return self._noted(_cut_of(self._shared), name).said.get("header")

    def _noted(self, table: StoredTable, name: str) -> NotedIndex:
        return known_index(name, indexes_noted(table.pages), _BY_WRITER)

    def ask(self, name: str, select: Select, most: int | None) -> IndexAnswer:
        """See `Indexes.ask`. Raises `StateError` if it is not complete yet."""
        table = _cut_of(self._shared)
        noted = self._noted(table, name)
        if not noted.complete:
            raise StateError(f"The index {quoted(name)} is being built.", hint="Try again: the writer goes on with it.")
        return _asked(table, noted.number, select, most)


def _cut_of(shared: FollowerState, prepare: Callable[[], object] = lambda: None) -> StoredTable:
    """Return what is shown now, as it stays."""
    shared.catch_up.check()
    prepare()
    with shared.lock:
        table = shared.current_whole()
        assert isinstance(table, StoredTable)
        return table.copy()


def _asked(table: StoredTable, number: int, select: Select, most: int | None) -> IndexAnswer:
    places = StoredPlaces(table.pages, number)
    return IndexAnswer(_ends_of(table, places), IndexedRange(table, lambda: select(places), most))


def _ends_of(table: StoredTable, places: OrderedPlaces) -> tuple[bytes, bytes] | None:
    """Return the first and the last place whose record has not expired since."""
    first = next((place for place in places.walk(b"", None) if key_at(place) in table), None)
    if first is None:
        return None
    last = places.before(None)
    while last is not None and key_at(last) not in table:
        last = places.before(last)
    return first, last or first
