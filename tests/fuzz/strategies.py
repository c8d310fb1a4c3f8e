"""Strategies for hostile input: mostly valid data with one part replaced, because noise is rejected early."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any
from urllib.parse import urlencode

from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.commit_map.packing import uvarints

__all__ = ["addresses", "commits", "definitions", "headers", "keys", "lines", "values"]

_NASTY = ["\x1b]0;t\x07", "\x1b[2J", "\x9b31m", "\u202e", "\u2028", "\0", "\r\n", "\t", "[red]", "'", '"', "\\", "%s{}"]
_NAMES = ["prices", "-x", "--yes", "..", "__consumer_offsets", "_lvq_queues", "", "a b", "x" * 201, "$(x)`;'"]

nasty_texts = st.one_of(
    st.lists(st.one_of(st.sampled_from(_NASTY), st.text(max_size=3)), max_size=6).map("".join),
    st.sampled_from(_NAMES),
    st.sampled_from(_NASTY).map(lambda part: part * 3_000),
)
# Half a surrogate pair is valid in JSON, but not in UTF-8.
_json_texts = st.one_of(nasty_texts, st.sampled_from(["\ud800", "\udcff"]))
_scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _json_texts)
_documents = st.recursive(
    _scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_json_texts, inner, max_size=4))
)
_depths = st.sampled_from([1, 400, 499, 500, 501, 600, 990, 1100, 50_000])


@st.composite
def _json(draw: st.DrawFn, value: st.SearchStrategy[Any]) -> bytes:
    """Draw the JSON of a value, possibly with a part nested, doubled, cut off or overwritten."""
    text = json.dumps(draw(value), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    how = draw(st.sampled_from(["whole"] * 6 + ["nested", "cut", "overwritten", "digits", "doubled"]))
    at = draw(st.integers(0, max(0, len(text) - 1)))
    if how == "nested":
        depth, (opened, closed) = draw(_depths), draw(st.sampled_from([(b"[", b"]"), (b'{"a":', b"}")]))
        return text.replace(b'"x"', opened * depth + b"1" + closed * depth, 1)
    if how == "cut":
        return text[:at]
    if how == "overwritten":
        return text[:at] + draw(st.binary(max_size=4)) + text[at + 1 :]
    if how == "digits":
        return text.replace(b'"x"', b"1" * draw(st.sampled_from([20, 4_300, 4_301, 100_000])), 1)
    return text * 2 if how == "doubled" else text


_fields = st.sampled_from(
    [
        *("version", "name", "topic", "key_header", "keyless", "order", "key_mismatch", "non_destructive"),
        *("ttl", "max_delay", "\x1b[2J"),
    ]
)


@st.composite
def definitions(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw the key and the value of a registry record."""
    name = draw(st.one_of(st.just("evil"), nasty_texts, st.binary(max_size=5))) or "evil"
    key = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    shown = key.decode("utf-8", "replace")
    version = draw(st.sampled_from([1, 2]))
    valid = {"version": version, "name": shown, "topic": "evil", "key_header": "x", "keyless": "pass", "order": "tail"}
    changes = st.dictionaries(_fields, st.one_of(st.just("x"), st.sampled_from(_NAMES), _documents), max_size=2)
    many = st.integers(0, 2_000).map(lambda number: {f"f{n}": n for n in range(number)})
    value = draw(st.one_of(_json(changes.map(lambda some: valid | some)), _json(many), _json(_documents), st.binary()))
    return key, value


def lines() -> st.SearchStrategy[bytes]:
    """Return a strategy for lines of ``put --from-jsonl``."""
    told = st.one_of(st.just("x"), _documents, st.fixed_dictionaries({"base64": _scalars}))
    names = st.sampled_from(["key", "value", "headers", "all_headers", "undecodable", "deleted", "event", "lvq_export"])
    rows = st.dictionaries(names, told, max_size=4)
    return st.one_of(
        _json(rows.map(lambda row: {"key": "k", "value": "x"} | row)), _json(_documents), st.binary(max_size=20)
    ).map(lambda line: line.replace(b"\n", b" "))


keys = st.one_of(nasty_texts.map(lambda text: text.encode()), st.binary(max_size=8))
"""Record keys."""

_values = st.one_of(st.none(), st.binary(max_size=8), nasty_texts.map(lambda text: text.encode()))


def values() -> st.SearchStrategy[bytes]:
    """Return a strategy for record values, mostly JSON."""
    return st.one_of(_json(_documents), _json(st.just({"a": "x"})), st.binary(max_size=8))


headers = st.lists(
    st.tuples(st.one_of(st.sampled_from(["ticker", "lvq-unkeyed", ""]), nasty_texts), _values), max_size=4
)
"""Headers, in the form that Kafka clients use."""

_numbers = st.one_of(
    st.integers(0, 12), st.integers(0, 2**63 - 1), st.sampled_from([2**61, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**70])
)


@st.composite
def _texts(draw: st.DrawFn, base: int) -> str:
    """Draw a commit text: an encoded map with some number, byte or length changed, and a valid checksum."""
    how = draw(st.sampled_from(["map", "map", "bytes", "fields", "foreign"]))
    if how == "foreign":
        return draw(
            st.one_of(nasty_texts.map(lambda text: text[:4095]), st.sampled_from(["lvq1.", "lvq9.A", "lvq1.AA"]))
        )
    if how == "map":
        most = 4 if base < 100 else 0
        runs = tuple(draw(st.lists(st.integers(1, 3), max_size=most)))
        runs = runs[: len(runs) // 2 * 2]
        sequence = draw(st.one_of(st.integers(0, 9), st.sampled_from([2**61, 2**62 - 1, 2**62, 2**63 - 1])))
        wire = CommitMap(base, runs, bytes(8), 1, sequence, draw(st.sampled_from([None, base])))._wire(runs, 0)[:-4]
    elif how == "fields":
        flags = draw(st.integers(0, 255))
        rest = draw(st.lists(st.one_of(_numbers.map(lambda n: uvarints((n,))), st.binary(max_size=9)), max_size=8))
        wire = bytes((flags, *bytes(8))) + b"".join(rest)
    else:
        body = draw(st.sampled_from([b"\x01", b"\0", b"\xff\x01", b"\xff" * 8 + b"\x3f"])) * draw(
            st.integers(0, 70_000)
        )
        packed = zlib.compress(body, wbits=-15)[:3_000]
        count = draw(st.one_of(st.just(len(body)), _numbers))
        wire = b"\x01" + bytes(8) + uvarints((1, 1, count, len(packed))) + packed
    if wire and draw(st.booleans()):
        at = draw(st.integers(0, len(wire) - 1))
        wire = wire[:at] + draw(st.binary(min_size=1, max_size=1)) + wire[at + 1 :]
    wire += zlib.crc32(wire).to_bytes(4, "big")
    return "lvq1." + base64.urlsafe_b64encode(wire).rstrip(b"=").decode()


@st.composite
def commits(draw: st.DrawFn) -> tuple[int, str]:
    """Draw the offset and text of a commit to a queue's group."""
    offset = draw(st.one_of(st.integers(0, 12), st.sampled_from([2**31, 2**62, 2**63 - 1])))
    return offset, draw(_texts(offset))


_HEADS = [
    *("prices", "prices/IBM", "foo::prices", "'prices'", "prices/'a;b'", "ADDR:prices", "#", "a b"),
    *("queue://", "topic://prices", "direct://amq.direct/q/q", "BURL:direct:////q", "amqp://u:p@h/q"),
]
_ADDRESS_PARTS = [
    *("create", "assert", "delete", "mode", "node", "link", "type", "durable", "x-declare", "arguments", "exclusive"),
    *("x-subscribe", "x-qpid-replay-period", "selector", "filter", "descriptor", "value", "reliability", "name"),
    *("qpid.last_value_queue_key", "last-value-key", "lvqKey", "non-destructive", "defaultFilters", "context"),
    *("always", "sender", "browse", "consume", "true", "null", "3600", "-1", "1e3", "ticker", "'a = 1'", '"\\u20ac"'),
    *("{", "}", "{", "}", "[", "]", ":", ":", ":", ",", ",", ";", "?", "&", "=", "'", '"', "\\", "%41", "%", " ", "\n"),
]
_words = st.one_of(
    st.sampled_from(["ticker", "a b", "true", "5", "", "it's", '"', "\\", "\U0001f600", "\u20ac\n"]), nasty_texts
)
_POLICIES = st.sampled_from(["always", "sender", "receiver", "never", "maybe"])
_arguments = st.dictionaries(
    st.sampled_from(["qpid.last_value_queue_key", "qpid.max_count", "non-destructive", "filter", "x"]),
    st.one_of(_words, st.integers(-2, 10**20), st.floats(), st.booleans()),
    max_size=2,
)
_qpid = st.fixed_dictionaries(
    {},
    optional={
        "create": _POLICIES,
        "assert": _POLICIES,
        "mode": st.sampled_from(["browse", "consume"]),
        "node": st.fixed_dictionaries({}, optional={"x-declare": st.builds(dict, arguments=_arguments)}),
        "link": st.fixed_dictionaries(
            {},
            optional={
                "selector": _words,
                "x-subscribe": st.builds(
                    dict, arguments=st.builds(lambda n: {"x-qpid-replay-period": n}, st.floats(0))
                ),
            },
        ),
    },
)
_brokerj = st.builds(lambda some: {"name": "q", "lvqKey": "k", **some}, st.dictionaries(_words, _scalars, max_size=2))
_artemis = st.dictionaries(
    st.sampled_from(["last-value-key", "filter", "non-destructive", "ring-size", "exclusive"]), _words, max_size=3
)


def addresses() -> st.SearchStrategy[str]:
    """Return a strategy for addresses: noise of their parts, and mostly valid ones of each system."""
    noise = st.lists(st.sampled_from(_ADDRESS_PARTS), max_size=30).map("".join)
    heads = st.sampled_from(_HEADS)
    return st.one_of(
        st.tuples(heads, st.sampled_from([";", "?", ":", ""]), noise).map("".join),
        st.tuples(heads, st.just(";"), _qpid.map(json.dumps)).map("".join),
        st.tuples(heads, st.just("?"), _artemis.map(urlencode)).map("".join),
        _brokerj.map(json.dumps),
        _json(_qpid).map(lambda data: "prices;" + data.decode("utf-8", "replace")),
        st.text(max_size=60),
    )
