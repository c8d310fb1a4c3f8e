"""The contract of outages of the whole cluster."""

from __future__ import annotations

from typing import Protocol

import pytest

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import BrokerUnavailable, DeliveryUnknown
from tests.contract.harness import COMPACTED, follow, pairs, polls_without_error, put, read_all
from tests.waiting import eventually


class Outage(Protocol):
    """A switch that turns the cluster off and on."""

    def disconnect(self) -> None:
        """Make all brokers unreachable."""

    def reconnect(self) -> None:
        """Make the brokers reachable again, with all their data."""


class OutagesContract:
    def test_readers_and_questions_fail_as_retriable_and_readers_go_on_by_themselves(
        self, cluster: Cluster, topic: str, outage: Outage
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        reader = cluster.reader(topic, {0: 0})
        assert pairs(follow(reader, {0: 1})) == [("a", "1")]

        outage.disconnect()
        with pytest.raises(BrokerUnavailable) as of_reader:
            eventually(lambda: polls_without_error(reader), 30)
        with pytest.raises(BrokerUnavailable) as of_question:
            cluster.logs.end_offsets(topic, timeout=1)
        assert of_reader.value.retriable
        assert of_question.value.retriable

        outage.reconnect()
        put(cluster, topic, ("a", "2"))
        records: list[Record] = []

        def went_on() -> bool:
            try:
                records.extend(reader.poll(0.2).batch)
            except BrokerUnavailable:  # an error from the outage may come late
                return False
            return bool(records)

        eventually(went_on, 30)
        assert pairs(records) == [("a", "2")]
        reader.close()

    def test_appends_wait_for_the_end_of_an_outage_and_keep_their_order(
        self, cluster: Cluster, topic: str, outage: Outage
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer()
        writer.append(topic, b"a", b"0").result(10)
        outage.disconnect()
        receipts = [writer.append(topic, b"a", b"%d" % n) for n in range(1, 20)]
        assert writer.flush(0.3) == len(receipts)
        assert not receipts[0].done()
        with pytest.raises(TimeoutError):
            receipts[0].result(0.01)
        outage.reconnect()
        assert [receipt.result(30).offset for receipt in receipts] == list(range(1, 20))
        assert pairs(read_all(cluster, topic)) == [("a", str(n)) for n in range(20)]

        outage.disconnect()
        receipt = writer.append(topic, b"a", b"20")
        assert writer.close(0.1) == 1
        assert isinstance(receipt.exception(0), DeliveryUnknown)
