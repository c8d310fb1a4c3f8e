"""G2, newest: no reader shows a value after a newer one of its key, or one that was aborted, deleted or consumed."""

from __future__ import annotations

from threading import Thread

from lvq_kafka import Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import force_compaction
from tests.integration.guarantees.cluster import fold, read_raw, write_beside
from tests.integration.guarantees.conftest import Declare, QueueOf
from tests.integration.guarantees.writing import put, ticking, transaction
from tests.waiting import eventually


def browsed(queue: LastValueQueue[str]) -> list[tuple[str, str]]:
    """Return the dump of a new browser."""
    with queue.browser(follow=False) as browser:
        return [(event.key, event.value) for event in browser if isinstance(event, Entry)]


def test_g2_no_reader_steps_back_while_a_producer_writes_and_the_broker_compacts(
    queue_of: QueueOf, kafka_cluster: KafkaCluster
) -> None:
    queue = queue_of(3)
    steps_back: list[str] = []

    def look(who: str, newest: dict[str, int], key: str, value: str) -> None:
        if int(value) < newest.get(key, -1):
            steps_back.append(f"{who} showed {value} of {key} after {newest[key]}")
        newest[key] = int(value)

    with (
        ticking(queue) as ticker,
        queue.view() as view,
        view.watch(dump=True) as watch,
        queue.browser() as browser,
    ):
        compacting = Thread(target=force_compaction, args=(kafka_cluster, queue.topic), daemon=True)
        compacting.start()
        by_view: dict[str, int] = {}
        by_watch: dict[str, int] = {}
        by_browser: dict[str, int] = {}

        def read_all() -> bool:
            for entry in view.entries():
                look("the view", by_view, entry.key, entry.value)
            for event in watch.drain():
                if isinstance(event, Entry):
                    look("the watch", by_watch, event.key, event.value)
            while (seen := browser.poll(0)) is not None:
                if isinstance(seen, Entry):
                    look("the browser", by_browser, seen.key, seen.value)
            return True

        eventually(lambda: read_all() and not compacting.is_alive() and len(ticker.acknowledged()) == 20, 60)
        last = ticker.stop()
        eventually(lambda: read_all() and by_view == by_watch == by_browser == last, 30)
    assert steps_back == []


def test_g2_aborted_records_are_never_shown(queue: LastValueQueue[str]) -> None:
    put(queue, a="0", b="0")
    with queue.view() as view, view.watch() as watch, queue.browser() as browser:
        for number in range(1, 4):
            with transaction(queue, abort=True) as producer:
                producer.put("a", "aborted")
                producer.delete("b")
                producer.put("never", "aborted")
            assert dict(view) == {"a": str(number - 1), "b": str(number - 1)}
            with transaction(queue) as producer:
                producer.put("a", str(number))
                producer.put("b", str(number))
            view.barrier()
            assert dict(view) == {"a": str(number), "b": str(number)}
        events = [*watch.drain(), *browser.drain()]
    assert {type(event) for event in events} == {Entry, EndOfDump}
    assert {event.value for event in events if isinstance(event, Entry)} <= {"0", "1", "2", "3"}
    assert sorted(browsed(queue)) == [("a", "3"), ("b", "3")]


def test_g2_in_the_log_the_later_record_is_the_newer_even_if_its_transaction_was_decided_first(
    queue: LastValueQueue[str],
) -> None:
    """R5: the position decides, not the order of commits."""
    with transaction(queue) as first:
        first.put("a", "1")
        first.flush(20)
        with queue.producer(transactional_id=f"{queue.name}-second") as second, second.transaction(30):
            second.put("a", "2")
    with queue.view() as view:
        assert view["a"] == "2"
    assert browsed(queue) == [("a", "2")]


def test_g2_a_deleted_key_does_not_come_back_when_the_delete_itself_is_compacted_away(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, servers: str
) -> None:
    put(queue, a="1", b="1", c="1")
    with queue.view() as view, view.watch() as watch:
        put(queue, a=None, b="2")
        view.barrier()
        force_compaction(kafka_cluster, queue.topic, drop_tombstones=True)
        assert "a" not in {record.key for record in read_raw(servers, queue.topic)}
        view.barrier()
        assert dict(view) == {"b": "2", "c": "1"}
        events = watch.drain()
    assert events[0] == Deleted("a")
    assert [event.key for event in events if isinstance(event, Entry)] == ["b"]
    assert sorted(browsed(queue)) == [("b", "2"), ("c", "1")]


def test_g2_a_browser_hides_what_was_consumed_before_it_was_opened(declare: Declare) -> None:
    queue = declare()
    put(queue, a="1", b="1", c="1")
    with queue.consumer() as consumer:
        for expected in ("a", "b"):
            delivery = consumer.acquire(30)
            assert delivery is not None
            assert delivery.key == expected
            delivery.ack(wait=True)
    assert browsed(queue) == [("c", "1")]
    with queue.browser(follow=False, hide_consumed=False) as browser:
        assert [event.key for event in browser if isinstance(event, Entry)] == ["a", "b", "c"]


def test_g2_r14_a_key_that_moves_as_partitions_are_added_has_one_current_value(queue: LastValueQueue[str]) -> None:
    """S159: 2 after the second send, absent after the delete, and never 1 again."""
    keys = [f"k{number}" for number in range(30)]
    put(queue, **dict.fromkeys(keys, "1"))
    with queue.view(metadata_interval=0.2) as view, view.watch() as watch:
        queue.cluster.topics.add_partitions(queue.topic, 4)
        eventually(lambda: len(view.lag_by_partition) == 4)
        assert dict(view) == dict.fromkeys(keys, "1")
        put(queue, **dict.fromkeys(keys, "2"))
        view.barrier()
        assert dict(view) == dict.fromkeys(keys, "2")
        assert {view.entry(key).position.partition for key in keys} == {0, 1, 2, 3}
        moved = {key for key in keys if view.entry(key).position.partition != 0}
        assert set(view.split_keys) == moved
        assert view.stats.split == len(moved)
        with queue.view() as fresh:
            assert dict(fresh) == dict.fromkeys(keys, "2")
            assert set(fresh.split_keys) == moved
        put(queue, **dict.fromkeys(keys))
        view.barrier()
        assert dict(view) == {}
        assert "1" not in {event.value for event in watch.drain() if isinstance(event, Entry)}
    assert browsed(queue) == []


def test_g2_r14_readers_agree_on_one_value_when_writers_use_different_partitioners(
    queue_of: QueueOf, servers: str
) -> None:
    queue = queue_of(5)
    keys = [f"k{number}" for number in range(40)]
    with queue.view() as view:
        write_beside(servers, queue.topic, *[(key, "theirs 1") for key in keys])
        put(queue, **dict.fromkeys(keys[10:], "ours 1"))
        write_beside(servers, queue.topic, *[(key, "theirs 2") for key in keys[20:]])
        put(queue, **dict.fromkeys(keys[30:35]))
        records = read_raw(servers, queue.topic)
        expected = {key: record.value or "" for key, record in fold(records, 5).items()}
        split = {r.key for r in records if any(o.key == r.key and o.partition != r.partition for o in records)}
        assert len(split) > 10, "the partitioners differ"
        view.barrier()
        assert dict(view) == expected
        assert set(view.split_keys) == split
        assert view.stats.split == len(split)
    with queue.view() as fresh:
        assert dict(fresh) == expected
        assert set(fresh.split_keys) == split
    dump = browsed(queue)
    assert len(dump) == len(expected), "never two values for one key"
    assert dict(dump) == expected
