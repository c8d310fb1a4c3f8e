"""Configuration files of brokers: queues, settings, and all that is refused."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lvq_kafka.core.queue.settings_by_pattern import by_pattern
from lvq_kafka.dialects.broker_files import parse_broker_file
from lvq_kafka.errors import ConfigError

BROKER_XML = b"""<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns="urn:activemq" xmlns:xi="http://www.w3.org/2001/XInclude">
  <core xmlns="urn:activemq:core">
    <name>0.0.0.0</name>
    <acceptors><acceptor name="artemis">tcp://0.0.0.0:61616</acceptor></acceptors>
    <address-settings>
      <address-setting match="#">
        <expiry-address>ExpiryQueue</expiry-address>
        <max-size-bytes>-1</max-size-bytes>
        <address-full-policy>PAGE</address-full-policy>
        <auto-create-queues>true</auto-create-queues>
      </address-setting>
      <address-setting match="lastValueQueue">
        <default-last-value-key>reuters_code</default-last-value-key>
        <default-non-destructive>true</default-non-destructive>
        <redelivery-delay>5000</redelivery-delay>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue" /></anycast></address>
      <address name="foo.bar">
        <multicast>
          <queue name="orders1" last-value-key="reuters_code" non-destructive="true">
            <filter string="exchange = 'NYSE'"/>
            <durable>true</durable>
          </queue>
          <queue name="orders2" last-value="true" exclusive="true" />
        </multicast>
      </address>
    </addresses>
    <diverts><divert name="copies"><address>a</address></divert></diverts>
  </core>
</configuration>
"""


def test_a_broker_xml_has_settings_and_queues_and_what_cannot_be_had() -> None:
    file = parse_broker_file(BROKER_XML)
    assert by_pattern(file.settings) == {
        "#": {"expiry-address": "ExpiryQueue", "max-size-bytes": "-1", "address-full-policy": "PAGE"},
        "lastValueQueue": {"default-last-value-key": "reuters_code", "default-non-destructive": "true"},
    }
    assert [(queue.queue, queue.topic, dict(queue.options)) for queue in file.queues] == [
        ("ExpiryQueue", None, {}),
        (
            "orders1",
            "foo.bar",
            {"last-value-key": "reuters_code", "non-destructive": "true", "selector": "exchange = 'NYSE'"},
        ),
    ]
    assert [part.where for part in file.left_out] == [
        "line 16, address-setting lastValueQueue",
        "line 27, queue orders2",
        "line 31, divert copies",
    ]
    assert "exclusive='true' is not possible here" in file.left_out[1].reason
    assert file.unread == ["acceptors"]


def test_wildcards_of_the_files_own_are_translated() -> None:
    wildcards = "<wildcard-addresses><delimiter>_</delimiter><any-words>&gt;</any-words></wildcard-addresses>"
    setting = "<address-settings><address-setting match='a_>'><max-expiry-delay>5</max-expiry-delay></address-setting>"
    file = parse_broker_file(f"<core>{wildcards}{setting}</address-settings></core>".encode())
    (found,) = file.settings
    assert (found.pattern.text, found.pattern.delimiter) == ("a_#", "_")


def test_a_delimiter_that_no_topic_has_is_left_out() -> None:
    wildcards = "<wildcard-addresses><delimiter>/</delimiter></wildcard-addresses>"
    setting = "<address-settings><address-setting match='a/#'><max-expiry-delay>5</max-expiry-delay></address-setting>"
    file = parse_broker_file(f"<core>{wildcards}{setting}</address-settings></core>".encode())
    assert not file.settings
    assert "which no topic's name has" in file.left_out[0].reason


def test_attributes_in_json_are_one_queue_or_several() -> None:
    prices = {"name": "prices", "type": "lvq", "lvqKey": "ticker"}
    assert [queue.queue for queue in parse_broker_file(json.dumps(prices).encode()).queues] == ["prices"]
    file = parse_broker_file(json.dumps([prices, {"name": "q", "exclusive": "LINK"}, 5]).encode())
    assert [queue.queue for queue in file.queues] == ["prices"]
    assert [part.where for part in file.left_out] == ["queue q", "queue number 3"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Line 1 of the file: no element found"),
        (b"<a>", "Line 1 of the file"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<a>&x;</a>', "declares a type"),
        (b"<a>" * 100 + b"</a>" * 100, "nested more than 64 deep"),
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', "encoding"),
        (b"[1, 2", "not JSON"),
        (b'{"name": 5}', "need the name of the queue"),
        (b'[{"name": "a", "lvqKey": "k", "name": "b"}]', "it names 'name' twice"),
        (b'{"name": "a", "context": {}, "name": "b"}', "name is given twice"),
        (b"[]", "describes no queue, and no setting"),
        (b"<a/>", "describes no queue, and no setting"),
        (b"<project><build>a<b/></build></project>", "describes no queue, and no setting; it is about project"),
        (b"x" * 4_000_001, "4,000,000 are allowed"),
    ],
)
def test_a_file_of_another_kind_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_broker_file(content)


NAMES = st.sampled_from(["core", "addresses", "address", "queue", "multicast", "address-settings", "address-setting"])
XML = st.recursive(
    st.text(max_size=5).map(lambda text: text.replace("<", "").replace("&", "")),
    lambda inner: st.builds(
        lambda name, attribute, value, parts: f'<{name} {attribute}="{value}">{"".join(parts)}</{name}>',
        NAMES | st.sampled_from(["last-value-key", "filter", "max-size-bytes"]),
        st.sampled_from(["name", "match", "last-value-key", "string"]),
        st.text("a.#*>1-", max_size=6),
        st.lists(inner, max_size=3),
    ),
    max_leaves=12,
)


@given(XML)
@example("<core><addresses><address><queue/></address></addresses></core>")
def test_any_xml_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        parse_broker_file(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(ConfigError):
        parse_broker_file(content)
