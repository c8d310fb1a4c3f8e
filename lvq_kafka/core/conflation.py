"""Which keys a reader has still to be told of: each once, however often it changes."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ConflatedKeys"]


class ConflatedKeys:
    """Keys that wait for one slow reader; memory is bounded by the number of keys (G3).

    First come the keys of the dump, in their order. One of them that changes before its turn keeps its turn: the
    reader is given what is newest when it gets there. Then come updates; a key that changes again moves to the tail.
    """

    __slots__ = ("_dump", "_updates")

    def __init__(self, dump: Iterable[bytes] = ()) -> None:
        self._dump = dict.fromkeys(dump)
        self._updates: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._dump) + len(self._updates)

    @property
    def in_dump(self) -> bool:
        """Whether keys of the dump are still waiting."""
        return bool(self._dump)

    def changed(self, keys: Iterable[bytes]) -> None:
        """These keys have a newer value, or none any more."""
        dump, updates = self._dump, self._updates
        for key in keys:
            if key not in dump:
                updates.pop(key, None)
                updates[key] = None

    def take(self) -> bytes | None:
        """The key whose turn it is, or None when all is told."""
        waiting = self._dump or self._updates
        if not waiting:
            return None
        key = next(iter(waiting))
        del waiting[key]
        return key
