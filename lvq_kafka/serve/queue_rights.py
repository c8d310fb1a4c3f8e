"""Rights of clients to read and to write queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lvq_kafka.core.queue.definition import is_name

__all__ = ["EVERYBODY", "Bearer", "QueueRights"]

_ALL = "*"
_WRITE = ":write"  # no name of a queue has a colon


@dataclass(frozen=True, slots=True)
class QueueRights:
    """The queues that a client may read, and those that it may write; ``*`` is all."""

    readable: frozenset[str]
    writable: frozenset[str]

    @classmethod
    def parse(cls, words: Iterable[str]) -> QueueRights:
        """Parse words.

        ``prices`` is the right to read a queue, and ``prices:write`` the right to write it. Neither includes the other.

        Raises:
            ValueError: a word is neither; it is the argument.
        """
        readable: set[str] = set()
        writable: set[str] = set()
        for word in words:
            name = word.removesuffix(_WRITE)
            if name != _ALL and not is_name(name):
                raise ValueError(word)
            (readable if name == word else writable).add(name)
        return cls(frozenset(readable), frozenset(writable))

    @property
    def reads_all(self) -> bool:
        """True if it may read every queue."""
        return _ALL in self.readable

    def may_read(self, queue: str) -> bool:
        """Return whether it may read a queue."""
        return self.reads_all or queue in self.readable

    def may_write(self, queue: str) -> bool:
        """Return whether it may write a queue."""
        return _ALL in self.writable or queue in self.writable


@dataclass(frozen=True, slots=True)
class Bearer:
    """A client that is known."""

    identity: bytes
    """Distinguishes it from all others. It shows no secret."""
    rights: QueueRights


EVERYBODY = Bearer(b"", QueueRights(frozenset((_ALL,)), frozenset((_ALL,))))
"""Any client of a server that knows none."""
