"""The keys that a listener still has to see, each once, and the pace at which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

__all__ = ["Cause", "ConflatedKeys", "Pace"]

Cause = Literal["deselected", "expired"]
"""The reason why a key lost its value without a delete: not selected, or expired."""


class ConflatedKeys:
    """Keys that wait for one slow reader, in memory bounded by the number of keys (G3).

    The keys of the dump are first, in order. A key that changes before its turn keeps its turn: the reader then gets
    the newest value. Updates follow; a key that changes again moves to the tail. In batches, updates keep their turn,
    too, so a key that changes all the time is in each batch.

    Every operation takes constant time. Nothing is ever removed from the front of a dict, which would walk over all
    earlier removals. Instead, keys stand in a line that does not change, and the keys changed since are noted beside
    it.

    Args:
        dump: the keys of the dump, in order. They are neither copied nor examined before their turn, so many readers
            can share them.
        selects: returns whether a key concerns the reader; None if all do.
        batches: whether updates are returned in batches, with a pause whenever `at_pause` is true.
    """

    __slots__ = ("__weakref__", "_batches", "_causes", "_changed", "_line", "_selects", "_turn", "in_dump", "lines")

    def __init__(
        self,
        dump: Sequence[bytes] = (),
        selects: Callable[[bytes], bool] | None = None,
        *,
        batches: bool = False,
    ) -> None:
        self.in_dump = bool(dump)
        """True while keys of the dump are waiting."""
        self.lines = 0
        """The number of lines formed: when one is, the reader has been given all keys of the one before."""
        self._batches = batches
        self._selects = selects
        self._causes: dict[bytes, Cause] = {}  # of waiting keys without a value
        self._line = dump
        self._turn = 0
        self._changed: dict[bytes, None] = {}  # since the line was formed, in order of last change

    def __bool__(self) -> bool:
        return self._turn < len(self._line) or bool(self._changed)

    def changed(self, keys: Iterable[bytes], cause: Cause | None = None) -> None:
        """Note keys that have a newer value, or have lost theirs for this cause."""
        if self._selects is not None:
            keys = filter(self._selects, keys)
        changed, causes = self._changed, self._causes
        for key in keys:
            changed.pop(key, None)
            changed[key] = None
            if cause is not None:
                causes[key] = cause
            elif causes:
                causes.pop(key, None)

    def precede(self, dump: Mapping[bytes, Cause | None]) -> None:
        """Put these keys first, as a dump, with the causes of those that lost their value.

        No key was returned yet.
        """
        self._line, self._turn, self.in_dump = tuple(dump), 0, bool(dump)
        for key, cause in dump.items():
            if cause is not None and key not in self._changed:
                self._causes[key] = cause

    @property
    def at_pause(self) -> bool:
        """True if keys wait, and the next one begins a batch of updates."""
        return self._turn == len(self._line) and bool(self._changed)

    def pop_cause(self, key: bytes) -> Cause | None:
        """Return, once, why a key that `pop` returned has no value; None if it was deleted."""
        return self._causes.pop(key, None)

    def pop_all(self) -> list[bytes]:
        """Return all keys that wait, each once; their causes are forgotten."""
        changed = self._changed
        keys = [key for key in self._line[self._turn :] if key not in changed]
        keys += changed
        self.in_dump, self._line, self._turn, self._changed = False, (), 0, {}
        self._causes.clear()
        return keys

    def pop(self) -> bytes | None:
        """Return the next key, or None if there is none."""
        while True:
            for key in self.line():
                return key
            if not self._changed:
                return None
            self._line, self._turn, self._changed = tuple(self._changed), 0, {}
            self.lines += 1

    def line(self) -> Iterator[bytes]:
        """Yield the keys that are left in the present line.

        It may be left at any key. Nothing else may change meanwhile.
        """
        line, changed, keep_turn = self._line, self._changed, self.in_dump or self._batches
        for turn in range(self._turn, len(line)):
            key = line[turn]
            self._turn = turn + 1
            if keep_turn:
                changed.pop(key, None)
                if self._turn == len(line):
                    self.in_dump, self._line, self._turn = False, (), 0
            elif key in changed:
                continue  # its turn is later
            yield key


_LONGEST = 1e9  # seconds: 30 years, not much less than the longest wait of the operating system


class Pace:
    """At most one batch in each period; the first one at once.

    Args:
        every: the least time between the beginnings of two batches, in seconds.
        clock: returns seconds.
    """

    __slots__ = ("_clock", "_due", "_every")

    def __init__(self, every: float, clock: Callable[[], float]) -> None:
        self._every = min(every, _LONGEST)
        self._clock = clock
        self._due = float("-inf")

    @property
    def left(self) -> float:
        """Seconds until the next batch may begin; 0.0 if it may now."""
        return max(0.0, self._due - self._clock())

    def begin(self) -> bool:
        """Begin a batch if one is due; return whether it was."""
        now = self._clock()
        if now < self._due:
            return False
        self._due = now + self._every
        return True
