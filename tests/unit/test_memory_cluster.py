"""Features of the in-memory cluster alone: legal compactions, planned failures, outages, expelled members."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.cluster import Cluster, Commit, LogEnd
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import Fetch, Record
from lvq_kafka.errors import (
    BrokerUnavailable,
    ConfigError,
    DataLoss,
    DeliveryFailed,
    DeliveryUnknown,
    StateError,
    TransportError,
)
from lvq_kafka.testing import MemoryCluster
from tests.contract.harness import COMPACTED, Listener, follow, pairs, poll_until, put, read_all


@pytest.fixture
def cluster(memory_cluster: MemoryCluster) -> MemoryCluster:
    memory_cluster.topics.create("t", partitions=1, config=COMPACTED)
    return memory_cluster


def newest(records: Sequence[Record]) -> dict[bytes | None, Record]:
    """Return the newest record of each key, without deleted keys."""
    current = {record.key: record for record in records}
    return {key: record for key, record in current.items() if record.value is not None}


def test_it_is_a_log() -> None:
    assert isinstance(MemoryCluster(), Cluster)


# -- compaction --------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["1", "2", None]),
        st.sampled_from(["plain", "plain", "commit", "abort", "open"]),
    ),
    max_size=25,
)


def written(history: Sequence[tuple[str, str | None, str]]) -> MemoryCluster:
    """Return a cluster with this history: each step is a plain record, or a transaction of one record that ends so."""
    cluster = MemoryCluster()
    cluster.topics.create("t", partitions=1, config=COMPACTED)
    plain = cluster.writer()
    for number, (key, value, kind) in enumerate(history):
        data = None if value is None else value.encode()
        if kind == "plain":
            plain.append("t", key.encode(), data)
            continue
        writer = cluster.writer(transactional_id=f"w{number}")
        writer.begin_transaction()
        writer.append("t", key.encode(), data)
        if kind == "commit":
            writer.commit_transaction()
        elif kind == "abort":
            writer.abort_transaction()
    return cluster


@given(steps, st.data())
def test_no_legal_compaction_changes_the_newest_record_of_a_key(
    history: list[tuple[str, str | None, str]], data: st.DataObject
) -> None:
    cluster = written(history)
    before, ends = cluster.records("t"), cluster.logs.end_offsets("t")
    stable = cluster.logs.end_offsets("t", stable=True)
    if data.draw(st.booleans(), label="close_segments"):
        cluster.close_segments("t")
    for _ in range(data.draw(st.integers(1, 3), label="passes")):
        cluster.compact(
            "t",
            up_to=data.draw(st.none() | st.integers(0, ends[0]), label="up_to"),
            drop_tombstones=data.draw(st.booleans(), label="drop_tombstones"),
            choose=lambda record: data.draw(st.booleans(), label=f"remove {record.offset}"),
        )
        after = cluster.records("t")
        assert newest(after) == newest(before)
        assert set(after) <= set(before)
        assert after == sorted(after, key=lambda record: record.offset)
        assert (cluster.logs.end_offsets("t"), cluster.logs.end_offsets("t", stable=True)) == (ends, stable)


@given(steps, st.booleans())
def test_a_full_compaction_leaves_one_committed_record_of_a_key_below_the_last_record(
    history: list[tuple[str, str | None, str]], drop_tombstones: bool
) -> None:
    cluster = written(history)
    last = max((record.offset for record in cluster.records("t")), default=0)
    cluster.compact("t", drop_tombstones=drop_tombstones)
    cleaned = [record for record in cluster.records("t") if record.offset < last]
    assert len({record.key for record in cleaned}) == len(cleaned)
    if drop_tombstones:
        assert all(record.value is not None for record in cleaned)


def test_the_last_record_is_never_removed(cluster: MemoryCluster) -> None:
    put(cluster, "t", ("a", "1"), ("a", None))
    cluster.compact("t", drop_tombstones=True)
    assert pairs(cluster.records("t")) == [("a", None)]


def test_the_last_record_goes_as_well_when_its_segment_is_closed_and_the_end_stays(cluster: MemoryCluster) -> None:
    put(cluster, "t", ("a", "1"), ("a", None))
    cluster.close_segments("t")
    cluster.compact("t", drop_tombstones=True)
    assert pairs(cluster.records("t")) == []
    assert (cluster.logs.start_offsets("t"), cluster.logs.end_offsets("t")) == ({0: 0}, {0: 2})
    put(cluster, "t", ("b", "1"), ("b", None))
    cluster.compact("t", drop_tombstones=True)
    assert pairs(cluster.records("t")) == [("b", None)]


def test_nothing_from_an_open_transaction_on_is_removed(cluster: MemoryCluster) -> None:
    put(cluster, "t", ("a", "1"), ("a", "2"))
    writer = cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("t", b"a", b"3")
    put(cluster, "t", ("a", "4"), ("a", "5"))
    cluster.compact("t")
    writer.commit_transaction()
    assert pairs(cluster.records("t")) == [("a", "2"), ("a", "3"), ("a", "4"), ("a", "5")]


def test_a_delete_stays_while_an_older_value_does(cluster: MemoryCluster) -> None:
    put(cluster, "t", ("a", "1"), ("a", None), ("b", "1"))
    cluster.compact("t", drop_tombstones=True, choose=lambda record: record.value is None)
    assert pairs(cluster.records("t")) == [("a", "1"), ("a", None), ("b", "1")]


def test_one_partition_can_be_compacted_alone(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=2, config=COMPACTED)
    for partition in (0, 1):
        for value in (b"1", b"2", b"3"):
            memory_cluster.write("t", b"a", value, partition=partition)
    memory_cluster.compact("t", 1)
    assert [(r.partition, r.value) for r in memory_cluster.records("t")] == [(0, b"1"), (0, b"2"), (0, b"3"), (1, b"3")]


# -- other programs ----------------------------------------------------------------------------------------------------


def test_the_clock_gives_the_timestamps() -> None:
    now = [100.0]
    cluster = MemoryCluster(clock=lambda: now[0])
    cluster.topics.create("t", partitions=1, config=COMPACTED)
    put(cluster, "t", ("a", "1"))
    now[0] = 200.5
    put(cluster, "t", ("a", "2"))
    assert [record.timestamp for record in cluster.records("t")] == [100_000, 200_500]
    assert cluster.logs.offsets_at("t", 100_001) == {0: 1}


def test_another_program_can_write_to_any_partition_at_any_time(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=3, config={})
    position = memory_cluster.write("t", b"a", b"1", [("h", None)], partition=2, timestamp=7)
    assert position == Position("t", 2, 0)
    assert memory_cluster.write("t", None, b"2", partition=1) == Position("t", 1, 0)
    assert memory_cluster.records("t")[1] == Record(2, 0, 7, b"a", b"1", (("h", None),))


def test_a_compacted_topic_takes_no_record_without_a_key(cluster: MemoryCluster) -> None:
    with pytest.raises(DeliveryFailed) as caught:
        cluster.write("t", None, b"1")
    assert caught.value.code == "INVALID_RECORD"


def test_a_poll_brings_no_more_than_the_fetch_limit() -> None:
    cluster = MemoryCluster(fetch_limit=2)
    cluster.topics.create("t", partitions=2, config=COMPACTED)
    put(cluster, "t", *[(f"k{n}", "v") for n in range(9)])
    reader = cluster.reader("t", {0: 0, 1: 0})
    assert len(reader.poll(0).batch) == 2
    assert len(follow(reader, cluster.logs.end_offsets("t"))) == 7


# -- planned failures --------------------------------------------------------------------------------------------------

REFUSED = TransportError("The broker had enough.", code="KAFKA_STORAGE_ERROR", retriable=True)


def test_planned_failures_come_once_each_and_in_order(cluster: MemoryCluster) -> None:
    cluster.fail_next("logs.end_offsets", REFUSED, times=2)
    cluster.fail_next("logs.end_offsets", BrokerUnavailable("Gone.", code="_TRANSPORT"))
    for expected in (TransportError, TransportError, BrokerUnavailable):
        with pytest.raises(expected):
            cluster.logs.end_offsets("t")
    assert cluster.logs.end_offsets("t") == {0: 0}


def test_a_failure_of_an_unknown_operation_cannot_be_planned(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match=r"'end_offset'.* logs\.end_offsets"):
        cluster.fail_next("end_offset", REFUSED)


def test_a_commit_whose_answer_is_lost_is_stored_and_never_told(cluster: MemoryCluster) -> None:
    listener = Listener()
    member = cluster.member("g", "t", listener)
    poll_until(lambda: listener.held == {0}, member)
    answers: list[object] = []
    cluster.lose_answers("commit", times=2)
    member.commit_async({0: Commit(0, "one")}, answers.append)
    member.poll(0)
    assert (cluster.groups.committed("g", "t"), answers) == ({0: Commit(0, "one")}, [])
    with pytest.raises(BrokerUnavailable) as caught:
        member.commit({0: Commit(0, "two")})
    assert (caught.value.code, caught.value.retriable) == ("_TIMED_OUT", True)
    assert cluster.groups.committed("g", "t") == {0: Commit(0, "two")}
    member.commit({0: Commit(0, "three")})
    member.close()


def test_a_transaction_whose_answer_is_lost_has_committed(cluster: MemoryCluster) -> None:
    writer = cluster.writer(transactional_id="w")
    writer.begin_transaction()
    writer.append("t", b"a", b"1")
    cluster.lose_answers("commit_transaction")
    with pytest.raises(BrokerUnavailable):
        writer.commit_transaction()
    assert pairs(read_all(cluster, "t")) == [("a", "1")]
    writer.close()


def test_answers_of_other_operations_cannot_be_lost(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match="end_offsets"):
        cluster.lose_answers("logs.end_offsets")


def test_the_longest_commit_text_can_be_chosen() -> None:
    cluster = MemoryCluster(metadata_limit=10)
    cluster.topics.create("t", partitions=1, config=COMPACTED)
    cluster.groups.commit("g", "t", {0: Commit(0, "x" * 10)})
    with pytest.raises(TransportError, match="longer than 10 characters") as caught:
        cluster.groups.commit("g", "t", {0: Commit(0, "x" * 11)})
    assert caught.value.code == "OFFSET_METADATA_TOO_LARGE"


def test_a_planned_delivery_failure_comes_through_the_receipt(cluster: MemoryCluster) -> None:
    cluster.fail_next("append", DeliveryFailed("Not stored.", key=b"a", code="_MSG_TIMED_OUT"))
    writer = cluster.writer()
    receipt = writer.append("t", b"a", b"1")
    with pytest.raises(DeliveryFailed):
        receipt.result(0)
    assert writer.append("t", b"a", b"2").result(0).offset == 0


def test_another_planned_error_comes_out_of_append_itself(cluster: MemoryCluster) -> None:
    cluster.fail_next("append", REFUSED)
    with pytest.raises(TransportError):
        cluster.writer().append("t", b"a", b"1")


def test_a_poll_that_waits_fails_at_once_and_the_reader_goes_on(cluster: MemoryCluster) -> None:
    reader = cluster.reader("t", {0: 0})
    reader.poll(0)
    outcome: list[Exception | Fetch] = []

    def wait() -> None:
        try:
            outcome.append(reader.poll(60))
        except TransportError as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    cluster.fail_next("poll", REFUSED)
    thread.join(10)
    assert outcome == [REFUSED]
    put(cluster, "t", ("a", "1"))
    assert pairs(follow(reader, {0: 1})) == [("a", "1")]


# -- outages -----------------------------------------------------------------------------------------------------------


def test_in_an_outage_every_question_is_refused_as_retriable(cluster: MemoryCluster) -> None:
    cluster.disconnect()
    for ask in (
        lambda: cluster.topics.describe("t"),
        lambda: cluster.topics.create("u", partitions=1, config={}),
        lambda: cluster.logs.end_offsets("t"),
        lambda: cluster.groups.committed("g", "t"),
        cluster.broker_count,
        lambda: cluster.reader("t", {0: 0}).poll(0),
    ):
        with pytest.raises(BrokerUnavailable) as caught:
            ask()
        assert caught.value.retriable
    cluster.reconnect()
    assert cluster.logs.end_offsets("t") == {0: 0}


def test_a_flush_wakes_up_when_the_outage_ends(cluster: MemoryCluster) -> None:
    writer = cluster.writer()
    cluster.disconnect()
    writer.append("t", b"a", b"1")
    left: list[int] = []
    thread = threading.Thread(target=lambda: left.append(writer.flush(60)))
    thread.start()
    cluster.reconnect()
    thread.join(10)
    assert left == [0]


def test_a_writer_closed_in_an_outage_withdraws_what_waits(cluster: MemoryCluster) -> None:
    writer = cluster.writer()
    cluster.disconnect()
    receipt = writer.append("t", b"a", b"1")
    assert writer.close(0) == 1
    assert isinstance(receipt.exception(0), DeliveryUnknown), "as on Kafka, where nobody can tell"
    cluster.reconnect()
    assert cluster.records("t") == []


def test_the_answer_to_an_append_can_be_lost(cluster: MemoryCluster) -> None:
    writer = cluster.writer()
    cluster.lose_answers("append")
    receipt = writer.append("t", b"a", b"1")
    with pytest.raises(DeliveryUnknown, match="whether the message for key 'a' in 't' was stored") as caught:
        receipt.result(0)
    assert (caught.value.key, caught.value.retriable) == (b"a", True)
    assert pairs(cluster.records("t")) == [("a", "1")]
    assert writer.append("t", b"a", b"2").result(0).offset == 1


def test_a_transaction_without_an_answer_to_an_append_can_only_be_aborted(cluster: MemoryCluster) -> None:
    writer = cluster.writer(transactional_id="feed")
    writer.begin_transaction()
    cluster.lose_answers("append")
    assert isinstance(writer.append("t", b"a", b"1").exception(0), DeliveryFailed)
    with pytest.raises(TransportError, match="failed"):
        writer.commit_transaction()
    writer.abort_transaction()
    assert cluster.records("t") == []


def test_a_reader_tells_an_outage_once_then_waits_and_goes_on(cluster: MemoryCluster) -> None:
    reader = cluster.reader("t", {0: 0})
    reader.poll(0)
    cluster.disconnect()
    with pytest.raises(BrokerUnavailable):
        reader.poll(60)  # raises at once
    fetched: list[Fetch] = []
    thread = threading.Thread(target=lambda: fetched.append(reader.poll(60)))
    thread.start()
    cluster.reconnect()
    put(cluster, "t", ("a", "1"))
    thread.join(10)
    assert pairs(fetched[0].batch) == [("a", "1")]
    cluster.disconnect()
    with pytest.raises(BrokerUnavailable):
        reader.poll(60)


def test_a_member_keeps_its_partitions_through_an_outage(cluster: MemoryCluster) -> None:
    listener = Listener()
    member = cluster.member("g", "t", listener)
    poll_until(lambda: listener.held == {0}, member)
    cluster.disconnect()
    with pytest.raises(BrokerUnavailable):
        member.poll(0)
    with pytest.raises(BrokerUnavailable):
        member.commit({0: Commit(0)})
    cluster.reconnect()
    put(cluster, "t", ("a", "1"))
    assert pairs(follow(member, {0: 1})) == [("a", "1")]
    assert listener.diary == [("assigned", (0,))]


# -- expelled members --------------------------------------------------------------------------------------------------


def test_an_expelled_member_loses_its_partitions_to_the_others_and_joins_anew(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=2, config=COMPACTED)
    one, two = Listener(), Listener()
    first, second = memory_cluster.member("g", "t", one), memory_cluster.member("g", "t", two)
    poll_until(lambda: len(one.held) == len(two.held) == 1, first, second)
    memory_cluster.expel(first)
    with pytest.raises(TransportError) as caught:
        first.commit({partition: Commit(1) for partition in one.held})
    assert caught.value.code == "UNKNOWN_MEMBER_ID"
    poll_until(lambda: two.held == {0, 1}, second)
    assert len(one.held) == 1  # it has not polled, so it does not know yet
    poll_until(lambda: len(one.held) == len(two.held) == 1, first, second)
    assert [event for event, _ in one.diary] == ["assigned", "lost", "assigned"]
    first.close()
    second.close()


def test_a_member_expelled_before_it_closes_sees_a_loss_and_no_revocation(cluster: MemoryCluster) -> None:
    listener = Listener()
    member = cluster.member("g", "t", listener)
    poll_until(lambda: listener.held == {0}, member)
    cluster.expel(member)
    member.close()
    assert [event for event, _ in listener.diary] == ["assigned", "lost"]
    cluster.groups.commit("g", "t", {0: Commit(1)})  # no member is left


def test_a_member_takes_a_partition_only_when_its_commit_is_decided(cluster: MemoryCluster) -> None:
    listener, later = Listener(), Listener()
    member = cluster.member("g", "t", listener)
    poll_until(lambda: listener.held == {0}, member)
    writer = cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.send_offsets(member, {0: Commit(0, "in the transaction")})
    member.close()
    successor = cluster.member("g", "t", later)
    successor.poll(0.01)
    assert later.held == set()
    writer.commit_transaction()
    poll_until(lambda: later.held == {0}, successor)
    assert later.commits == {0: Commit(0, "in the transaction")}
    successor.close()


def test_a_member_of_another_log_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(StateError):
        cluster.expel(object())  # type: ignore[arg-type]


def test_reading_all_of_a_log_finds_what_it_holds(cluster: MemoryCluster) -> None:
    put(cluster, "t", ("a", "1"), ("b", None))
    assert read_all(cluster, "t") == cluster.records("t")


def test_a_leader_that_lacked_records_shows_it_however_far_its_log_has_grown_since(cluster: MemoryCluster) -> None:
    put(cluster, "t", ("a", "1"), ("b", "1"), ("c", "1"))
    first = cluster.logs.stable_ends("t")
    cluster.elect("t", 0)
    put(cluster, "t", ("d", "1"))
    second = cluster.logs.stable_ends("t")
    assert (first[0], second[0]) == (LogEnd(3, 0), LogEnd(4, 1))
    cluster.logs.check_uncut("t", first)  # another leader alone is fine
    cluster.elect("t", 0, end=2)
    assert cluster.records("t")[-1].key == b"b"
    third = cluster.logs.stable_ends("t")
    put(cluster, "t", *((key, "2") for key in "abcd"))
    assert cluster.logs.end_offsets("t")[0] > second[0].offset
    for then in (first, second):
        with pytest.raises(DataLoss, match="partition 0"):
            cluster.logs.check_uncut("t", then)
    cluster.logs.check_uncut("t", third)
    cluster.logs.check_uncut("t", {0: LogEnd(2, 0)})


@pytest.mark.parametrize("option", ["brokers", "fetch_limit", "metadata_limit"])
@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "2"])
def test_a_number_that_makes_no_sense_is_refused_by_name(option: str, bad: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be a positive integer") as caught:
        MemoryCluster(**{option: bad})
    assert caught.value.options == (option,)
