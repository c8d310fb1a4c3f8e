"""Answers that wait or stream: bounded, and ended with their client or the server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lvq_kafka.serve.http_peer import HttpPeer
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["LongAnswers", "ending"]

T = TypeVar("T")

_MOST_THREADS = 64  # each is woken by every change; hundreds would keep the event loop from its work


class LongAnswers:
    """The answers of a server that take a while.

    Args:
        most: how many there may be at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self._threads = 0
        self._running: set[asyncio.Task[Any]] = set()
        self.ended = False
        """Whether the server ends."""

    def __len__(self) -> int:
        return self._number

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count an answer, as long as the context lasts.

        Raises:
            HttpRefusal: there are too many already, or the server ends.
        """
        if self.ended:
            raise ending()
        if self._number >= self._most:
            raise _later(f"{self._most:,} clients wait or read a stream here already.")
        self._number += 1
        try:
            yield
        finally:
            self._number -= 1

    @contextmanager
    def thread(self) -> Iterator[None]:
        """Count an answer that holds a thread, as long as the context lasts.

        The thread waits until the view has got somewhere.

        Raises:
            HttpRefusal: there are too many already.
        """
        if self._threads >= _MOST_THREADS:
            raise _later(f"{_MOST_THREADS} clients wait for a position here already.")
        self._threads += 1
        try:
            yield
        finally:
            self._threads -= 1

    async def while_wanted(self, work: Coroutine[Any, Any, T], peer: HttpPeer) -> T | None:
        """Run work until its client leaves or the server ends; return None then."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(peer.leave())
        self._running.add(task)
        if self.ended:
            task.cancel()
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            self._running.discard(task)
            for each in (task, leaving):
                each.cancel()
            await asyncio.gather(task, leaving, return_exceptions=True)

    async def unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that waits for a client, such as the reading of a body.

        Raises:
            HttpRefusal: the server ends first.
        """
        task = asyncio.ensure_future(work)
        self._running.add(task)
        try:
            await asyncio.wait({task})
            if task.cancelled():
                raise ending()
            return task.result()
        finally:
            self._running.discard(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def end(self) -> None:
        """End all of them, and refuse new ones."""
        self.ended = True
        for task in self._running:
            task.cancel()


def ending() -> HttpRefusal:
    """Return the answer to a request that cannot be done before the server ends."""
    return _later("The server ends.")


def _later(why: str) -> HttpRefusal:
    return HttpRefusal(503, why, hint="Try again later.", headers=[("retry-after", "5")])
