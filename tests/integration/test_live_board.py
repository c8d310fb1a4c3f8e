"""The live board of `lvq serve` on a real Kafka: it shows a broker that does not answer (R47)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.browser import open_browser
from tests.running import ROOT

IN_TIME = 15.0
"""Seconds within which the board shows that nobody answers."""


@contextmanager
def serving(servers: str, queue: str) -> Iterator[str]:
    """Run ``lvq serve``, and yield its address."""
    command = [sys.executable, "-m", "lvq_kafka", "-b", servers, "serve", queue, "--format", "text", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.kill()


def test_g4_r47_the_board_shows_within_15_seconds_that_a_broker_stands_still_or_is_dead(
    private_broker: ProvidedBroker,
) -> None:
    servers = private_broker.bootstrap_servers
    declared = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, bootstrap_servers=servers)
    with declared as queue, queue.producer() as producer:
        producer.put("IBM", "118.50")
    with serving(servers, "prices") as address, open_browser() as browser, browser.page(f"{address}/") as page:
        page.shows("#state", "Caught up", 60)
        for breaks, mends in (
            (private_broker.pause, private_broker.resume),
            (private_broker.kill, private_broker.restart),
        ):
            breaks()
            begun = time.monotonic()
            page.shows("#state", "Disconnected", 60)
            assert time.monotonic() - begun < IN_TIME
            assert "118.50" in page.text("#space")
            mends()
            page.shows("#state", "Caught up", 120)
        assert page.faults == []
