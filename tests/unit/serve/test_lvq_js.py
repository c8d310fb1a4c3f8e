"""lvq.js, in Node: parsing, keys of any bytes, states, and that it converges however often it is cut off (R47)."""

from __future__ import annotations

import asyncio
import random
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka import BYTES, JSON, TEXT, LastValueQueue
from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.serve import app, token_file
from lvq_kafka.testing import MemoryCluster
from tests.event_parser import EventParser
from tests.listening import CutLine, listening
from tests.nodejs import WEB, NodeProgram
from tests.unit.serve.asgi_client import AsgiClient
from tests.unit.serve.scenes import scene, values_of
from tests.waiting import eventually

PROGRAM = Path(__file__).with_name("lvq_js_program.mjs")
MODULE = WEB / "lvq.js"
QUICK = {"pause": 0.005, "longestPause": 0.05}


def coded(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProgram]:
    with NodeProgram(PROGRAM, str(MODULE)) as program:
        yield program


class Following:
    """A queue in memory that is served, and a client that follows it over a line."""

    def __init__(self, node: NodeProgram, opened: ExitStack, codec: Any = TEXT, **options: Any) -> None:
        self.node = node
        self.cluster = MemoryCluster()
        queue = values_of(self.cluster, codec)
        self.view: Any = opened.enter_context(queue.view(metadata_interval=0.05, undecodable="raw"))
        self.app = app(self.view, **options)

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await self.app(scope, receive, send)  # which may be another by then

        self.line = opened.enter_context(CutLine(opened.enter_context(listening(answer))))
        opened.callback(self.app.end_streams)
        opened.callback(node.ask, {"do": "close"})
        self.base = f"http://127.0.0.1:{self.line.port}"

    def follow(self, **options: Any) -> None:
        """Let the client follow the queue, of which the view has read all."""
        self.view.barrier(20)
        self.node.ask({"do": "follow", "name": "prices", "options": {"base": self.base, **QUICK, **options}})

    def look(self) -> Any:
        return self.node.ask({"do": "look"})

    def put(self, key: str, value: str | None) -> None:
        self.cluster.write("prices", key.encode(), None if value is None else value.encode())

    def changes(self) -> list[Any]:
        found: list[Any] = self.node.ask({"do": "changes"})
        return found

    def reaches(self, state: str) -> Any:
        def reached() -> Any:
            seen = self.look()
            return seen if seen["state"] == state else None

        return eventually(reached, 20)

    def converges(self) -> None:
        """Wait until the client has what the view has, and says so."""

        def same() -> bool:
            seen = self.look()
            held = {entry["key"]: entry["value"] for entry in seen["entries"]}
            return seen["state"] == "caught-up" and held == {coded(k.encode()): v for k, v in self.view.items()}

        self.view.barrier(10)
        eventually(same, 20)


@pytest.fixture
def opening(node: NodeProgram) -> Iterator[Callable[..., Following]]:
    with ExitStack() as opened:
        yield lambda *arguments, **options: Following(node, opened, *arguments, **options)


# -------------------------------------------------------------------- rules


FIELDS = [b"event: value", b"data: {}", b"data:  x", b"data", b"id: 7", b"id", b"id: \0", b": c", b"", "ä€😀".encode()]
LINES = st.lists(st.sampled_from(FIELDS), max_size=12)
ENDS = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=12, max_size=12)


@given(LINES, ENDS, st.lists(st.integers(0, 80)))
def test_r47_a_stream_is_parsed_alike_however_it_is_cut_into_parts(
    node: NodeProgram, lines: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(line + end for line, end in zip(lines, ends)) + b"\n\n"
    at = [0, *sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(at)]
    found = node.ask({"do": "parse", "chunks": list(map(coded, chunks)), "last": "6"})
    parser = EventParser()
    parser._next_id = "6"
    wanted = [{"name": event.name, "data": event.data, "lastEventId": event.last_id} for event in parser.feed(stream)]
    assert found == wanted


@given(st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_r2_r47_each_key_has_one_string_which_is_that_of_python(node: NodeProgram, key: bytes) -> None:
    found = node.ask({"do": "key", "bytes": coded(key)})
    assert found["bytes"] == coded(key)
    assert found["key"] == key.decode("utf-8", "surrogateescape")


def test_the_module_takes_nothing_from_elsewhere_and_puts_no_token_into_an_address() -> None:
    text = MODULE.read_text()
    assert not re.search(r"^import |import\(|eval|innerHTML|document\.", text, re.MULTILINE)
    assert [line.strip() for line in text.splitlines() if "Bearer" in line] == [
        "return token ? { authorization: `Bearer ${token}` } : {};"
    ]


async def test_the_application_serves_the_module_to_everybody(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("reader-of-prices-1 prices\n")
    async with scene(token_file=tmp_path / "tokens") as on:
        reply = await on.client.get("/lvq.js")
        assert (reply.status, reply.body) == (200, MODULE.read_bytes())
        assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
        assert reply.headers["x-content-type-options"] == "nosniff"
        again = await on.client.get("/lvq.js", if_none_match=reply.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        assert (await AsgiClient(on.app, host="evil.example").get("/lvq.js")).status == 421


# -------------------------------------------------------------------- following


def test_r47_a_client_that_is_cut_off_a_hundred_times_has_what_the_view_has_each_time(
    opening: Callable[..., Following],
) -> None:
    """It is cut off between events, within one and within a dump, while values are written and deleted."""
    on = opening()
    chance = random.Random(35)
    for number in range(50):
        on.put(f"k{number}", "first")
    on.follow()
    on.converges()
    for number in range(100):
        on.line.limits = [chance.randrange(1, 9000) for _ in range(number % 3)]
        for _ in range(chance.randrange(5)):
            value = None if chance.random() < 0.3 else f"{number} {'x' * chance.randrange(300)}"
            on.put(f"k{chance.randrange(60)}", value)
        on.line.cut()
        on.put(f"k{chance.randrange(60)}", str(number))
        on.converges()
    assert on.line.connections > 100
    replayed: dict[str, Any] = {}
    for change in on.changes():
        assert replayed.get(change["key"]) == change.get("previous")
        if "entry" in change:
            replayed[change["key"]] = change["entry"]
        else:
            del replayed[change["key"]]
    assert replayed == dict(on.view), "the reported changes lead to the same values"


def test_r47_a_client_that_starts_over_keeps_what_it_has_until_the_new_values_are_whole(
    opening: Callable[..., Following],
) -> None:
    on = opening()
    for number in range(20):
        on.put(f"k{number}", "old")
    on.follow()
    on.converges()
    on.changes()
    before = on.view.cut.topic_id
    on.line.refuse()
    on.cluster.topics.delete("prices")
    on.cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    for number in range(10):
        on.put(f"k{number}", "new" * 100)
    eventually(lambda: on.view.cut.topic_id != before and on.view.state == "caught-up", 20)
    on.line.limits = [2500]  # within the dump
    on.line.mend()
    on.converges()
    assert {change["reason"] for change in on.changes()} == {"loaded", "gone"}
    states = [state for state, _ in on.node.ask({"do": "states"})]
    assert "stale" in states[states.index("cut-off") :]


def test_r47_a_client_reads_all_values_again_once_the_server_has_another_format(
    opening: Callable[..., Following],
) -> None:
    """The same positions have other values then, and an event after which a client goes on brings none of them."""
    on = opening(TEXT)
    on.put("a", '{"x": 1}')
    on.put("b", "2")
    on.follow()
    on.converges()
    on.changes()
    with ExitStack() as opened:
        queue = LastValueQueue("prices", key_header="ticker", cluster=on.cluster, value=JSON)
        view = opened.enter_context(queue.view(metadata_interval=0.05))
        on.line.refuse()
        on.reaches("cut-off")
        on.app.end_streams()
        on.app = app(view)
        on.line.mend()
        on.node.ask({"do": "retry"})
        seen = on.reaches("caught-up")
        opened.callback(on.app.end_streams)
        assert seen["format"] == "json"
        assert [entry["value"] for entry in seen["entries"]] == [{"x": 1}, 2]
        changes = on.changes()
        assert [(change["previous"], change["entry"]) for change in changes] == [('{"x": 1}', {"x": 1}), ("2", 2)]
        on.line.refuse()
        on.reaches("cut-off")
        on.line.mend()
        on.node.ask({"do": "retry"})
        on.reaches("caught-up")
        assert on.changes() == [], "a client goes on from where it was if the format is the same"


@pytest.mark.parametrize(
    ("codec", "key", "stored", "shown"),
    [
        (TEXT, b"k", b"118.50", {"value": "118.50", "decoded": True}),
        (TEXT, b"\xff\x00k", b"\xfe", {"value": {"bytes": "/g=="}, "decoded": False}),
        (BYTES, b"", "ä".encode(), {"value": "ä", "decoded": True}),
        (BYTES, "\ufeffä".encode(), b"\xfe", {"value": {"bytes": "/g=="}, "decoded": True}),
        (JSON, b"k", b'{"base64": "eA=="}', {"value": {"base64": "eA=="}, "decoded": True}),
        (JSON, b"k", b"12345678901234567890", {"value": {"bigint": "12345678901234567890"}, "decoded": True}),
        (JSON, b"k", b"0.12345678901234567", {"value": 0.12345678901234567, "decoded": True}),
        (JSON, b"k", b"{", {"value": "{", "decoded": False}),
    ],
)
def test_r2_r47_keys_and_values_are_what_was_written(
    opening: Callable[..., Following], codec: Any, key: bytes, stored: bytes, shown: Any
) -> None:
    on = opening(codec)
    on.cluster.write("prices", key, stored, [("a", b"1"), ("a", b"\xff"), ("n", None)])
    on.follow()
    (entry,) = on.reaches("caught-up")["entries"]
    assert entry.pop("position") == "prices/0/0"
    assert entry == {"key": coded(key), "headers": [["a", "1"], ["a", {"bytes": "/w=="}], ["n", None]], **shown}
    assert on.look()["format"] == {TEXT: "text", BYTES: "bytes", JSON: "json"}[codec]
    assert 0 <= on.node.ask({"do": "ages"})[0] < 60


def test_r24_r47_a_client_may_follow_a_selection(opening: Callable[..., Following]) -> None:
    on = opening()
    for key in ("a/1", "a/2", "b&=%"):
        on.put(key, "1")
    for options, wanted in (
        ({"keys": ["a/1", "b&=%"]}, ["a/1", "b&=%"]),
        ({"prefix": "a/"}, ["a/1", "a/2"]),
        ({"every": 0.01, "changed": True, "selector": "ticker <> 'a/1' or ticker is null"}, ["a/1", "a/2", "b&=%"]),
    ):
        on.follow(**options)
        seen = on.reaches("caught-up")
        assert [entry["key"] for entry in seen["entries"]] == [coded(key.encode()) for key in wanted]


def test_a_fault_in_a_callback_does_not_end_the_following(opening: Callable[..., Following]) -> None:
    on = opening()
    on.put("a", "1")
    on.follow(faulty=True)
    on.reaches("caught-up")
    on.put("a", "2")
    on.converges()


# -------------------------------------------------------------------- states


def test_g4_r47_a_client_says_that_the_server_cannot_be_reached_and_how_old_its_values_are(
    opening: Callable[..., Following],
) -> None:
    on = opening()
    on.put("a", "1")
    on.follow()
    on.reaches("caught-up")
    on.line.refuse()
    seen = on.reaches("cut-off")
    assert (seen["complete"], seen["lag"], len(seen["entries"])) == (True, None, 1)
    assert seen["reason"]
    assert on.look()["age"] >= seen["age"] >= 0
    on.line.mend()
    on.node.ask({"do": "retry"})
    assert on.reaches("caught-up")["reason"] == ""


def test_g4_r47_values_grow_older_while_the_clock_is_set_back_and_while_the_machine_sleeps(
    opening: Callable[..., Following],
) -> None:
    """In a sleep, the clock goes on, and the steady one of some browsers does not."""
    on = opening()
    on.put("a", "1")
    on.follow()
    on.reaches("caught-up")
    on.line.refuse()
    on.reaches("cut-off")
    try:
        first = eventually(lambda: age if (age := on.look()["age"]) > 0.1 else None)
        (of_value,) = on.node.ask({"do": "ages"})
        for ahead, least in {-86_400: -0.01, 3600: 3599.99}.items():  # the two clocks count in different fractions
            on.node.ask({"do": "set", "ahead": ahead})
            assert first + least <= on.look()["age"] < first + least + 60
            assert of_value + least <= on.node.ask({"do": "ages"})[0] < of_value + least + 60
    finally:
        on.node.ask({"do": "set", "ahead": 0})


def test_g4_r47_a_client_notices_a_connection_that_is_dumb(opening: Callable[..., Following]) -> None:
    on = opening()
    on.follow(heartbeat=1, silence=2.5)
    on.reaches("caught-up")
    on.line.fall_dumb()
    assert on.reaches("cut-off")["reason"] == "Nothing was heard of the server for 2.5 s."
    on.line.mend()
    on.reaches("caught-up")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("3", 3.0),
        ("3600", 8.0),
        ("3000000", 8.0),  # more ms than a timer takes
        ("9" * 400, 8.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_r47_a_client_connects_again_ever_later_whatever_the_server_says_of_when(
    node: NodeProgram, said: str | None, seconds: float
) -> None:
    pauses = node.ask({"do": "pauses", "retryAfter": said, "number": 12})
    for attempt, pause in enumerate(pauses):
        most = min(8.0, max(seconds, 0.5 * 2**attempt))
        assert most / 2 <= pause <= most
    assert len(set(pauses[6:])) == 6, "clients that were cut off together do not come back together"


def test_g4_r47_comments_alone_do_not_keep_a_client_caught_up(node: NodeProgram) -> None:
    """A proxy may send them, and a server whose reader is stuck."""
    said = (
        'event: state\ndata: {"state": "caught-up", "lag": 0, "age": 0}\n\n'
        'event: reset\ndata: {"reason": "All values follow."}\n\n'
        'event: end-of-dump\ndata: {"topic_id": "t", "as_of": 1}\n\n'
    )

    async def commenting(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"lvq-format", b"text")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": said.encode(), "more_body": True})
        await receive()
        left = asyncio.ensure_future(receive())
        parts = cycle([b":", b" data", b"\n", b"\n", b":\n\n"])
        while not (await asyncio.wait({left}, timeout=0.02))[0]:
            await send({"type": "http.response.body", "body": next(parts), "more_body": True})

    with listening(commenting) as port:
        options = {"base": f"http://127.0.0.1:{port}", "silence": 1, **QUICK}
        node.ask({"do": "follow", "name": "prices", "options": options})
        steps = [["caught-up", ""], ["cut-off", "Nothing was heard of the server for 1 s."]]
        eventually(lambda: steps in map(list, pairwise(node.ask({"do": "states"}))), 20)
        node.ask({"do": "close"})


def test_g4_r47_any_part_of_an_event_counts_as_heard(node: NodeProgram) -> None:
    """A value of many bytes may take longer than the silence after which a connection counts as cut off."""
    heard = {
        ": da": False,
        "ta": False,
        "\n": False,
        ":\n\n": False,
        "da": True,
        "ta: {": True,
        "}\n": True,
        "\n\n": True,
    }
    chunks = [coded(chunk.encode()) for chunk in heard]
    assert node.ask({"do": "heard", "chunks": chunks}) == list(heard.values())


@pytest.mark.parametrize(
    ("options", "silence"), [({}, 10), ({"heartbeat": 1}, 10), ({"heartbeat": 30}, 75), ({"silence": 3}, 3)]
)
def test_g4_r47_a_client_waits_for_two_reports_before_it_counts_as_cut_off(
    node: NodeProgram, options: dict[str, int], silence: float
) -> None:
    assert node.ask({"do": "silence", "options": options})[0] == silence


def test_g4_r47_a_client_says_what_the_view_says(opening: Callable[..., Following]) -> None:
    on = opening()
    on.put("a", "1")
    on.follow(heartbeat=1)
    on.reaches("caught-up")
    on.cluster.disconnect()
    seen = on.reaches("disconnected")
    assert seen["reason"]
    assert seen["complete"] is True
    on.cluster.reconnect()
    on.reaches("caught-up")
    on.view._follower.fail(BrokerUnavailable("The broker burns.", code="_FAIL"))
    assert "The broker burns." in on.reaches("failed")["reason"]


def test_g1_r47_a_client_of_a_view_that_was_never_complete_is_not_complete(node: NodeProgram) -> None:
    cluster = MemoryCluster()
    queue = values_of(cluster)
    with ExitStack() as opened:
        producer = opened.enter_context(queue.producer(transactional_id="t"))
        transaction = ExitStack()
        opened.enter_context(transaction)
        transaction.enter_context(producer.transaction())
        producer.put("IBM", "1")
        view = queue.view(metadata_interval=0.05).start()
        opened.callback(view.close)
        served = app(view)
        port = opened.enter_context(listening(served))
        opened.callback(served.end_streams)
        options = {"base": f"http://127.0.0.1:{port}", **QUICK}
        node.ask({"do": "follow", "name": "prices", "options": options})
        seen = eventually(lambda: look if (look := node.ask({"do": "look"}))["state"] == "blocked" else None, 20)
        assert "prices is not complete yet" in seen["reason"]
        assert "hides later records" in seen["reason"]
        assert (seen["complete"], seen["entries"]) == (False, [])
        transaction.close()
        assert node.ask({"do": "loaded"}) == 1
        node.ask({"do": "close"})
        assert node.ask({"do": "look"})["state"] == "closed"


def test_r46_r47_a_client_without_a_valid_token_is_refused_and_does_not_ask_again(
    opening: Callable[..., Following], tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("reader-of-prices-1 prices\nreader-of-other-12345 other\n")
    on = opening(token_file=tmp_path / "tokens")
    for token, status in {None: 401, "reader-of-nothing-1": 401, "reader-of-other-12345": 403}.items():
        on.follow(**({} if token is None else {"token": token}))
        assert on.node.ask({"do": "loaded"})["status"] == status
        seen = on.look()
        assert (seen["state"], seen["complete"]) == ("refused", False)
        assert "token" in seen["reason"]
    on.follow(token="reader-of-prices-1")
    on.reaches("caught-up")

    def listed(**options: Any) -> Any:
        return on.node.ask({"do": "list", "options": {"base": on.base, **options}})

    assert listed()["status"] == 401
    assert [row["name"] for row in listed(token="reader-of-prices-1")] == ["prices"]
    assert listed(token="reader-of-other-12345") == []


def test_r46_r47_a_client_that_was_refused_keeps_its_values_and_goes_on_when_it_is_told_to_retry(
    opening: Callable[..., Following], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(token_file, "_EVERY", 0.0)
    tokens = tmp_path / "tokens"
    tokens.write_text("reader-of-prices-1 prices\n")
    on = opening(token_file=tokens)
    on.put("a", "1")
    on.follow(token="reader-of-prices-1")
    on.reaches("caught-up")
    tokens.write_text("reader-of-prices-1 other\n")
    on.put("a", "2")
    seen = on.reaches("refused")
    assert (seen["complete"], len(seen["entries"]), seen["refusal"]) == (True, 1, 403)
    tokens.write_text("reader-of-prices-1 prices\n")
    on.node.ask({"do": "retry"})
    on.converges()
    assert on.look()["refusal"] is None


def test_a_queue_that_is_not_there_and_an_address_that_is_none_are_refused(opening: Callable[..., Following]) -> None:
    on = opening()
    on.node.ask({"do": "follow", "name": "a/ä", "options": {"base": on.base}})
    assert on.node.ask({"do": "loaded"}) == {"error": on.look()["reason"], "status": 404}
    assert "There is no queue 'a/ä' here." in on.look()["reason"]
    assert "base must be the address of a server" in on.node.ask({"do": "refuses", "base": "file:///x"})
    assert on.node.ask({"do": "refuses"}).startswith("base must be")


def test_r47_an_answer_without_its_headers_is_no_reason_to_give_up(node: NodeProgram) -> None:
    """A browser takes an answer that was cut off in its headers for a whole one."""

    async def headless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with listening(headless) as port:
        options = {"base": f"http://127.0.0.1:{port}", **QUICK}
        node.ask({"do": "follow", "name": "prices", "options": options})
        seen = eventually(lambda: look if (look := node.ask({"do": "look"}))["state"] != "connecting" else None, 20)
        assert (seen["state"], seen["complete"]) == ("cut-off", False)
        assert seen["reason"].startswith("No stream of events comes from http://127.0.0.1:")
        node.ask({"do": "close"})
