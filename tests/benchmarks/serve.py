"""`lvq serve`: how long a GET takes, how late events are, and what a thousand streams take.

The server has one processor and the load another, where there are two; the broker and the producer run on either. A
static file of nginx is the limit for a GET. Centrifugo brings the same changes to its clients; it sends each of them
whatever a client takes, so it has no part in the streams that get a batch each second.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from secrets import token_hex
from typing import Any

import psutil

from lvq_kafka.core.log.records import Fetch
from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.kafka import KafkaCluster
from tests.benchmarks.children import cores, pin, result, say, start
from tests.benchmarks.http_load import WARM
from tests.benchmarks.latency import KEYS, quantiles
from tests.benchmarks.peers import centrifugo
from tests.benchmarks.report import Target, table
from tests.benchmarks.topics import load
from tests.benchmarks.workload import value_of
from tests.waiting import eventually

__all__ = ["LVQ", "NGINX", "Serving", "run", "serve_table", "serve_targets"]

LVQ, NGINX, CENTRIFUGO = "lvq serve", "nginx, a static file", f"Centrifugo {centrifugo.VERSION}"

_PROBES = 20  # streams of which each arrival is noted
_LOOK = 0.25  # seconds between two looks at the memory
_SETTLING = 0.2  # of a run: its memory is the measure for the rest

Result = dict[str, Any]


@dataclass(frozen=True)
class Serving:
    """The amount of work."""

    keys: int = 20_000
    rate: int = 2_000
    """GETs per second."""
    seconds: float = 10.0
    few: int = 100
    """Streams, of which each gets every change as it comes."""
    few_changes: int = 20
    """Changes per second for these."""
    broad: int = 1_000
    """Streams, of which each gets every change as it comes, too."""
    broad_changes: int = 2
    many: int = 1_000
    """Streams, of which each gets a batch each second."""
    many_changes: int = 100
    many_seconds: float = 30.0


# ------------------------------------------------------------------ the server


def _serve(servers: str, topic: str, core: int | None) -> None:
    """Serve a topic until SIGINT, then tell when the view had each value."""
    pin(core)
    from lvq_kafka.cli.http_server import allow_open_files, run_server
    from lvq_kafka.cli.server_sockets import open_listener
    from lvq_kafka.queue import LastValueQueue
    from lvq_kafka.serve import app

    had: list[tuple[int, int]] = []
    most = 2_000
    allow_open_files(most)
    with (
        LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue,
        queue.view() as view,
        open_listener("127.0.0.1", 0) as listening,
    ):
        reader_thread = view._follower._reader_thread
        take = reader_thread.apply

        def taking(fetch: Fetch) -> None:
            take(fetch)
            now = time.monotonic_ns()
            had.extend((int(value[:19]), now) for value in fetch.batch.values if value[:19].isdigit())

        reader_thread.apply = taking  # type: ignore[method-assign]  # a listener gets it a moment later
        print(listening.getsockname()[1], flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            run_server(app(view, max_streams=most), listening, most)
    say({"had": had})


@dataclass(frozen=True)
class _Server:
    child: subprocess.Popen[Any]
    port: int
    name: str = LVQ

    @property
    def cpu(self) -> float:
        """The seconds of processor time that it has taken."""
        times = psutil.Process(self.child.pid).cpu_times()
        return float(times.user + times.system)

    @property
    def memory(self) -> int:
        return int(psutil.Process(self.child.pid).memory_info().rss)

    def had(self) -> dict[int, int]:
        """End it, and return when its view had each value; nothing if it has no view."""
        if self.name != LVQ:
            return {}
        self.child.send_signal(2)
        return dict(result(self.child)["had"])


@contextlib.contextmanager
def _serving(servers: str, topic: str, core: int | None) -> Iterator[_Server]:
    child = start("serve", servers, topic, "" if core is None else core)
    try:
        assert child.stdout is not None
        yield _Server(child, int(child.stdout.readline()))
    finally:
        child.kill()
        child.wait()


@contextlib.contextmanager
def _nginx(program: str, core: int | None) -> Iterator[_Server]:
    """Run nginx with one file, of the size of a value, at every address."""
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="lvq-bench-nginx-") as folder:
        place = Path(folder)
        (place / "value").write_bytes(value_of(0))
        (place / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {place}/pid; error_log {place}/log;\n"
            "events { worker_connections 256; }\n"
            f"http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {place}/a;\n"
            f"proxy_temp_path {place}/b; fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d;\n"
            f"scgi_temp_path {place}/e; sendfile on; tcp_nodelay on; open_file_cache max=10;\n"
            f"server {{ listen 127.0.0.1:{port}; root {place}; location / {{ rewrite ^ /value break; }} }} }}\n"
        )
        command = [program, "-p", folder, "-c", str(place / "nginx.conf"), "-e", str(place / "log")]
        with _listening(command, port, core) as child:
            yield _Server(child, port, NGINX)


@contextlib.contextmanager
def _centrifugo(program: Path, servers: str, topic: str, core: int | None) -> Iterator[_Server]:
    """Run Centrifugo, from when it consumes the topic."""
    [port], group = free_ports(1), f"centrifugo-{token_hex(4)}"
    with (
        tempfile.TemporaryDirectory(prefix="lvq-bench-centrifugo-") as folder,
        contextlib.closing(KafkaCluster(servers)) as cluster,
    ):
        file = centrifugo.configure(Path(folder), servers, topic, group, port)
        with _listening([str(program), "--config", str(file)], port, core) as child:
            eventually(lambda: cluster.groups.member_count(group) > 0, 60)
            yield _Server(child, port, CENTRIFUGO)


@contextlib.contextmanager
def _listening(command: Sequence[str], port: int, core: int | None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, from when it listens on its port."""
    child = subprocess.Popen(command, preexec_fn=lambda: pin(core))
    try:
        eventually(lambda: _listens(port))
        yield child
    finally:
        child.kill()
        child.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


# ------------------------------------------------------------------ the parent process


def run(servers: str, rounds: int, serving: Serving, *, peers: bool) -> Iterator[Result]:
    """Yield one result for each contestant and question, and round.

    Args:
        peers: whether Centrifugo takes part, which is built first.
    """
    nginx = shutil.which("nginx")
    if nginx is None:
        print("nginx is left out, because it is not installed here: apt-get install nginx\n")
    other = centrifugo.install() if peers else None
    if peers and other is None:
        print("Centrifugo is left out, because it is built with Go, which is not installed here\n")
    with contextlib.closing(KafkaCluster(servers)) as cluster:
        large, small = (load(cluster, "unique", keys, keys) for keys in (serving.keys, KEYS))
        try:
            for number in range(rounds):
                for measured in _round(servers, large.name, small.name, serving, nginx, other):
                    yield {"round": number, **measured}
        finally:
            cluster.topics.delete(large.name)
            cluster.topics.delete(small.name)


def _round(
    servers: str, large: str, small: str, serving: Serving, nginx: str | None, other: Path | None
) -> Iterator[Result]:
    ours, theirs = cores(2)
    with _serving(servers, large, ours) as server:
        yield {"what": "get", "contestant": LVQ, **_gets(server, large, theirs, serving)}
    if nginx is not None:
        with _nginx(nginx, ours) as server:
            yield {"what": "get", "contestant": NGINX, **_gets(server, large, theirs, serving)}
    for what, streams, changes, seconds, query, slow in (
        ("few", serving.few, serving.few_changes, serving.seconds, "", 0),
        ("broad", serving.broad, serving.broad_changes, serving.seconds, "", 0),
        ("many", serving.many, serving.many_changes, serving.many_seconds, "every=1", 1),
    ):
        puts = round(changes * seconds)
        with _serving(servers, small, ours) as server:
            yield {"what": what, **_streams(servers, server, small, theirs, query, streams, slow, puts, changes)}
        if other is not None and not query:
            with _centrifugo(other, servers, small, ours) as server:
                yield {"what": what, **_streams(servers, server, small, theirs, query, streams, slow, puts, changes)}


def _gets(server: _Server, queue: str, core: int | None, serving: Serving) -> Result:
    pinned = [] if core is None else ["--core", core]
    asked, cpu = serving.rate * (WARM + serving.seconds), server.cpu
    asking = start("http_load", "gets", server.port, queue, serving.keys, serving.rate, serving.seconds, *pinned)
    return {**result(asking), "rate": serving.rate, "cpu_us": 1e6 * (server.cpu - cpu) / asked}


def _streams(
    servers: str,
    server: _Server,
    topic: str,
    core: int | None,
    query: str,
    streams: int,
    slow: int,
    puts: int,
    rate: int,
) -> Result:
    """Return how late the changes of a topic come, and what the server takes meanwhile.

    The load ends once all that is on its way has come.
    """
    pinned = [] if core is None else ["--core", core]
    probes = min(_PROBES, streams - slow)
    ours = server.name == LVQ
    target = f"/v1/queues/{topic}/events?{query}" if ours else centrifugo.TARGET
    ready = "event: end-of-dump" if ours else centrifugo.READY
    following = start(
        "http_load", "streams", server.port, target, ready, streams, probes, slow, *pinned, stdin=subprocess.PIPE
    )
    assert following.stdin is not None
    assert following.stdout is not None
    try:
        if following.stdout.readline().strip() != "ready":
            raise RuntimeError("the streams do not get their dumps")
        began, cpu, memory = time.perf_counter(), server.cpu, []
        writer = start(
            *("latency", "producer", servers, topic, puts, "--rate", rate), *([] if ours else ["--for-centrifugo"])
        )
        while writer.poll() is None:
            memory.append(server.memory)
            time.sleep(_LOOK)
        result(writer)
        taken = (server.cpu - cpu) / (time.perf_counter() - began)
        print(file=following.stdin, flush=True)
        found = result(following)
    finally:
        following.kill()
    had = server.had()
    arrived = [(sent, moment) for sent, moment in found["arrived"] if sent in had or not ours]
    settled = memory[int(_SETTLING * len(memory))]
    return {
        "contestant": server.name,
        "streams": streams,
        "rate": rate,
        "every": query.partition("=")[2],
        "cores": taken,
        "events": len(arrived) / probes / puts,
        "from view": quantiles([(moment - had[sent]) / 1e6 for sent, moment in arrived]) if ours else None,
        "from put": quantiles([(moment - sent) / 1e6 for sent, moment in arrived]),
        "memory": settled,
        "growth": max(memory) / settled,
    }


# ------------------------------------------------------------------ the report


def serve_table(results: Sequence[Result]) -> str:
    """Return a table of GETs and one of streams: medians over the rounds."""
    rows = []
    for contestant in (LVQ, NGINX):
        if mine := [one for one in results if (one["what"], one["contestant"]) == ("get", contestant)]:
            figures = [f"{_median(mine, name):.2f}" for name in ("p50_ms", "p99_ms", "p99.9_ms", "sent_p99_ms")]
            rows.append([contestant, f"{mine[0]['rate']:,}", *figures, f"{_median(mine, 'cpu_us'):.0f}"])
    head = ["GET of a value", "per second", "p50 ms", "p99 ms", "p99.9 ms", "sent late, p99 ms", "CPU us"]
    gets = table(head, rows)
    rows = []
    for what, contestant in product(("few", "broad", "many"), (LVQ, CENTRIFUGO)):
        if mine := [one for one in results if (one["what"], one["contestant"]) == (what, contestant)]:
            places, names = ("view", "put"), ("p50_ms", "p99_ms")
            late = [
                f"{_late(mine, place, name):.1f}" if mine[0][f"from {place}"] else "-"
                for place, name in product(places, names)
            ]
            row = [contestant, f"{mine[0]['streams']:,}", mine[0]["every"] or "0", f"{mine[0]['rate']}", *late]
            row += [f"{_median(mine, 'events'):.2f}", f"{_median(mine, 'cores'):.2f}"]
            rows.append([*row, f"{_median(mine, 'memory') / 1e6:.0f}", f"{_median(mine, 'growth'):.2f}"])
    head = ["", "streams", "every s", "changes/s", "p50 ms from view", "p99", "p50 from put", "p99", "events a change"]
    return f"{gets}\n\n{table([*head, 'processors', 'MB', 'most / that'], rows)}"


def serve_targets(results: Sequence[Result]) -> list[Target]:
    """Return the targets of what was measured."""
    found = []
    results = [one for one in results if one["contestant"] == LVQ]
    if gets := [one for one in results if one["what"] == "get"]:
        found.append(Target.at_most(f"GET, {gets[0]['rate']:,} a second: p99 in ms", 2.0, _median(gets, "p99_ms")))
    for mine in ([one for one in results if one["what"] == what] for what in ("few", "many")):
        if mine and not mine[0]["every"]:
            late = _late(mine, "view", "p99_ms")
            found.append(Target.at_most(f"{mine[0]['streams']:,} streams: p99 in ms from the view", 20.0, late))
        elif mine:
            what = f"{mine[0]['streams']:,} streams, every={mine[0]['every']}"
            # Each batch comes within a second, and one more means that the server does not keep up.
            found.append(Target.at_most(f"{what}: p99 in ms from the view", 2000.0, _late(mine, "view", "p99_ms")))
            found.append(Target.at_most(f"{what}: processors", 1.0, _median(mine, "cores")))
            found.append(Target.at_most(f"{what}: most memory / settled", 1.1, _median(mine, "growth")))
    return found


def _median(results: Sequence[Result], what: str) -> float:
    return statistics.median(one[what] for one in results)


def _late(results: Sequence[Result], start: str, name: str) -> float:
    return statistics.median(one[f"from {start}"][name] for one in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("core", help="of the server; empty for any")
    options = parser.parse_args()
    _serve(options.servers, options.topic, int(options.core) if options.core else None)


if __name__ == "__main__":
    main()
