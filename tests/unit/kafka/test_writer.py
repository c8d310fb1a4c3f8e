"""The Kafka writer on librdkafka's mock cluster: receipts, retries, refusals, a full buffer, a broker that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from lvq_kafka.cluster import Commit, Receipt
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import (
    BrokerUnavailable,
    Closed,
    ConfigError,
    DeliveryFailed,
    MessageTooLarge,
    OutcomeUnknown,
    StateError,
    TransportError,
)
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.deliveries import KafkaReceipt
from lvq_kafka.kafka.writer import KafkaWriter
from tests.unit.kafka.mock_cluster import END_TXN, PRODUCE, MockCluster
from tests.waiting import eventually

OpenWriter = Callable[..., KafkaWriter]


@pytest.fixture
def open_writer(mock: MockCluster) -> Iterator[OpenWriter]:
    writers: list[KafkaWriter] = []

    def open_writer(
        transactional_id: str | None = None, max_block: float | None = None, **properties: str | int
    ) -> KafkaWriter:
        config = ClientConfig(
            mock.bootstrap_servers, {name.replace("_", "."): value for name, value in properties.items()}
        )
        writers.append(KafkaWriter(config, transactional_id=transactional_id, max_block=max_block))
        return writers[-1]

    yield open_writer
    for writer in writers:
        writer.close(0)


@pytest.fixture
def writer(open_writer: OpenWriter) -> KafkaWriter:
    return open_writer()


# -- interrupts --------------------------------------------------------------------------------------------------------


def test_ctrl_c_is_ctrl_c_where_the_client_makes_a_type_error_of_it(writer: KafkaWriter) -> None:
    def interrupted(*_: object) -> None:
        raise TypeError("expected header key to be unicode string")

    writer._produce = interrupted  # as when a signal handler raises while the client reads a header
    with pytest.raises(KeyboardInterrupt) as caught:
        writer.append("t", b"k", b"v", [("ticker", b"IBM"), ("none", None)])
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_header_that_is_none_is_a_type_error_still(writer: KafkaWriter) -> None:
    """A codec may add one."""
    with pytest.raises(TypeError, match="header"):
        writer.append("t", b"k", b"v", [("ticker", b"IBM"), ("count", 7)])  # type: ignore[list-item]


# -- receipts ----------------------------------------------------------------------------------------------------------


def test_a_receipt_resolves_to_the_position_without_a_poll_or_a_flush(writer: KafkaWriter) -> None:
    receipts = [writer.append("t", b"k", b"v", [("ticker", b"IBM"), ("empty", b""), ("none", None)]) for _ in range(3)]
    assert [receipt.result(10) for receipt in receipts] == [Position("t", 0, offset) for offset in range(3)]
    assert [receipt.exception() for receipt in receipts] == [None] * 3
    assert all(receipt.done() for receipt in receipts)
    assert repr(receipts[1]) == "<Receipt t/0/1>"


def test_a_null_value_and_an_empty_key_are_taken(writer: KafkaWriter) -> None:
    assert writer.append("t", b"", None).result(10) == Position("t", 0, 0)
    assert writer.append("t", b"", b"", []).result(10) == Position("t", 0, 1)


def test_keys_go_to_their_home_partition(writer: KafkaWriter, mock: MockCluster) -> None:
    mock.create_topic("many", 7)
    keys = [b"", b"a", b"IBM", "Zoë".encode(), bytes(range(200))]
    for key in keys:
        assert writer.append("many", key, b"v").result(10).partition == home_partition(key, 7)


def test_an_acknowledgement_is_there_at_once_when_one_record_is_sent_at_a_time(writer: KafkaWriter) -> None:
    writer.append("t", b"k", b"v").result(10)
    seconds = []
    for _ in range(30):
        begin = time.monotonic()
        writer.append("t", b"k", b"v").result(10)
        seconds.append(time.monotonic() - begin)
    assert statistics.median(seconds) < 0.05


def test_callbacks_run_once_each_and_not_on_the_thread_that_sends(writer: KafkaWriter) -> None:
    called: list[tuple[Receipt, threading.Thread]] = []
    receipts = [writer.append("t", b"k", b"v") for _ in range(100)]
    late = writer.append("t", b"k", b"v")
    late.result(10)
    for receipt in receipts:  # already decided, so called here
        receipt.add_done_callback(lambda receipt: called.append((receipt, threading.current_thread())))
    assert called == [(receipt, threading.current_thread()) for receipt in receipts]
    called.clear()
    for _ in range(2000):
        receipt = writer.append("t", b"k", b"v")
        receipt.add_done_callback(lambda receipt: called.append((receipt, threading.current_thread())))
    eventually(lambda: len(called) == 2000)
    assert len({receipt for receipt, _ in called}) == 2000
    assert all(receipt.done() for receipt, _ in called)


def test_a_callback_never_runs_inside_a_send_so_both_may_take_one_lock(writer: KafkaWriter) -> None:
    lock = threading.Lock()
    called = []

    def callback(_: Receipt) -> None:
        with lock:
            called.append(1)

    sent = 0
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        with lock:
            receipt = writer.append("t", b"k", b"v")
        if not receipt.done():
            receipt.add_done_callback(callback)
            sent += 1
    assert writer.flush(10) == 0
    assert len(called) == sent > 0


def test_a_flush_returns_after_the_callbacks(writer: KafkaWriter) -> None:
    called: list[Receipt] = []
    for number in range(500):
        writer.append("t", b"%d" % number, b"v").add_done_callback(called.append)
    assert writer.flush(10) == 0
    assert len(set(called)) == 500


def test_a_callback_that_fails_is_logged_and_harms_nobody(
    writer: KafkaWriter, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[Receipt] = []
    with caplog.at_level(logging.ERROR, "lvq_kafka.producer"):
        receipt = writer.append("t", b"k", b"v")
        receipt.add_done_callback(lambda _: [][0])
        receipt.add_done_callback(called.append)
        assert writer.flush(10) == 0
    assert called == [receipt]
    assert "A callback of a receipt failed." in caplog.text
    assert writer.append("t", b"k", b"v").result(10)


def test_a_callback_may_send_and_wait_but_not_flush(writer: KafkaWriter, mock: MockCluster) -> None:
    outcomes: list[object] = []

    def callback(_: Receipt) -> None:
        try:
            outcomes.append(writer.append("t", b"k", b"again").result(10))
            writer.flush()
        except StateError as error:
            outcomes.append(error)

    mock.set_latency(30)
    writer.append("t", b"k", b"v").add_done_callback(callback)
    assert writer.flush(10) == 0
    assert outcomes[0] == Position("t", 0, 1)
    assert "callback" in str(outcomes[1])


def test_waiting_for_a_receipt_has_a_limit(writer: KafkaWriter, mock: MockCluster) -> None:
    mock.down()
    receipt = writer.append("t", b"k", b"v")
    with pytest.raises(OutcomeUnknown, match=r"0\.05 s.*may still be stored") as caught:
        receipt.result(0.05)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(OutcomeUnknown):
        receipt.exception(0)
    assert not receipt.done()
    assert repr(receipt) == "<Receipt on its way>"
    mock.up()
    assert receipt.result(10) == Position("t", 0, 0)


def test_a_receipt_can_be_awaited_alone_with_others_and_with_a_limit(writer: KafkaWriter, mock: MockCluster) -> None:
    async def use() -> None:
        assert await writer.append("t", b"k", b"v") == Position("t", 0, 0)
        decided = writer.append("t", b"k", b"v")
        decided.result(10)
        assert await decided == Position("t", 0, 1)
        positions = await asyncio.gather(*(writer.append("t", b"k", b"v") for _ in range(500)))
        assert [position.offset for position in positions] == list(range(2, 502))
        mock.fail_next(PRODUCE, KafkaError.INVALID_RECORD)
        with pytest.raises(DeliveryFailed):
            await writer.append("t", b"IBM", b"v")
        mock.down()
        receipt = writer.append("t", b"k", b"v")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receipt, 0.05)
        assert not receipt.done()
        mock.up()
        assert await receipt == Position("t", 0, 502)

    asyncio.run(asyncio.wait_for(use(), 30))
    assert writer.pop_failures() == []  # the awaiting task knows


def test_a_receipt_whose_loop_is_closed_before_it_is_decided_harms_nobody(
    writer: KafkaWriter, mock: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receipt, 0.05)

    mock.down()
    receipt = writer.append("t", b"k", b"v")
    asyncio.run(give_up())
    mock.up()
    assert writer.flush(10) == 0
    assert receipt.result(0) == Position("t", 0, 0)
    assert [record for record in caplog.records if record.name == "lvq_kafka.producer"] == []


def test_a_caller_that_awaits_a_receipt_whose_report_was_lost_learns_of_it_when_the_writer_is_closed(
    writer: KafkaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: KafkaReceipt, error: object, message: object) -> None:
        raise KeyboardInterrupt

    async def use() -> None:
        receipt = writer.append("t", b"k", b"v")
        waiting = asyncio.ensure_future(waited(receipt))
        await asyncio.sleep(0)
        await asyncio.to_thread(eventually, lambda: not len(writer._client))
        await asyncio.to_thread(writer.close, 0)
        with pytest.raises(TransportError, match="outcome of a send was lost"):
            await waiting
        with pytest.raises(TransportError, match="outcome of a send was lost"):
            await receipt

    async def waited(receipt: Receipt) -> Position:
        return await receipt

    monkeypatch.setattr(KafkaReceipt, "__call__", interrupted)
    monkeypatch.setattr(writer._deliveries, "_poll_client", lambda timeout: swallow(writer, timeout))
    asyncio.run(asyncio.wait_for(use(), 30))


def test_a_report_that_an_interrupt_swallowed_does_not_leave_its_receipt_waiting_for_ever(
    writer: KafkaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: KafkaReceipt, error: object, message: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(KafkaReceipt, "__call__", interrupted)
    receipt = writer.append("t", b"k", b"v")
    monkeypatch.setattr(writer._deliveries, "_poll_client", lambda timeout: swallow(writer, timeout))
    with pytest.raises(TransportError, match="outcome of a send was lost"):
        receipt.result(10)


def swallow(writer: KafkaWriter, timeout: float) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        writer._client.poll(timeout)


# -- failures ----------------------------------------------------------------------------------------------------------


def test_passing_refusals_are_retried_until_each_record_is_stored_once(
    open_writer: OpenWriter, mock: MockCluster
) -> None:
    # One request at a time: the mock stores everything that it does not refuse. Only a real broker keeps several in
    # order (G14), by their sequence numbers.
    writer = open_writer(batch_num_messages=10, max_in_flight=1)
    writer.append("t", b"k", b"v").result(10)
    passing = [KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NOT_ENOUGH_REPLICAS]
    mock.fail_next(PRODUCE, *passing * 2)
    receipts = [writer.append("t", b"k", b"v") for _ in range(200)]
    assert [receipt.result(30).offset for receipt in receipts] == list(range(1, 201))


@pytest.mark.parametrize("value", [b"v", None])
def test_a_refusal_is_a_delivery_failure_with_the_key_and_the_reason(
    writer: KafkaWriter, mock: MockCluster, value: bytes | None
) -> None:
    mock.fail_next(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(DeliveryFailed, match=r"'IBM' in 't'.*ACL") as caught:
        writer.append("t", b"IBM", value).result(10)
    assert caught.value.key == b"IBM"
    assert caught.value.code == "TOPIC_AUTHORIZATION_FAILED"
    assert not caught.value.retriable


def test_a_topic_that_does_not_exist_is_said_to_be_missing(open_writer: OpenWriter) -> None:
    writer = open_writer(topic_metadata_propagation_max_ms=100)
    with pytest.raises(DeliveryFailed, match=r"no such topic.*declare a queue") as caught:
        writer.append("nowhere", b"IBM", b"v").result(10)
    assert caught.value.key == b"IBM"


def test_the_topics_refusal_of_a_size_names_key_and_size(writer: KafkaWriter, mock: MockCluster) -> None:
    mock.fail_next(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(MessageTooLarge, match=r"'IBM' has 103 bytes.*max\.message\.bytes.*'t'") as caught:
        writer.append("t", b"IBM", b"v" * 100).result(10)
    assert isinstance(caught.value, DeliveryFailed)


def test_the_clients_refusal_of_a_size_names_key_size_and_limit(open_writer: OpenWriter) -> None:
    writer = open_writer(message_max_bytes=2000)
    with pytest.raises(MessageTooLarge, match=r"'IBM' has 3009 bytes; the client accepts 2000\."):
        writer.append("t", b"IBM", b"v" * 3000, [("ticker", b"")])
    assert writer.append("t", b"IBM", b"v").result(10)


def test_failures_that_no_receipt_has_told_are_kept_and_given_once(writer: KafkaWriter, mock: MockCluster) -> None:
    mock.fail_next(PRODUCE, *[KafkaError.INVALID_RECORD] * 3)
    seen = writer.append("t", b"seen", b"v")
    assert isinstance(seen.exception(10), DeliveryFailed)
    for key in (b"a", b"b"):
        writer.append("t", key, b"v")
        assert writer.flush(10) == 0
    failures = writer.pop_failures()
    assert [failure.key for failure in failures if isinstance(failure, DeliveryFailed)] == [b"a", b"b"]
    assert writer.pop_failures() == []


def test_failures_that_nobody_fetches_do_not_fill_the_memory(open_writer: OpenWriter, mock: MockCluster) -> None:
    writer = open_writer(delivery_timeout_ms=100)
    mock.down()
    for _ in range(3000):
        writer.append("t", b"k", b"v")
    assert writer.flush(20) == 0
    assert len(writer.pop_failures()) == 1000


def test_a_full_local_buffer_makes_a_send_wait(open_writer: OpenWriter, mock: MockCluster) -> None:
    writer = open_writer(queue_buffering_max_messages=10)
    mock.set_latency(20)
    receipts = [writer.append("t", b"k", b"v") for _ in range(100)]
    assert [receipt.result(10).offset for receipt in receipts] == list(range(100))


def test_the_wait_of_a_send_for_room_can_be_limited(open_writer: OpenWriter, mock: MockCluster) -> None:
    writer = open_writer(max_block=0.05, queue_buffering_max_messages=10)
    mock.down()
    for _ in range(10):
        writer.append("t", b"k", b"v")
    # The client also counts an error that it has yet to report.
    with pytest.raises(
        TransportError, match=r"The local buffer has been full for 0\.05 s.*1\d messages are waiting"
    ) as caught:
        writer.append("t", b"k", b"v")
    assert caught.value.code == "_QUEUE_FULL"
    assert caught.value.retriable
    assert "max_block" in caught.value.hint


def test_a_flush_says_how_many_are_undecided(writer: KafkaWriter, mock: MockCluster) -> None:
    mock.down()
    receipts = [writer.append("t", b"k", b"v") for _ in range(3)]
    assert writer.flush(0.05) == 3
    mock.up()
    assert writer.flush(10) == 0
    assert all(receipt.done() for receipt in receipts)


def test_a_flush_that_does_not_wait_takes_no_news_of_the_client_for_messages(
    open_writer: OpenWriter, mock: MockCluster
) -> None:
    mock.down()
    writer = open_writer(reconnect_backoff_ms=1, reconnect_backoff_max_ms=5)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        assert writer.flush(0) == 0
        time.sleep(0.001)
    assert writer.close(0) == 0


def test_a_close_withdraws_what_is_not_decided_in_time(writer: KafkaWriter, mock: MockCluster) -> None:
    mock.down()
    receipt = writer.append("t", b"IBM", b"v")
    assert writer.close(0.05) == 1
    with pytest.raises(DeliveryFailed, match="closed before") as caught:
        receipt.result(0)
    assert caught.value.key == b"IBM"
    assert writer.pop_failures() == []


def test_a_message_that_no_broker_takes_fails_when_its_time_is_up(open_writer: OpenWriter, mock: MockCluster) -> None:
    writer = open_writer(delivery_timeout_ms=100)
    mock.down()
    with pytest.raises(DeliveryFailed) as caught:
        writer.append("t", b"IBM", b"v").result(10)
    assert caught.value.code == "_TIMED_OUT"
    assert caught.value.retriable
    assert isinstance(caught.value.__cause__, BrokerUnavailable)
    assert mock.bootstrap_servers in str(caught.value)


def test_a_closed_writer_refuses_and_leaves_no_thread(open_writer: OpenWriter) -> None:
    before = set(threading.enumerate())
    writer = open_writer()
    receipt = writer.append("t", b"k", b"v")
    assert writer.close(10) == 0
    assert set(threading.enumerate()) <= before
    assert receipt.result(0) == Position("t", 0, 0)
    assert writer.close() == 0
    assert writer.flush() == 0
    with pytest.raises(Closed):
        writer.append("t", b"k", b"v")
    with pytest.raises(Closed):
        writer.begin_transaction()


def test_threads_may_share_a_writer(writer: KafkaWriter) -> None:
    positions: dict[bytes, list[int]] = {}

    def send(key: bytes) -> None:
        receipts = [writer.append("t", key, b"v") for _ in range(500)]
        positions[key] = [receipt.result(20).offset for receipt in receipts]

    threads = [threading.Thread(target=send, args=[key]) for key in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(offsets == sorted(offsets) for offsets in positions.values())
    assert sorted(itertools.chain(*positions.values())) == list(range(1500))


def test_a_property_that_the_client_does_not_know_is_an_error(mock: MockCluster) -> None:
    with pytest.raises(ConfigError, match="lingr"):
        KafkaWriter(ClientConfig(mock.bootstrap_servers, {"lingr.ms": 5}))


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_transaction_is_begun_and_committed_or_aborted(open_writer: OpenWriter) -> None:
    writer = open_writer(transactional_id="feed")
    writer.begin_transaction()
    receipt = writer.append("t", b"k", b"v")
    writer.commit_transaction(10)
    assert receipt.result(0)
    writer.begin_transaction()
    writer.append("t", b"k", b"v")
    writer.abort_transaction(10)
    assert writer.flush(0) == 0


def test_transactional_calls_out_of_place_are_errors_of_state(open_writer: OpenWriter) -> None:
    writer = open_writer(transactional_id="feed")
    with pytest.raises(StateError, match="No transaction is open"):
        writer.append("t", b"k", b"v")
    with pytest.raises(StateError, match="commit the transaction"):
        writer.commit_transaction(5)
    writer.begin_transaction()
    with pytest.raises(StateError, match="begin a transaction"):
        writer.begin_transaction()
    plain = open_writer()
    for call in (plain.begin_transaction, plain.commit_transaction, plain.abort_transaction):
        with pytest.raises(StateError, match="no transactional id"):
            call()


def test_a_client_that_can_do_no_more_is_replaced_when_the_next_transaction_begins(
    open_writer: OpenWriter, mock: MockCluster
) -> None:
    writer = open_writer(transactional_id="feed")
    writer.begin_transaction()
    writer.append("t", b"a", b"1").result(10)
    mock.fail_next(END_TXN, KafkaError.INVALID_TXN_STATE)
    for step in (writer.commit_transaction, writer.abort_transaction):
        with pytest.raises(TransportError, match="begins with a new client") as caught:
            step(10)
        assert not caught.value.retriable
    writer.begin_transaction(10)
    writer.append("t", b"a", b"2").result(10)
    writer.commit_transaction(10)


class Counting:
    """A client that counts its calls."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return getattr(self._client, name)


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_transaction_whose_end_was_not_answered_is_ended_before_the_next_one_begins(
    open_writer: OpenWriter, mock: MockCluster, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    writer = open_writer(transactional_id="feed")
    writer.begin_transaction()
    writer.append("t", b"a", b"1").result(10)
    assert writer._transactions is not None
    client = Counting(writer._transactions._client)
    monkeypatch.setattr(writer._transactions, "_client", client)
    mock.down()
    with pytest.raises(BrokerUnavailable):
        getattr(writer, f"{ending}_transaction")(0.3)
    if ending == "commit":
        with pytest.raises(TransportError, match="its commit is in flight"):
            writer.abort_transaction(5)
    with pytest.raises(BrokerUnavailable) as caught:
        writer.begin_transaction(1.0)
    assert caught.value.retriable
    assert client.calls < 30, "the client keeps memory for each refusal"
    mock.up()
    writer.begin_transaction(20)
    assert writer._transactions._client is not client, "what was on its way could arrive late"
    writer.append("t", b"a", b"2").result(10)
    writer.commit_transaction(10)


class Refusing:
    """A client that refuses at once and says that this may pass, as after an unanswered abort."""

    def __init__(self) -> None:
        self.calls = 0

    def begin_transaction(self) -> None:
        self.calls += 1
        raise KafkaException(KafkaError(KafkaError._CONFLICT, "an abort is on its way", retriable=True))


def test_a_request_refused_at_once_is_tried_again_after_pauses_and_no_longer_than_it_may_take(
    open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(transactional_id="feed")
    assert writer._transactions is not None
    client = Refusing()
    with monkeypatch.context() as patch:
        patch.setattr(writer._transactions, "_client", client)
        with pytest.raises(TransportError, match="Cannot begin a transaction") as caught:
            writer.begin_transaction(0.3)
    assert caught.value.retriable
    assert 2 < client.calls < 20, "the client keeps memory for each refusal"


def test_after_the_time_out_of_a_transaction_whose_end_was_not_answered_a_new_client_goes_on(
    open_writer: OpenWriter, mock: MockCluster
) -> None:
    writer = open_writer(transactional_id="feed", transaction_timeout_ms=1000)
    writer.begin_transaction()
    undecided = writer.append("t", b"a", b"1")
    undecided.result(10)
    mock.down()
    lost = writer.append("t", b"a", b"2")
    with pytest.raises(BrokerUnavailable):
        writer.abort_transaction(0.3)
    assert writer._transactions is not None
    client = writer._transactions._client
    eventually(lambda: writer._transactions._is_overdue)
    with pytest.raises(BrokerUnavailable):
        writer.begin_transaction(0.3)
    mock.up()
    writer.begin_transaction(20)
    assert writer._transactions._client is not client
    with pytest.raises(DeliveryFailed):
        lost.result(0)
    writer.append("t", b"a", b"3").result(10)
    writer.commit_transaction(10)
    assert writer.flush(0) == 0


def test_a_system_error_of_the_client_is_an_error_of_the_call(
    open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client raises one if an error callback has raised in the middle of a call."""
    writer = open_writer(transactional_id="feed")
    assert writer._transactions is not None

    class Broken:
        def begin_transaction(self) -> None:
            raise SystemError("<built-in method> returned a result with an exception set")

    monkeypatch.setattr(writer._transactions, "_client", Broken())
    with pytest.raises(TransportError, match="Cannot begin a transaction: the client gave up") as caught:
        writer.begin_transaction()
    assert (caught.value.code, type(caught.value.__cause__)) == ("_FAIL", SystemError)
    monkeypatch.undo()
    writer.begin_transaction()
    writer.abort_transaction(10)


def test_a_close_in_a_transaction_aborts_it(open_writer: OpenWriter) -> None:
    writer = open_writer(transactional_id="feed")
    writer.begin_transaction()
    writer.append("t", b"k", b"v")
    assert writer.close(10) == 0
    assert writer.pop_failures() == []


class Nobody:
    """A listener of a group that reads nothing."""

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Sequence[int]) -> None: ...

    def lost(self, partitions: Sequence[int]) -> None: ...


def test_a_commit_that_the_client_never_comes_back_from_ends_the_client_and_neither_producer_nor_program() -> None:
    mock = MockCluster(brokers=2)
    mock.create_topic("t")
    mock.move_group("g", 2)
    mock.move_transactions("feed", 1)
    cluster = KafkaCluster(ClientConfig(mock.bootstrap_servers))
    member = cluster.member("g", "t", Nobody())
    eventually(lambda: member.poll(0.05).positions)
    writer = cluster.writer(transactional_id="feed")
    writer.begin_transaction()
    mock.down(2)
    with pytest.raises(TransportError, match="add a commit to the transaction") as caught:
        writer.send_offsets(member, {0: Commit(0, "")}, 1.0)
    assert "begins with a new client" in caught.value.hint
    for call in (writer.commit_transaction, writer.abort_transaction):
        with pytest.raises(TransportError, match="does not return"):
            call(5.0)
    writer.begin_transaction(10.0)
    writer.commit_transaction(10.0)
    assert writer.close(5.0) == 0
    member.close()
    cluster.close()
    mock.close()
