"""Which keys a reader has still to be told of: each once, however often it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["ConflatedKeys"]


class ConflatedKeys:
    """Keys that wait for one slow reader; memory is bounded by the number of keys (G3).

    First come the keys of the dump, in their order. One of them that changes before its turn keeps its turn: the
    reader is given what is newest when it gets there. Then come updates; a key that changes again moves to the tail.

    Every step takes constant time. Nothing is ever taken out of the front of a dict, which would walk over all that was
    taken before. Keys stand in a line that does not change, and beside it is noted which of them have changed since.

    Args:
        dump: its keys, in order. They are neither copied nor looked at before their turn, so that many readers can
            share them.
    """

    __slots__ = ("_changed", "_line", "_turn", "in_dump")

    def __init__(self, dump: Sequence[bytes] = ()) -> None:
        self.in_dump = bool(dump)
        """Whether keys of the dump are still waiting."""
        self._line = dump
        self._turn = 0
        self._changed: dict[bytes, None] = {}  # since the line was formed, in the order of their last change

    def __bool__(self) -> bool:
        return self._turn < len(self._line) or bool(self._changed)

    def changed(self, keys: Iterable[bytes]) -> None:
        """These keys have a newer value, or none any more."""
        changed = self._changed
        for key in keys:
            changed.pop(key, None)
            changed[key] = None

    def pop(self) -> bytes | None:
        """The key whose turn it is, or None when all is told."""
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
            if key not in changed:  # else its turn comes later
                return key
