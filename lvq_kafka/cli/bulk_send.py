"""Bulk sending from a file or a pipe: read ahead, send fast, report in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, Queue
from typing import IO, TYPE_CHECKING

from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.core.facts import Format
from lvq_kafka.errors import DecodeError
from lvq_kafka.json_lines import Line, announced_values, parse_line

if TYPE_CHECKING:
    from lvq_kafka.cluster import Receipt
    from lvq_kafka.core.facts import Position

__all__ = ["Ahead", "Sent", "lines_of", "sent_in_order"]

_READ_AHEAD = 16 << 20  # bytes
_LINE = 1000  # extra bytes counted per line, for its Python object and the time it takes
_IN_FLIGHT = 100_000  # receipts


class Ahead(Queue[bytes | Exception | None]):
    """Lines read but not taken yet: as many bytes as fit, plus one line."""

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
    """A message that all replicas have stored."""

    line: Line
    position: Position


def lines_of(source: IO[bytes], form: Format, *, named: bool = True) -> Iterator[Line | None]:
    """Yield the messages in a file's lines, and None whenever the next line is not there yet.

    If these are fewer than an export announced, a warning says so at the end.

    Args as in `parse_line`.

    Raises:
        DecodeError: a line cannot be read; the error names it.
    """
    # A separate thread reads the file, so that with typed input or a slow pipe each message is reported as soon as it
    # is sent, not with the next one.
    waiting = Ahead()

    def read() -> None:
        try:
            with _own(source) as lines:
                for line in lines:
                    waiting.put(line)
            waiting.put(None)
        except Exception as error:  # noqa: BLE001  # raised again where the lines are taken
            waiting.put(error)

    threading.Thread(target=read, name="lvq-read-lines", daemon=True).start()
    number = found = announced = 0
    while True:
        try:
            text = waiting.get_nowait()
        except Empty:
            yield None
            text = waiting.get()
        if text is None:
            if found < announced:
                print_problem(f"Only {found:,} of the {announced:,} values of this export are here.", warning=True)
            return
        if isinstance(text, Exception):
            raise text
        number += 1
        line = _parse(text, form, number, named=named)
        if line is not None:
            found += 1
            yield line
        elif text.strip():
            announced += announced_values(text.decode("utf-8"))


def _own(source: IO[bytes]) -> IO[bytes]:
    """Return the same file with a buffer of our own.

    Python cannot exit while a thread waits in the buffer of stdin.
    """
    try:
        return os.fdopen(os.dup(source.fileno()), "rb")
    except OSError:  # not an operating system file
        return source


def _parse(text: bytes, form: Format, number: int, *, named: bool = True) -> Line | None:
    if not text.strip():
        return None
    try:
        return parse_line(text.decode("utf-8"), form, named=named)
    except UnicodeDecodeError:
        raise DecodeError(f"Line {number} is not UTF-8.", position=None, raw=text) from None
    except DecodeError as error:
        raise DecodeError(f"Line {number} {error}", position=None, raw=text) from None


def sent_in_order(lines: Iterable[Line | None], hand_over: Callable[[Line], Receipt]) -> Iterator[Sent | None]:
    """Send messages and yield each one, in order, once it is stored.

    Yield None when the next line is not there yet. If a message cannot be sent, yield those before it first.

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
