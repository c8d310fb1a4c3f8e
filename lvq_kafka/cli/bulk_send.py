"""Many messages from a file or a pipe: read ahead, sent at speed, and reported in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, Queue
from typing import IO

from lvq_kafka.cli.json_lines import Format, Line, parse_line
from lvq_kafka.cluster import Receipt
from lvq_kafka.core.records import Position
from lvq_kafka.errors import DecodeError

__all__ = ["Ahead", "Sent", "lines_of", "sent_in_order"]

_READ_AHEAD = 16 << 20  # bytes
_LINE = 1000  # bytes that a line counts in addition, since it takes up a Python object and time
_IN_FLIGHT = 100_000  # receipts


class Ahead(Queue[bytes | Exception | None]):
    """What was read and not taken: as much as there is room for, in bytes, and one line more."""

    def __init__(self) -> None:
        super().__init__(_READ_AHEAD)

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self._weight = 0

    def _qsize(self) -> int:
        return self._weight

    def _put(self, item: bytes | Exception | None) -> None:
        super()._put(item)
        self._weight += _weight(item)

    def _get(self) -> bytes | Exception | None:
        item = super()._get()
        self._weight -= _weight(item)
        return item


def _weight(item: bytes | Exception | None) -> int:
    return _LINE + len(item) if isinstance(item, bytes) else _LINE


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that all replicas have."""

    line: Line
    position: Position


def lines_of(source: IO[bytes], form: Format) -> Iterator[Line | None]:
    """The messages that the lines of a file hold; None whenever the next line has to be waited for.

    Raises:
        DecodeError: a line cannot be read; names it.
    """
    # The file is read by a thread of its own, so that somebody who types, or a slow pipe, sees each message reported
    # when it is sent and not with the next one.
    waiting = Ahead()

    def read() -> None:
        try:
            with _own(source) as lines:
                for line in lines:
                    waiting.put(line)
            waiting.put(None)
        except Exception as error:  # noqa: BLE001  # it is raised where the lines are taken
            waiting.put(error)

    threading.Thread(target=read, name="lvq-read-lines", daemon=True).start()
    number = 0
    while True:
        try:
            text = waiting.get_nowait()
        except Empty:
            yield None
            text = waiting.get()
        if text is None:
            return
        if isinstance(text, Exception):
            raise text
        number += 1
        line = _parse(text, form, number)
        if line is not None:
            yield line


def _own(source: IO[bytes]) -> IO[bytes]:
    """The same file through a buffer of our own: Python cannot end while a thread waits in the one of stdin."""
    try:
        return os.fdopen(os.dup(source.fileno()), "rb")
    except OSError:  # not a file of the operating system
        return source


def _parse(text: bytes, form: Format, number: int) -> Line | None:
    if not text.strip():
        return None
    try:
        return parse_line(text.decode("utf-8"), form)
    except UnicodeDecodeError:
        raise DecodeError(f"Line {number} is not UTF-8.", position=None, raw=text) from None
    except DecodeError as error:
        raise DecodeError(f"Line {number} {error}", position=None, raw=text) from None


def sent_in_order(lines: Iterable[Line | None], hand_over: Callable[[Line], Receipt]) -> Iterator[Sent | None]:
    """Hand messages over and yield each one when it is stored, in their order; None when the next has to be waited for.

    When a message cannot be handed over, those before it are yielded first.

    Raises:
        DeliveryFailed, DeliveryUnknown: a message was not stored, or may not have been.
    """
    in_flight: deque[tuple[Line, Receipt]] = deque()
    try:
        for line in lines:
            if line is None:
                yield from _stored(in_flight)
                yield None
                continue
            in_flight.append((line, hand_over(line)))
            while in_flight and (in_flight[0][1].done() or len(in_flight) > _IN_FLIGHT):
                yield _await_oldest(in_flight)
    except Exception:
        yield from _stored(in_flight)
        raise
    yield from _stored(in_flight)


def _stored(in_flight: deque[tuple[Line, Receipt]]) -> Iterator[Sent]:
    while in_flight:
        yield _await_oldest(in_flight)


def _await_oldest(in_flight: deque[tuple[Line, Receipt]]) -> Sent:
    line, receipt = in_flight.popleft()
    return Sent(line, receipt.result())
