"""Lines of tasks that wait for the same thing, each served in the order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

__all__ = ["Lines"]


class Lines:
    """Lines of tasks, by name. The tasks of an event loop wait for each other only."""

    def __init__(self) -> None:
        self._locks: dict[tuple[asyncio.AbstractEventLoop, Hashable], tuple[asyncio.Lock, int]] = {}

    def has(self, name: Hashable) -> bool:
        """Return whether tasks of this event loop stand in a line."""
        return (asyncio.get_running_loop(), name) in self._locks

    @asynccontextmanager
    async def stand_in(self, name: Hashable) -> AsyncIterator[None]:
        """Stand in a line, and enter as the first of it. The next one follows at the end."""
        line = asyncio.get_running_loop(), name
        lock, number = self._locks.get(line, (asyncio.Lock(), 0))
        self._locks[line] = lock, number + 1
        try:
            async with lock:  # wakes waiters in the order in which they came
                yield
        finally:
            lock, number = self._locks.pop(line)
            if number > 1:
                self._locks[line] = lock, number - 1
