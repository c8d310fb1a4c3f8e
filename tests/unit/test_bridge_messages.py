"""Messages of AMQP 1.0 and their counterparts in a queue, without a client."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from lvq_kafka.bridging.amqp_message import AmqpMessage, decode_message, encode_message
from lvq_kafka.bridging.amqp_values import Malformed, Unsupported, Value, ValueReader, encode_list, encode_scalar
from lvq_kafka.bridging.counterparts import BODY_HEADER, DUPLICATE_ID, FromAmqp, ToAmqp, Unfit
from lvq_kafka.core.facts import Position
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError
from lvq_kafka.producing.producer import Message

NOW = 1_700_000_000.0
AT = Position("prices", 2, 7)

# The bytes of a value of each simple type of AMQP 1.0, and the header that it becomes.
SIMPLE: dict[str, tuple[str, bytes | None]] = {
    "null": ("40", None),
    "true": ("41", b"true"),
    "false": ("42", b"false"),
    "boolean": ("5600", b"false"),
    "ubyte": ("50ff", b"255"),
    "ushort": ("60fffe", b"65534"),
    "uint": ("70fffffffe", b"4294967294"),
    "smalluint": ("52ff", b"255"),
    "uint0": ("43", b"0"),
    "ulong": ("80ffffffffffffffff", b"18446744073709551615"),
    "smallulong": ("53ff", b"255"),
    "ulong0": ("44", b"0"),
    "byte": ("51ff", b"-1"),
    "short": ("618000", b"-32768"),
    "int": ("7180000000", b"-2147483648"),
    "smallint": ("54ff", b"-1"),
    "long": ("818000000000000000", b"-9223372036854775808"),
    "smalllong": ("55ff", b"-1"),
    "float": ("723f000000", b"0.5"),
    "double": ("823fe0000000000000", b"0.5"),
    "char": ("730001f680", "🚀".encode()),
    "timestamp": ("830000018bcfe56800", b"1700000000000"),
    "uuid": ("98" + "ab" * 16, b"abababab-abab-abab-abab-abababababab"),
    "binary": ("a002ff00", b"\xff\x00"),
    "long binary": ("b000000001ff", b"\xff"),
    "string": ("a102c3a9", "é".encode()),
    "long string": ("b10000000161", b"a"),
    "symbol": ("a30161", b"a"),
    "long symbol": ("b30000000161", b"a"),
}
UNSUPPORTED = {
    "decimal32": "7400000000",
    "decimal64": "84" + "00" * 8,
    "decimal128": "94" + "00" * 16,
    "array": "e0040254ffff",
    "described value": "00a3017854ff",
}


def definition(**options: Any) -> QueueDefinition:
    return QueueDefinition(name="prices", topic="prices", **({"key_header": "ticker"} | options))


def headers(message: Message[bytes]) -> dict[str, Any]:
    return dict(message.headers)


def from_amqp(amqp: AmqpMessage, key_property: str | None = None, **options: Any) -> Message[bytes]:
    return FromAmqp(definition(**options), key_property).message(amqp, NOW)


def to_amqp(
    value: bytes = b"1",
    headers: list[tuple[str, bytes | None]] | None = None,
    *,
    key: str = "IBM",
    expires: float | None = None,
    of: dict[str, Any] | None = None,
    **options: Any,
) -> AmqpMessage:
    translation = ToAmqp(definition(**(of or {})), **options)
    return translation.message(key, value, headers or [], expires=expires, position=AT, now=NOW)


def received(section: int, value: bytes) -> AmqpMessage:
    """Return a message that has come in with one section."""
    return decode_message(bytes((0x00, 0x53, section)) + value)


@pytest.mark.parametrize("kind", SIMPLE)
def test_an_application_property_of_each_simple_type_becomes_a_header(kind: str) -> None:
    value, expected = SIMPLE[kind]
    parts = bytes.fromhex("a10161" + value)
    amqp = received(0x74, bytes((0xC1, len(parts) + 1, 2)) + parts)
    assert headers(from_amqp(amqp)) == {"a": expected}


@pytest.mark.parametrize("kind", UNSUPPORTED)
@pytest.mark.parametrize("where", ["property", "body"])
def test_a_value_of_a_type_without_a_counterpart_is_named(kind: str, where: str) -> None:
    value = bytes.fromhex(UNSUPPORTED[kind])
    parts = bytes.fromhex("a10161") + value
    amqp = received(0x77, value) if where == "body" else received(0x74, bytes((0xC1, len(parts) + 1, 2)) + parts)
    with pytest.raises(Unfit, match=f"(its body|the application property 'a') is an? {kind}"):
        from_amqp(amqp)


@pytest.mark.parametrize(
    ("body", "value", "kind"),
    [
        (b"\xff", b"\xff", None),
        (None, b"", None),
        ("é", "é".encode(), "text"),
        ("", b"", "text"),
        (True, b"true", "text"),
        (-5, b"-5", "text"),
        (0.5, b"0.5", "text"),
        ({"a": [1, None, {"b": "c"}], "d": b"e"}, b'{"a":[1,null,{"b":"c"}],"d":"e"}', "map"),
        ([], b"[]", "list"),
        ([UUID(int=0), 1.5, None], b'["00000000-0000-0000-0000-000000000000",1.5,null]', "list"),
    ],
)
def test_a_body_becomes_a_value_and_a_header_says_what_it_was(body: Value, value: bytes, kind: str | None) -> None:
    message = from_amqp(decode_message(encode_message(AmqpMessage(body))))
    assert (message.value, headers(message)) == (value, {} if kind is None else {BODY_HEADER: kind.encode()})


def test_data_sections_and_sequences_are_joined() -> None:
    data = b"".join(b"\x00\x53\x75" + encode_scalar(part) for part in (b"ab", b"c"))
    assert from_amqp(decode_message(data)).value == b"abc"
    lists = b"".join(b"\x00\x53\x76" + encode_list([encode_scalar(part)]) for part in ("ab", "c"))
    assert from_amqp(decode_message(lists)).value == b'["ab","c"]'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"a": b"\xff"}, "a map with binary data that is not UTF-8"),
        ([float("nan")], "a list with a number that JSON lacks"),
        ([[Unsupported("decimal32")]], "a list with a decimal32"),
    ],
)
def test_a_list_or_map_that_json_cannot_hold_is_named(body: Value, why: str) -> None:
    with pytest.raises(Unfit, match=f"its body is {why}"):
        from_amqp(AmqpMessage(body))


def test_a_list_is_read_to_a_depth_only_and_none_overflows_the_stack() -> None:
    value = encode_scalar(None)
    for _ in range(20_000):
        value = encode_list([value])
    with pytest.raises(Unfit, match="its body is a list with a list"):
        from_amqp(received(0x77, value))


def test_a_map_whose_keys_are_no_text_is_named() -> None:
    with pytest.raises(Unfit, match="its body is a map with keys that are not text"):
        from_amqp(received(0x77, bytes.fromhex("c10502" + "5401" + "5402")))


@pytest.mark.parametrize(
    ("application", "key_property", "key"),
    [
        ({"ticker": "IBM"}, None, b"IBM"),
        ({"_AMQ_LVQ_NAME": "IBM"}, None, b"IBM"),
        ({"qpid.LVQ_key": 7}, None, b"7"),
        ({"ticker": "IBM", "qpid.LVQ_key": "MSFT"}, None, b"IBM"),
        ({"ticker": "IBM", "code": "MSFT"}, "code", b"MSFT"),
        ({"ticker": None, "_AMQ_LVQ_NAME": b"\xff"}, None, b"\xff"),
        ({"ticker": UUID(int=0)}, None, str(UUID(int=0)).encode()),
        ({"code": "IBM"}, None, None),
    ],
)
def test_the_key_is_the_property_that_was_named_or_the_key_header_or_the_default_of_artemis_or_qpid(
    application: dict[str, Any], key_property: str | None, key: bytes | None
) -> None:
    translation = FromAmqp(definition(), key_property)
    message = translation.message(AmqpMessage(application=application), NOW)
    assert translation.key_of(message) == key


def test_a_key_that_is_a_fraction_is_named() -> None:
    with pytest.raises(Unfit, match="its key, the application property 'ticker', is of type float"):
        from_amqp(AmqpMessage(application={"ticker": 0.5}))


@pytest.mark.parametrize(
    ("ttl", "expiry", "seconds"),
    [
        (1500, None, 1.5),
        (None, NOW + 2, 2.0),
        (1500, NOW + 1, 1.0),
        (0, None, None),
        (None, 0, None),
        (1500, NOW - 5, 0.001),
        (None, NOW + 101 * 365 * 86_400, None),
    ],
)
def test_r10_a_message_keeps_what_is_left_of_its_time(
    ttl: int | None, expiry: float | None, seconds: float | None
) -> None:
    properties: dict[str, Any] = {} if expiry is None else {"absolute-expiry-time": round(expiry * 1000)}
    message = from_amqp(AmqpMessage(ttl=ttl, properties=properties), ttl=Ttl())
    assert message.ttl == seconds
    assert headers(message) == {}


def test_priority_and_group_go_where_the_queue_has_them() -> None:
    amqp = AmqpMessage(priority=12, properties={"group-id": "desk"})
    message = from_amqp(amqp, order="priority", groups=Groups())
    assert (message.priority, message.group) == (9, "desk")
    back = to_amqp(
        headers=[("lvq-priority", b"7"), (Groups().header, b"desk")], of={"order": "priority", "groups": Groups()}
    )
    assert (back.priority, back.properties, back.application) == (7, {"group-id": "desk"}, {})


@pytest.mark.parametrize("said", [b"9" * 5_000, b"10", b"09", b"-1", b"x", b"", None])
def test_r20_a_priority_that_cannot_be_read_is_none(said: bytes | None) -> None:
    assert to_amqp(headers=[("lvq-priority", said)], of={"order": "priority"}).priority is None


def test_terms_that_a_queue_without_the_option_cannot_carry_are_counted_and_named_once() -> None:
    translation = FromAmqp(definition())
    amqp = AmqpMessage(priority=9, ttl=5, annotations=["x-opt-jms-dest", "x-opt-delivery-time"])
    for _ in range(3):
        translation.message(amqp, NOW)
    assert translation.not_carried == {"ttl": 3, "priority": 3, "annotation x-opt-jms-dest": 3}
    said = "\n".join(translation.pop_warnings())
    assert said.count("messages for prices ") == 3
    assert "`ttl=Ttl()`" in said
    assert '`order="priority"`' in said
    assert translation.pop_warnings() == []


def test_names_of_what_is_not_carried_are_bounded() -> None:
    translation = FromAmqp(definition())
    translation.message(AmqpMessage(annotations=[f"x-{number}" for number in range(1000)]), NOW)
    assert len(translation.not_carried) == 51
    assert translation.not_carried["others"] == 950


def test_a_time_of_delivery_that_the_other_broker_has_kept_to_is_left_out() -> None:
    amqp = AmqpMessage(application={"_AMQ_SCHED_DELIVERY": 1, "x-opt-delivery-delay": 5, "a": "b"})
    assert headers(from_amqp(amqp)) == {"a": b"b"}
    back = to_amqp(headers=[("lvq-not-before", b"1"), ("a", b"b")], of={"max_delay": 60.0})
    assert back.application == {"a": "b"}


PROPERTIES: dict[str, Any] = {
    "message-id": "ID:1",
    "user-id": b"\xff",
    "to": "prices",
    "subject": "quote",
    "reply-to": "answers",
    "correlation-id": "c",
    "content-type": "text/plain",
    "content-encoding": "gzip",
    "creation-time": 1_700_000_000_000,
    "group-sequence": 4,
    "reply-to-group-id": "g",
}


def test_properties_travel_as_headers_and_come_back_as_properties() -> None:
    amqp = decode_message(encode_message(AmqpMessage(properties=PROPERTIES)))
    assert amqp.properties == PROPERTIES
    message = from_amqp(amqp)
    assert headers(message)["amqp-creation-time"] == b"1700000000000"
    assert to_amqp(headers=list(message.headers)).properties == PROPERTIES


@pytest.mark.parametrize("said", [b"007", b"-1", b"x", b"4294967296", b"9" * 5000, b"", None])
def test_a_header_that_only_looks_like_a_property_is_an_application_property(said: bytes | None) -> None:
    back = to_amqp(headers=[("amqp-group-sequence", said)])
    assert back.properties == {}
    assert back.application == {"amqp-group-sequence": None if said is None else said.decode()}


def test_the_key_is_written_into_a_second_property_if_one_is_named() -> None:
    back = to_amqp(headers=[("ticker", b"IBM")], key_property="_AMQ_LVQ_NAME")
    assert back.application == {"ticker": "IBM", "_AMQ_LVQ_NAME": "IBM"}
    assert to_amqp(headers=[("lvq-unkeyed", b"")], key_property="code").application == {}


def test_a_queue_whose_record_key_is_the_key_needs_a_property_for_it() -> None:
    with pytest.raises(ConfigError, match="key_property: Artemis reads _AMQ_LVQ_NAME"):
        to_amqp(of={"key_header": None})


def test_a_message_takes_the_rest_of_its_time_along_and_the_ttl_only_where_it_fits() -> None:
    back = to_amqp(expires=NOW + 1.5)
    assert (back.ttl, back.properties) == (1500, {"absolute-expiry-time": round(NOW * 1000) + 1500})
    long = to_amqp(expires=NOW + 100 * 86_400)
    assert (long.ttl, list(long.properties)) == (None, ["absolute-expiry-time"])
    assert to_amqp(expires=NOW - 1).ttl == 1


def test_values_are_binary_unless_text_was_asked_for_or_the_header_says_more() -> None:
    assert to_amqp(b"a").body == b"a"
    assert to_amqp(b"a", text=True).body == "a"
    assert to_amqp(b"a", [(BODY_HEADER, b"text")]).body == "a"
    assert to_amqp(b'{"a":[1]}', [(BODY_HEADER, b"map")], text=True).body == {"a": [1]}
    assert to_amqp(b"a", [(BODY_HEADER, b"surprise")]).body == b"a"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"\xff", b"text"),
        (b"[]", b"map"),
        (b"{", b"map"),
        (b"[18446744073709551616]", b"list"),
        (b"[" * 40 + b"]" * 40, b"list"),
        (b"[" * 100_000, b"list"),
        (rb'["\ud800"]', b"list"),
        (rb'{"a": {"\udfff": 1}}', b"map"),
    ],
)
def test_a_value_that_is_not_what_its_header_says_is_named(value: bytes, kind: bytes) -> None:
    with pytest.raises(Unfit, match=f"its value is no {kind.decode()}: "):
        to_amqp(value, [(BODY_HEADER, kind)])


def test_an_id_for_artemis_names_topic_partition_and_offset() -> None:
    assert to_amqp(duplicate_ids="topic-id").application == {DUPLICATE_ID: "topic-id/2/7"}


@pytest.mark.parametrize(
    "data",
    ["", "00", "0053", "005377", "005399" + "40", "40", "0041", "005375" + "a101", "005374c103", "005377e1"],
)
def test_bytes_that_are_no_message_are_malformed(data: str) -> None:
    if not data:
        assert decode_message(b"").body is None
        return
    with pytest.raises(Malformed):
        decode_message(bytes.fromhex(data))


def test_a_count_that_lies_costs_no_more_than_its_bytes() -> None:
    with pytest.raises(Malformed):
        ValueReader(bytes.fromhex("d0" + "00000005" + "ffffffff" + "40")).value()
