"""G7, read your writes: behind a barrier, or a position, everything acknowledged before is visible."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.core.records import Fetch, RecordBatch
from lvq_kafka.kafka import KafkaLog
from lvq_kafka.ports import Log, LogReader
from lvq_kafka.testing.compaction import FORCED_COMPACTION, force_compaction
from tests.contract.harness import COMPACTED
from tests.integration.guarantees.cluster import read_raw
from tests.integration.guarantees.conftest import Declare
from tests.integration.guarantees.writing import put, ticking
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


def test_g7_behind_a_barrier_a_view_shows_what_was_acknowledged_before(declare: Declare) -> None:
    queue = declare(3)
    with ticking(queue), queue.view() as view, queue.producer() as producer:

        def write_and_read(key: str) -> None:
            for number in range(50):
                producer.put(key, str(number)).result(30)
                view.barrier()
                assert view[key] == str(number)

        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(write_and_read, f"mine {thread}") for thread in range(4)]:
                done.result()


def test_g7_behind_a_barrier_a_view_shows_a_transaction_that_was_just_committed(declare: Declare) -> None:
    """Its marker may still be on its way to the log then."""
    queue = declare(3)
    with queue.view() as view, queue.producer(transactional_id=queue.name) as producer:
        for number in range(20):
            with producer.transaction(30):
                for key in "abcdef":
                    producer.put(key, str(number))
            view.barrier()
            assert dict(view) == dict.fromkeys("abcdef", str(number))


def test_g7_a_position_can_be_waited_for_in_another_process(queue: LastValueQueue[str], servers: str) -> None:
    command = [sys.executable, "-m", "tests.integration.guarantees.waiting_process", servers, queue.name]
    with (
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        queue.producer() as producer,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in range(50):
            position = producer.put(f"k{number % 3}", str(number)).result(30)
            print(f"k{number % 3}", position, file=process.stdin, flush=True)
            assert process.stdout.readline() == f"{number}\n"
        process.stdin.close()
        assert process.wait(30) == 0


def test_g7_r14_a_barrier_reaches_into_partitions_that_the_view_had_not_heard_of(queue: LastValueQueue[str]) -> None:
    keys = [f"k{number}" for number in range(30)]
    put(queue, **dict.fromkeys(keys, "1"))
    with queue.view(metadata_interval=3600) as view, view.watch() as watch, ticking(queue):
        queue.log.add_partitions(queue.topic, 4)
        put(queue, **dict.fromkeys(keys, "2"))
        view.barrier(20)
        assert {key: view[key] for key in keys} == dict.fromkeys(keys, "2")
        watch.drain()


def test_g7_behind_a_barrier_a_view_is_not_of_a_topic_that_is_no_more(queue: LastValueQueue[str]) -> None:
    """The new topic is no longer than what was read of the old one: positions alone would not tell."""
    put(queue, a="old", b="old", c="old")
    with queue.view(metadata_interval=3600) as view:
        queue.log.delete_topic(queue.topic)
        queue.log.create_topic(queue.topic, partitions=1, config=COMPACTED)
        put(queue, a="new", d="new")
        view.barrier(30)
        assert dict(view) == {"a": "new", "d": "new"}


class Held:
    """A log whose readers can be held up: as long as they are, they have fetched nothing beyond where they stand."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.free = Event()
        self.free.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def reader(self, topic: str, positions: Mapping[int, int]) -> LogReader:
        """See `Log.reader`."""
        return HeldReader(self, topic, positions)


class HeldReader:
    """A reader of `Held`."""

    def __init__(self, held: Held, topic: str, positions: Mapping[int, int]) -> None:
        self._held = held
        self._topic = topic
        self._positions = dict(positions)
        self._reader = held.log.reader(topic, positions)

    def poll(self, timeout: float) -> Fetch:
        """See `LogReader.poll`."""
        if not self._held.free.is_set():
            self._reader.close()
            self._held.free.wait(30)
            self._reader = self._held.log.reader(self._topic, self._positions)
            return Fetch(RecordBatch(), {})
        fetch = self._reader.poll(timeout)
        self._positions.update(fetch.positions)
        return fetch

    def assign(self, positions: Mapping[int, int]) -> None:
        """See `LogReader.assign`."""
        self._positions.update(positions)
        self._reader.assign(positions)

    def close(self) -> None:
        """See `LogReader.close`."""
        self._reader.close()


def test_g7_a_value_that_was_replaced_and_compacted_away_before_a_slow_view_read_it_is_not_missing(
    declare: Declare, kafka_log: KafkaLog, servers: str
) -> None:
    declared = declare(config=FORCED_COMPACTION)
    log = Held(kafka_log)
    queue = LastValueQueue(declared.topic, key_header="ticker", value=TEXT, log=log)
    with queue.view() as view, queue.producer() as producer:
        put(queue, first="1")
        view.barrier()
        log.free.clear()
        eventually(lambda: not view_is_reading(view, producer), 10)
        position = producer.put("a", "1").result(30)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(view.wait_for, position, 30)
            for number in range(3000):  # more than is read at once
                producer.put(f"filler {number}", "1")
            producer.put("a", "2").result(30)
            force_compaction(kafka_log, queue.topic)
            assert [record.value for record in read_raw(servers, queue.topic) if record.key == "a"] == ["2"]
            log.free.set()
            waiting.result(30)
            assert view["a"] == "2"


def view_is_reading(view: Any, producer: Any) -> bool:
    """Whether a view sees something that was put just now."""
    try:
        view.wait_for(producer.put("probe", "1").result(30), 0.3)
    except TimeoutError:
        return False
    return True
