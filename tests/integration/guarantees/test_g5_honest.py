"""G5, honest: a reader reports that it lags, is blocked by an open transaction, is cut off, or has failed."""

from __future__ import annotations

import pytest

from lvq_kafka import TEXT, Browser, Consumer, Deleted, EndOfDump, Entry, LastValueQueue, View, Watch
from lvq_kafka.errors import BrokerUnavailable, CatchUpTimeout, ReaderFailed, TopicRecreated
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.runtime.retrying import patiently
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.cable import Cable
from tests.contract.harness import COMPACTED, settled
from tests.integration.guarantees.cluster import Held, fold, read_raw
from tests.integration.guarantees.conftest import Declare, QueueOf
from tests.integration.guarantees.writing import put, ticking
from tests.waiting import eventually


class TestOpenTransactions:
    def test_g5_a_view_that_cannot_catch_up_names_partition_offsets_and_transaction(self, queue_of: QueueOf) -> None:
        queue = queue_of(3)
        with queue.producer(transactional_id=queue.name) as hanging:
            put(queue, a="1", b="1", c="1")
            writer = hanging.transaction()
            writer.__enter__()
            held = hanging.put("a", "2").result(20)
            put(queue, a="3")
            at, end = held.partition, held.offset + 2

            view = queue.view(catch_up_timeout=1.0)
            reason = f"partition {at} is at offset {held.offset} of {end}: a transaction .* since offset {held.offset}"
            with pytest.raises(CatchUpTimeout, match=reason) as caught, view:
                pytest.fail("it holds neither what is in the transaction nor what follows")
            (shortfall,) = caught.value.shortfalls
            assert (shortfall.partition, shortfall.position, shortfall.target) == (at, held.offset, end)
            assert shortfall.blocked
            assert "Commit or abort" in caught.value.hint

            with queue.browser(follow=False) as browser:
                *entries, marker = browser
            assert {event.key: event.value for event in entries if isinstance(event, Entry)} == dict.fromkeys(
                "abc", "1"
            )
            assert isinstance(marker, EndOfDump)
            assert [(block.partition, block.stable) for block in marker.blocked] == [(at, held.offset)]
            writer.__exit__(None, None, None)

    def test_g5_a_view_says_blocked_while_it_is_and_caught_up_when_the_transaction_is_decided(
        self, queue: LastValueQueue[str]
    ) -> None:
        put(queue, a="1")
        with queue.producer(transactional_id=queue.name) as hanging:
            with hanging.transaction(30):
                hanging.put("a", "2").result(20)
                put(queue, b="1")
                view = queue.view(metadata_interval=0.1).start()
                eventually(lambda: view.state == "blocked")
                assert view.lag == 2
                assert [block.partition for block in view.blocked_by] == [0]
                assert dict(view) == {"a": "1"}
            view.wait_caught_up(30)
            assert view.state == "caught-up"
            assert dict(view) == {"a": "2", "b": "1"}
            eventually(lambda: (view.lag, view.blocked_by) == (0, []))
            view.close()

    def test_g5_a_view_says_what_holds_up_its_barrier_though_it_was_caught_up_before(
        self, queue: LastValueQueue[str]
    ) -> None:
        with queue.view(metadata_interval=0.1) as view, queue.producer(transactional_id=queue.name) as hanging:
            with hanging.transaction(30):
                hanging.put("a", "1").result(20)
                put(queue, b="1")
                with pytest.raises(CatchUpTimeout, match="transaction open since offset 0") as caught:
                    view.barrier(1.5)
                assert [block.blocked for block in caught.value.shortfalls] == [True]
                assert [block.stable for block in view.blocked_by] == [0]
                assert view.lag == 2
                with view.watch(dump=True) as watch:
                    (end,) = watch.drain()
                assert isinstance(end, EndOfDump)
                assert [block.partition for block in end.blocked] == [0]
            view.barrier()
            assert dict(view) == {"a": "1", "b": "1"}

    def test_g5_a_record_held_back_by_a_transaction_reaches_a_browser_when_it_is_decided(
        self, queue: LastValueQueue[str]
    ) -> None:
        with queue.browser() as browser, queue.producer(transactional_id=queue.name) as hanging:
            with hanging.transaction(30):
                hanging.put("a", "1").result(20)
                put(queue, b="1")
                assert browser.drain() == [EndOfDump({0: 0})]
            settled(queue.cluster, queue.topic)
            assert [event.key for event in browser.drain() if isinstance(event, Entry)] == ["a", "b"]


class TestLostCluster:
    def test_g5_readers_and_writers_live_through_the_death_of_the_broker(
        self, private_broker: ProvidedBroker, private_queue: LastValueQueue[str]
    ) -> None:
        queue = private_queue
        with (
            ticking(queue) as ticker,
            queue.view(metadata_interval=0.5) as view,
            view.watch() as watch,
            queue.browser(metadata_interval=0.5) as browser,
        ):
            ticker.await_count(1000)
            known = ticker.acknowledged()
            view.barrier()
            private_broker.kill()
            eventually(lambda: (view.state, browser.state) == ("disconnected", "disconnected"), 30)
            before = ticker.acknowledged()
            # It may have missed the last acknowledged messages before the kill, but it reports that it is cut off.
            assert {key: number for key, number in known.items() if int(view[key]) < number} == {}
            with pytest.raises(BrokerUnavailable):
                view.barrier(0.5)
            assert view.silence > 0.5
            assert ticker.acknowledged() == before, "nothing is acknowledged by nobody"

            private_broker.restart()
            eventually(lambda: (view.state, browser.state) == ("caught-up", "caught-up"), 60)
            eventually(lambda: min(ticker.acknowledged().values()) > max(before.values()), 60)
            last = ticker.stop()
            view.barrier(60)
            assert {key: int(value) for key, value in view.items()} == last
            assert view.silence < 10
            for reader, events in (("watch", watch.drain()), ("browser", browser.drain(60))):
                seen = {event.key: int(event.value) for event in events if isinstance(event, Entry)}
                assert seen == last, reader
                assert Deleted not in map(type, events), "the outage was not taken for a deletion"
            assert view.stats.stale == 0, "nothing was read twice"
            assert view.stats.added == ticker.count
        records = fold(read_raw(private_broker.bootstrap_servers, queue.topic))
        assert {key: int(record.value or "") for key, record in records.items()} == last

    def test_g5_a_view_tells_a_silent_cluster_from_a_quiet_topic(
        self, private_broker: ProvidedBroker, private_queue: LastValueQueue[str]
    ) -> None:
        queue = private_queue
        put(queue, a="1")
        with queue.view(metadata_interval=0.2) as view:
            eventually(lambda: view.silence < 0.1)  # it asks for the topic's end although nothing comes
            assert view.state == "caught-up"
            private_broker.pause()
            try:
                eventually(lambda: view.silence > 2)
                with pytest.raises(BrokerUnavailable):
                    view.barrier(0.5)
                assert view["a"] == "1"
                eventually(lambda: view.state == "disconnected", 30)
            finally:
                private_broker.resume()
            eventually(lambda: view.state == "caught-up", 30)
            put(queue, a="2")
            view.barrier()
            assert view["a"] == "2"
            eventually(lambda: view.silence < 2)


class TestConsumers:
    def test_g5_a_consumer_says_that_it_is_cut_off_that_its_group_rebalances_and_that_a_transaction_is_open(
        self, declare: Declare, kafka_cluster: KafkaCluster
    ) -> None:
        queue = declare()
        put(queue, a="1")
        with Cable(kafka_cluster.config.bootstrap_servers) as cable:
            first = patiently(lambda: _consumer(queue.name, cable.bootstrap_servers), 60)
            eventually(lambda: first.stats.available == 1, 60)
            cable.cut()
            second = _consumer(queue.name, kafka_cluster.config.bootstrap_servers)
            eventually(lambda: "No answer" in first.stats.trouble, 20)
            eventually(lambda: "no partition" in second.stats.trouble or second.stats.partitions, 60)
            delivery = second.acquire(60)  # after the first consumer's session has expired
            assert delivery is not None
            delivery.ack(wait=True, timeout=30)
            eventually(lambda: second.stats.trouble == "", 30)
            cable.mend()
            first.close()
        with queue.producer(transactional_id=queue.name) as hanging, hanging.transaction(30):
            held = hanging.put("b", "1").result(20)
            put(queue, c="1")
            said = f"open since offset {held.offset} has hidden later records in partition 0"
            eventually(lambda: said in second.stats.trouble, 30)
        assert second.acquire(30) is not None
        eventually(lambda: second.stats.trouble == "", 30)
        second.close()

    def test_g5_a_second_consumer_of_one_partition_stands_by_says_so_and_takes_over(
        self, declare: Declare, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = declare()
        put(queue, a="1")
        with queue.consumer() as first:
            eventually(lambda: first.stats.partitions, 30)
            with queue.consumer() as second:
                eventually(lambda: "2 members, 1 partition: 1 stands by" in second.stats.trouble, 30)
                assert second.stats.standby
                assert not first.stats.standby
                assert (queue.stats().members, queue.stats().standby) == (2, 1)
                assert second.acquire(0) is None
                first.close()
                delivery = second.acquire(30)
                assert delivery is not None
                eventually(lambda: second.stats.trouble == "", 30)
                assert not second.stats.standby
                assert (queue.stats().members, queue.stats().standby) == (1, 0)
        assert caplog.text.count("stands by") == 1


def _consumer(name: str, servers: str) -> Consumer[str]:
    return LastValueQueue.open(name, value=TEXT, bootstrap_servers=servers).consumer()


class TestLostTopic:
    def test_g5_readers_of_a_topic_that_was_deleted_have_failed_and_say_why(self, queue: LastValueQueue[str]) -> None:
        put(queue, a="1", b="1")
        with (
            queue.view(metadata_interval=0.2) as view,
            view.watch() as watch,
            queue.browser(metadata_interval=0.2) as browser,
        ):
            browser.drain()
            queue.cluster.topics.delete(queue.topic)
            eventually(lambda: (view.state, browser.state) == ("failed", "failed"), 30)
            assert isinstance(view.failure, TopicRecreated)
            for use in (lambda: view["a"], lambda: len(view), view.snapshot, view.barrier, watch.poll, browser.poll):
                with pytest.raises(ReaderFailed, match="was deleted while it was being read") as caught:
                    use()
                assert isinstance(caught.value.__cause__, TopicRecreated)
                assert caught.value.__cause__.topic == queue.topic

    @pytest.mark.parametrize("partitions", [1, 3])
    def test_g5_readers_of_a_topic_that_was_created_anew_start_over(
        self, queue: LastValueQueue[str], kafka_cluster: KafkaCluster, partitions: int
    ) -> None:
        put(queue, both="old", gone="old", also="old")
        log = Held(kafka_cluster)
        queue = LastValueQueue(queue.topic, key_header="ticker", value=TEXT, cluster=log)
        with (
            queue.view(metadata_interval=0.2) as view,
            view.watch() as watch,
            queue.browser(metadata_interval=0.2) as browser,
            queue.browser(dump=False, metadata_interval=0.2) as updates,
        ):
            browser.drain()
            assert updates.drain() == [EndOfDump({0: 3})]
            before = view.snapshot().topic_id
            log.hold()
            kafka_cluster.topics.delete(queue.topic)
            kafka_cluster.topics.create(queue.topic, partitions=partitions, config=COMPACTED)
            put(queue, both="new", more="new")
            log.release()  # they can notice from here on
            eventually(lambda: view.state == "caught-up" and has(view, {"both": "new", "more": "new"}), 30)
            assert view.snapshot().topic_id != before
            new: set[object] = {("both", "new"), ("more", "new")}
            gone: set[object] = {Deleted("gone"), Deleted("also")}
            await_events(watch, new | gone)
            await_events(browser, new | gone)
            await_events(updates, new)
            put(queue, both="newer")
            view.barrier()
            assert view["both"] == "newer"

    def test_g5_a_topic_that_is_away_for_a_moment_is_not_lost_for_its_readers(self, queue: LastValueQueue[str]) -> None:
        put(queue, a="old", b="old")
        with queue.view(metadata_interval=0.1) as view:
            queue.cluster.topics.delete(queue.topic)
            eventually(lambda: view.state == "disconnected")  # it has noticed
            queue.cluster.topics.create(queue.topic, partitions=1, config=COMPACTED)
            put(queue, a="new")
            eventually(lambda: has(view, {"a": "new"}), 30)
            eventually(lambda: view.state == "caught-up")


def await_events(reader: Watch[str] | Browser[str], expected: set[object]) -> None:
    """Read until exactly these events have come. Values are pairs of key and value."""
    seen: set[object] = set()

    def all_told() -> bool:
        seen.update((event.key, event.value) if isinstance(event, Entry) else event for event in reader.drain())
        return seen == expected

    eventually(all_told, 30)


def has(view: View[str], values: dict[str, str]) -> bool:
    """Return whether a view has exactly these values."""
    return dict(view) == values


def test_g5_a_view_that_is_behind_says_how_far(queue_of: QueueOf, kafka_cluster: KafkaCluster) -> None:
    queue = queue_of(3)
    with ticking(queue, lambda number: f"k{number}", limit=20_000) as ticker:
        ticker.await_count(20_000)
    view = queue.view().start()
    seen = []
    while view.state == "catching-up":
        done, total = view.progress
        assert 0 <= done <= total == 20_000
        seen.append((done, view.lag))
    assert view.state == "caught-up"
    assert seen == sorted(seen, key=lambda pair: (pair[0], -pair[1]))
    assert view.progress == (20_000, 20_000)
    assert view.lag == 0
    assert len(view) == 20_000
    view.close()
