"""Sessions of ``qpid.messaging``: sending, fetching, acknowledging, and what is left at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from queue import Empty as QueueEmpty
from typing import Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.compat.qpid_messaging import (
    REJECTED,
    RELEASED,
    UNLIMITED,
    AssertionFailed,
    Connection,
    Detached,
    Disposition,
    Empty,
    FetchError,
    InsufficientCapacity,
    InvalidOption,
    LinkClosed,
    LinkError,
    MalformedAddress,
    Message,
    MessagingError,
    NotFound,
    Receiver,
    ReceiverError,
    Sender,
    SendError,
    Session,
    SessionClosed,
    SessionError,
    TargetCapacityExceeded,
    Timeout,
    UnauthorizedAccess,
)
from lvq_kafka.compat.qpid_messaging.constants import Constant
from lvq_kafka.errors import DeliveryFailed, LockLost, LVQError, TransportError, Unauthorized
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

KEYED = "prices; {create: always, node: {x-declare: {arguments: {qpid.last_value_queue_key: ticker}}}}"
BROWSE = "prices; {mode: browse}"

Connect = Callable[[], Connection]


@pytest.fixture
def connect(memory_cluster: MemoryCluster) -> Iterator[Connect]:
    """Return a function that opens a connection."""
    opened: list[Connection] = []

    def connection() -> Connection:
        opened.append(Connection.establish("localhost", cluster=memory_cluster))
        return opened[-1]

    yield connection
    for one in opened:
        one.close()


@pytest.fixture
def session(connect: Connect) -> Session:
    return connect().session()


@pytest.fixture
def sender(session: Session) -> Sender:
    return session.sender(KEYED)


def put(sender: Sender, *keys: str, sync: bool = True) -> None:
    """Send a message for each key, whose content is the number of the message."""
    for number, key in enumerate(keys):
        sender.send(Message(f"{key}.{number}", properties={"ticker": key}), sync=sync)


def drained(receiver: Receiver) -> list[str]:
    """Fetch until the queue is empty, and return the contents."""
    found = []
    while True:
        try:
            found.append(receiver.fetch(0).content)
        except Empty:
            return found


# ---------------------------------------------------------------- fetching


def test_a_fetch_without_time_finds_all_that_was_sent_before_it(session: Session, sender: Sender) -> None:
    """Qpid's asks the broker, too, before it raises `Empty`."""
    for _ in range(20):
        browsed, consumed = session.receiver(BROWSE), session.receiver("prices")
        put(sender, "a", "b", "c")
        assert drained(browsed) == ["a.0", "b.1", "c.2"]
        assert drained(consumed) == ["a.0", "b.1", "c.2"]
        session.acknowledge()
        put(sender, "b", "d")
        # News that an older value was consumed may come between, and then an update comes after others.
        assert sorted(drained(browsed)) == drained(consumed) == ["b.0", "d.1"]
        session.acknowledge()
        browsed.close()
        consumed.close()


def test_g6_a_browser_sees_each_update_and_takes_nothing(session: Session, sender: Sender) -> None:
    put(sender, "a", "b")
    receivers = [session.receiver(BROWSE) for _ in range(2)]
    assert [drained(receiver) for receiver in receivers] == [["a.0", "b.1"]] * 2
    put(sender, "a")
    last = receivers[0].fetch(0)
    assert (last.content, drained(receivers[1])) == ("a.0", ["a.0"])
    for _ in range(2):
        session.acknowledge(last)
    session.acknowledge()
    assert drained(session.receiver("prices")) == ["b.1", "a.0"]


def test_a_fetch_waits_for_a_message(session: Session, sender: Sender) -> None:
    for address in (BROWSE, "prices"):
        receiver = session.receiver(address)
        drained(receiver)
        session.acknowledge()
        with pytest.raises(Empty):
            receiver.fetch(0.01)
        with ThreadPoolExecutor() as threads:
            fetching = threads.submit(receiver.fetch)
            put(sender, address)
            assert fetching.result(20).content == f"{address}.0"
        session.acknowledge()


def test_empty_is_what_programs_catch(session: Session, sender: Sender) -> None:
    receiver = session.receiver("prices")
    for kind in (Empty, FetchError, ReceiverError, LinkError, MessagingError, LVQError, QueueEmpty):
        with pytest.raises(kind, match="no message in prices"):
            receiver.fetch(0)


def test_r27_receivers_that_consume_cannot_select_and_those_that_browse_can(session: Session, sender: Sender) -> None:
    sender.send(Message("1", subject="s", properties={"ticker": "a", "price": 1}))
    sender.send(Message("2", properties={"ticker": "b", "price": 2}))
    assert drained(session.receiver("prices/s; {mode: browse}")) == ["1"]
    assert drained(session.receiver("prices; {mode: browse, link: {selector: 'price > 1'}}")) == ["2"]
    kept = session.receiver("prices")
    for address in ("prices/s", "prices; {link: {selector: 'price > 1'}}"):
        with pytest.raises(InvalidOption, match="of the address"):
            session.receiver(address)
    assert drained(kept) == ["1", "2"]


def test_g9_receivers_of_one_connection_share_a_queue(connect: Connect) -> None:
    connection = connect()
    sessions = [connection.session() for _ in range(3)]
    put(sessions[0].sender(KEYED), *(f"key{number}" for number in range(30)))
    with ThreadPoolExecutor() as threads:
        contents = threads.map(lambda session: drained(session.receiver("prices")), sessions)
    assert sorted(chain.from_iterable(contents)) == sorted(f"key{number}.{number}" for number in range(30))


def test_a_receiver_whose_queue_is_consumed_elsewhere_says_so(
    connect: Connect, sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    put(sender, "a")
    first, second = connect().session().receiver("prices"), connect().session().receiver("prices")
    assert first.fetch(10).content == "a.0"
    with pytest.raises(Empty):
        second.fetch(0)
    assert "a receiver of prices gets nothing, since others consume all its partitions" in caplog.text
    first.session.close()
    assert second.fetch(20).content == "a.0", "it was not acknowledged"


def test_a_queue_that_cannot_be_read_is_an_error_and_the_next_receiver_starts_anew(
    session: Session, sender: Sender, memory_cluster: MemoryCluster
) -> None:
    receiver, browser = session.receiver("prices"), session.receiver(BROWSE)
    assert drained(receiver) == drained(browser) == []
    LastValueQueue.open("prices", cluster=memory_cluster)
    memory_cluster.topics.delete("prices")
    for one in (receiver, browser):
        with pytest.raises(FetchError, match="prices") as caught:
            one.fetch(20)
        assert isinstance(caught.value.__cause__, LVQError)
    with pytest.raises(NotFound):
        session.receiver("prices")
    receiver.close()


def test_empty_never_stands_for_a_cluster_that_does_not_answer(
    session: Session, sender: Sender, memory_cluster: MemoryCluster
) -> None:
    receiver = session.receiver("prices")
    assert drained(receiver) == []
    memory_cluster.fail_next("logs.end_offsets", TransportError("away", code="_TRANSPORT", retriable=True), times=50)
    with pytest.raises(FetchError, match="away"):
        receiver.fetch(0)


# ---------------------------------------------------------------- acknowledging


def test_g11_a_message_that_was_acknowledged_does_not_come_again_and_others_do(connect: Connect) -> None:
    session = connect().session()
    put(session.sender(KEYED), *"abcde")
    receiver = session.receiver("prices")
    messages = [receiver.fetch(10) for _ in range(5)]
    session.acknowledge(messages[1])
    session.acknowledge(messages[3], sync=False)
    session.connection.close()
    again = connect().session().receiver("prices")
    contents = [again.fetch(10) for _ in range(3)]
    assert [(one.content, one.redelivered) for one in contents] == [("a.0", True), ("c.2", True), ("e.4", True)]
    again.session.acknowledge()
    with pytest.raises(Empty):
        again.fetch(0)


def test_acknowledge_without_a_message_means_all_of_the_session(connect: Connect) -> None:
    connection = connect()
    session, other = connection.session(), connection.session()
    put(session.sender(KEYED), *"abc")
    mine, theirs = session.receiver("prices"), other.receiver("prices")
    mine.fetch(10), mine.fetch(10), theirs.fetch(10)
    session.acknowledge()
    other.close()
    assert drained(mine) == ["c.2"]


def test_a_message_is_acknowledged_once_and_in_its_session(connect: Connect, session: Session, sender: Sender) -> None:
    put(sender, "a", "b")
    receiver = session.receiver("prices")
    message = receiver.fetch(10)
    with pytest.raises(SessionError, match="does not hold"):
        connect().session().acknowledge(message)
    session.acknowledge(message)
    with pytest.raises(SessionError, match="does not hold"):
        session.acknowledge(message)
    session.acknowledge()


def test_a_message_can_be_released_or_rejected(session: Session, sender: Sender) -> None:
    put(sender, "a", "b")
    receiver = session.receiver("prices")
    first = receiver.fetch(10)
    session.acknowledge(first, Disposition(RELEASED))
    again = receiver.fetch(10)
    assert (again.content, again.redelivered) == ("a.0", True)
    session.acknowledge(again, Disposition(REJECTED, text="no such ticker"))
    assert drained(receiver) == ["b.1"]
    with pytest.raises(SessionError, match="disposition"):
        session.acknowledge(disposition=Disposition(Constant("MODIFIED")))


def test_r6_an_update_waits_while_the_older_value_is_held(session: Session, sender: Sender) -> None:
    receiver = session.receiver("prices")
    put(sender, "a")
    assert receiver.fetch(10).content == "a.0"
    put(sender, "b", "a")
    assert drained(receiver) == ["b.0"]
    session.acknowledge()
    assert drained(receiver) == ["a.1"]


def test_g10_a_message_that_went_to_another_consumer_is_not_acknowledged(
    session: Session, sender: Sender, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = []
    member = memory_cluster.member
    monkeypatch.setattr(memory_cluster, "member", lambda *given: members.append(member(*given)) or members[-1])
    receiver = session.receiver("prices")
    put(session.sender(KEYED.replace("prices", "rates")), "r")
    rates = session.receiver("rates")
    put(sender, "a")
    receiver.fetch(10), rates.fetch(10)
    memory_cluster.expel(members[0])
    eventually(lambda: not receiver._reads._shared.consumer.stats.in_work)  # type: ignore[attr-defined]
    with pytest.raises(SessionError, match="1 of 2 messages could not be acknowledged") as caught:
        session.acknowledge()
    assert isinstance(caught.value.__cause__, LockLost)
    assert receiver.fetch(20).content == "a.0"
    assert drained(rates) == [], "it was acknowledged all the same"


def test_acknowledgements_that_nobody_waits_for_are_counted_until_they_are_durable(
    session: Session, sender: Sender
) -> None:
    receiver = session.receiver("prices")
    put(sender, "a", "b")
    receiver.fetch(10), receiver.fetch(10)
    session.acknowledge(sync=False)
    session.sync()
    assert receiver.unsettled() == 0


@pytest.mark.parametrize("timeout", ["1", float("nan"), object()])
def test_a_timeout_that_is_no_number_is_refused_and_changes_nothing(
    session: Session, sender: Sender, timeout: Any
) -> None:
    """The receivers of a queue still share a consumer: of two, one would stand by and get nothing."""
    receiver = session.receiver("prices")
    browser = session.receiver(BROWSE)
    for each in (receiver, browser):
        with pytest.raises(FetchError, match="a number of seconds"):
            each.fetch(timeout)
    with pytest.raises(FetchError, match="a number of seconds"):
        session.next_receiver(timeout)
    with pytest.raises(SendError, match="a number of seconds"):
        sender.send(Message("x", properties={"ticker": "a"}), timeout=timeout)
    with pytest.raises(SessionError, match="a number of seconds"):
        session.sync(timeout)
    put(sender, "a")
    assert drained(session.receiver("prices")) == ["a.0"]


@pytest.mark.parametrize("disposition", ["released", RELEASED, Disposition(UNLIMITED)])
def test_a_disposition_of_another_kind_settles_nothing(session: Session, sender: Sender, disposition: Any) -> None:
    put(sender, "a")
    receiver = session.receiver("prices")
    message = receiver.fetch(10)
    with pytest.raises(SessionError, match="is not a disposition"):
        session.acknowledge(message, disposition)
    session.acknowledge(message)
    assert drained(receiver) == []


def test_messages_of_an_unreliable_receiver_need_no_acknowledgement(connect: Connect) -> None:
    session = connect().session()
    put(session.sender(KEYED), "a", "b")
    receiver = session.receiver("prices; {link: {reliability: unreliable}}")
    message = receiver.fetch(10)
    assert message.content == "a.0"
    session.acknowledge(message)
    session.connection.close()
    assert drained(connect().session().receiver("prices")) == ["b.1"]


def test_a_program_may_hold_as_many_messages_as_it_likes(session: Session, sender: Sender) -> None:
    put(sender, *(str(number) for number in range(1500)), sync=False)
    sender.sync()
    receiver = session.receiver("prices")
    assert len(drained(receiver)) == 1500
    session.acknowledge()
    assert drained(receiver) == []


# ---------------------------------------------------------------- capacities


def test_the_next_receiver_is_one_with_a_capacity_that_has_a_message(session: Session, sender: Sender) -> None:
    other = session.sender(KEYED.replace("prices", "rates"))
    without, prices, rates = session.receiver("prices"), session.receiver("prices"), session.receiver("rates")
    for timeout in (0, 0.01):
        with pytest.raises(Empty):
            session.next_receiver(timeout)
    prices.capacity, rates.capacity = 10, UNLIMITED
    with pytest.raises(Empty):
        session.next_receiver(0)
    put(other, "a", "b")
    assert session.next_receiver(0) is rates
    put(sender, "c")
    eventually(prices.available)
    assert {session.next_receiver(10), session.next_receiver(10)} == {prices, rates}
    assert (without.available(), prices.available(), rates.available()) == (0, 1, 2)
    rates.capacity = 1
    assert rates.available() == 1
    with ThreadPoolExecutor() as threads:
        drained(prices), drained(rates)
        waiting = threads.submit(session.next_receiver)
        put(sender, "d")
        assert waiting.result(20).fetch(0).content == "d.0"


def test_g13_an_update_counts_once_the_older_value_is_acknowledged(session: Session, sender: Sender) -> None:
    receiver = session.receiver("prices", capacity=5)
    put(sender, "a")
    assert receiver.fetch(10).content == "a.0"
    put(sender, "b", "a")
    assert receiver.fetch(10).content == "b.0"
    assert receiver.available() == 0
    with pytest.raises(Empty):
        session.next_receiver(0)
    session.acknowledge()
    assert session.next_receiver(10) is receiver
    assert drained(receiver) == ["a.1"]


def test_r6_a_message_in_hand_is_the_newest_when_it_is_fetched(
    connect: Connect, session: Session, sender: Sender
) -> None:
    receiver = session.receiver("prices", capacity=5)
    put(sender, "a", "b")
    eventually(lambda: receiver.available() == 2)
    put(sender, "c", "a")
    eventually(lambda: receiver._reads._shared.consumer.stats.positions == {0: 4})  # type: ignore[attr-defined]
    assert receiver.available() == 3
    assert drained(receiver) == ["b.1", "c.0", "a.1"]
    session.acknowledge(disposition=Disposition(RELEASED))
    eventually(receiver.available)
    receiver.close()
    assert drained(connect().session().receiver("prices")) == ["b.1", "c.0", "a.1"]


def test_a_browser_has_its_capacity_in_hand(session: Session, sender: Sender) -> None:
    receiver = session.receiver(BROWSE, capacity=2)
    put(sender, "a", "b", "c")
    eventually(lambda: receiver.available() == 2)
    assert session.next_receiver(0) is receiver
    assert drained(receiver) == ["a.0", "b.1", "c.2"]


def test_a_sender_waits_for_room_in_its_capacity(session: Session, memory_cluster: MemoryCluster) -> None:
    sender = session.sender(KEYED, capacity=2)
    assert (sender.available(), sender.unsettled()) == (2, 0)
    memory_cluster.disconnect()
    put(sender, "a", "b", sync=False)
    assert (sender.available(), sender.unsettled()) == (0, 2)
    with pytest.raises(InsufficientCapacity, match="2 messages are undecided"):
        sender.send(Message("c", properties={"ticker": "c"}), timeout=0.01)
    with pytest.raises(Timeout):
        sender.sync(timeout=0.01)
    with ThreadPoolExecutor() as threads:
        sending = threads.submit(put, sender, "c")
        memory_cluster.reconnect()
        sending.result(20)
    assert (sender.available(), sender.unsettled()) == (2, 0)
    assert len(memory_cluster.records("prices")) == 3
    unlimited = session.sender("prices")
    assert unlimited.available() is UNLIMITED
    none = session.sender("prices", capacity=0)
    with pytest.raises(InsufficientCapacity):
        none.send("x", timeout=0)


# ---------------------------------------------------------------- sending


def test_a_content_alone_is_a_message(session: Session, sender: Sender) -> None:
    sender.send({"a": 1})
    sender.send("text", False)
    session.sync()
    assert drained(session.receiver(BROWSE)) == [{"a": 1}, "text"]


def test_a_message_that_was_not_stored_is_an_error_of_the_send_or_of_the_next_sync(
    session: Session, sender: Sender, memory_cluster: MemoryCluster
) -> None:
    failure = DeliveryFailed("refused", code="_BROKER", retriable=False)
    for sync in (True, False):
        memory_cluster.fail_next("append", failure)
        if not sync:
            put(sender, "a", sync=False)
        with pytest.raises(SendError, match="refused") as caught:
            put(sender, "a") if sync else session.sync()
        assert isinstance(caught.value.__cause__, DeliveryFailed)
        session.sync()
    put(sender, "b")
    assert drained(session.receiver(BROWSE)) == ["b.0"]


def test_r12_a_full_queue_is_an_error_of_its_own(session: Session) -> None:
    limits = "ticker, qpid.max_count: 1, qpid.policy_type: reject"
    sender = session.sender(KEYED.replace("ticker}", f"{limits}}}"))
    put(sender, "a", "a")
    with pytest.raises(TargetCapacityExceeded, match="prices"):
        put(sender, "b")
    assert sender.unsettled() == 0


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("absent", NotFound),
        ("absent; {create: never}", NotFound),
        ("prices; {create: always", MalformedAddress),
        ("prices; {creat: always}", InvalidOption),
        ("prices; {delete: always}", InvalidOption),
        ("#; {create: always}", InvalidOption),
        ("prices; {node: {type: topic}}", InvalidOption),
        ("plain; {create: always}", InvalidOption),
        (KEYED.replace("ticker", "other").replace("create", "assert"), AssertionFailed),
    ],
)  # fmt: skip
def test_an_address_that_leads_nowhere_is_an_error_for_senders_and_receivers(
    session: Session, sender: Sender, address: str, kind: type[MessagingError]
) -> None:
    for link in (session.sender, session.receiver):
        with pytest.raises(kind) as caught:
            link(address)
        assert isinstance(caught.value.__cause__, LVQError)
    assert (session.senders, session.receivers) == ([sender], [])


def test_a_missing_queue_is_created_for_those_whom_the_address_names(session: Session) -> None:
    for_receivers = KEYED.replace("always", "receiver")
    with pytest.raises(NotFound, match="receiver"):
        session.sender(for_receivers)
    assert drained(session.receiver(for_receivers)) == []
    for_senders = KEYED.replace("prices", "rates").replace("always", "sender")
    for browse in ("", "mode: browse, "):
        with pytest.raises(NotFound, match="sender"):
            session.receiver(for_senders.replace("{create", f"{{{browse}create"))
    session.sender(for_senders)


def test_r35_a_queue_without_a_key_keeps_every_message(session: Session) -> None:
    address = "jobs; {create: always, node: {x-declare: {arguments: {conflate: false}}}}"
    sender = session.sender(address)
    for number in range(3):
        sender.send(Message(str(number)))
    assert drained(session.receiver("jobs; {mode: browse}")) == ["0", "1", "2"]
    receiver = session.receiver("jobs")
    assert [receiver.fetch(0).content for _ in range(2)] == ["0", "1"]
    session.acknowledge()
    assert drained(receiver) == ["2"]


def test_r13_a_queue_that_is_never_consumed_is_browsed(session: Session) -> None:
    address = KEYED.replace("ticker}", "ticker, qpid.ensure_nondestructive_consumers: true}").replace("prices", "p2")
    put(session.sender(address), "a")
    for _ in range(2):
        assert drained(session.receiver("p2")) == ["a.0"]
        session.acknowledge()


def test_a_right_that_is_missing_is_an_error_of_its_own(
    session: Session, sender: Sender, memory_cluster: MemoryCluster
) -> None:
    memory_cluster.fail_next("topics.describe", Unauthorized("may not read prices", code="TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(UnauthorizedAccess, match="may not read prices"):
        session.receiver("prices").fetch(10)


# ---------------------------------------------------------------- the end


def test_a_message_can_be_acknowledged_after_its_receiver_was_closed(connect: Connect) -> None:
    session = connect().session()
    put(session.sender(KEYED), "a", "b")
    receiver = session.receiver("prices")
    message = receiver.fetch(10)
    receiver.close()
    receiver.close()
    session.acknowledge(message)
    assert drained(connect().session().receiver("prices")) == ["b.1"], "the queue is free for others, too"


def test_a_use_after_close_says_so(connect: Connect) -> None:
    connection = connect()
    session = connection.session()
    sender, receiver = session.sender(KEYED), session.receiver("prices")
    with ThreadPoolExecutor() as threads:
        fetching = threads.submit(receiver.fetch)
        eventually(lambda: receiver._reads._shared.consumer.stats.partitions)  # type: ignore[attr-defined]
        receiver.close()
        with pytest.raises(LinkClosed):
            fetching.result(20)
    sender.close()
    for use in (lambda: sender.send("x"), lambda: receiver.fetch(0)):
        with pytest.raises(LinkClosed, match="was closed"):
            use()
    assert (session.senders, session.receivers) == ([], [])
    session.close()
    for use in (session.acknowledge, lambda: session.sender(KEYED), lambda: session.next_receiver(0)):
        with pytest.raises(SessionClosed):
            use()
    again = connection.session()
    connection.close()
    with pytest.raises((SessionClosed, Detached)):
        again.receiver("prices")


def test_close_stores_what_was_sent_and_an_error_then_closes_all_the_same(
    connect: Connect, memory_cluster: MemoryCluster
) -> None:
    connection = connect()
    put(connection.session().sender(KEYED), "a", "b", sync=False)
    connection.close()
    assert len(memory_cluster.records("prices")) == 2
    connection.open()
    session = connection.session()
    sender = session.sender("prices")
    memory_cluster.fail_next("append", DeliveryFailed("refused", code="_BROKER", retriable=False))
    put(sender, "c", sync=False)
    with pytest.raises(SendError, match="refused"):
        connection.close()
    assert (connection.opened(), session.closed, sender.closed) == (False, True, True)


def test_a_time_that_is_over_is_a_timeout(session: Session, sender: Sender, memory_cluster: MemoryCluster) -> None:
    receiver = session.receiver("prices")
    put(sender, "a")
    receiver.fetch(10)
    memory_cluster.disconnect()
    session.acknowledge(sync=False)
    assert receiver.unsettled() == 1
    with pytest.raises(Timeout):
        session.sync(timeout=0.01)
    memory_cluster.reconnect()


def test_threads_may_share_a_session(connect: Connect) -> None:
    session = connect().session()
    sender = session.sender(KEYED)
    seen: list[str] = []

    def work(number: int) -> None:
        put(sender, *(f"{number}.{each}" for each in range(10)))
        receiver = session.receiver("prices")
        for content in drained(receiver):
            seen.append(content)  # noqa: PERF402  # several threads append
        session.acknowledge()
        receiver.close()

    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(work, number) for number in range(4)]:
            done.result(60)
    assert len(set(seen)) == len(seen) == 40
