from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, Full

import pytest

from lvq_kafka.cli.bulk_send import Ahead, lines_of, sent_in_order
from lvq_kafka.core.facts import Position
from lvq_kafka.errors import DecodeError, DeliveryFailed
from lvq_kafka.json_lines import Line


class Receipt:
    def __init__(self, offset: int, *, done: bool = True, error: Exception | None = None) -> None:
        self.offset, self.is_done, self.error = offset, done, error

    def done(self) -> bool:
        return self.is_done

    def result(self, timeout: float | None = None) -> Position:
        if self.error is not None:
            raise self.error
        return Position("t", 0, self.offset)

    def exception(self, timeout: float | None = None) -> Exception | None:
        return self.error

    def add_done_callback(self, callback: object) -> None:
        raise NotImplementedError


def line(number: int) -> Line:
    return Line(b"%d" % number, b"", [])


def offsets(sent: Iterator[object]) -> list[object]:
    return [getattr(each, "position", Position("", 0, -1)).offset if each else None for each in sent]


@pytest.mark.parametrize("size", [0, 80, 1 << 20, 100 << 20])
def test_lines_read_ahead_have_a_bound_in_bytes(size: int) -> None:
    """Ten thousand lines used to be read ahead, however long: 10 GB of 1 MB values while a broker stalls."""
    ahead, line, number = Ahead(), bytes(size), 0
    with suppress(Full):
        while True:
            ahead.put_nowait(line)
            number += 1
    assert (number - 1) * size <= 16 << 20
    assert number >= min(10_000, 1 + (15 << 20) // (size + 1))
    assert [ahead.get_nowait() for _ in range(number)] == [line] * number
    with pytest.raises(Empty):
        ahead.get_nowait()


def test_messages_are_reported_in_their_order_and_all_of_them_at_a_pause() -> None:
    receipts = iter([Receipt(0, done=False), Receipt(1), Receipt(2)])
    sent = sent_in_order([line(0), line(1), None, line(2)], lambda _: next(receipts))
    assert offsets(sent) == [0, 1, None, 2]


def test_messages_handed_over_are_reported_before_an_error_of_the_lines() -> None:
    def lines() -> Iterator[Line]:
        yield line(0)
        raise DecodeError("bad", position=None, raw=b"")

    sent = sent_in_order(lines(), lambda _: Receipt(0, done=False))
    assert next(sent) is not None
    with pytest.raises(DecodeError):
        next(sent)


def test_a_message_that_was_not_stored_raises_at_its_turn() -> None:
    error = DeliveryFailed("no", key=b"1", code="X")
    receipts = iter([Receipt(0), Receipt(1, error=error)])
    sent = sent_in_order([line(0), line(1)], lambda _: next(receipts))
    assert next(sent) is not None
    with pytest.raises(DeliveryFailed):
        next(sent)


def test_a_line_is_taken_as_soon_as_it_is_written() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        lines = (each for each in lines_of(source, "bytes") if each is not None)
        sink.write(b'{"key": "a", "value": "1"}\n')
        assert next(lines).key == b"a"
        sink.write(b'\n{"key": "b", "value": "1"}\n')
        assert next(lines).key == b"b"
        sink.close()
        assert list(lines) == []


def test_a_pause_is_told_before_it_is_waited_for() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        lines = lines_of(source, "bytes")
        assert next(lines) is None
        threading.Timer(0.01, sink.write, [b'{"key": "a", "value": "1"}\n']).start()
        found = next(each for each in lines if each is not None)
        assert found.key == b"a"


def test_an_error_of_the_file_is_raised_where_the_lines_are_taken() -> None:
    class Broken(io.BytesIO):
        def __next__(self) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        [each for each in lines_of(Broken(b"x\n"), "bytes") if each]
