"""R18: readers and consumers that are cut off while a real broker compacts deletes away."""

from __future__ import annotations

from contextlib import closing

from lvq_kafka import TEXT, Deleted, LastValueQueue, TopicSpec
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.runtime.retrying import patiently
from lvq_kafka.testing.compaction import force_compaction
from tests.cable import Cable
from tests.integration.guarantees.writing import put
from tests.waiting import eventually

KEPT = 3.0  # seconds


def test_s160_a_view_a_browser_and_a_consumer_that_were_away_too_long_do_not_keep_what_was_deleted(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    here = LastValueQueue.declare(
        topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster, spec=TopicSpec(delete_retention=KEPT)
    )
    put(here, a="1", b="1")
    with (
        Cable(kafka_cluster.config.bootstrap_servers) as cable,
        closing(KafkaCluster(ClientConfig(cable.bootstrap_servers, {}))) as cluster,
    ):
        away = patiently(lambda: LastValueQueue.open(topic_name, value=TEXT, cluster=cluster), 60)
        with (
            away.view(metadata_interval=0.2) as view,
            view.watch() as watch,
            away.browser(metadata_interval=0.2) as browser,
            away.consumer() as consumer,
        ):
            browser.drain()
            eventually(lambda: consumer.stats.available == 2, 30)
            consumer.pause()
            absence = view._follower.shared.catch_up.replay.absence
            cable.cut()
            try:
                put(here, a=None, b="2")
                force_compaction(kafka_cluster, topic_name, drop_tombstones=True)
                with here.view() as fresh:
                    assert dict(fresh) == {"b": "2"}
                eventually(lambda: absence.away(view._follower.shared.clock()) > KEPT)
            finally:
                cable.mend()
            eventually(lambda: dict(view.snapshot()) == {"b": "2"} and view.state == "caught-up", 60)
            assert Deleted("a") in watch.drain()
            assert Deleted("a") in browser.drain(60)
            eventually(lambda: consumer.stats.available == 1 and not consumer.stats.catching_up, 60)
            consumer.resume()
            delivery = consumer.acquire(60)
            assert delivery is not None
            assert (delivery.key, delivery.value) == ("b", "2")
            delivery.ack(wait=True, timeout=30)
    here.drop()
