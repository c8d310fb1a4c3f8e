"""G1, complete: a caught-up reader has the newest committed value of every key acknowledged before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lvq_kafka import TEXT, EndOfDump, Entry, LastValueQueue
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction
from tests.integration.guarantees.cluster import Meanwhile, delete_records, fold, read_raw
from tests.integration.guarantees.conftest import QueueOf
from tests.integration.guarantees.writing import put, ticking, transaction
from tests.waiting import eventually


def held_by_a_view(queue: LastValueQueue[str]) -> dict[str, str]:
    with queue.view() as view:
        assert view.state == "caught-up"
        assert view.lag == 0
        return dict(view)


def held_by_a_browser(queue: LastValueQueue[str]) -> dict[str, str]:
    with queue.browser(follow=False) as browser:
        *entries, end = browser
    assert isinstance(end, EndOfDump)
    assert end.blocked == ()
    assert end.offsets == queue.cluster.logs.end_offsets(queue.topic)
    values = [(entry.key, entry.value) for entry in entries if isinstance(entry, Entry)]
    assert len(values) == len(entries) == len(dict(values)), "a dump holds each key once"
    return dict(values)


def held(queue: LastValueQueue[str]) -> dict[str, str]:
    """Return the values of caught-up readers. A view and a browser must agree."""
    values = held_by_a_view(queue)
    assert values == held_by_a_browser(queue)
    return values


Reading = Callable[[LastValueQueue[str]], dict[str, str]]

READERS = pytest.mark.parametrize("held_by", [held_by_a_view, held_by_a_browser], ids=["view", "browser"])


@pytest.mark.parametrize("partitions", [1, 3])
def test_g1_an_empty_queue_is_caught_up_at_once(queue_of: QueueOf, partitions: int) -> None:
    assert held(queue_of(partitions)) == {}


def test_g1_partitions_without_a_record_do_not_keep_a_reader_waiting(queue_of: QueueOf) -> None:
    queue = queue_of(8)
    put(queue, IBM="1", MSFT="2")
    assert held(queue) == {"IBM": "1", "MSFT": "2"}


@pytest.mark.parametrize("partitions", [1, 4])
def test_g1_a_compacted_log_gives_the_newest_value_of_every_key(
    queue_of: QueueOf, kafka_cluster: KafkaCluster, servers: str, partitions: int
) -> None:
    queue = queue_of(partitions)
    expected = {}
    with queue.producer() as producer:
        for number in range(3000):
            key = f"k{number * 7919 % 200}"
            producer.put(key, str(number))
            expected[key] = str(number)
        for number in range(0, 200, 10):
            producer.delete(f"k{number}")
            del expected[f"k{number}"]
    force_compaction(kafka_cluster, queue.topic, drop_tombstones=True)
    values = [record for record in read_raw(servers, queue.topic) if record.value is not None]
    assert len(values) == len(expected) == 180, "the broker has compacted the log to one record for each key"
    assert held(queue) == expected


@pytest.mark.parametrize("abort", [False, True], ids=["committed", "aborted"])
def test_g1_a_log_that_ends_in_the_marker_of_a_transaction_is_read_to_its_end(
    queue: LastValueQueue[str], servers: str, abort: bool
) -> None:
    put(queue, a="1", b="1")
    with transaction(queue, abort=abort) as producer:
        producer.put("b", "2")
        producer.put("c", "2")
    assert read_raw(servers, queue.topic)[-1].offset < queue.cluster.logs.end_offsets(queue.topic)[0] - 1
    assert held(queue) == ({"a": "1", "b": "1"} if abort else {"a": "1", "b": "2", "c": "2"})


def test_g1_a_log_of_nothing_but_aborted_records_is_an_empty_queue(queue: LastValueQueue[str]) -> None:
    for _ in range(3):
        with transaction(queue, abort=True) as producer:
            producer.put("never", "1")
    assert queue.cluster.logs.end_offsets(queue.topic) == {0: 6}
    assert held(queue) == {}


def test_g1_a_hole_at_the_end_of_the_log_is_crossed(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, servers: str
) -> None:
    put(queue, a="1", b="1")
    force_compaction(kafka_cluster, queue.topic)
    for _ in range(3):
        with transaction(queue, abort=True) as producer:
            producer.put("never", "1")
    # The cleaner removes the aborted records, and leaves their markers.
    eventually(lambda: all(r.key != "never" for r in read_raw(servers, queue.topic, committed=False)), 30)
    end = queue.cluster.logs.end_offsets(queue.topic)[0]
    assert end - read_raw(servers, queue.topic, committed=False)[-1].offset > 5
    assert held(queue) == {"a": "1", "b": "1"}


def test_g1_a_log_whose_beginning_was_deleted_gives_what_is_left(queue_of: QueueOf, servers: str) -> None:
    queue = queue_of(config={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    put(queue, a="1", b="1", c="1", d="1")
    put(queue, b="2")
    delete_records(servers, queue.topic, 0, 2)
    assert held(queue) == {"b": "2", "c": "1", "d": "1"}


def test_g1_a_log_that_was_emptied_is_an_empty_queue_though_it_does_not_begin_at_zero(
    queue_of: QueueOf, servers: str
) -> None:
    queue = queue_of(config={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    put(queue, a="1", b="1")
    delete_records(servers, queue.topic, 0, 2)
    assert held(queue) == {}
    put(queue, a="2")
    assert held(queue) == {"a": "2"}


@READERS
def test_g1_records_deleted_between_the_look_and_the_read_do_not_stop_a_reader(
    queue_of: QueueOf, kafka_cluster: KafkaCluster, servers: str, held_by: Reading
) -> None:
    queue = queue_of(config={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    put(queue, a="1", b="1", c="1", d="1")
    log = Meanwhile(kafka_cluster, lambda: delete_records(servers, queue.topic, 0, 2))
    assert held_by(LastValueQueue(queue.topic, key_header="ticker", value=TEXT, cluster=log)) == {"c": "1", "d": "1"}


@READERS
def test_g1_a_value_replaced_and_compacted_away_before_it_was_read_is_not_missing(
    queue_of: QueueOf, kafka_cluster: KafkaCluster, servers: str, held_by: Reading
) -> None:
    """The reader has asked for the log's end. When it reads up to there, these keys have no record below that end."""
    queue = queue_of(config={**FORCED_COMPACTION, **DELETES_STAY})
    keys = [f"k{number}" for number in range(50)]
    put(queue, **dict.fromkeys(keys, "old"), untouched="old")

    def replace_and_compact() -> None:
        put(queue, **dict.fromkeys(keys, "new"))
        force_compaction(kafka_cluster, queue.topic)
        assert [record.key for record in read_raw(servers, queue.topic) if record.value == "old"] == ["untouched"]

    log = Meanwhile(kafka_cluster, replace_and_compact)
    assert held_by(LastValueQueue(queue.topic, key_header="ticker", value=TEXT, cluster=log)) == {
        **dict.fromkeys(keys, "new"),
        "untouched": "old",
    }


def test_g1_readers_opened_under_load_hold_all_that_was_acknowledged_before(queue_of: QueueOf, servers: str) -> None:
    queue = queue_of(3)
    with ticking(queue) as ticker:
        ticker.await_count(500)
        for _ in range(5):
            before = ticker.acknowledged()
            with queue.view() as view:
                held = {key: int(value) for key, value in view.items()}
            assert {key: number for key, number in before.items() if held.get(key, -1) < number} == {}
            before = ticker.acknowledged()
            with queue.browser(follow=False) as browser:
                held = {event.key: int(event.value) for event in browser if isinstance(event, Entry)}
            assert {key: number for key, number in before.items() if held.get(key, -1) < number} == {}
        last = ticker.stop()
    expected = {key: record.value for key, record in fold(read_raw(servers, queue.topic), 3).items()}
    assert held_by_a_view(queue) == expected == {key: str(number) for key, number in last.items()}
