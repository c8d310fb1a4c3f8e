"""R40, R44 on a real broker: ``lvq hold`` is killed while others write, and its store shows what a view in memory does.

``LVQ_EFFORT=40`` kills two hundred times.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from threading import Event, Thread

from lvq_kafka import BYTES, LastValueQueue, Producer, TopicSpec, Ttl
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import force_compaction
from tests.effort import TIMES
from tests.integration.guarantees.writing import transaction
from tests.killed_stores import Shown
from tests.running import ROOT
from tests.waiting import eventually

KILLS = 5 * TIMES
PATIENCE = 60.0
SOON = 0.3  # seconds that a short life lasts, and a short delay
KEYS = 300


def change(queue: LastValueQueue[bytes], chance: Random) -> None:
    """Write some values, deletes and messages that live briefly or are due soon; in a transaction or without."""
    kind = chance.choice(["plain", "committed", "aborted"])
    if kind == "plain":
        with queue.producer() as producer:
            send(producer, chance, chance.choice([1, 30, 300]))
    else:
        with transaction(queue, abort=kind == "aborted") as producer:
            send(producer, chance, chance.choice([1, 10]))


def send(producer: Producer[bytes], chance: Random, count: int) -> None:
    for _ in range(count):
        key = f"k{chance.randrange(KEYS)}"
        draw = chance.random()
        if draw < 0.2:
            producer.delete(key)
        elif draw < 0.3:
            producer.put(key, b"brief", ttl=SOON)
        elif draw < 0.4:
            producer.put(key, b"due", not_before=time.time() + SOON)
        else:
            producer.put(key, b"%d" % chance.randrange(10**9) * chance.choice([1, 1, 100]))


@contextmanager
def writing(queue: LastValueQueue[bytes], chance: Random) -> Iterator[None]:
    """Write all the time, until the block ends; then wait until nothing more expires or becomes due."""
    done, faults = Event(), list[Exception]()

    def write() -> None:
        try:
            while not done.is_set():
                change(queue, chance)
        except Exception as fault:  # noqa: BLE001  # raised below
            faults.append(fault)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not faults, faults
    ended = time.monotonic()
    eventually(lambda: time.monotonic() - ended > 2 * SOON, PATIENCE)


def hold_and_kill(queue: LastValueQueue[bytes], servers: str, place: Path, chance: Random) -> None:
    """Run ``lvq hold`` until it has a store, and some moments more."""
    command = [sys.executable, "-m", "lvq_kafka", "-b", servers, "hold", queue.name, "--store", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        try:
            assert holder.stdout is not None
            if chance.random() < 0.7:
                assert holder.stdout.readline()
            time.sleep(0.5 * chance.random())  # where it is killed must differ
        finally:
            holder.kill()


def test_r40_r44_a_store_whose_holder_is_killed_shows_what_a_view_in_memory_does(
    kafka_cluster: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    chance, place, copy = Random(), tmp_path / "store", tmp_path / "copy"
    queue = LastValueQueue.declare(
        topic_name,
        key_header="ticker",
        value=BYTES,
        cluster=kafka_cluster,
        ttl=Ttl(maximum=3600.0),
        max_delay=60.0,
        spec=TopicSpec(partitions=2),
    )
    before: Shown | None = None
    read_again, resumed = [], 0
    with closing(queue):
        for kill in range(KILLS):
            with writing(queue, chance):
                hold_and_kill(queue, str(kafka_cluster.config.bootstrap_servers), place, chance)
            if kill % 3 == 2:
                force_compaction(kafka_cluster, queue.topic, timeout=PATIENCE)
            if place.exists():
                shutil.copytree(place, copy)
            with queue.view() as expected, queue.view(store=copy) as kept:
                assert kept.entries() == expected.entries(), f"kill {kill}"
                if before is not None and before.resume(kept):
                    resumed += 1
                    assert before.held == dict(kept), f"kill {kill}"
                before = Shown.by(kept)
                read_again.append(kept.progress[1] < expected.progress[1])
            shutil.rmtree(copy)
        queue.drop(delete_topic=True)
    assert any(read_again), "each store was built again"
    assert resumed, "no watch was resumed"
