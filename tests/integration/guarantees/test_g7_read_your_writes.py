"""G7, read your writes: after a barrier or a position, everything acknowledged before is visible."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.errors import CatchUpTimeout
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction
from tests.contract.harness import COMPACTED
from tests.integration.guarantees.cluster import Held, read_raw
from tests.integration.guarantees.conftest import Declare, QueueOf
from tests.integration.guarantees.writing import put, ticking
from tests.running import ROOT


def test_g7_behind_a_barrier_a_view_shows_what_was_acknowledged_before(queue_of: QueueOf) -> None:
    queue = queue_of(3)
    with ticking(queue), queue.view() as view, queue.producer() as producer:

        def write_and_read(key: str) -> None:
            for number in range(50):
                producer.put(key, str(number)).result(30)
                view.barrier()
                assert view[key] == str(number)

        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(write_and_read, f"mine {thread}") for thread in range(4)]:
                done.result()


def test_g7_behind_a_barrier_a_view_shows_a_transaction_that_was_just_committed(queue_of: QueueOf) -> None:
    """The transaction's marker may not be in the log yet."""
    queue = queue_of(3)
    with queue.view() as view, queue.producer(transactional_id=queue.name) as producer:
        for number in range(20):
            with producer.transaction(30):
                for key in "abcdef":
                    producer.put(key, str(number))
            view.barrier()
            assert dict(view) == dict.fromkeys("abcdef", str(number))


def test_g7_a_position_can_be_waited_for_in_another_process(declare: Declare, servers: str) -> None:
    queue = declare()
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
    keys = [f"mine {number}" for number in range(30)]
    put(queue, **dict.fromkeys(keys, "1"))
    with queue.view(metadata_interval=3600) as view, view.watch() as watch, ticking(queue):
        queue.cluster.topics.add_partitions(queue.topic, 4)
        put(queue, **dict.fromkeys(keys, "2"))
        view.barrier(20)
        assert {key: view[key] for key in keys} == dict.fromkeys(keys, "2")
        watch.drain()


def test_g7_behind_a_barrier_a_view_is_not_of_a_topic_that_is_no_more(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster
) -> None:
    """The new topic is not longer than what was read of the old one, so positions alone would not show the change."""
    put(queue, a="old", b="old", c="old")
    log = Held(kafka_cluster)
    with LastValueQueue(queue.topic, key_header="ticker", value=TEXT, cluster=log).view(metadata_interval=3600) as view:
        log.hold()  # it cannot notice by itself
        kafka_cluster.topics.delete(queue.topic)
        kafka_cluster.topics.create(queue.topic, partitions=1, config=COMPACTED)
        put(queue, a="new", d="new")
        with pytest.raises(CatchUpTimeout, match="re-created"):
            view.barrier(0.5)
        log.release()
        view.barrier(120)
        assert dict(view) == {"a": "new", "d": "new"}


def test_g7_a_value_that_was_replaced_and_compacted_away_before_a_slow_view_read_it_is_not_missing(
    queue_of: QueueOf, kafka_cluster: KafkaCluster, servers: str
) -> None:
    declared = queue_of(config={**FORCED_COMPACTION, **DELETES_STAY})
    log = Held(kafka_cluster)
    queue = LastValueQueue(declared.topic, key_header="ticker", value=TEXT, cluster=log)
    with queue.view() as view, queue.producer() as producer:
        put(queue, first="1")
        view.barrier()
        log.hold()
        position = producer.put("a", "1").result(30)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(view.wait_for, position, 30)
            for number in range(3000):  # more than one fetch returns
                producer.put(f"filler {number}", "1")
            producer.put("a", "2").result(30)
            force_compaction(kafka_cluster, queue.topic)
            assert [record.value for record in read_raw(servers, queue.topic) if record.key == "a"] == ["2"]
            log.release()
            waiting.result(30)
            assert view["a"] == "2"
