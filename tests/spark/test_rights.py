"""Spark's roles in docs/how-to/access.md, with the rights that the page gives them and without each in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from lvq_kafka import LastValueQueue
from lvq_spark import publish, snapshot, task_errors
from tests.integration.rights import ROLES, needs_each
from tests.integration.secure import SecureBroker, secure_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[["SparkSession", LastValueQueue[bytes]], object]

WORK: Mapping[str, Work] = {
    "reads it with Spark": lambda spark, queue: snapshot(spark, queue).collect(),
    "reads with Spark what a group has not consumed": lambda spark, queue: snapshot(
        spark, queue, group=queue.definition.group
    ).collect(),
    "publishes from Spark": lambda spark, queue: publish(rows(spark), queue),
    'publishes from Spark with `vanished="delete"`': lambda spark, queue: publish(
        rows(spark), queue, vanished="delete"
    ),
}
USERS = {role: f"user-{number}" for number, role in enumerate(WORK)}


def rows(spark: SparkSession) -> object:
    return spark.createDataFrame([("IBM", "119.00")], "key string, value string")


def test_each_role_of_the_page_is_tried() -> None:
    assert set(WORK) == {role for role in ROLES if "Spark" in role}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("tls"), list(USERS.values())) as broker:
        queue = LastValueQueue.declare("prices", key_header="ticker", bootstrap_servers=broker.plain)
        with queue, queue.producer() as producer:
            producer.put("IBM", b"118.50")
        yield broker


@pytest.mark.parametrize("role", WORK)
def test_a_role_needs_the_rights_of_the_page_and_no_others(
    spark: SparkSession, secure: SecureBroker, role: str
) -> None:
    user = USERS[role]
    config = secure.config(user)

    def work() -> None:
        with LastValueQueue.open("prices", config=config) as queue, task_errors():
            WORK[role](spark, queue)

    needs_each(secure, user, ROLES[role], work)
