"""G8, same cut: a view's snapshot, ``lvq export`` and a manual fold of the log have the same rows.

Tests of the Spark snapshot are in ``tests/spark``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from lvq_kafka import Entry, LastValueQueue
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import force_compaction
from tests.integration.guarantees.cluster import Raw, fold, read_raw, write_beside
from tests.integration.guarantees.conftest import Declare, QueueOf
from tests.integration.guarantees.writing import put, ticking, transaction

Row = tuple[str, str, str, float]
"""Key, value, position and time of a current value."""


def rows_of_entries(entries: list[Entry[str]]) -> list[Row]:
    return sorted((entry.key, entry.value, str(entry.position), entry.timestamp) for entry in entries)


def rows_by_hand(records: list[Raw], topic: str, offsets: Mapping[int, int]) -> list[Row]:
    """Return the rows of a manual fold at these offsets."""
    return sorted(
        (record.key, record.value or "", f"{topic}/{record.partition}/{record.offset}", record.timestamp / 1000)
        for record in fold(records, len(offsets), below=offsets).values()
    )


def exported(servers: str, name: str) -> tuple[dict[int, int], list[Row]]:
    """Return the offsets and rows of ``lvq export``."""
    run = subprocess.run(
        [sys.executable, "-m", "lvq_kafka", "-b", servers, "export", name, "--format", "text"],
        check=True,
        capture_output=True,
        timeout=90,
    )
    head, *rows = map(json.loads, run.stdout.splitlines())
    assert head["values"] == len(rows)
    offsets = {int(partition): offset for partition, offset in head["offsets"].items()}
    return offsets, sorted((row["key"], row["value"], row["position"], row["timestamp"]) for row in rows)


def write_history(queue: LastValueQueue[str], servers: str) -> None:
    """Write replaced, deleted, committed and aborted values, and keys in two partitions."""
    with queue.producer() as producer:
        for number in range(1000):
            producer.put(f"k{number % 60}", str(number))
        for number in range(0, 60, 7):
            producer.delete(f"k{number}")
    with transaction(queue) as producer:
        for number in range(0, 60, 5):
            producer.put(f"k{number}", f"committed {number}")
    with transaction(queue, abort=True) as producer:
        for number in range(0, 60, 3):
            producer.put(f"k{number}", "aborted")
            producer.delete(f"k{number + 1}")
    write_beside(servers, queue.topic, *[(f"k{number}", "beside") for number in range(40, 70)])
    put(queue, k41=None, k42="ours", **{"": "empty key", "schlüssel": "ä\n\"'", "empty": ""})


def test_g8_view_browser_export_and_a_fold_by_hand_hold_the_same_rows(declare: Declare, servers: str) -> None:
    queue = declare(4)
    write_history(queue, servers)
    with queue.view() as view, queue.browser(follow=False) as browser:
        snapshot = view.snapshot()
        dumped = [event for event in browser if isinstance(event, Entry)]
    rows = rows_by_hand(read_raw(servers, queue.topic), queue.topic, snapshot.offsets)
    assert snapshot.offsets == queue.cluster.logs.end_offsets(queue.topic)
    assert len(rows) > 50
    assert rows_of_entries(snapshot.entries()) == rows
    assert rows_of_entries(dumped) == rows
    assert exported(servers, queue.name) == (snapshot.offsets, rows)


def test_g8_compaction_does_not_change_the_rows_of_a_cut(
    queue_of: QueueOf, kafka_cluster: KafkaCluster, servers: str
) -> None:
    queue = queue_of(4)
    write_history(queue, servers)
    with queue.view() as view:
        before = view.snapshot()
        force_compaction(kafka_cluster, queue.topic)
        with queue.view() as fresh:
            assert rows_of_entries(fresh.entries()) == rows_of_entries(before.entries())
    assert rows_by_hand(read_raw(servers, queue.topic), queue.topic, before.offsets) == rows_of_entries(
        before.entries()
    )


def test_g8_cuts_that_are_taken_while_producers_write_are_those_of_their_offsets(
    declare: Declare, servers: str
) -> None:
    queue = declare(3)
    cuts: list[tuple[dict[int, int], list[Row]]] = []
    with ticking(queue, lambda number: f"k{number * 7919 % 500}", limit=30_000) as ticker, queue.view() as view:
        for count in range(0, 10_000, 1000):
            ticker.await_count(count)
            snapshot = view.snapshot()
            cuts.append((snapshot.offsets, rows_of_entries(snapshot.entries())))
        cuts.append(exported(servers, queue.name))
        ticker.stop()
    assert len({str(offsets) for offsets, _ in cuts}) > 3, "the log grew between the cuts"
    records = read_raw(servers, queue.topic)
    for offsets, rows in cuts:
        assert rows == rows_by_hand(records, queue.topic, offsets)


def test_g8_a_snapshot_does_not_change_any_more(queue: LastValueQueue[str]) -> None:
    put(queue, a="1", b="1")
    with queue.view() as view:
        snapshot: Any = view.snapshot()
        put(queue, a="2", b=None, c="1")
        view.barrier()
        assert dict(view) == {"a": "2", "c": "1"}
        assert dict(snapshot) == {"a": "1", "b": "1"}
        assert snapshot.offsets == {0: 2}
    assert dict(snapshot) == {"a": "1", "b": "1"}, "it outlives its view"
