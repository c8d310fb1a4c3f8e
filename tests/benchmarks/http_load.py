"""Load on an HTTP server, from its own process: ``python -m tests.benchmarks.http_load``.

``gets`` asks at a fixed rate, whatever comes back. The time of a request begins when it is due, also while no
connection is free for it, so that a server that stalls is charged for it. ``streams`` follows events, and notes when
each value arrives that carries the time of its put. The process never sleeps while it asks, to send in time.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import sys
import time
from collections import deque
from contextlib import ExitStack
from random import Random
from typing import Any

from tests.benchmarks.children import pin, say
from tests.benchmarks.workload import key_of

__all__ = ["WARM"]

WARM = 2.0
"""The seconds of requests that are not measured."""

_SENT = re.compile(rb'"(?:value|data)": ?"(\d{19})')
"""The time of its put in a value, as nanoseconds of the clock that all processes of a machine share."""

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_CONNECTIONS = 32
_QUIET = 2.5  # seconds without an event, after which all have come
_BUFFER = 4096  # bytes that the system keeps for a client that takes nothing


class _Asking(asyncio.Protocol):
    """A connection that asks for one value after another."""

    def __init__(self, load: _Gets) -> None:
        self._load = load
        self._buffer = b""
        self._due = self._freed = 0.0
        self._writing: Any = None

    def connection_made(self, transport: Any) -> None:
        self._writing = transport
        self._load.free.append(self)

    def ask(self, due: float, request: bytes) -> None:
        self._due = due
        self._load.sent.append(time.perf_counter() - max(due, self._freed))
        self._writing.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self._buffer, 0, head)
        if length is None or not self._buffer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server answers {self._buffer[:head]!r}")
        if len(self._buffer) - head - 4 >= int(length[1]):
            self._buffer = b""
            self._freed = time.perf_counter()
            self._load.taken.append(self._freed - self._due)
            self._load.free.append(self)


class _Gets:
    """Requests at a fixed rate, each on the first connection that is free."""

    def __init__(self, keys: int, rate: int) -> None:
        self.free: deque[_Asking] = deque()
        self.taken: list[float] = []
        self.sent: list[float] = []
        """The seconds by which each request was sent late although a connection was free."""
        self._rate = rate
        chance = Random(1)
        target = "GET /v1/queues/{}/values/{} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self._keys = [key_of(chance.randrange(keys), keys) for _ in range(10_000)]
        self._target = target

    async def run(self, port: int, queue: str, seconds: float) -> None:
        """Ask for some seconds, and take all answers."""
        loop = asyncio.get_running_loop()
        opened = [await loop.create_connection(lambda: _Asking(self), "127.0.0.1", port) for _ in range(_CONNECTIONS)]
        requests = [self._target.format(queue, key).encode() for key in self._keys]
        for phase in (WARM, seconds):
            self.taken.clear()
            self.sent.clear()
            number, count, began = 0, round(phase * self._rate), time.perf_counter()
            while len(self.taken) < count:
                due = began + number / self._rate
                if number < count and self.free and due <= time.perf_counter():
                    self.free.popleft().ask(due, requests[number % len(requests)])
                    number += 1
                else:
                    await asyncio.sleep(0)
        for transport, _ in opened:
            transport.close()


class _Following(asyncio.Protocol):
    """A stream of events."""

    def __init__(self, target: str, ready: bytes, arrived: list[tuple[int, int]] | None) -> None:
        self._request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        self._ready = ready
        self._arrived = arrived
        self._rest = b""
        self.bytes = 0
        self.whole = asyncio.Event()
        """Whether it has all that it begins with, such as a dump."""

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.bytes += len(data)
        if not self.whole.is_set():
            self._rest = (self._rest + data)[-65_536:]
            if self._ready in self._rest:
                self.whole.set()
                self._rest = b""
        elif self._arrived is not None:
            data = self._rest + data
            end = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
            self._arrived += [(int(sent), now) for sent in _SENT.findall(data, 0, end)]
            self._rest = data[end:]

    def connection_lost(self, error: Exception | None) -> None:
        if not self.whole.is_set():
            raise SystemExit(f"a stream ended: {error}")


async def _follow(port: int, target: str, ready: bytes, streams: int, probes: int, slow: int) -> None:
    loop = asyncio.get_running_loop()
    arrived: list[tuple[int, int]] = []
    with ExitStack() as opened:
        for _ in range(slow):
            taking_nothing = opened.enter_context(socket.socket())
            taking_nothing.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            taking_nothing.connect(("127.0.0.1", port))
            taking_nothing.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        following = []
        for number in range(streams - slow):
            noting = arrived if number < probes else None
            _, stream = await loop.create_connection(
                lambda noting=noting: _Following(target, ready, noting), "127.0.0.1", port
            )
            following.append(stream)
        for stream in following:
            await stream.whole.wait()
        arrived.clear()
        print("ready", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        number = -1
        while number != len(arrived):
            number = len(arrived)
            await asyncio.sleep(_QUIET)
    say({"arrived": arrived, "bytes": sum(stream.bytes for stream in following)})


def _quantile(figures: list[float], percent: float) -> float:
    return sorted(figures)[int(len(figures) * percent / 100)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    gets, streams = roles.add_parser("gets"), roles.add_parser("streams")
    for role in (gets, streams):
        role.add_argument("port", type=int)
        role.add_argument("--core", type=int)
    gets.add_argument("queue")
    gets.add_argument("keys", type=int)
    gets.add_argument("rate", type=int)
    gets.add_argument("seconds", type=float)
    streams.add_argument("target")
    streams.add_argument("ready", help="what a stream begins with, up to its end")
    streams.add_argument("streams", type=int)
    streams.add_argument("probes", type=int, help="the streams of which arrivals are noted")
    streams.add_argument("slow", type=int, help="those that take nothing")
    options = parser.parse_args()
    pin(options.core)
    if options.role == "streams":
        ready = options.ready.encode()
        asyncio.run(_follow(options.port, options.target, ready, options.streams, options.probes, options.slow))
        return
    load = _Gets(options.keys, options.rate)
    asyncio.run(load.run(options.port, options.queue, options.seconds))
    found = {f"p{percent:g}_ms": 1e3 * _quantile(load.taken, percent) for percent in (50, 99, 99.9)}
    say({**found, "sent_p99_ms": 1e3 * _quantile(load.sent, 99), "requests": len(load.taken)})


if __name__ == "__main__":
    main()
