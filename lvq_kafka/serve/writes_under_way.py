"""Writes on their way, each done once however often it is repeated."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from lvq_kafka.core.facts import Position
from lvq_kafka.errors import LVQError
from lvq_kafka.serve.problems import HttpRefusal
from lvq_kafka.serve.repeated_writes import RepeatedWrites, WriteName
from lvq_kafka.serve.write_room import WritePlace, WriteRoom

__all__ = ["WritesUnderWay"]

logger = logging.getLogger("lvq_kafka.serve")

_MOST = 128
_MOST_BYTES = 1 << 26
_REMEMBERED = 600.0  # seconds
_MOST_REMEMBERED = 100_000
_MOST_REMEMBERED_BYTES = 1 << 26
_PATIENCE = 30.0  # seconds for an answer; the producer may go on for longer

WriteCall = Callable[[], Coroutine[Any, Any, Position]]


class WritesUnderWay:
    """All writes of a server.

    A write goes on when its client has left, or was answered that nobody knows yet. Until it is decided, it has its
    place, and a repetition of it waits for it.
    """

    def __init__(self) -> None:
        self.room = WriteRoom(_MOST, _MOST_BYTES)
        self._repeated: RepeatedWrites[asyncio.Task[Position], Position] = RepeatedWrites(
            seconds=_REMEMBERED, most=_MOST_REMEMBERED, most_bytes=_MOST_REMEMBERED_BYTES
        )
        self._tasks: set[asyncio.Task[Position]] = set()

    async def written(
        self, name: WriteName | None, fingerprint: bytes, place: WritePlace, write: WriteCall
    ) -> Position:
        """Return the position of a write once it is durable.

        If this repeats a write, it is the position of the first one.

        Args:
            name: that of the write, by which it can be repeated; None if it has none.
            fingerprint: a digest of the request.
            place: the place of the write, which ends with it.
            write: does it.

        Raises:
            HttpRefusal: it is not known in time whether it is written, or its name is that of another.
            LVQError: what ``write`` raises.
        """
        task = None
        if name is not None:
            task = self._repeated.running(name, fingerprint)
            position = self._repeated.done(name, fingerprint, time.monotonic())
            if position is not None:
                return position
        if task is None:
            task = asyncio.ensure_future(write())
            place.keep()
            self._tasks.add(task)
            if name is not None:
                self._repeated.begin(name, fingerprint, task)
            task.add_done_callback(partial(self._ended, name, place))
        else:
            place.leave()
        await asyncio.wait({task}, timeout=_PATIENCE)
        fault = None if not task.done() or task.cancelled() else task.exception()
        if fault is not None and not isinstance(fault, LVQError):
            logger.error("a write could not be done", exc_info=fault)
            raise HttpRefusal(504, "The server has a fault, which its log shows. This may have been written.")
        if not task.done():
            again = "Repeat it with its Idempotency-Key to learn it." if name is not None else "Read the key to see."
            raise HttpRefusal(
                504,
                f"It is not known whether this was written: the cluster has not answered for {_PATIENCE:g} s. It may "
                "have been, or may still be.",
                hint=again,
                kind="OutcomeUnknown",
            )
        return task.result()

    def _ended(self, name: WriteName | None, place: WritePlace, task: asyncio.Task[Position]) -> None:
        place.leave()
        self._tasks.discard(task)
        failed = task.cancelled() or task.exception() is not None
        if name is not None:
            self._repeated.end(name, None if failed else task.result(), time.monotonic())
