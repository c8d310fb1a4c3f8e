"""Queues, pages and whole queues over HTTP; probes (R46)."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lvq_kafka import BYTES, JSON
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.json_lines import parse_line
from lvq_kafka.serve import http_peer, list_routes
from tests.unit.serve.scenes import scene

VALUES = "/v1/queues/prices/values"


def keys(reply: Any) -> str:
    return " ".join(row["key"] for row in reply.json["values"])


async def test_r46_queues_have_their_state() -> None:
    async with scene() as on:
        (row,) = (await on.client.get("/v1/queues")).json["queues"]
        assert row == (await on.client.get("/v1/queues/prices")).json | {"age": row["age"], "as_of": row["as_of"]}
        assert row.pop("age") >= 0
        assert row.pop("as_of") > 0
        cut = on.view.cut
        assert row == {
            "name": "prices",
            "format": "text",
            "state": "caught-up",
            "complete": True,
            "lag": 0,
            "keys": 2,
            "topic_id": cut.topic_id,
            "cut": {"0": 2},
        }
        assert (await on.client.get("/v1/queues?x=1")).status == 400
        assert (await on.client.get("/v1/queues/other")).status == 404


async def test_r46_pages_are_in_order_of_keys() -> None:
    async with scene(partitions=2) as on:
        on.put(**dict.fromkeys("cabd", "1"))
        await on.settle()
        first = await on.client.get(f"{VALUES}?limit=4")
        assert (keys(first), first.json["last"]) == ("IBM MSFT a b", False)
        assert (first.headers["content-type"], first.headers["lvq-state"]) == ("application/json", "caught-up")
        second = await on.client.get(f"{VALUES}?after={first.json['token']}")
        assert (keys(second), second.json["last"]) == ("c d", True)
        assert keys(await on.client.get(f"{VALUES}?prefix=I")) == "IBM"
        other = await on.client.get(f"{VALUES}?after={first.json['token']}&prefix=I")
        assert (other.status, "prefix" in other.json["detail"]) == (400, True)
        assert (await on.client.get(f"{VALUES}?after=garbage")).status == 400
        assert (await on.client.get(f"{VALUES}?limit=1001")).status == 400
        head = await on.client.get(VALUES, method="HEAD")
        assert (head.status, head.body, int(head.headers["content-length"]) > 500) == (200, b"", True)


async def test_r28_r46_a_selector_selects_what_pages_have_and_each_page_says_where_it_ended() -> None:
    async with scene() as on:
        for number in range(50):
            on.cluster.write("prices", b"k%02d" % number, b"1", [("n", b"%d" % (number % 10))])
        await on.settle()
        found, token = "", ""
        while True:
            page = await on.client.get(f"{VALUES}?selector=n='7'&limit=2{token}")
            found += f" {keys(page)}"
            if page.json["last"]:
                break
            token = f"&after={page.json['token']}"
        assert found.split() == ["k07", "k17", "k27", "k37", "k47"]
        assert (await on.client.get(f"{VALUES}?selector=n=")).json["error"] == "ConfigError"


async def test_g8_r46_lines_are_an_export_at_one_cut_with_an_end() -> None:
    async with scene(JSON) as on:
        on.cluster.write("prices", b"\xff", b'{"a": 1}')
        await on.settle()
        reply = await on.client.get(VALUES, accept="application/x-ndjson")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/x-ndjson")
        assert reply.headers["lvq-cut"] == "0=3"
        lines = reply.body.decode().splitlines()
        head, *rows, end = map(json.loads, lines)
        assert (head["lvq_export"], head["offsets"], head["format"]) == (1, {"0": 3}, "json")
        assert [row.get("value") for row in rows] == [118.5, 27.95, {"a": 1}]
        assert (end["event"], end["values"], end["token"]) == ("end-of-dump", 3, reply.headers["lvq-token"])
        assert [line.key for text in lines if (line := parse_line(text, "json"))] == [b"IBM", b"MSFT", b"\xff"]
        some = await on.client.get(f"{VALUES}?prefix=I", accept="application/x-ndjson")
        assert [json.loads(line).get("key") for line in some.body.splitlines()] == [None, "IBM", None]
        assert (await on.client.get(f"{VALUES}?limit=1", accept="application/x-ndjson")).status == 400
        on.put(FB="1")
        await on.settle()
        async with on.client.stream(f"/v1/queues/prices/events?since={end['token']}") as stream:
            assert [event.name for event in await stream.until("end-of-dump")] == ["state", "value", "end-of-dump"]


async def test_r46_a_stream_after_a_snapshot_has_its_prefix() -> None:
    async with scene() as on:
        some = [
            await on.client.get(f"{VALUES}?prefix=I", accept=accept) for accept in ("application/x-ndjson", "text/csv")
        ]
        on.put(IBM="119.00", FB="1")
        await on.settle()
        for token in (json.loads(some[0].body.splitlines()[-1])["token"], some[1].headers["lvq-token"]):
            async with on.client.stream(f"/v1/queues/prices/events?since={token}") as stream:
                assert [event.name for event in await stream.until("end-of-dump")] == ["state", "value", "end-of-dump"]


async def test_r46_a_table_has_what_is_not_text_in_base64() -> None:
    async with scene(BYTES) as on:
        on.cluster.write("prices", b'a,"b"\n', b"\xff")
        await on.settle()
        reply = await on.client.get(VALUES, accept="text/csv")
        assert reply.headers["content-type"] == "text/csv; charset=utf-8; header=present"
        head, *rows = csv.reader(io.StringIO(reply.body.decode(), newline=""))
        assert head == ["key", "value", "position", "timestamp", "base64"]
        assert [row[:3] + row[4:] for row in rows] == [
            ["IBM", "118.50", "prices/0/0", ""],
            ["MSFT", "27.95", "prices/0/1", ""],
            ['a,"b"\n', "/w==", "prices/0/2", "value"],
        ]


async def test_r46_pages_and_parts_of_large_values_are_bounded_in_bytes() -> None:
    """Memory for a client is bounded, however large the values are."""
    async with scene() as on:
        names = [f"k{number:03}" for number in range(60)]
        for name in names:
            on.cluster.write("prices", name.encode(), b"x" * 200_000)
        await on.settle()
        found, token = "", ""
        while not (page := await on.client.get(f"{VALUES}?limit=1000&prefix=k{token}")).json["last"]:
            assert len(page.body) < 5_000_000
            found, token = f"{found} {keys(page)}", f"&after={page.json['token']}"
        assert f"{found} {keys(page)}".split() == names
        for accept in ("application/x-ndjson", "text/csv"):
            async with asyncio.timeout(20), on.client.stream(VALUES, accept=accept) as stream:
                while (part := await stream.parts.get()) is not None:
                    assert len(part) < 300_000


async def test_r46_pages_go_on_after_a_key_that_no_address_has_room_for() -> None:
    async with scene() as on:
        keys = [b"A" + Random(number).randbytes(20_000) if number % 3 else b"A%d" % number for number in range(12)]
        for key in keys:
            on.cluster.write("prices", key, b"1")
        await on.settle()
        number, token = 0, ""
        while not (page := await on.client.get(f"{VALUES}?limit=1&prefix=A{token}")).json["last"]:
            number, token = number + len(page.json["values"]), f"&after={page.json['token']}"
        assert number + len(page.json["values"]) == len(keys)


async def test_r46_a_page_that_waits_ends_with_its_client_or_the_server() -> None:
    """A token of a cut that this view has not reached makes it wait, and holds nothing once no one does."""
    async with scene() as on:
        cut = on.view.cut
        ahead = PageToken("prices", cut.topic_id, cut.as_of, {0: 1_000_000}, b"", b"A").text
        leave = asyncio.Event()
        waits = [
            asyncio.ensure_future(on.client.get(f"{VALUES}?after={ahead}", leave=leave)),
            asyncio.ensure_future(on.client.get(f"{VALUES}?after={ahead}")),
        ]
        for number, step in ((2, leave.set), (1, on.app.end_streams), (0, lambda: None)):
            async with asyncio.timeout(10):
                while on.app.open_streams != number:
                    await asyncio.sleep(0)
            step()
        assert [(await wait).status for wait in waits] == [503, 503]


async def test_r46_a_large_value_is_sent_in_parts_that_the_client_has_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as on:
        on.cluster.write("prices", b"k", b"x" * 1_000_000)
        await on.settle()
        assert len((await on.client.get(f"{VALUES}/k")).body) == 1_000_000
        monkeypatch.setattr(http_peer, "_SLOWEST", 0.05)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) == 3:
                await asyncio.Event().wait()

        call = on.app(on.client.scope(f"{VALUES}/k"), asyncio.Event().wait, send)  # type: ignore[arg-type]
        await asyncio.wait_for(call, 10)
        assert [message.get("more_body") for message in sent] == [None, True, True], "the end is missing"
        assert all(len(message["body"]) < 100_000 for message in sent[1:])


async def test_r46_r49_arrow_has_the_columns_of_the_cut() -> None:
    async with scene(JSON) as on:
        for number in range(9000):
            on.cluster.write("prices", b"k%04d" % number, b'{"n": %d}' % number)
        await on.settle()
        on.put(IBM='{"price": 118.5}', MSFT=None)
        await on.settle()
        reply = await on.client.get(VALUES, accept="application/vnd.apache.arrow.stream")
        assert reply.headers["content-type"] == "application/vnd.apache.arrow.stream"
        table = pa.ipc.open_stream(reply.body).read_all()
        assert (table.num_rows, table.column("value").chunk(0)[0].as_py()) == (9001, {"n": None, "price": 118.5})
        about = json.loads(table.schema.metadata[b"lvq"])
        assert (about["offsets"], reply.headers["lvq-cut"]) == ({"0": 9004}, "0=9004")
        assert reply.headers["lvq-token"]
        for query in ("limit=1", "prefix=I", "selector=a='1'"):
            asked = await on.client.get(f"{VALUES}?{query}", accept="application/vnd.apache.arrow.stream")
            assert asked.status == 400


async def test_r46_a_server_without_arrow_does_not_offer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_routes, "_OFFERS", list_routes._OFFERS[:-1])
    async with scene() as on:
        reply = await on.client.get(VALUES, accept="application/vnd.apache.arrow.stream")
        assert (reply.status, "text/csv" in reply.json["detail"]) == (406, True)


async def test_a_large_queue_is_sent_in_parts() -> None:
    async with scene() as on:
        for number in range(1000):
            on.cluster.write("prices", b"%d" % number, b"x" * 100)
        await on.settle()
        async with asyncio.timeout(20), on.client.stream(VALUES, accept="application/x-ndjson") as stream:
            parts = []
            while (part := await stream.parts.get()) is not None:
                parts.append(part)
            assert len(parts) > 3
            assert b"".join(parts).count(b"\n") == 1004
        assert on.app.open_streams == 0


async def test_r46_probes_follow_the_state() -> None:
    async with scene(ready=("caught-up", "disconnected")) as either, scene() as on:
        assert [(await on.client.get(path)).json for path in ("/live", "/ready")] == [{"live": True}, {"ready": True}]
        for each in (either, on):
            each.cluster.disconnect()
            async with asyncio.timeout(10):
                while each.view.state != "disconnected":
                    await asyncio.sleep(0)
        ready = await on.client.get("/ready")
        assert (ready.status, ready.json) == (503, {"ready": False})
        assert (await either.client.get("/ready")).status == 200
        assert (await on.client.get("/live")).status == 200
