"""Random messages through the bridge and back, and random bytes in place of messages."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.bridging.amqp_message import PROPERTIES, AmqpMessage, decode_message, encode_message
from lvq_kafka.bridging.amqp_values import Malformed, Value
from lvq_kafka.bridging.counterparts import FromAmqp, ToAmqp, Unfit
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import encode_header
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.timing.ttl import Ttl
from tests.effort import examples

QUEUE = QueueDefinition(
    name="prices", topic="prices", key_header="ticker", ttl=Ttl(), order="priority", groups=Groups()
)
NOW = 1_700_000_000.0
AT = Position("prices", 0, 0)
LONG = st.integers(-(2**63), 2**63 - 1)

texts = st.text(st.characters(codec="utf-8"), max_size=300)
binary = st.binary(max_size=300).filter(lambda data: not _is_text(data))
names = st.text(st.sampled_from("abc.é_"), min_size=1, max_size=6)
json_scalars = st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | texts
compound = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
).filter(lambda value: isinstance(value, list | dict))
bodies: st.SearchStrategy[Value] = st.binary(max_size=300) | texts | compound
ascii_texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
of_property = {
    "user-id": st.binary(max_size=20),
    "content-type": ascii_texts,
    "content-encoding": ascii_texts,
    "absolute-expiry-time": st.integers(round(NOW * 1000) + 1, round(NOW * 1000) + 10**12),
    "creation-time": st.integers(0, 2**63 - 1),
    "group-id": texts.filter(bool),
    "group-sequence": st.integers(0, 2**32 - 1),
}
messages = st.builds(
    AmqpMessage,
    body=bodies,
    priority=st.integers(0, 9) | st.none(),
    ttl=st.integers(0, 2**32 - 1) | st.none(),
    properties=st.fixed_dictionaries({}, optional={name: of_property.get(name, texts) for name in PROPERTIES}),
    application=st.dictionaries(names, texts | binary | st.none(), max_size=4),
)


def _is_text(data: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        data.decode()
        return True
    return False


@settings(max_examples=examples(300), deadline=None)
@given(messages)
def test_a_message_is_read_as_it_was_written(amqp: AmqpMessage) -> None:
    assert decode_message(encode_message(amqp)) == amqp


@settings(max_examples=examples(300), deadline=None)
@given(messages)
def test_a_message_that_goes_through_a_queue_comes_back_with_all_that_has_a_type_here(amqp: AmqpMessage) -> None:
    message = FromAmqp(QUEUE).message(decode_message(encode_message(amqp)), NOW)
    headers = [(name, None if value is None else encode_header(value)) for name, value in message.headers]
    if message.priority is not None:
        headers.append(("lvq-priority", b"%d" % message.priority))
    if message.group is not None:
        headers.append((Groups().header, message.group.encode()))
    expires = None if message.ttl is None else NOW + message.ttl
    assert isinstance(message.value, bytes)
    back = decode_message(
        encode_message(ToAmqp(QUEUE).message("IBM", message.value, headers, expires=expires, position=AT, now=NOW))
    )
    assert back.body == amqp.body
    assert back.application == amqp.application
    assert (4 if back.priority is None else back.priority) == (4 if amqp.priority is None else amqp.priority)
    terms = ("absolute-expiry-time",)
    assert _without(back.properties, terms) == _without(amqp.properties, terms)
    left = [time for time in (amqp.ttl, amqp.properties.get("absolute-expiry-time", 0)) if time]
    assert (expires is not None) == bool(left)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200), messages, st.data())
def test_bytes_are_a_message_or_malformed_and_a_message_has_a_counterpart_or_is_unfit(
    noise: bytes, amqp: AmqpMessage, data: st.DataObject
) -> None:
    whole = encode_message(amqp)
    at = data.draw(st.integers(0, len(whole)))
    for damaged in (noise, whole[:at], whole[:at] + noise[:3] + whole[at + 3 :]):
        with suppress(Malformed, Unfit):
            message = FromAmqp(QUEUE).message(decode_message(damaged), NOW)
            assert isinstance(message.value, bytes)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.binary(max_size=40) | compound.map(lambda value: json.dumps(value).encode()),
    st.lists(
        st.tuples(
            st.sampled_from(["amqp-body", "a", "lvq-priority", *(f"amqp-{name}" for name in PROPERTIES)]),
            st.none() | st.binary(max_size=12) | st.sampled_from([b"text", b"list", b"map", b"12"]),
        ),
        max_size=6,
    ),
)
def test_any_record_becomes_a_message_or_is_unfit(value: bytes, headers: list[tuple[str, Any]]) -> None:
    with suppress(Unfit):
        amqp = ToAmqp(QUEUE).message("IBM", value, headers, expires=None, position=AT, now=NOW)
        assert decode_message(encode_message(amqp)) == amqp


def _without(properties: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if name not in names}
