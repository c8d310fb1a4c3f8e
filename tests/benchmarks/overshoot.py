"""By how much racing producers exceed a limit: ``python -m tests.benchmarks.overshoot``.

Two and four producers in one process, on an embedded broker, send new keys until they are refused: each waiting for its
receipts, or as fast as it can. The table shows the least and the most messages beyond the limit in the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from itertools import count
from threading import Barrier

from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import QueueFull
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.producing.producer import Producer
from lvq_kafka.queue import LastValueQueue

_VALUE = b"v" * 100
_PATIENCE = 60.0  # seconds
_LIMITS = ((True, 1000), (False, 20_000))
_PRODUCERS = (2, 4)


def overshoot(cluster: KafkaCluster, name: str, limit: int, racing: int, *, waits: bool) -> int:
    """Return the number of messages beyond the limit."""
    start = Barrier(racing)

    def race(number: int, producer: Producer[bytes]) -> None:
        start.wait(_PATIENCE)
        with suppress(QueueFull):
            for at in count():
                receipt = producer.put(f"{number}-{at}", _VALUE)
                if waits:
                    receipt.result(_PATIENCE)
        producer.flush(_PATIENCE)

    limits = Limits(messages=limit, policy="reject")
    with ExitStack() as opened:
        queue = opened.enter_context(LastValueQueue.declare(name, key_header="k", limits=limits, cluster=cluster))
        producers = [opened.enter_context(queue.producer()) for _ in range(racing)]
        with ThreadPoolExecutor(racing) as threads:
            for racer in [threads.submit(race, number, one) for number, one in enumerate(producers)]:
                racer.result()
        return (queue.stats().depth or 0) - limit


def table(cluster: KafkaCluster, rounds: int) -> Iterator[str]:
    """Yield the rows of a Markdown table."""
    yield "| producers | limit | waits for receipts | beyond it, least | most |"
    yield "| ---: | ---: | --- | ---: | ---: |"
    for waits, limit in _LIMITS:
        for racing in _PRODUCERS:
            names = [f"overshoot-{limit}-{racing}-{number}" for number in range(rounds)]
            found = [overshoot(cluster, name, limit, racing, waits=waits) for name in names]
            yield f"| {racing} | {limit:,} | {'yes' if waits else 'no'} | {min(found):,} | {max(found):,} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.overshoot", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with EmbeddedBroker() as broker, closing(KafkaCluster(broker.bootstrap_servers)) as cluster:
        for row in table(cluster, rounds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
