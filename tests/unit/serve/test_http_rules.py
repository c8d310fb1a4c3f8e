"""The rules of HTTP that need no server: entity tags, types, hosts, tokens, paths, queries, events, problems (R46)."""

from __future__ import annotations

import json
import string
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka import Position, errors
from lvq_kafka.core.latest.catch_up import ReaderStatus
from lvq_kafka.errors import BrokerUnavailable, CatchUpTimeout, ConfigError, DataLoss, LVQError
from lvq_kafka.serve.bearer_tokens import BearerTokens
from lvq_kafka.serve.entity_tags import entity_tag, is_known
from lvq_kafka.serve.event_stream import HEARTBEAT, event_bytes, id_bytes, retry_bytes
from lvq_kafka.serve.host_names import check_host, host_rule
from lvq_kafka.serve.http_answers import state_headers
from lvq_kafka.serve.http_requests import decoded, path_segments, read_request
from lvq_kafka.serve.media_types import chosen_type
from lvq_kafka.serve.parameters import FLAG, KEY, TEXT, Parameter, parse_query, seconds, whole_number
from lvq_kafka.serve.problems import STATUS, HttpRefusal, problem_body, refusal_of, status_of
from lvq_kafka.serve.routes import ROUTES, find_route
from tests.event_parser import EventParser

TAG = entity_tag("N1JBasJFSeGqrj2PxtgWpg", Position("prices", 0, 41), "value")


def refused(status: int) -> Any:
    return pytest.raises(HttpRefusal, check=lambda refusal: refusal.status == status)


class TestEntityTags:
    def test_r46_a_tag_is_of_one_topic_position_and_form(self) -> None:
        assert TAG == '"N1JBasJFSeGqrj2PxtgWpg.0.41.value"'
        others = [
            entity_tag("other", Position("prices", 0, 41), "value"),
            entity_tag("N1JBasJFSeGqrj2PxtgWpg", Position("prices", 1, 41), "value"),
            entity_tag("N1JBasJFSeGqrj2PxtgWpg", Position("prices", 0, 42), "value"),
            entity_tag("N1JBasJFSeGqrj2PxtgWpg", Position("prices", 0, 41), "entry"),
        ]
        assert len({TAG, *others}) == 5

    @pytest.mark.parametrize(
        "header", ["*", TAG, f"W/{TAG}", f'"a", {TAG}', f' ,, "a,b" , {TAG} , "c"', f'{TAG},"c"', " * "]
    )
    def test_r46_a_tag_that_a_client_names_is_known(self, header: str) -> None:
        assert is_known(TAG, header)

    @pytest.mark.parametrize(
        "header", [None, "", '""', '"a"', TAG.strip('"'), f"{TAG} {TAG}", f"{TAG}x", f"x{TAG}", '"']
    )
    def test_r46_any_other_header_gets_the_value(self, header: str | None) -> None:
        assert not is_known(TAG, header)

    @given(st.text(max_size=30), st.lists(st.text("ab.,0", max_size=5), max_size=4), st.integers(0, 4))
    def test_r46_a_tag_is_found_wherever_it_stands(self, topic_id: str, others: list[str], at: int) -> None:
        tag = entity_tag(topic_id, Position("t", 0, 0), "value")
        listed = [f'"{other}"' for other in others]
        assert is_known(tag, ", ".join([*listed[:at], tag, *listed[at:]]))
        assert not is_known(tag, ", ".join(listed))
        assert tag.isascii()


class TestMediaTypes:
    OFFERS = ("text/plain", "application/vnd.lvq.entry+json", "application/json")

    @pytest.mark.parametrize(
        ("accept", "found"),
        [
            (None, 0),
            ("", 0),
            ("*/*", 0),
            ("text/*", 0),
            ("application/json", 2),
            ("application/json, */*", 2),
            ("application/json;q=0.5, */*", 0),
            ("application/json;q=0.5, text/plain;q=0.4", 2),
            ("application/*", 1),
            ("APPLICATION/JSON ; charset=utf-8 ; q=1.0", 2),
            ("text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", 0),
            ("*/*, text/plain;q=0", 1),
            ("nonsense, application/json", 2),
        ],
    )
    def test_the_type_is_the_one_that_suits_best(self, accept: str | None, found: int) -> None:
        assert chosen_type(accept, self.OFFERS) == self.OFFERS[found]

    @pytest.mark.parametrize("accept", ["image/png", "text/plain;q=0", "nonsense"])
    def test_a_client_that_takes_none_of_them_is_refused(self, accept: str) -> None:
        with refused(406) as error:
            chosen_type(accept, self.OFFERS)
        assert "application/json" in error.value.detail

    @given(st.text(string.ascii_letters + "*/;,=q. 01", max_size=60))
    def test_any_header_gets_an_offer_or_a_refusal(self, accept: str) -> None:
        try:
            found = chosen_type(accept, self.OFFERS)
        except HttpRefusal:
            return
        assert found in self.OFFERS


class TestHosts:
    @pytest.mark.parametrize(
        "header",
        ["127.0.0.1", "127.0.0.1:8080", "[::1]:80", "[::1]", "localhost", "LOCALHOST:1", "a.localhost", "10.1.2.3"],
    )
    def test_r46_addresses_and_localhost_are_allowed(self, header: str) -> None:
        check_host(header, host_rule([]))

    @pytest.mark.parametrize(
        "header", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost"]
    )
    def test_r46_a_foreign_name_is_refused(self, header: str) -> None:
        with refused(421):
            check_host(header, host_rule(["prices.example.com"]))

    @pytest.mark.parametrize("header", [None, "", "a b", "a/b", "a@127.0.0.1", "127.0.0.1:99999999", "[::1", "a,b"])
    def test_r46_a_host_that_is_none_is_refused(self, header: str | None) -> None:
        with refused(400):
            check_host(header, host_rule(["a", "b"]))

    def test_names_are_allowed_with_any_port_and_in_any_case(self) -> None:
        for header in ("Prices.Example.com", "prices.example.com:8443", "prices.example.com."):
            check_host(header, host_rule(["prices.EXAMPLE.com"]))
        check_host("evil.example", host_rule(["*"]))

    @pytest.mark.parametrize("hosts", ["a.example", ["http://a"], [1], ["a:80"], [""]])
    def test_a_name_with_more_is_an_error(self, hosts: Any) -> None:
        with pytest.raises(ConfigError, match=r"hosts (is|has)"):
            host_rule(hosts)


class TestTokens:
    TEXT = "# who\n\nabcdefghijklmnop1 prices orders\n  abcdefghijklmnop2   *\n"

    def test_r46_a_token_reads_its_queues(self) -> None:
        tokens = BearerTokens.parse(self.TEXT, "file")
        some, every = (tokens.bearer(f"bearer abcdefghijklmnop{n}").rights for n in (1, 2))
        assert tokens.bearer("Bearer abcdefghijklmnop1").rights == some
        assert some.readable == {"prices", "orders"}
        assert [some.may_read(name) for name in ("prices", "orders", "other", "*")] == [True, True, False, False]
        assert every.may_read("other")
        assert not any(rights.may_write(name) for rights in (some, every) for name in ("prices", "other"))

    @pytest.mark.parametrize(
        "header", [None, "", "Bearer", "Bearer ", "Basic abcdefghijklmnop1", "Bearer abcdefghijklmnop"]
    )
    def test_r46_anything_else_is_refused(self, header: str | None) -> None:
        with refused(401) as error:
            BearerTokens.parse(self.TEXT, "file").bearer(header)
        assert dict(error.value.headers)["www-authenticate"].startswith("Bearer")
        assert "abcdef" not in error.value.detail

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("", "no token in file"),
            ("short prices", "Line 1 of file does not begin with a token"),
            ("#\nabcdefghijklmnop1", "Line 2 of file names no queue"),
            ("abcdefghijklmnop1 a\nabcdefghijklmnop1 b", "Line 2 of file has the token of an earlier line"),
            ("abcdefghijklmnöp1 a", "Line 1"),
            ("abcdefghijklmnop1 prices  # not for *", "Line 1 of file has '#' after its token"),
            ("abcdefghijklmnop1 pri/ces", "which cannot be the name of a queue"),
            ("# old\x0babcdefghijklmnop1 *", "no token in file"),
        ],
    )
    def test_a_bad_line_is_named_without_its_token(self, text: str, fault: str) -> None:
        with pytest.raises(ConfigError, match=fault) as error:
            BearerTokens.parse(text, "file")
        assert "abcdef" not in str(error.value)
        assert error.value.options == ("token_file",)

    def test_r46_a_token_reads_all_queues_of_its_line(self) -> None:
        names = [f"q{number}" for number in range(3000)]
        tokens = BearerTokens.parse(f"abcdefghijklmnop1 {' '.join(names)}", "file")
        assert tokens.bearer("Bearer abcdefghijklmnop1").rights.readable == set(names)

    def test_r46_a_repr_shows_no_token(self) -> None:
        assert "abcdef" not in repr(BearerTokens.parse(self.TEXT, "file"))
        headers = [(b"authorization", b"Bearer abcdefghijklmnop1")]
        assert "abcdef" not in repr(read_request({"method": "GET", "path": "/", "headers": headers}))


class TestPaths:
    @given(st.binary(max_size=20))
    def test_r2_a_key_of_any_bytes_is_found_below_its_queue(self, name: bytes) -> None:
        raw = f"/v1/queues/prices/values/{quote(name, safe='')}".encode()
        route, parts = find_route(path_segments(raw, ""))
        assert (route.path, parts) == ("v1/queues/{queue}/values/{key}", {"queue": b"prices", "key": name})

    @pytest.mark.parametrize(
        ("raw", "root", "found"),
        [
            (b"/live", "", (b"live",)),
            (b"/api/v1/live", "/api/v1", (b"live",)),
            (b"/api/live", "/api/", (b"live",)),
            (b"/a%20b/live", "/a b", (b"live",)),
            (b"/live", "/api", (b"live",)),  # a proxy has removed it
            (b"/api", "/api", (b"",)),
            (b"/x/values/a%2Fb", "/x", (b"values", b"a%2Fb")),
            (b"/", "", (b"",)),
        ],
    )
    def test_segments_are_those_below_the_mount(self, raw: bytes, root: str, found: tuple[bytes, ...]) -> None:
        assert path_segments(raw, root) == found

    @pytest.mark.parametrize(
        "raw", [b"/v1", b"/v1/queues/", b"/v1/queues//values/a", b"/v1/queues/p/other", b"//live", b"/Live"]
    )
    def test_other_paths_are_not_found(self, raw: bytes) -> None:
        with refused(404):
            find_route(path_segments(raw, ""))

    def test_a_slash_in_a_key_has_to_be_written_as_such(self) -> None:
        with refused(404) as error:
            find_route(path_segments(b"/v1/queues/p/values/a/b", ""))
        assert "%2F" in error.value.detail

    @pytest.mark.parametrize("bad", [b"%", b"%1", b"%zz", b"a%"])
    def test_a_bad_escape_is_refused(self, bad: bytes) -> None:
        with refused(400):
            decoded(bad, what="The key")

    def test_every_route_can_be_found(self) -> None:
        for route in ROUTES:
            for method in route.methods:
                found, _ = find_route(path_segments(f"/{route.path}".encode(), ""), method, writable=True)
                assert found is route

    def test_r46_requests_are_bounded(self) -> None:
        scope = {"method": "GET", "path": "/", "raw_path": b"/", "headers": [], "query_string": b""}
        assert read_request(scope).segments == (b"",)
        assert read_request({"method": "GET", "path": "/a%b ü", "headers": []}).segments == (b"a%25b%20%C3%BC",)
        with refused(414):
            read_request({**scope, "query_string": b"a" * 9000})
        with refused(431):
            read_request({**scope, "headers": [(b"a", b"b")] * 65})
        with refused(431):
            read_request({**scope, "headers": [(b"a", b"b" * 17_000)]})

    @pytest.mark.parametrize(
        ("raw", "sent", "host"),
        [
            (b"/live", [b"a"], "a"),
            (b"/live", [], None),
            (b"/live", [b"a", b"a"], None),
            (b"http://b:1/live", [b"a"], "b:1"),
            (b"HTTPS://b/live", [], "b"),
            (b"http:///live", [b"a"], ""),
        ],
    )
    def test_r46_the_host_is_the_one_that_counts(self, raw: bytes, sent: list[bytes], host: str | None) -> None:
        headers = [(b"host", name) for name in sent]
        request = read_request({"method": "GET", "path": "/", "raw_path": raw, "headers": headers})
        assert (request.host, request.segments) == (host, (b"live",))

    def test_r46_a_request_with_two_lengths_ends_its_connection(self) -> None:
        headers = [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")]
        with refused(400) as error:
            read_request({"method": "GET", "path": "/", "headers": headers})
        assert ("connection", "close") in error.value.headers


class TestQueries:
    KNOWN: ClassVar = {
        "keys": Parameter(KEY, "", several=True),
        "text": Parameter(TEXT, ""),
        "limit": Parameter(whole_number(10), ""),
        "wait": Parameter(seconds(60), ""),
        "changed": Parameter(FLAG, ""),
    }

    @given(st.lists(st.binary(max_size=8), max_size=5), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
    def test_r2_keys_are_any_bytes_and_text_is_text(self, keys: list[bytes], said: str) -> None:
        query = "&".join([*(f"keys={quote_plus(one)}" for one in keys), f"text={quote_plus(said)}"])
        found = parse_query(query.encode(), self.KNOWN)
        assert (found.get("keys", []), found["text"]) == (keys, said)

    def test_values_are_of_their_kinds(self) -> None:
        found = parse_query(b"limit=10&wait=0.5&changed=1&&text=", self.KNOWN)
        assert found == {"limit": 10, "wait": 0.5, "changed": True, "text": ""}

    @pytest.mark.parametrize(
        ("query", "fault"),
        [
            (b"limit=0", "whole number from 1 to 10"),
            (b"limit=11", "whole number"),
            (b"limit=1e1", "whole number"),
            (b"wait=61", "seconds from 0 to 60"),
            (b"wait=nan", "seconds"),
            (b"wait=-1", "seconds"),
            (b"changed=yes", "0 or 1"),
            (b"text=%FF", "UTF-8"),
            (b"text=a&text=b", "twice"),
            (b"limits=1", "Did you mean limit?"),
            (b"zzz", "There are keys, text"),
            (b"text=%", "percent sign"),
            (b"&".join([b"keys=a"] * 1001), "more than 1,000"),
        ],
    )
    def test_anything_else_is_refused_with_the_culprit(self, query: bytes, fault: str) -> None:
        with refused(400) as error:
            parse_query(query, self.KNOWN)
        assert fault in error.value.detail


class TestEvents:
    NAMES = st.sampled_from(["value", "deleted", "state"])
    IDS = st.none() | st.text(string.ascii_letters, max_size=5)

    @given(st.lists(st.tuples(NAMES, st.text(st.characters(exclude_categories=["Cs"])), IDS)), st.integers(1, 7))
    def test_events_arrive_as_they_were_sent_however_they_are_cut(self, sent: list[Any], size: int) -> None:
        data = b"".join(
            (b"" if at is None else id_bytes(at)) + event_bytes(name, said.encode()) for name, said, at in sent
        )
        data += HEARTBEAT
        parser, found = EventParser(), []
        for at in range(0, len(data), size):
            found += parser.feed(data[at : at + size])
        last, expected = "", []
        for name, said, at in sent:
            last = last if at is None else at
            lines = said.replace("\r\n", "\n").replace("\r", "\n")
            expected.append((name, lines, last))
        assert [(event.name, event.data, event.last_id) for event in found] == expected
        assert parser.comments == 1

    def test_a_stream_says_when_to_connect_again(self) -> None:
        parser = EventParser()
        assert parser.feed(retry_bytes(2000)) == []
        assert parser.retry == 2000


class TestProblems:
    def test_every_error_of_the_library_has_a_status(self) -> None:
        kinds = [kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), LVQError)]
        assert STATUS[-1] == (LVQError, 500)
        for number, (kind, _) in enumerate(STATUS):
            assert not any(issubclass(kind, earlier) for earlier, _ in STATUS[:number]), f"{kind} is never reached"
        assert len(kinds) > 50

    def test_an_error_is_told_in_its_own_words_and_by_its_name(self) -> None:
        refusal = refusal_of(DataLoss("It is gone.", hint="Begin again."))
        assert json.loads(problem_body(refusal)) == {
            "title": "Gone",
            "status": 410,
            "detail": "It is gone. Begin again.",
            "error": "DataLoss",
        }

    def test_only_what_may_succeed_soon_says_when(self) -> None:
        soon = [
            CatchUpTimeout("late"),
            BrokerUnavailable("out", code="_TRANSPORT", retriable=True),
        ]
        assert [dict(refusal_of(error).headers) for error in soon] == [{"retry-after": "1"}] * 2
        assert refusal_of(BrokerUnavailable("out", code="_TRANSPORT")).headers == ()
        assert status_of(errors.UnencodableKey("no key")) == 400

    def test_r46_an_answer_says_how_current_it_is(self) -> None:
        status = ReaderStatus("stale", None, None, {0: 3}, (1, 2), [], 1.23456)
        assert dict(state_headers(status, {1: 17, 0: 42})) == {
            "lvq-state": "stale",
            "lvq-age": "1.235",
            "lvq-cut": "0=42, 1=17",
        }
        assert "lvq-cut" not in dict(state_headers(status, dict.fromkeys(range(1000), 1_000_000)))
