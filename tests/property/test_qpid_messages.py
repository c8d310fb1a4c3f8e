"""Messages of ``qpid.messaging``: what is sent comes out as it was, and any record has an answer."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.compat.qpid_messaging import DecodeError, EncodeError, Message
from lvq_kafka.compat.qpid_messaging.translation import TYPES_HEADER, from_record, to_queue_message
from lvq_kafka.core.log.keys import encode_header
from lvq_kafka.core.queue.definition import QueueDefinition
from tests.effort import examples

QUEUE = QueueDefinition(name="q", topic="q", key_header="key")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
maps, lists = st.dictionaries(texts, documents, max_size=3), st.lists(documents, max_size=3)
contents = st.one_of(texts, st.binary(max_size=8), maps, lists)
property_values = st.one_of(scalars, st.floats(allow_nan=False), st.binary(max_size=8), st.uuids(), maps, lists)
names = texts.filter(lambda name: name and "\0" not in name and not name.startswith(("amqp-", "lvq-", "qpid.")))


def stored(message: Message) -> tuple[bytes, list[tuple[str, bytes | None]]]:
    """Return the value and headers that a producer writes."""
    sent = to_queue_message(message, QUEUE)
    pairs: Any = sent.headers
    return sent.value, [(name, None if said is None else encode_header(said)) for name, said in pairs]


def received(value: bytes, headers: list[tuple[str, bytes | None]]) -> Message:
    return from_record(value, tuple(headers), expires=None, now=0.0, redelivered=False)


def told(message: Message) -> str:
    """Return all that a message has, with the types."""
    return repr({**vars(message), "durable": None, "properties": sorted(message.properties.items())})


@settings(max_examples=examples(300))
@given(
    contents,
    st.dictionaries(names, property_values, max_size=4),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "user_id", "reply_to", "correlation_id"), texts)),
    st.none() | st.integers(0, 9),
)
def test_a_message_comes_out_of_the_log_as_it_was_sent(
    content: Any, properties: dict[str, Any], fields: dict[str, str], priority: int | None
) -> None:
    message = Message(content, properties={"key": "k", **properties}, priority=priority, **fields)
    assert told(received(*stored(message))) == told(message)


hostile = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"9" * 5000, b"[" * 600, b'{"a":1e999}']))
headers = st.lists(
    st.tuples(
        st.sampled_from(
            ["key", "n", TYPES_HEADER, "amqp-content-type", "amqp-priority", "lvq-priority", "qpid.subject"]
        )
        | texts,
        hostile
        | st.sampled_from([b"text/plain", b"amqp/map", b"amqp/list"])
        | st.dictionaries(st.just("n"), st.sampled_from(["int", "float", "bool", "uuid", "json", "bytes", 1])).map(
            lambda types: repr(types).replace("'", '"').encode()
        ),
    ),
    max_size=6,
)


@settings(max_examples=examples(500))
@given(hostile.map(lambda value: value or b""), headers)
def test_any_record_is_a_message_or_an_error_of_its_content_and_a_message_can_be_sent_again(
    value: bytes, headers: list[tuple[str, bytes | None]]
) -> None:
    try:
        message = received(value, headers)
    except DecodeError:
        return
    assert set(message.properties) <= {name for name, _ in headers}
    try:
        again = received(*stored(message))
    except EncodeError:  # a number beyond what JSON has
        return
    assert told(again) == told(message)
