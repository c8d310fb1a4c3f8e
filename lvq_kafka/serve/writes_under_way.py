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

    def begin(
        self, name: WriteName | None, fingerprint: bytes, place: WritePlace, write: WriteCall
    ) -> asyncio.Task[Position] | Position:
        """Begin a write, or return the one that this repeats: its position, if it is done.

        Args:
            name: that of the write, by which it can be repeated; None if it has none.
            fingerprint: a digest of the request.
            place: the place of the write, which ends with it.
            write: does it.

        Raises:
            HttpRefusal: the name is that of another write, or there is no room.
        """
        if name is not None:
            running = self._repeated.running(name, fingerprint)
            position = self._repeated.done(name, fingerprint, time.monotonic())
            repeated = running if position is None else position
            if repeated is not None:
                place.leave()
                return repeated
        place.keep()
        task = asyncio.ensure_future(write())
        self._tasks.add(task)
        if name is not None:
            self._repeated.begin(name, fingerprint, task)
        task.add_done_callback(partial(self._ended, name, place))
        return task

    @staticmethod
    async def outcome(begun: asyncio.Task[Position] | Position, *, named: bool) -> Position:
        """Return the position of a write once it is durable.

        Args:
            begun: what `begin` returned.
            named: whether the write has a name, by which it can be repeated.

        Raises:
            HttpRefusal: it is not known in time whether it is written.
            LVQError: what the write raises.
        """
        if isinstance(begun, Position):
            return begun
        try:
            await asyncio.wait({begun}, timeout=_PATIENCE)
        except asyncio.CancelledError:  # the server ends, and would answer that nothing was written
            raise _unknown("the server ends", named=False) from None
        fault = None if not begun.done() or begun.cancelled() else begun.exception()
        if fault is not None and not isinstance(fault, LVQError):
            logger.error("a write could not be done", exc_info=fault)
            raise HttpRefusal(504, "The server has a fault, which its log shows. This may have been written.")
        if not begun.done():
            raise _unknown(f"the cluster has not answered for {_PATIENCE:g} s", named=named)
        return begun.result()

    def _ended(self, name: WriteName | None, place: WritePlace, task: asyncio.Task[Position]) -> None:
        place.leave()
        self._tasks.discard(task)
        failed = task.cancelled() or task.exception() is not None
        if name is not None:
            self._repeated.end(name, None if failed else task.result(), time.monotonic())


def _unknown(why: str, *, named: bool) -> HttpRefusal:
    return HttpRefusal(
        504,
        f"It is not known whether this was written: {why}. It may have been, or may still be.",
        hint="Repeat it with its Idempotency-Key to learn it." if named else "Read the key to see.",
        kind="OutcomeUnknown",
    )
