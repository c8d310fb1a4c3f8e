"""R44 on a real broker: a watch of a store goes on after a restart, with deletes that compaction removed and expiry."""

from __future__ import annotations

from pathlib import Path

from lvq_kafka import TEXT, EndOfDump, LastValueQueue, TopicSpec, Ttl, View, attach
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction
from tests.following import keep_up
from tests.integration.guarantees.writing import ticking
from tests.waiting import eventually

LIFE = Ttl(maximum=600.0)


def declare(cluster: KafkaCluster, name: str) -> LastValueQueue[str]:
    spec = TopicSpec(partitions=2, config={**FORCED_COMPACTION, **DELETES_STAY})
    return LastValueQueue.declare(name, key_header="k", ttl=LIFE, spec=spec, cluster=cluster, value=TEXT)


def resumed(view: View[str], since: str, before: dict[str, str]) -> dict[str, str]:
    """Return values from a point, after what a watch from there begins with."""
    kept = dict(before)
    with view.watch(since=since) as watch:
        while not isinstance(event := watch.poll(30), EndOfDump):
            keep_up(kept, [event])
        keep_up(kept, watch.drain())
    return kept


def test_r44_a_watch_of_a_store_goes_on_after_restarts_compaction_and_expiry(
    kafka_cluster: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    queue, store, kept = declare(kafka_cluster, topic_name), tmp_path / "store", dict[str, str]()
    bookmarks = []
    with ticking(queue, lambda number: f"k{number % 50:02}", limit=3000) as ticker:
        for count in (500, 1000, 1500):
            ticker.await_count(count)
            with queue.view(store=store) as view:
                since = bookmarks[-1][0] if bookmarks else None
                with view.watch(dump=True) if since is None else view.watch(since=since) as watch:
                    keep_up(kept, watch.drain())
                    token = watch.token
                    assert token is not None
                    bookmarks.append((token, dict(kept)))
        ticker.await_count(3000)
    with queue.producer() as producer:
        producer.put("short", "1", ttl=0.5)
        producer.put("short", "2", ttl=0.5)
        producer.put("gone", "1")
    with queue.view(store=store) as view, view.watch(since=bookmarks[-1][0]) as watch:
        keep_up(kept, watch.drain())
        assert kept["gone"] == "1"
        token = watch.token
        assert token is not None
        bookmarks.append((token, dict(kept)))
        with queue.producer() as producer:
            producer.delete("gone")
        view.barrier()
        eventually(lambda: "short" not in view)
    force_compaction(kafka_cluster, topic_name, drop_tombstones=True)
    with queue.view(store=store) as view, attach(store, value=TEXT) as reader:
        expected = dict(view)
        assert len(expected) == 50
        eventually(lambda: dict(reader) == expected)
        for token, before in bookmarks:
            for one in (view, reader):
                assert resumed(one, token, before) == expected
