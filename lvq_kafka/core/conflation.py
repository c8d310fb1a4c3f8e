"""The keys that a reader still has to see: each once, however often it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["ConflatedKeys"]


class ConflatedKeys:
    """Keys that wait for one slow reader, in memory bounded by the number of keys (G3).

    First come the keys of the dump, in order. One that changes before its turn keeps its turn: the reader gets the
    newest value when it gets there. Then come updates; a key that changes again moves to the tail.

    Every operation takes constant time. Nothing is ever removed from the front of a dict, which would walk over all
    earlier removals. Instead, keys stand in a line that does not change, and the keys changed since are noted beside
    it.

    Args:
        dump: its keys, in order. They are neither copied nor looked at before their turn, so many readers can share
            them.
    """

    __slots__ = ("__weakref__", "_changed", "_line", "_turn", "in_dump")

    def __init__(self, dump: Sequence[bytes] = ()) -> None:
        self.in_dump = bool(dump)
        """True while keys of the dump are waiting."""
        self._line = dump
        self._turn = 0
        self._changed: dict[bytes, None] = {}  # since the line was formed, in order of last change

    def __bool__(self) -> bool:
        return self._turn < len(self._line) or bool(self._changed)

    def changed(self, keys: Iterable[bytes]) -> None:
        """Note keys that have a newer value, or none any longer."""
        changed = self._changed
        for key in keys:
            changed.pop(key, None)
            changed[key] = None

    def pop(self) -> bytes | None:
        """Return the next key, or None if there is none."""
        changed = self._changed
        while True:
            if self._turn == len(self._line):
                if not changed:
                    return None
                self._line, self._turn, self._changed = tuple(changed), 0, {}
                changed = self._changed
            key = self._line[self._turn]
            self._turn += 1
            if self.in_dump:
                changed.pop(key, None)
                if self._turn == len(self._line):
                    self.in_dump, self._line, self._turn = False, (), 0
                return key
            if key not in changed:  # otherwise its turn comes later
                return key
