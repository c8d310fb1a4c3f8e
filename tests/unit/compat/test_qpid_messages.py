"""Messages of ``qpid.messaging``: what they are in the log, and what comes out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.compat.qpid_messaging import (
    REJECTED,
    UNLIMITED,
    Connection,
    ContentError,
    DecodeError,
    Disposition,
    Empty,
    EncodeError,
    Message,
    SendError,
    Session,
)
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock

KEYED = "prices; {create: always, node: {x-declare: {arguments: {qpid.last_value_queue_key: ticker}}}}"
ID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> MemoryCluster:
    return MemoryCluster(clock=clock)


@pytest.fixture
def session(cluster: MemoryCluster) -> Iterator[Session]:
    connection = Connection("localhost", cluster=cluster)
    connection.open()
    yield connection.session()
    connection.close()


def passed_on(session: Session, message: object, address: str = KEYED) -> Message:
    """Send a message, and return what a browser and a consumer receive, which is the same."""
    session.sender(address).send(message)
    browser = session.receiver(f"{address.partition(';')[0]}; {{mode: browse}}")
    browsed, consumed = browser.fetch(0), session.receiver(address).fetch(10)
    session.acknowledge()
    assert repr(browsed) == repr(consumed)
    assert vars(browsed) == vars(consumed)
    return consumed


@pytest.mark.parametrize(
    ("content", "content_type", "stored"),
    [
        ("Grüße", "text/plain", "Grüße".encode()),
        (b"\xff\x00", None, b"\xff\x00"),
        (b"", None, b""),
        ({"bid": 1.5, "sizes": [1, 2], "note": None, "ok": True}, "amqp/map",
         b'{"bid":1.5,"sizes":[1,2],"note":null,"ok":true}'),
        (["a", {"b": 2**40}], "amqp/list", b'["a",{"b":1099511627776}]'),
    ],
)  # fmt: skip
def test_a_content_comes_out_as_it_was_sent_and_is_readable_by_others(
    session: Session, cluster: MemoryCluster, content: Any, content_type: str | None, stored: bytes
) -> None:
    received = passed_on(session, content)
    assert (received.content, received.content_type) == (content, content_type)
    assert type(received.content) is type(content)
    assert cluster.records("prices")[0].value == stored


def test_a_message_without_a_content_does_not_delete_its_key(session: Session, cluster: MemoryCluster) -> None:
    assert passed_on(session, Message(properties={"ticker": "IBM"})).content == b""
    assert passed_on(session, Message(content_type="text/plain", properties={"ticker": "IBM"})).content == ""
    assert [record.value for record in cluster.records("prices")] == [b"", b""]


def test_text_of_another_type_is_text_again_and_anything_else_is_bytes(session: Session) -> None:
    assert passed_on(session, Message("<a/>", content_type="text/xml")).content == "<a/>"
    assert passed_on(session, Message("<a/>", content_type="application/xml")).content == b"<a/>"
    assert passed_on(session, Message(bytearray(b"ab"))).content == b"ab"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("text", b"text"), ("", b""), (7, b"7"), (-1, b"-1"), (1.25, b"1.25"), (True, b"true"), (False, b"false"),
        (None, None), (b"bytes", b"bytes"), (b"\xff", b"\xff"), (ID, str(ID).encode()), ([1, "a"], b'[1,"a"]'),
        ({"a": {"b": None}}, b'{"a":{"b":null}}'), (2**70, b"%d" % 2**70),
    ],
)  # fmt: skip
def test_a_property_keeps_its_type_and_others_read_it_as_text(
    session: Session, cluster: MemoryCluster, value: object, stored: bytes | None
) -> None:
    received = passed_on(session, Message("x", properties={"ticker": "IBM", "said": value}))
    assert received.properties == {"ticker": "IBM", "said": value}
    assert type(received.properties["said"]) is type(value)
    assert dict(cluster.records("prices")[0].headers)["said"] == stored


def test_r2_a_key_of_any_type_is_the_key_of_its_text(session: Session, cluster: MemoryCluster) -> None:
    sender = session.sender(KEYED)
    for key in (1, "1", b"1"):
        sender.send(Message(str(key), properties={"ticker": key}))
    receiver = session.receiver("prices; {mode: browse}")
    assert receiver.fetch(0).properties == {"ticker": b"1"}
    with pytest.raises(Empty):
        receiver.fetch(0)
    for key in (1.5, {"a": 1}, ID):
        with pytest.raises(EncodeError, match="ticker"):
            sender.send(Message("x", properties={"ticker": key}))


def test_the_fields_of_a_message_come_out_as_they_were_sent(session: Session, cluster: MemoryCluster) -> None:
    fields = {"id": "m1", "subject": "s", "user_id": "alice", "reply_to": "answers", "correlation_id": "m0"}
    received = passed_on(session, Message("x", **fields, priority=7, durable=False, properties={"ticker": "IBM"}))
    assert {name: getattr(received, name) for name in fields} == fields
    assert (received.priority, received.durable, received.redelivered, received.ttl) == (7, True, False, None)
    assert received.properties == {"ticker": "IBM", "qpid.subject": "s"}
    assert dict(cluster.records("prices")[0].headers) == {
        "ticker": b"IBM",
        "qpid.subject": b"s",
        "amqp-message-id": b"m1",
        "amqp-user-id": b"alice",
        "amqp-reply-to": b"answers",
        "amqp-correlation-id": b"m0",
        "amqp-content-type": b"text/plain",
        "amqp-priority": b"7",
    }


def test_a_message_that_was_received_can_be_sent_again(session: Session) -> None:
    message = Message("x", subject="s", id=ID, properties={"ticker": "IBM", "n": 1})
    once = passed_on(session, message)
    twice = passed_on(session, once)
    assert vars(once) == vars(twice)
    assert twice.id == str(ID)


def test_the_subject_of_a_message_counts_more_than_that_of_its_address_or_its_properties(session: Session) -> None:
    address = KEYED.replace("prices", "prices/usual")
    sender = session.sender(address)
    for message in (Message(), Message(subject="own"), Message(properties={"qpid.subject": "in properties"})):
        message.properties["ticker"] = "IBM"
        sender.send(message)
        received = session.receiver("prices; {mode: browse}").fetch(0)
        expected = message.subject or "usual"
        assert (received.subject, received.properties["qpid.subject"]) == (expected, expected)


def test_r20_a_priority_orders_a_queue_that_has_priorities(session: Session) -> None:
    address = "jobs; {create: always, node: {x-declare: {arguments: {qpid.last_value_queue_key: id, order: priority}}}}"
    sender = session.sender(address)
    for priority in (1, None, 9):
        sender.send(Message(str(priority), priority=priority, properties={"id": str(priority)}))
    receiver = session.receiver("jobs")
    received = [receiver.fetch(0) for _ in range(3)]
    assert [(message.content, message.priority) for message in received] == [("9", 9), ("None", None), ("1", 1)]
    with pytest.raises(SendError, match="priority"):
        sender.send(Message("x", priority=10, properties={"id": "x"}))


def test_r10_a_ttl_ends_a_message_and_shows_what_is_left_of_it(session: Session, clock: Clock) -> None:
    address = KEYED.replace("ticker}", "ticker, ttl: true}")
    sender = session.sender(address)
    for ttl in (60, 120.5, None, 0):
        sender.send(Message(str(ttl), ttl=ttl, properties={"ticker": str(ttl)}))
    clock.now += 20
    receivers = [session.receiver("prices; {mode: browse}"), session.receiver("prices")]
    for receiver in receivers:
        left = {message.content: message.ttl for message in (receiver.fetch(10) for _ in range(4))}
        assert left == {"60": 40, "120.5": 100.5, "None": None, "0": None}
    session.close()
    clock.now += 50
    again = session.connection.session().receiver("prices")
    assert sorted(again.fetch(10).content for _ in range(3)) == ["0", "120.5", "None"]


def test_r22_a_ttl_that_would_have_no_effect_is_refused_with_the_word_that_gives_it_one(session: Session) -> None:
    with pytest.raises(SendError, match=r"R22.*ttl: true among the arguments of x-declare"):
        session.sender(KEYED).send(Message("x", ttl=5, properties={"ticker": "IBM"}))
    with pytest.raises(SendError, match="ttl"):
        session.sender(KEYED.replace("prices", "p2").replace("ticker}", "ticker, ttl: true}")).send(Message(ttl=-1))


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (lambda: Message(5), "int"),
        (lambda: Message({1, 2}), "set"),
        (lambda: Message({"a": b"bytes"}), "bytes"),
        (lambda: Message([float("nan")]), "JSON"),
        (lambda: Message({"a": 1}, content_type="application/json"), "json.dumps"),
        (lambda: Message("\ud800"), "UTF-8"),
        (lambda: Message(properties={"n": {1}}), "set"),
        (lambda: Message(properties={"n": [{1}]}), "JSON"),
        (lambda: Message(properties={"amqp-message-id": "1"}), "amqp-message-id"),
        (lambda: Message(properties={"a\0": "1"}), "NUL"),
        (lambda: Message(properties={"a": 10**5_000}), "digits"),
        (lambda: Message(properties={"ticker": 10**5_000}), "digits"),
        (lambda: Message(properties={1: "a"}), "1 is not the name of a property"),
        (lambda: Message(properties=["a"]), "properties"),
        (lambda: Message(subject=object()), "subject"),
    ],
)  # fmt: skip
def test_a_message_without_a_wire_form_is_refused_and_others_are_not_affected(
    session: Session, cluster: MemoryCluster, message: Any, says: str
) -> None:
    sender = session.sender(KEYED)
    with pytest.raises(ContentError, match=says):
        sender.send(message())
    assert sender.unsettled() == 0
    sender.send(Message("x", properties={"ticker": "IBM"}))
    assert [record.value for record in cluster.records("prices")] == [b"x"]


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b"\xff", b"text/plain"),
        (b"{", b"amqp/map"),
        (b"[]", b"amqp/map"),
        (b"{}", b"amqp/list"),
        (b"[NaN]", b"amqp/list"),
    ],
)
def test_a_content_that_is_not_what_it_says_stays_in_the_queue_and_others_go_on(
    session: Session, cluster: MemoryCluster, value: bytes, content_type: bytes
) -> None:
    sender = session.sender(KEYED)
    cluster.write("prices", b"bad", value, [("ticker", b"bad"), ("amqp-content-type", content_type)])
    sender.send(Message("good", properties={"ticker": "good"}))
    for address in ("prices; {mode: browse}", "prices"):
        receiver = session.receiver(address)
        with pytest.raises(DecodeError, match=content_type.decode()):
            receiver.fetch(10)
        assert receiver.fetch(10).content == "good"
        session.acknowledge()
        with pytest.raises(Empty):
            receiver.fetch(0)
        receiver.close()
    with LastValueQueue.open("prices", cluster=cluster).consumer() as consumer:
        delivery = consumer.acquire(10)
        assert delivery is not None
        assert delivery.raw == value


def test_a_message_of_another_client_has_text_and_bytes(session: Session, cluster: MemoryCluster) -> None:
    session.sender(KEYED)
    headers = [("ticker", b"IBM"), ("price", b"1.5"), ("raw", b"\xff"), ("price", b"2.5"), ("none", None)]
    cluster.write("prices", b"IBM", b"119", headers)
    received = session.receiver("prices").fetch(10)
    assert received.properties == {"ticker": "IBM", "price": "2.5", "raw": b"\xff", "none": None}
    assert (received.content, received.content_type, received.subject) == (b"119", None, None)


@pytest.mark.parametrize(
    "types", [b"{", b"\xff", b"[]", b'"x"', b'{"price":"decimal"}', b'{"price":1}', b'{"price":"int"}',
              b'{"price":"bool"}', b'{"price":"uuid"}', b'{"price":"json"}', b"[" * 10_000]
)  # fmt: skip
def test_types_that_make_no_sense_leave_text(session: Session, cluster: MemoryCluster, types: bytes) -> None:
    session.sender(KEYED)
    cluster.write("prices", b"IBM", b"", [("ticker", b"IBM"), ("price", b"1:5"), ("amqp-property-types", types)])
    assert session.receiver("prices").fetch(10).properties == {"ticker": "IBM", "price": "1:5"}


def test_a_message_shows_what_is_set() -> None:
    assert repr(Message()) == "Message()"
    assert repr(Message("x")) == "Message('x')"
    assert (
        repr(Message("x", subject="s", properties={"a": 1})) == "Message(subject='s', properties={'a': 1}, content='x')"
    )
    assert repr(Message("x", content_type="text/xml")) == "Message(content_type='text/xml', content='x')"
    assert repr(Message(content_type="text/plain")) == "Message(content_type='text/plain')"
    assert repr(Disposition(REJECTED, text="no")) == "Disposition(REJECTED, text='no')"
    assert repr(UNLIMITED) == "UNLIMITED"
