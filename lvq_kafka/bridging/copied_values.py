"""The values that a bridge has copied, to tell what is new when it looks again."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

__all__ = ["CopiedValues"]


class CopiedValues:
    """The values that were copied while browsing.

    One that is there again on the next look is not repeated. Only the first message of a key in a look is compared: the
    look begins with what the queue holds. After that, equal values are new ones.

    Args:
        conflate: whether a message replaces the one before of its key. If not, each message stands for itself; of equal
            ones, those count that are more than before.
    """

    def __init__(self, conflate: bool) -> None:
        self._conflate = conflate
        self._before: dict[bytes | tuple[bytes, int], bytes] = {}
        self._copied: dict[bytes | tuple[bytes, int], bytes] = {}
        self._times: Counter[bytes] = Counter()

    def start_over(self) -> None:
        """Note that a look begins."""
        self._before.update(self._copied)
        self._copied = {}
        self._times.clear()

    def end_look(self) -> None:
        """Note that all was seen that the queue held.

        A value that was not among it is gone, and new if it comes back.
        """
        self._before.clear()

    def has(self, key: bytes | None, data: bytes) -> bool:
        """Return whether this is the value that the key had before, and note it.

        Args:
            data: what distinguishes one value from another.
        """
        digest = blake2b(data, digest_size=16).digest()
        name: bytes | tuple[bytes, int]
        if key is None or not self._conflate:
            self._times[digest] += 1
            name = digest, self._times[digest]
        else:
            name = key
        self._copied[name] = digest
        return self._before.pop(name, None) == digest

    def forget(self, key: bytes | None) -> None:
        """Note that the newest value of a key was not copied."""
        if key is not None:
            self._copied.pop(key, None)
