"""The scenarios on a real broker: the same functions that run on the in-memory log, collected again here.

Left out are those that need no cluster at all, or do to it what no broker can be asked to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient

pytest.register_assert_rewrite("tests.scenarios.harness")

from lvq_kafka import TEXT, LastValueQueue  # noqa: E402
from lvq_kafka.kafka import ClientConfig, KafkaLog  # noqa: E402  # the harness must not be imported before this
from lvq_kafka.retrying import patiently  # noqa: E402
from lvq_kafka.testing.brokers import ProvidedBroker  # noqa: E402
from lvq_kafka.testing.compaction import force_compaction  # noqa: E402
from tests.cable import Cable  # noqa: E402
from tests.scenarios import (  # noqa: E402
    test_browsing,
    test_compacted_log,
    test_conflation,
    test_consuming,
    test_keys,
    test_management,
    test_non_destructive,
    test_restart,
    test_transactions,
)
from tests.scenarios.harness import PATIENCE, Cluster, Declare, Queue, declaring  # noqa: E402
from tests.waiting import eventually  # noqa: E402

ON_A_BROKER = (
    test_browsing,
    test_compacted_log,
    test_conflation,
    test_consuming,
    test_keys,
    test_management,
    test_non_destructive,
    test_restart,
    test_transactions,
)
assert {module.__name__ for module in ON_A_BROKER} == {
    f"tests.scenarios.{path.stem}" for path in Path(test_keys.__file__).parent.glob("test_*.py")
} - {"tests.scenarios.test_completeness"}, "a module of scenarios is not run on a broker"
NOT_ON_A_BROKER = {
    test_keys.test_s025_a_queue_without_the_name_of_its_key_header_is_refused,
    test_keys.test_s026_a_key_header_makes_a_last_value_queue_and_the_switch_alone_does_not,
    test_keys.test_s029_options_that_clash_with_a_key_are_refused_and_both_are_named,
    test_keys.test_s030_the_old_no_browse_switch_is_accepted_with_a_warning,
    test_restart.test_s094_a_view_that_was_cut_off_goes_on_where_it_was,  # there is one of its own, below
}


def test_s094_a_view_that_was_cut_off_goes_on_where_it_was(q: Queue, lvq_broker: ProvidedBroker) -> None:
    """As on the in-memory log, whose outage is an order; here nothing passes between the view and its broker."""
    q.send("a=a1", "b=b1")
    with (
        Cable(lvq_broker.bootstrap_servers) as cable,
        closing(KafkaLog(ClientConfig(cable.bootstrap_servers, {"socket.timeout.ms": 2000}))) as log,
        LastValueQueue.open(q.name, value=TEXT, log=log) as queue,
        queue.view(catch_up_timeout=PATIENCE, metadata_interval=0.1) as view,
    ):
        cable.cut()
        eventually(lambda: view.state == "disconnected", 60)
        q.send("a=a2")
        q.delete("b")
        assert dict(view) == {"a": "a1", "b": "b1"}
        cable.mend()
        eventually(lambda: dict(view) == {"a": "a2"}, 60)
        patiently(lambda: view.barrier(PATIENCE), PATIENCE)
        assert dict(view) == dict(q.view()) == {"a": "a2"}
        assert view.counters.stale == 0


for _module in ON_A_BROKER:
    for _name, _test in vars(_module).items():
        if _name.startswith("test_s") and _test not in NOT_ON_A_BROKER:
            globals()[_name] = _test


class OnKafka:
    """`Cluster` on a real broker."""

    def __init__(self, broker: ProvidedBroker) -> None:
        self._broker = broker
        self.log = KafkaLog(broker.bootstrap_servers)

    def compact(self, topic: str, *, drop_tombstones: bool = False) -> None:
        force_compaction(self.log, topic, drop_tombstones=drop_tombstones)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        for future in admin.delete_records([At(topic, partition, before)]).values():
            future.result(10)

    def write(self, topic: str, partition: int, key: str, value: str) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers})
        producer.produce(topic, value.encode(), key.encode(), partition)
        assert producer.flush(30) == 0

    def restart(self) -> None:
        self.log.close()
        self._broker.restart()
        self.log = KafkaLog(self._broker.bootstrap_servers)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, lvq_broker: ProvidedBroker) -> Iterator[Cluster]:
    restarts = request.function.__module__ in {test_restart.__name__, test_transactions.__name__}
    cluster = OnKafka(request.getfixturevalue("private_broker") if restarts else lvq_broker)
    yield cluster
    cluster.log.close()


@pytest.fixture
def declare(cluster: Cluster, topic_name: str) -> Iterator[Declare]:
    with declaring(cluster, topic_name) as declare:
        yield declare


@pytest.fixture
def q(declare: Declare) -> Queue:
    """The queue that scenarios call Q: keyed by the header k, empty."""
    return declare()
