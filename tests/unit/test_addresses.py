"""Addresses of Qpid, Artemis and Broker-J: what each part means, and errors that say where they are in the text."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

from lvq_kafka import DefaultFilters, Limits, Ttl
from lvq_kafka.dialects.address import Address
from lvq_kafka.dialects.address_forms import parse_address
from lvq_kafka.errors import ConfigError

OF_THE_DOCUMENTS = [
    "prices;{create:always, node:{type:queue, x-declare:{arguments:{'qpid.last_value_queue_key':'ticker'}}}}",
    "prices;{create:always, node:{type:queue,x-declare:{arguments:{'qpid.last_value_queue_key':ticker}}}}",
    "myqueue : { link : { x-subscribe: { arguments : { x-qpid-replay-period : '3600' } } } }",
    "direct://amq.direct/myqueue/myqueue?x-qpid-replay-period='3600'",
    "my.destination.name?last-value-key=reuters_code",
    "my.destination.name?last-value-key=reuters_code&non-destructive=true",
    '{"name": "prices", "type": "lvq", "lvqKey": "ticker"}',
    '{"name": "q", "lvqKey": "k", "defaultFilters": {"x-qpid-replay-period": {"x-qpid-replay-period": ["60"]}}}',
]


def place(error: ConfigError) -> tuple[int, str]:
    """Return the column that an error names, and the character that its caret is at."""
    lines = str(error).splitlines()
    (caret,) = (number for number, line in enumerate(lines) if line.strip() == "^")
    named = re.search(r"[Cc]olumn ([\d,]+)", str(error))
    assert named is not None
    return int(named[1].replace(",", "")), f"{lines[caret - 1]} "[lines[caret].index("^")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prices", Address(queue="prices")),
        ("prices;{mode: browse}", Address(queue="prices", mode="browse")),
        ("ADDR:prices; {assert: sender}", Address(queue="prices", check="sender")),
        ("prices ; { }", Address(queue="prices")),
        ("'prices';{create:'receiver'}", Address(queue="prices", create="receiver")),
        ("prices;{create: ALWAYS, delete: never}", Address(queue="prices", create="always")),
        ("prices/IBM", Address(queue="prices", subject="IBM")),
        ("prices/a b/c ; {mode: consume}", Address(queue="prices", subject="a b/c", mode="consume")),
        ("prices/'a;b\\''", Address(queue="prices", subject="a;b'")),
        ("foo.bar::orders1;{}", Address(queue="orders1", topic="foo.bar")),
        ("prices;{node:{durable:True, type:queue}}", Address(queue="prices")),
        ("prices;{node:{x-declare:{durable:false,exclusive:False,auto-delete:'no'}}}", Address(queue="prices")),
        ("prices;{link:{selector:\"a = 'b'\"}}", Address(queue="prices", selector="a = 'b'")),
        ("p;{link:{x-subscribe:{arguments:{x-apache-selector:'a = 1'}}}}", Address(queue="p", selector="a = 1")),
        (
            "p;{link:{filter:[{name:f, descriptor:'apache.org:selector-filter:string', value:'a = 1'}]}}",
            Address(queue="p", selector="a = 1"),
        ),
        ("p;{link:{name:mine,durable:true,reliability:unreliable}}", Address(queue="p", reliability="unreliable")),
        ("direct://amq.direct/q/q?browse='true'", Address(queue="q", mode="browse")),
        ("BURL:direct:////q?durable='true'&exclusive='false'", Address(queue="q")),
        ("direct://amq.direct/q?routingkey='q'", Address(queue="q")),
        ("direct:////q?x-filter-jms-selector='a%20%3D%201'", Address(queue="q", selector="a = 1")),
        ("queue://orders", Address(queue="orders", create="always", mode="consume")),
        ("topic://orders", Address(queue="orders", create="always", mode="browse")),
        ("foo.bar::o", Address(queue="o", topic="foo.bar", create="always")),
        ("topic://foo.bar::o", Address(queue="o", topic="foo.bar", create="always", mode="consume")),
        ("orders?routing-type=MULTICAST", Address(queue="orders", create="always", mode="browse")),
        ("orders?durable=true&auto-delete=false&max-consumers=-1", Address(queue="orders", create="always")),
        ("a name", Address(queue="a name")),
        ("", Address(queue="")),
    ],
)
def test_an_address_says(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", OF_THE_DOCUMENTS)
def test_an_address_of_the_documents_is_what_it_is_when_it_is_written_and_read_again(text: str) -> None:
    address = parse_address(text)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (OF_THE_DOCUMENTS[0], {"key_header": "ticker"}),
        (OF_THE_DOCUMENTS[1], {"key_header": "ticker"}),
        (OF_THE_DOCUMENTS[5], {"key_header": "reuters_code", "non_destructive": True}),
        (OF_THE_DOCUMENTS[6], {"key_header": "ticker"}),
        (OF_THE_DOCUMENTS[7], {"key_header": "k", "default_filters": DefaultFilters(replay_period=60)}),
        ("q?last-value-key=a&filter=price%20%3E%20100", {"selector": "price > 100"}),
        ("q?last-value-key=a+b", {"key_header": "a b"}),
        ("q;{node:{x-declare:{arguments:{lvqKey:007, qpid.max_count:0050}}}}", {"key_header": "007"}),
        ("q;{node:{x-declare:{arguments:{lvqKey:7, qpid.max_size:1e3}}}}", {"key_header": "7"}),
        ("q?last-value-key=a&ring-size=5", {"limits": Limits(messages=5, policy="ring")}),
        ('{"name": "q", "lvqKey": "k", "maximumMessageTtl": 60000}', {"ttl": Ttl(maximum=60.0)}),
        (
            '{"name": "q", "lvqKey": "k", "maximumQueueDepthMessages": 9, "overflowPolicy": "PRODUCER_FLOW_CONTROL", '
            '"context": {"queue.queueFlowResumeLimit": 70}, "exclusive": "NONE", "lifetimePolicy": "PERMANENT", '
            '"durable": true, "alternateBinding": null}',
            {"limits": Limits(messages=9, policy="block", resume=0.7)},
        ),
        ('{"name": "q", "type": "sorted", "sortKey": "s"}', {"order": "sorted", "sort_header": "s", "conflate": False}),
        ("my.destination.name?last-value=true", {"key_header": "_AMQ_LVQ_NAME", "order": "tail"}),
        (
            "p;{node:{x-declare:{arguments:{'qpid.last_value_queue':1}}}}",
            {"key_header": "qpid.LVQ_key", "order": "in-place"},
        ),
        ("q?last-value-key=a&max-size-bytes=-1&address-full-policy=PAGE", {"limits": None}),
        ("foo.bar::orders1?last-value-key=a", {"topic": "foo.bar", "name": "orders1"}),
    ],
)
def test_an_address_defines_the_queue(text: str, options: dict[str, Any]) -> None:
    definition = parse_address(text).definition()
    assert {name: getattr(definition, name) for name in options} == options


def test_a_replay_period_that_is_text_is_a_number() -> None:
    for text in OF_THE_DOCUMENTS[2:4]:
        assert parse_address(text).replay_period == 3600.0


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("prices;{creat:always}", 9, "creat is unknown in an address"),
        ("prices;{create:alwys}", 16, "create is 'alwys'"),
        ("prices;{mode:look}", 14, "mode is 'look'"),
        ("prices;{delete:always}", 9, "delete has no meaning here"),
        (
            "prices;{node:{x-declare:{exclusive:true}}}",
            26,
            "exclusive=True is not possible here: any number of consumers share a queue",
        ),
        (
            "prices;{node:{x-declare:{auto-delete:1}}}",
            26,
            "auto-delete=1 is not possible here: a queue stays",
        ),
        ("prices;{node:{x-declare:{exclusive:maybe}}}", 26, "exclusive='maybe' is not possible here"),
        ("prices;{node:{type:topic}}", 15, "type: topic has no meaning here"),
        ("prices;{node:{x-bindings:[]}}", 15, "there are no exchanges"),
        ("prices;{node:{x-declare:{alternate-exchange:a}}}", 26, "dead-letters names a topic that exists"),
        ("prices;{node:[]}", 14, "expected {"),
        ("prices;{node:{x-declare:{arguments:{'qpid.last_value':x}}}}", 37, "is not a queue option"),
        ("prices;{node:{x-declare:{arguments:{'qpid.max_count':x}}}}", 37, "is not a number"),
        ("prices;{node:{x-declare:{arguments:{'qpid.max_count':[1]}}}}", 37, "is not a number"),
        ("prices;{link:{x-declare:{}}}", 15, "a receiver has no queue of its own"),
        ("prices;{link:{reliability:at-most-once}}", 27, "delivered again"),
        ("prices;{link:{reliability:exactly-once}}", 27, "transactions"),
        ("prices;{link:{selector:''}}", 24, "is empty"),
        ("prices;{link:{selector:5}}", 24, "is not text"),
        ("prices;{link:{filter:'a = 1'}}", 22, "a filter is a map"),
        ("prices;{link:{filter:{descriptor:x,value:y}}}", 34, "not a filter that a queue has"),
        ("prices;{link:{filter:{value:y}}}", 22, "a filter needs a descriptor"),
        ("prices;{link:{x-subscribe:{arguments:{x-qpid-replay-period:soon}}}}", 60, "x-qpid-replay-period is 'soon'"),
        ("prices;{link:{x-subscribe:{arguments:{x-qpid-replay-period:-1}}}}", 60, "0 or more"),
        ("prices;{link:{x-subscribe:{arguments:{x-qpid-replay-period:nan}}}}", 60, "0 or more"),
        ("prices;{link:{selector:'a = 1',x-subscribe:{arguments:{x-apache-selector:'a = 2'}}}}", 74, "also says"),
        ("prices;{create:always", 22, "expected , or }, found the end"),
        ("prices;{create:'always}", 16, "this quote is not closed"),
        ("prices;{create always}", 16, "expected : and the value of create, found always"),
        ("prices;{create:always,}", 23, "expected more after the comma"),
        ("prices;{create:always,create:never}", 23, "create is given twice"),
        ("prices;{create:always} x", 24, "expected the end, found x"),
        ("prices;create:always", 8, "expected {"),
        ("prices;", 8, "expected a value, found the end"),
        ("prices;{link:{selector:'\\u12'}}", 25, "needs digits"),
        ("pri ces;{}", 4, "expected the name of a queue"),
        ("#;{create:always}", 1, "# has no meaning here"),
        ("prices/;{}", 8, "expected a subject"),
        ("a,b;{}", 1, "cannot be the name of a queue"),
        ("direct://amq.topic/q/q", 10, "the exchange amq.topic has no meaning here"),
        ("fanout://amq.fanout//q", 1, "there are no exchanges"),
        ("topic://amq.topic/news/q", 1, "there are no exchanges"),
        ("direct://amq.direct/news/q", 21, "the destination news"),
        ("direct://amq.direct//", 21, "expected the name of a queue"),
        ("direct://amq.direct//q?exclusive='true'", 24, "exclusive='true' is not possible here"),
        ("direct://amq.direct//q?rejectbehaviour='server'", 24, "rejectbehaviour is unknown in a binding URL"),
        ("direct://amq.direct//q?browse='true'&browse='true'", 38, "browse is given twice"),
        ("amqp://broker/prices", 1, "not the beginning of an address"),
        ("queue://orders?routing-type=multicast", 16, "routing-type is 'browse'"),
        ("orders?last-value-key", 8, "expected name=value"),
        ("orders?last-value-key=a&last-value-key=b", 25, "given twice"),
        ("orders?last-value-key=a&create=always", 25, "it is a part of an address, not an option of a queue"),
        ("orders?last-value=maybe", 8, "neither true nor false"),
        ("orders?last-value-key=%zz", 23, "two hexadecimal digits"),
        ("orders?last-value-key=%ff", 23, "not UTF-8"),
        ("orders?last-value-key=a&exclusive=true", 25, "exclusive='true' is not possible here"),
        ("orders?last-value-key=a&purge-on-no-consumers=true", 25, "messages wait for consumers"),
        ('{"type": "lvq"}', 1, "need the name of the queue"),
        ('{"name": 5}', 10, "need the name of the queue"),
        ('{"name": "q", "lifetimePolicy": "DELETE_ON_CONNECTION_CLOSE"}', 15, "a queue stays until it is dropped"),
        ('{"name": "q", "exclusive": "CONNECTION"}', 15, "any number of consumers share a queue"),
        ('{"name": "q", "lvqkay": "k"}', 15, "Did you mean lvqKey?"),
        ('{"name": "q", "defaultFilters": {"a": {"b": ["1"]}}}', 15, "a filter that browsers do not have, b"),
        ('{"name": "q", "defaultFilters": {"a": {"x-qpid-replay-period": ["1", "2"]}}}', 15, "is not a number"),
        ('{"name": "q", "defaultFilters": "60"}', 15, "is not a map of filters"),
        ('{"name": "q", "lvqKey": "\\ud800"}', 25, "half a character"),
        ('{"name": "q", "lvqKey": 1e3}', 15, "lvqKey=1000.0 is not a name"),
        ("q;{node:{x-declare:{arguments:{lvqKey:99999999999999999999}}}}", 32, "is not a name"),
    ],
)
def test_an_error_in_an_address_names_the_part_and_its_place(text: str, column: int, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert says in str(caught.value)
    assert place(caught.value) == (column, f"{text} "[column - 1])


def test_an_error_in_an_address_of_several_lines_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"^Line 3, column 2 of the address: creat is unknown") as caught:
        parse_address("prices;\n{\n creat: always\n}")
    assert "\n     creat: always\n     ^\n" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "amqp://guest:s3cret@broker/prices",
        "queue://guest:s3cret@orders",
        "guest:s3cret@broker/prices",
        "orders?password=s3cret",
        "prices;{link:{password:'s3cret'}}",
        "prices;{password:'s3cret'",
        '{"name": "q", "password": "s3cret"}',
        "guest:s3cret@broker",
        "guest:s3cret@broker:5672",
        "'guest:s3cret@broker'",
        "guest:s3c'ret@broker",
        "amqp://guest/s3cret@broker",
        "BURL:direct://guest/s3cret@exchange/q/q",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="holds a user or a password") as caught:
        parse_address(text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["prices/user:1@desk", "prices;{link:{selector:\"url = 'http://desk/@a'\"}}", "prices?filter=a%3D'b:c@d'"]
)
def test_an_at_sign_behind_the_name_of_a_queue_is_no_password(text: str) -> None:
    assert parse_address(text).queue == "prices"


@pytest.mark.parametrize("part", [":", "a:", "://", "@", ":@/", "a ", "';", "{", "passw", "direct://a/"])
def test_the_longest_address_is_read_or_refused_at_once(part: str) -> None:
    """The count of steps grows with the text, not with its square: that would be 20 s."""
    with suppress(ConfigError):
        parse_address((part * 65_536)[:65_536])


def test_a_switch_of_an_address_has_the_key_header_of_its_system_also_where_none_has_to_be_named() -> None:
    address = parse_address("q?last-value=true")
    assert address.definition(complete=False) == address.definition()
    assert parse_address("q?lastValue=true").definition() == address.definition()


def test_an_address_without_a_key_header_defines_no_queue() -> None:
    address = parse_address("prices;{create:always}")
    with pytest.raises(ConfigError, match="needs the name of its key header"):
        address.definition()


def test_an_address_differs_from_a_queue_in_what_it_says_alone() -> None:
    declared = parse_address("prices?last-value-key=ticker&non-destructive=true&max-expiry-delay=60000").definition()
    assert parse_address("prices;{mode:browse}").differences(declared) == {}
    assert parse_address("prices?last-value-key=ticker").differences(declared) == {}
    assert parse_address("prices?non-destructive=false").differences(declared) == {"non_destructive": (True, False)}
    selecting = parse_address("prices?last-value-key=a&filter=b%20%3D%201").definition()
    browsed = parse_address('{"name": "prices", "defaultFilters": {"f": {"x-apache-selector": ["c = 1"]}}}')
    assert browsed.differences(selecting) == {"default_filters": (None, {"selector": "c = 1"})}
    other = parse_address("other::prices?last-value-key=code")
    assert other.differences(declared) == {"topic": ("prices", "other"), "key_header": ("ticker", "code")}


@pytest.mark.parametrize("text", ["[" * 1_000, "p;" + "{a:" * 1_000, "p;" + "{a:" * 1_000 + "1" + "}" * 1_000])
def test_an_address_that_is_nested_too_deeply_is_refused(text: str) -> None:
    if text[0] == "[":
        assert parse_address(text).queue == text  # like any other name, until somebody opens it
        return
    with pytest.raises(ConfigError, match="nested more than 32 deep"):
        parse_address(text)


def test_an_address_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match="65,536 are allowed"):
        parse_address("p;{a:" + " " * 65_536 + "}")


def test_an_address_names_its_topic_if_it_has_a_mark_for_it() -> None:
    with pytest.raises(ConfigError, match="expected the name of a topic before ::"):
        parse_address("::prices?last-value-key=ticker")
