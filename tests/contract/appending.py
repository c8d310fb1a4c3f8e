"""The contract of writers and their receipts."""

from __future__ import annotations

import threading

import pytest

from lvq_kafka.cluster import Cluster, Receipt
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import Closed, MessageTooLarge
from tests.contract.harness import COMPACTED, pairs, put, read_all


class AppendingContract:
    def test_an_appended_record_lies_at_the_position_of_its_receipt(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=3, config=COMPACTED)
        positions = put(cluster, topic, *[(f"k{n}", str(n)) for n in range(20)])
        found = {(r.partition, r.offset): (r.key, r.value) for r in read_all(cluster, topic)}
        assert len(found) == 20
        for n, position in enumerate(positions):
            assert position.topic == topic
            assert found[position.partition, position.offset] == (f"k{n}".encode(), str(n).encode())

    def test_a_key_lives_in_its_home_partition(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=5, config=COMPACTED)
        keys = ["", "a", "IBM", "ключ", "x" * 100]
        for key, position in zip(keys, put(cluster, topic, *[(key, "v") for key in keys]), strict=True):
            assert position.partition == home_partition(key.encode(), 5)

    def test_a_record_goes_to_the_partition_that_is_named(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=3, config=COMPACTED)
        writer = cluster.writer()
        receipts = [writer.append(topic, b"k", b"v", None, partition) for partition in (2, 0, 1, -1)]
        assert [receipt.result(10).partition for receipt in receipts] == [2, 0, 1, home_partition(b"k", 3)]
        writer.close()

    def test_r48_a_writer_counts_its_appends_once_it_is_asked_to(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer()
        writer.append(topic, b"k", b"v").result(10)
        assert writer.facts.sent == 0
        writer.count_appends()
        writer.count_appends()
        for receipt in [writer.append(topic, b"k", b"v") for _ in range(3)]:
            receipt.result(10)
        assert (writer.facts.sent, writer.facts.failures) == (3, 0)
        assert writer.facts.undecided <= 3
        writer.close()
        assert writer.facts == (3, 0, 0)

    def test_records_of_one_key_keep_the_order_of_their_appends(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=3, config=COMPACTED)
        put(cluster, topic, *[(f"k{n % 4}", str(n)) for n in range(200)])
        by_key: dict[str, list[int]] = {}
        for key, value in pairs(read_all(cluster, topic)):
            by_key.setdefault(key, []).append(int(value or -1))
        assert by_key == {f"k{k}": list(range(k, 200, 4)) for k in range(4)}

    def test_a_delete_has_no_value_and_an_empty_value_is_one(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", None), ("a", ""), ("", "x"))
        assert pairs(read_all(cluster, topic)) == [("a", None), ("a", ""), ("", "x")]

    def test_headers_keep_their_order_their_repetitions_and_their_empty_values(
        self, cluster: Cluster, topic: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        headers = [("b", b"1"), ("a", None), ("b", b""), ("a", b"\x00\xff"), ("ünï", b"x")]
        writer = cluster.writer()
        writer.append(topic, b"k", b"v", headers).result(10)
        writer.append(topic, b"k", b"v", tuple(headers)).result(10)
        writer.append(topic, b"k", b"v", []).result(10)
        writer.append(topic, b"k", b"v", None).result(10)
        writer.close()
        assert [record.headers for record in read_all(cluster, topic)] == [tuple(headers), tuple(headers), (), ()]

    def test_flush_decides_every_append(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer()
        receipts = [writer.append(topic, b"k", b"%d" % n) for n in range(500)]
        assert writer.flush(10) == 0
        assert all(receipt.done() for receipt in receipts)
        assert [receipt.result(0).offset for receipt in receipts] == list(range(500))
        assert writer.pop_failures() == []
        writer.close()

    def test_a_receipt_calls_back_when_it_is_decided_and_at_once_when_it_is_already(
        self, cluster: Cluster, topic: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer()
        called = threading.Event()
        seen: list[Receipt] = []

        def callback(receipt: Receipt) -> None:
            seen.append(receipt)
            called.set()

        receipt = writer.append(topic, b"k", b"v")
        receipt.add_done_callback(callback)
        assert called.wait(10)
        assert seen[0].done()
        assert seen[0].exception(0) is None
        assert seen[0].result(0) == receipt.result(0)
        receipt.add_done_callback(callback)
        assert len(seen) == 2
        writer.close()

    def test_a_message_that_the_client_refuses_raises_at_once(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer()
        with pytest.raises(MessageTooLarge):
            writer.append(topic, b"k", b"x" * 2_000_000)
        writer.append(topic, b"k", b"small").result(10)
        writer.close()

    def test_a_message_that_the_topic_refuses_fails_through_its_receipt(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED | {"max.message.bytes": "1000"})
        writer = cluster.writer()
        refused = writer.append(topic, b"k", b"x" * 5000)
        error = refused.exception(10)
        assert isinstance(error, MessageTooLarge)
        assert error.code == "MSG_SIZE_TOO_LARGE"
        with pytest.raises(MessageTooLarge):
            refused.result(10)
        assert writer.append(topic, b"k", b"small").result(10).offset == 0
        assert writer.pop_failures() == []  # the receipt has reported it
        writer.close()

    def test_failures_that_nobody_asked_for_are_kept_once(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED | {"max.message.bytes": "1000"})
        writer = cluster.writer()
        writer.append(topic, b"k", b"x" * 5000)
        assert writer.flush(10) == 0
        [failure] = writer.pop_failures()
        assert failure.code == "MSG_SIZE_TOO_LARGE"
        assert writer.pop_failures() == []
        writer.close()

    def test_a_receipt_has_its_position_once_stored_and_asking_is_not_seeing_a_failure(
        self, cluster: Cluster, topic: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config={**COMPACTED, "max.message.bytes": "1000"})
        writer = cluster.writer()
        stored = writer.append(topic, b"k", b"v")
        assert writer.flush(10) == 0
        assert stored.position == stored.result(0)
        refused = writer.append(topic, b"k", bytes(5000))
        assert writer.flush(10) == 0
        assert refused.position is None
        assert [type(failure) for failure in writer.pop_failures()] == [MessageTooLarge]
        writer.close()

    def test_a_closed_writer_takes_nothing(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer()
        receipt = writer.append(topic, b"k", b"v")
        assert writer.close(10) == 0
        assert receipt.result(0).offset == 0
        with pytest.raises(Closed):
            writer.append(topic, b"k", b"v")

    def test_timestamps_are_append_times(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        for n in range(3):
            put(cluster, topic, ("k", str(n)))
        stamps = [record.timestamp for record in read_all(cluster, topic)]
        assert stamps == sorted(stamps)
        assert stamps[0] > 1_600_000_000_000
