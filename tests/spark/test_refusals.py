"""Readers without rights or a login, and lost cuts: errors of this library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import AuthenticationFailed, DataLoss, TopicError, Unauthorized
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_spark import pin, snapshot, task_errors
from lvq_spark.source.registering import register
from tests.integration.secure import PASSWORD, SecureBroker, secure_broker
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
TOPIC = "prices"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Yield a broker with a topic of two values: alice may read it, bob may see it, mallory only knows its name."""
    with secure_broker(tmp_path_factory.mktemp("tls"), ["alice", "bob", "mallory"]) as broker:
        cluster = KafkaCluster(broker.plain)
        cluster.topics.create(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
        writer = cluster.writer()
        for key in (b"a", b"b"):
            writer.append(TOPIC, key, b"1").result(20)
        writer.close()
        broker.allow("alice", ResourceType.TOPIC, TOPIC, AclOperation.READ)
        broker.allow("bob", ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)
        for user in ("alice", "bob"):
            mine = KafkaCluster(broker.config(user))
            eventually(lambda mine=mine: may_see(mine))
            mine.close()
        yield broker
        cluster.close()


def may_see(cluster: KafkaCluster) -> bool:
    with suppress(Unauthorized):
        return bool(cluster.topics.describe(TOPIC).id)
    return False


@pytest.fixture
def queue_of(secure: SecureBroker) -> Iterator[Callable[..., LastValueQueue[bytes]]]:
    logs = []

    def queue_of(user: str, config: ClientConfig | None = None) -> LastValueQueue[bytes]:
        logs.append(KafkaCluster(config or secure.config(user)))
        return LastValueQueue(TOPIC, key_header=None, cluster=logs[-1])

    yield queue_of
    for cluster in logs:
        cluster.close()


def test_a_user_who_may_read_the_topic_needs_no_other_right(spark: SparkSession, queue_of: MakeQueue) -> None:
    frame = snapshot(spark, queue_of("alice"))
    assert sorted(bytes(row.key) for row in frame.collect()) == [b"a", b"b"]


def test_a_topic_that_this_user_may_not_see_is_an_error_of_the_snapshot(
    spark: SparkSession, queue_of: MakeQueue
) -> None:
    with pytest.raises(Unauthorized, match=f"lacks Describe on Topic {TOPIC}"):
        snapshot(spark, queue_of("mallory"))


def test_a_topic_that_this_user_may_see_and_not_read_is_an_error_that_says_so(
    spark: SparkSession, queue_of: MakeQueue
) -> None:
    with pytest.raises(Unauthorized, match=f"lacks Read on Topic {TOPIC}") as error, task_errors():
        snapshot(spark, queue_of("bob")).collect()
    assert PASSWORD not in str(error.value)


def test_a_group_that_this_user_may_not_see_is_an_error_of_the_snapshot(
    spark: SparkSession, queue_of: MakeQueue
) -> None:
    with pytest.raises(Unauthorized, match=r"lacks Describe on Group lvq\.prices"):
        snapshot(spark, queue_of("alice"), group="lvq.prices")


def test_a_wrong_password_is_an_error_of_the_snapshot(
    spark: SparkSession, secure: SecureBroker, queue_of: MakeQueue
) -> None:
    spec = pin(queue_of("alice"))
    with pytest.raises(AuthenticationFailed, match=r"sasl\.password"), task_errors():
        snapshot(spark, queue_of("", secure.config(password="guessed")), spec=spec).collect()


@pytest.mark.parametrize("user", ["bob", "mallory"])
def test_the_format_says_it_in_the_text_of_sparks_error(spark: SparkSession, secure: SecureBroker, user: str) -> None:
    register(spark)
    reader = spark.read.format("lvq").option("subscribe", TOPIC)
    for name, value in secure.config(user).properties.items():
        reader = reader.option(f"kafka.{name}", str(value))
    frame = reader.option("kafka.bootstrap.servers", secure.secure).load()
    with pytest.raises(Unauthorized, match=rf"lacks \w+ on Topic {TOPIC}"), task_errors():
        frame.collect()


def test_records_deleted_while_they_were_read_are_an_error_of_ours(
    spark: SparkSession, make_queue: MakeQueue, lvq_topic: str
) -> None:
    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    with queue.producer() as producer:
        for number in range(9):
            producer.put(f"k{number}", b"1")
    frame = snapshot(spark, queue)
    queue.cluster.logs.delete_before(lvq_topic, {0: 5})  # type: ignore[attr-defined]
    with pytest.raises(DataLoss), task_errors():
        frame.collect()
    frame = snapshot(spark, queue)
    queue.cluster.topics.delete(lvq_topic)
    with pytest.raises(TopicError, match="topic"), task_errors():
        frame.collect()
