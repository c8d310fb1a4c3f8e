"""R11 on a real broker: compaction leaves the value that counts alone for as long as a newer one may be scheduled."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from lvq_kafka import TEXT, LastValueQueue, TopicSpec
from lvq_kafka.core.timing.delay import LONGEST_DELAY
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.errors import TopicMismatch
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import FORCED_COMPACTION, force_compaction
from tests.contract.harness import read_all
from tests.waiting import eventually

LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
EAGER = {name: value for name, value in FORCED_COMPACTION.items() if name != "min.compaction.lag.ms"}
"""Settings that make a broker compact all that is older than the compaction lag, at once."""

HOUR = 3600.0


def declare(cluster: KafkaCluster, topic: str, max_delay: float | None, **options: object) -> LastValueQueue[str]:
    given: dict[str, object] = {"topic": topic, "name": f"{topic}-{max_delay}", **options}
    return LastValueQueue.declare(  # type: ignore[no-any-return, call-overload]
        **given, key_header=None, max_delay=max_delay, cluster=cluster, value=TEXT
    )


def lags(cluster: KafkaCluster, topic: str) -> tuple[str, ...]:
    config = cluster.topics.config(topic)
    return tuple(config[name] for name in LAGS)


def values(cluster: KafkaCluster, topic: str) -> list[str]:
    """Return the values in the log, in its order."""
    return [record.value.decode() for record in read_all(cluster, topic) if record.value]


@pytest.mark.parametrize("max_delay", [0.001, LONGEST_DELAY])
def test_a_broker_takes_the_settings_for_any_delay(
    kafka_cluster: KafkaCluster, topic_name: str, max_delay: float
) -> None:
    queue = declare(kafka_cluster, topic_name, max_delay)
    assert queue.declaration is not None
    assert queue.declaration.findings == ()
    ms = round(max_delay * 1000)
    assert lags(kafka_cluster, topic_name) == (str(60_000 + ms), str(86_400_000 + ms))


def test_a_topic_that_compacts_sooner_is_refused_and_can_be_set_right(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    declare(kafka_cluster, topic_name, None, spec=TopicSpec(config={"max.compaction.lag.ms": "120000"}))
    with pytest.raises(TopicMismatch, match=r"min\.compaction\.lag\.ms is 60000, not 3660000"):
        declare(kafka_cluster, topic_name, HOUR)
    assert lags(kafka_cluster, topic_name) == ("60000", "120000")
    queue = declare(kafka_cluster, topic_name, HOUR, on_mismatch="reconcile")
    assert queue.declaration is not None
    assert {finding.setting for finding in queue.declaration.reconciled} == set(LAGS)
    assert lags(kafka_cluster, topic_name) == ("3660000", "90000000")


def test_the_value_that_counts_stays_in_the_log_until_the_scheduled_one_is_due(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    """The timestamps are a producer's, so that the broker takes records for older than they are."""
    kafka_cluster.brokers.alter_config({"log.cleaner.backoff.ms": "100"})
    spec = TopicSpec(config={**EAGER, "message.timestamp.type": "CreateTime"})
    declare(kafka_cluster, topic_name, HOUR, spec=spec, on_mismatch="warn")
    now = time.time()
    producer = Producer({"bootstrap.servers": kafka_cluster.config.bootstrap_servers})

    def write(age: float, key: str, value: str, due: float | None = None) -> None:
        headers = [] if due is None else [("lvq-not-before", b"%d" % round(due * 1000))]
        producer.produce(topic_name, value, key, timestamp=round((now - age) * 1000), headers=headers)
        assert producer.flush(30) == 0

    write(9000, "a", "a1")
    write(8000, "b", "b1")
    write(7000, "b", "b2", due=now - 7000 + HOUR)  # due by now, so that b1 may go
    write(3500, "a", "a2", due=now + 100)
    write(3400, "c", "c1")
    write(3300, "c", "c2", due=now + 200)
    write(0, "d", "d1")  # closes the segment before it
    eventually(lambda: "b1" not in values(kafka_cluster, topic_name), 60)
    assert values(kafka_cluster, topic_name) == ["a1", "b2", "a2", "c1", "c2", "d1"]
    judge = DueTimes(HOUR)
    records = [record for record in read_all(kafka_cluster, topic_name) if record.value != b"d1"]
    assert [record.value for record in records if judge.due(record.timestamp, record.headers) > now * 1000] == [
        b"a2",
        b"c2",
    ]
    # With the lag of a queue without delays, a1 and c1 would have been gone before their time.
    kafka_cluster.topics.alter_config(topic_name, {"min.compaction.lag.ms": "60000"})
    eventually(lambda: values(kafka_cluster, topic_name) == ["b2", "a2", "c2", "d1"], 60)


def test_with_append_times_it_stays_while_another_topic_is_compacted(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    queue = declare(kafka_cluster, topic_name, 5.0, spec=TopicSpec(config=EAGER))
    other = declare(kafka_cluster, f"{topic_name}-other", None, spec=TopicSpec(config=dict(FORCED_COMPACTION)))
    with queue.producer() as producer, other.producer() as another:
        producer.put("a", "a1")
        producer.put("a", "a2", not_before=kafka_cluster.now() + 4)
        producer.put("b", "b1")
        for value in ("x1", "x2"):
            another.put("x", value)
    for _ in range(3):
        force_compaction(kafka_cluster, other.topic)
    assert values(kafka_cluster, other.topic) == ["x2"]
    assert values(kafka_cluster, topic_name) == ["a1", "a2", "b1"]
    force_compaction(kafka_cluster, topic_name)  # which has no regard for the lag
    assert values(kafka_cluster, topic_name) == ["a2", "b1"]
