"""The rules of writes over HTTP that need no server: rights, proxies, repetitions, room, requests (R52)."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.errors import (
    ConfigError,
    DeliveryFailed,
    DeliveryUnknown,
    EncodeError,
    LVQError,
    MessageTooLarge,
    MissingKey,
    OutcomeUnknown,
    QueueFull,
)
from lvq_kafka.kafka.size_limits import MESSAGE
from lvq_kafka.serve import http_requests, write_requests
from lvq_kafka.serve.bearer_tokens import BearerTokens
from lvq_kafka.serve.http_requests import HttpRequest, read_request
from lvq_kafka.serve.parameters import parse_query
from lvq_kafka.serve.problems import HttpRefusal, problem_body, refusal_of
from lvq_kafka.serve.queue_rights import EVERYBODY, QueueRights
from lvq_kafka.serve.repeated_writes import RepeatedWrites, fingerprint_of, idempotency_key
from lvq_kafka.serve.routes import find_route
from lvq_kafka.serve.trusted_proxies import TrustedProxies
from lvq_kafka.serve.write_requests import LARGEST_VALUE, WriteRequest, fingerprint
from lvq_kafka.serve.write_room import WriteRoom
from lvq_kafka.serve.write_routes import DELETE, PUT
from tests.unit.serve.test_http_rules import refused

NAMES = st.from_regex(r"[a-z0-9_-]{1,8}", fullmatch=True)
VALUE = (b"v1", b"queues", b"prices", b"values", b"IBM")


def read_write(asked: HttpRequest) -> WriteRequest:
    operation = DELETE if asked.method == "DELETE" else PUT
    return write_requests.read_write(asked, parse_query(asked.query, operation.parameters(60.0)))


def request(
    method: str = "PUT", query: str = "", peer: str | None = "127.0.0.1", **headers: str | bytes
) -> HttpRequest:
    pairs = [
        (name.replace("_", "-").encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in headers.items()
    ]
    scope = {"method": method, "path": "/", "query_string": query.encode(), "headers": pairs}
    return read_request({**scope, "client": None if peer is None else (peer, 1)})


class TestRights:
    @given(st.frozensets(NAMES, max_size=5), st.frozensets(NAMES, max_size=5), NAMES)
    def test_r52_each_word_is_one_right(self, readable: frozenset[str], writable: frozenset[str], other: str) -> None:
        rights = QueueRights.parse([*readable, *(f"{name}:write" for name in writable)])
        for name in readable | writable | {other}:
            assert rights.may_read(name) == (name in readable)
            assert rights.may_write(name) == (name in writable)

    def test_r52_a_star_is_every_queue_and_a_line_without_write_writes_none(self) -> None:
        assert QueueRights.parse(["*"]).may_read("prices")
        assert not QueueRights.parse(["*"]).may_write("prices")
        assert QueueRights.parse(["*:write"]).may_write("prices")
        assert not QueueRights.parse(["*:write"]).may_read("prices")
        assert EVERYBODY.rights.may_read("a")
        assert EVERYBODY.rights.may_write("a")

    @pytest.mark.parametrize("word", ["prices:read", "prices:write:write", ":write", "a/b", "prices:WRITE", "a:b"])
    def test_r52_another_word_is_an_error(self, word: str) -> None:
        with pytest.raises(ValueError, match=word):
            QueueRights.parse(["prices", word])
        with pytest.raises(ConfigError, match="Line 1 of file has"):
            BearerTokens.parse(f"abcdefghijklmnop1 {word}", "file")

    def test_r52_tokens_and_users_are_clients_of_their_own(self) -> None:
        tokens = BearerTokens.parse(
            "abcdefghijklmnop1 prices prices:write\nuser:alice prices:write\nuser:jürgen@a.example *\n", "file"
        )
        bearers = [tokens.bearer("Bearer abcdefghijklmnop1"), tokens.user("alice"), tokens.user("jürgen@a.example")]
        assert len({bearer.identity for bearer in bearers}) == 3
        assert [bearer.rights.may_write("prices") for bearer in bearers] == [True, True, False]
        assert [bearer.rights.may_read("prices") for bearer in bearers] == [True, False, True]
        for name in ("bob", "", "alice, alice", "Alice"):
            with refused(403):
                tokens.user(name)

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("user: prices", "names no user"),
            ("user:alice", "names no queue"),
            ("user:a x\nuser:a y", "Line 2 of file has the user of an earlier line"),
        ],
    )
    def test_r52_a_bad_line_of_a_user_is_named(self, text: str, fault: str) -> None:
        with pytest.raises(ConfigError, match=fault):
            BearerTokens.parse(text, "file")


class TestProxies:
    @pytest.mark.parametrize(
        ("addresses", "peer", "trusted"),
        [
            ([], "127.0.0.1", True),
            ([], "127.1.2.3", True),
            ([], "::1", True),
            ([], "::ffff:127.0.0.1", True),
            ([], "10.0.0.1", False),
            ([], None, False),
            ([], "unix", False),
            (["10.0.0.1"], "10.0.0.1", True),
            (["10.0.0.1"], "127.0.0.1", False),
            (["10.0.0.0/24", "fd00::/8"], "10.0.0.77", True),
            (["10.0.0.0/24", "fd00::/8"], "fd00::5", True),
            (["10.0.0.0/24", "fd00::/8"], "10.0.1.77", False),
        ],
    )
    def test_r52_a_user_counts_only_from_a_proxy(self, addresses: list[str], peer: str | None, trusted: bool) -> None:
        proxies = TrustedProxies("Remote-User", addresses)
        assert proxies.user_of(request(peer=peer)) is None
        named = request(peer=peer, remote_user="jürgen")
        if trusted:
            assert proxies.user_of(named) == "jürgen"
        else:
            with refused(403) as error:
                proxies.user_of(named)
            assert "remote-user" in error.value.detail

    def test_r52_a_user_who_is_named_twice_is_nobody(self) -> None:
        headers = [(b"remote-user", b"alice"), (b"Remote-User", b"bob")]
        twice = read_request({"method": "GET", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)})
        with refused(400):
            TrustedProxies("remote-user", []).user_of(twice)

    @pytest.mark.parametrize("header", ["", "a b", "a:", "Authorization", "Host", "ü", 5, None])
    def test_a_header_that_cannot_name_users_is_an_error(self, header: Any) -> None:
        with pytest.raises(ConfigError, match="user_header"):
            TrustedProxies(header, [])

    @pytest.mark.parametrize("addresses", ["10.0.0.1", ["localhost"], [5], ["10.0.0.1/24"]])
    def test_an_address_that_is_none_is_an_error(self, addresses: Any) -> None:
        with pytest.raises(ConfigError, match="proxies"):
            TrustedProxies("remote-user", addresses)


class TestRepetitions:
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["begin", "end", "fail"]),
                st.integers(0, 4),  # the name
                st.integers(0, 1),  # the request
                st.floats(0, 5),  # the time that passes before
            ),
            max_size=60,
        ),
        st.integers(1, 6),
    )
    def test_r52_it_remembers_what_was_done_for_a_while_and_no_more_than_it_may(
        self, steps: list[tuple[str, int, int, float]], most: int
    ) -> None:
        repeated: RepeatedWrites[str, int] = RepeatedWrites(seconds=10, most=most, most_bytes=1 << 20)
        running: dict[int, tuple[int, str]] = {}
        done: OrderedDict[int, tuple[int, int, float]] = OrderedDict()
        now = 0.0
        for number, (step, name, asks, passes) in enumerate(steps):
            now += passes
            known, digest = (b"who", f"key-{name}"), b"%d" % asks
            while done and (next(iter(done.values()))[2] <= now or len(done) > most):
                done.popitem(last=False)
            other = next((each[name][0] for each in (running, done) if name in each), asks) != asks  # type: ignore[index]
            assert repeated.done((b"who", "other"), b"", now) is None  # it forgets only when it is asked
            if other:
                with refused(422):
                    assert repeated.running(known, digest) is None
                    repeated.done(known, digest, now)
            else:
                assert repeated.running(known, digest) == running.get(name, (0, None))[1]
                assert repeated.done(known, digest, now) == (done[name][1] if name in done else None)
            if step == "begin" and name not in running and name not in done:
                repeated.begin(known, digest, f"write-{number}")
                running[name] = asks, f"write-{number}"
            elif step != "begin" and name in running:
                begun, _ = running.pop(name)
                repeated.end(known, number if step == "end" else None, now)
                if step == "end":
                    done[name] = begun, number, now + 10
                    while len(done) > most:
                        done.popitem(last=False)
            assert len(repeated) == len(running) + len(done)
            assert (repeated.size > 0) == bool(done)

    def test_r52_memory_is_bounded_by_bytes_and_writes_under_way_are_never_forgotten(self) -> None:
        repeated: RepeatedWrites[str, int] = RepeatedWrites(seconds=600, most=1000, most_bytes=5000)
        repeated.begin((b"who", "slow"), b"1", "task")
        for number in range(100):
            repeated.begin((b"who", f"k{number}"), b"1", "task")
            repeated.end((b"who", f"k{number}"), number, 0.0)
            assert repeated.size <= 5000
        assert repeated.done((b"who", "k99"), b"1", 0.0) == 99
        assert repeated.done((b"who", "k0"), b"1", 0.0) is None
        assert repeated.running((b"who", "slow"), b"1") == "task"

    def test_r52_clients_cannot_repeat_each_others_writes(self) -> None:
        repeated: RepeatedWrites[str, int] = RepeatedWrites(seconds=600, most=10, most_bytes=5000)
        repeated.begin((b"alice", "1"), b"a", "task")
        assert repeated.running((b"bob", "1"), b"b") is None
        repeated.end((b"alice", "1"), 5, 0.0)
        assert repeated.done((b"bob", "1"), b"b", 0.0) is None

    @pytest.mark.parametrize(
        ("header", "key"),
        [(None, None), ("a-1", "a-1"), ('"a-1"', "a-1"), (" a ", "a"), ('"', '"'), ("a" * 255, "a" * 255)],
    )
    def test_r52_a_key_may_be_quoted(self, header: str | None, key: str | None) -> None:
        assert idempotency_key(header) == key

    @pytest.mark.parametrize("header", ["", " ", "a b", "ä", "a" * 256, "a\x00", "a, b"])
    def test_r52_a_key_that_is_none_is_refused(self, header: str) -> None:
        with refused(400):
            idempotency_key(header)

    @given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
    def test_r52_requests_differ_if_any_of_their_parts_does(self, some: list[bytes], others: list[bytes]) -> None:
        assert (fingerprint_of(some) == fingerprint_of(others)) == (some == others)

    def test_r52_a_request_is_its_queue_method_key_query_headers_and_body(self) -> None:
        same = fingerprint(request(query="ttl=1", lvq_headers="{}"), "prices", b"IBM", b"1")
        assert same == fingerprint(request(query="ttl=1", lvq_headers="{}", user_agent="x"), "prices", b"IBM", b"1")
        others = [
            fingerprint(request(query="ttl=2", lvq_headers="{}"), "prices", b"IBM", b"1"),
            fingerprint(request(query="ttl=1", lvq_headers='{"a":"b"}'), "prices", b"IBM", b"1"),
            fingerprint(request("DELETE", query="ttl=1", lvq_headers="{}"), "prices", b"IBM", b"1"),
            fingerprint(request(query="ttl=1", lvq_headers="{}"), "orders", b"IBM", b"1"),
            fingerprint(request(query="ttl=1", lvq_headers="{}"), "prices", b"MSFT", b"1"),
            fingerprint(request(query="ttl=1", lvq_headers="{}"), "prices", b"IBM", b"2"),
        ]
        assert len({same, *others}) == 7


class TestRoom:
    @given(st.lists(st.lists(st.integers(0, 60), max_size=4), max_size=12), st.data())
    def test_r52_writes_are_bounded_in_number_and_bytes(self, writes: list[list[int]], data: st.DataObject) -> None:
        room = WriteRoom(3, 100)
        open_places: list[tuple[Any, int]] = []
        for sizes in writes:
            number, taken = len(open_places), sum(size for _, size in open_places)
            assert (len(room), room.size) == (number, taken)
            if number == 3:
                with refused(503) as error, room.enter() as place:
                    place.keep()
                assert ("retry-after", "1") in error.value.headers
                place, _ = open_places.pop(data.draw(st.integers(0, 2)))
                place.leave()
                place.leave()
                continue
            with room.enter() as place:
                took = 0
                for size in sizes:
                    if taken + took + size > 100:
                        with refused(503):
                            place.add_bytes(size)
                    else:
                        place.add_bytes(size)
                        took += size
                if data.draw(st.booleans()):
                    place.keep()
                    open_places.append((place, took))
        for place, _ in open_places:
            place.leave()
        assert (len(room), room.size) == (0, 0)


class TestRequests:
    @given(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            max_size=5,
        ),
        st.booleans(),
    )
    def test_r52_headers_are_an_object_of_json(self, headers: dict[str, str | None], ascii_only: bool) -> None:
        written = json.dumps(headers, ensure_ascii=ascii_only).encode()
        found = read_write(request(lvq_headers=written)).headers
        assert dict(found) == {name: None if value is None else value.encode() for name, value in headers.items()}

    def test_r52_a_header_may_be_bytes_or_a_number(self) -> None:
        written = '{"raw": {"base64": "/w=="}, "n": 1, "f": 1.5, "t": true, "none": null}'
        found = read_write(request(lvq_headers=written)).headers
        assert found == [("raw", b"\xff"), ("n", b"1"), ("f", b"1.5"), ("t", b"true"), ("none", None)]

    @pytest.mark.parametrize(
        ("header", "fault"),
        [
            (b"", "not JSON"),
            (b"exchange=NYSE", "not JSON"),
            (b"\xff", "not JSON in UTF-8"),
            (b"[]", "not an object"),
            (b'[["a", "b"]]', "not an object"),
            (b"null", "not an object"),
            (b'{"a": "b", "a": "c"}', "twice"),
            (b'{"a": {"b": 1}}', "header a that is neither text nor"),
            (b'{"a": {"base64": "!"}}', "not base64"),
            (b'{"a": NaN}', "not JSON"),
            (b'{"a": ' + b"[" * 600 + b"]" * 600 + b"}", "nested"),
            (json.dumps({str(number): "" for number in range(65)}).encode(), "more than 64 headers"),
        ],
    )
    def test_r52_headers_that_are_none_are_refused(self, header: bytes, fault: str) -> None:
        with refused(400) as error:
            read_write(request(lvq_headers=header))
        assert fault in error.value.detail

    def test_r52_terms_are_parameters_as_the_options_of_lvq_put(self) -> None:
        asked = read_write(request(query=f"ttl=1.5&priority=9&sort={quote_plus('a b')}&group=g&not-before=1800000000"))
        assert asked.terms_at(5.0) == {
            "ttl": 1.5,
            "priority": 9,
            "sort": "a b",
            "group": "g",
            "not_before": 1800000000.0,
        }
        assert read_write(request(query="delay=2")).terms_at(1000.0) == {"not_before": 1002.0}
        due = read_write(request(query="not-before=2026-08-01T12:30:00Z")).terms_at(0.0)["not_before"]
        assert due.timestamp() == 1785587400.0  # type: ignore[union-attr]
        assert read_write(request("DELETE", query="group=g")).terms_at(0.0) == {"group": "g"}

    @pytest.mark.parametrize(
        ("method", "query", "fault"),
        [
            ("PUT", "delay=1&not-before=2", "exclude each other"),
            ("PUT", "ttl=-1", "seconds"),
            ("PUT", "priority=high", "whole number"),
            ("PUT", "not-before=2026-08-01T12:30", "with its zone"),
            ("PUT", "not-before=tomorrow", "with its zone"),
            ("PUT", "tll=1", "Did you mean ttl?"),
            ("DELETE", "ttl=1", "no parameter 'ttl'"),
        ],
    )
    def test_r52_other_parameters_are_refused(self, method: str, query: str, fault: str) -> None:
        with refused(400) as error:
            read_write(request(method, query))
        assert fault in error.value.detail

    @pytest.mark.parametrize("name", ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"])
    @pytest.mark.parametrize("method", ["PUT", "DELETE"])
    def test_r52_no_write_is_conditional(self, name: str, method: str) -> None:
        with refused(400) as error:
            read_write(request(method, **{name: "*"}))
        assert "Kafka has no conditional writes" in error.value.detail
        assert error.value.rule == "R52"

    @pytest.mark.parametrize(
        ("site", "may"),
        [("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False), ("", False)],
    )
    @pytest.mark.parametrize("method", ["PUT", "DELETE"])
    def test_r52_a_page_of_another_origin_writes_nothing(self, site: str, may: bool, method: str) -> None:
        if may:
            read_write(request(method, sec_fetch_site=site))
        else:
            with refused(403):
                read_write(request(method, sec_fetch_site=site))

    def test_r52_parts_and_codings_are_refused_and_a_type_is_not_heeded(self) -> None:
        with refused(400):
            read_write(request(content_range="bytes 0-1/2"))
        with refused(415):
            read_write(request(content_encoding="gzip"))
        read_write(request(content_encoding="identity", content_type="application/x-www-form-urlencoded"))

    @pytest.mark.parametrize(
        ("method", "size", "fits"),
        [
            ("PUT", str(LARGEST_VALUE), True),
            ("PUT", str(LARGEST_VALUE + 1), False),
            ("PUT", "9" * 5000, False),
            ("DELETE", "0", True),
            ("DELETE", "1", False),
        ],
    )
    def test_r52_a_body_that_is_too_large_is_refused_before_it_is_read(
        self, method: str, size: str, fits: bool
    ) -> None:
        if fits:
            read_write(request(method, content_length=size))
        else:
            with refused(413):
                read_write(request(method, content_length=size))

    def test_r52_the_largest_value_fits_into_a_message_with_any_key_and_headers(self) -> None:
        key = http_requests._LONGEST_TARGET  # it has the terms, too; the key is in the key header as well
        headers = http_requests._MOST_HEADER_BYTES
        framing = 61 + 30 + 2 * 5 * (write_requests._MOST_HEADERS + 10)  # of a batch, a record, and its headers
        assert LARGEST_VALUE + 2 * key + headers + framing + 1000 <= MESSAGE

    @given(st.text(max_size=30), st.binary(max_size=40), st.binary(max_size=20))
    def test_r52_a_request_is_understood_or_refused_whatever_it_asks(
        self, query: str, headers: bytes, name: bytes
    ) -> None:
        status = 400
        try:
            read_write(request(query=quote_plus(query, safe="=&"), lvq_headers=headers, idempotency_key=name))
        except HttpRefusal as refusal:
            status = refusal.status
        assert status == 400


class TestMethods:
    @pytest.mark.parametrize("method", ["PUT", "DELETE", "GET", "HEAD"])
    def test_r52_a_value_can_be_written_where_that_is_allowed(self, method: str) -> None:
        assert find_route(VALUE, method, writable=True)[0].writes == (method in ("PUT", "DELETE"))

    @pytest.mark.parametrize(
        ("path", "method", "writable", "allow"),
        [
            (VALUE, "PUT", False, "GET, HEAD"),
            (VALUE, "POST", True, "GET, HEAD, PUT, DELETE"),
            (VALUE, "OPTIONS", True, "GET, HEAD, PUT, DELETE"),
            (VALUE[:-1], "PUT", True, "GET, HEAD"),
            ((b"live",), "DELETE", True, "GET, HEAD"),
        ],
    )
    def test_r52_other_methods_are_refused_with_those_that_there_are(
        self, path: tuple[bytes, ...], method: str, writable: bool, allow: str
    ) -> None:
        with refused(405) as error:
            find_route(path, method, writable=writable)
        assert ("allow", allow) in error.value.headers


class TestRefusals:
    @pytest.mark.parametrize(
        ("error", "status", "rule"),
        [
            (QueueFull("full", queue="q", depth=None), 429, "R12"),  # type: ignore[arg-type]
            (MissingKey("none"), 400, "R1"),
            (EncodeError("not JSON"), 400, None),
            (MessageTooLarge("large", code="MSG_SIZE_TOO_LARGE"), 413, None),
            (ConfigError("no", options=["lvq-ttl"]), 400, "R10"),
            (ConfigError("no", options=["priority", "lvq-priority"]), 400, "R20"),
            (ConfigError("no", options=["not_before"]), 400, "R11"),
            (ConfigError("no", options=["lvq-not-before"]), 400, "R11"),
            (ConfigError("no", options=["key", "ticker"]), 400, "R2"),
            (ConfigError("no", options=["other"]), 400, None),
        ],
    )
    def test_r52_a_refusal_names_its_rule(self, error: LVQError, status: int, rule: str | None) -> None:
        refusal = refusal_of(error)
        row = json.loads(problem_body(refusal))
        assert (refusal.status, row.get("rule")) == (status, rule)
        assert (("retry-after", "1") in refusal.headers) == (status == 429)

    def test_r52_only_504_leaves_open_whether_it_was_written(self) -> None:
        assert refusal_of(DeliveryUnknown("late", code="_TIMED_OUT")).status == 504
        assert refusal_of(OutcomeUnknown("late")).status == 504
        assert refusal_of(DeliveryFailed("no", code="_TIMED_OUT")).status == 503
