"""The value of a key over HTTP: bodies, tags, waiting, positions, keys of any bytes (R46)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka.serialization import StringDeserializer, StringSerializer

from lvq_kafka import BYTES, DECLARED, JSON, TEXT, LastValueQueue, serializers
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.serve import app, long_answers
from lvq_kafka.serve.value_routes import ENTRY
from lvq_kafka.testing import MemoryCluster
from tests.unit.serve.asgi_client import AsgiClient
from tests.unit.serve.scenes import scene

IBM = "/v1/queues/prices/values/IBM"


async def test_r46_a_value_is_its_bytes_with_a_tag_and_the_state_of_the_view() -> None:
    async with scene() as on:
        reply = await on.client.get(IBM)
        topic_id = on.view.cut.topic_id
        assert (reply.status, reply.body) == (200, b"118.50")
        assert float(reply.headers.pop("lvq-age")) >= 0
        assert reply.headers == {
            "content-type": "text/plain; charset=utf-8",
            "content-length": "6",
            "etag": f'"{quote(topic_id, safe="")}.0.0.text"',
            "lvq-state": "caught-up",
            "lvq-cut": "0=2",
            "vary": "accept",
            "cache-control": "no-cache",
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "no-referrer",
        }
        head = await on.client.get(IBM, method="HEAD")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "6")
        assert head.headers["etag"] == reply.headers["etag"]


async def test_r46_a_value_that_the_client_has_is_not_sent_however_busy_the_queue_is() -> None:
    async with scene() as on:
        tag = (await on.client.get(IBM)).headers["etag"]
        on.put(MSFT="28.00")
        await on.settle()
        known = await on.client.get(IBM, if_none_match=f'"other", {tag}')
        assert (known.status, known.body, known.headers["etag"]) == (304, b"", tag)
        assert "content-length" not in known.headers
        assert known.headers["lvq-cut"] == "0=3"
        on.put(IBM="118.50")  # written again: another position, another tag
        await on.settle()
        again = await on.client.get(IBM, if_none_match=tag)
        assert (again.status, again.body) == (200, b"118.50")
        assert again.headers["etag"] != tag


async def test_r46_a_server_with_another_format_has_other_tags() -> None:
    """An entry and a type depend on the format, so what a client has of the server before is something else."""
    tags = set()
    async with scene() as on:
        for codec in (BYTES, TEXT, JSON):
            values = LastValueQueue("prices", key_header="ticker", cluster=on.cluster, value=codec)
            with values.view() as view:
                client = AsgiClient(app(view))
                tags |= {(await client.get(IBM, accept=accept)).headers["etag"] for accept in ("*/*", ENTRY)}
    assert len(tags) == 6


@pytest.mark.parametrize(
    ("codec", "stored", "kind", "value"),
    [
        (TEXT, b"1", "text/plain; charset=utf-8", {"value": "1"}),
        (BYTES, b"\xff", "application/octet-stream", {"value": {"base64": "/w=="}}),
        (JSON, b'{"a": 1}', "application/json", {"value": {"a": 1}}),
        (JSON, b"{", "application/json", {"undecodable": "{"}),
        (TEXT, b"<script>", "text/plain; charset=utf-8", {"value": "<script>"}),
    ],
)
async def test_the_type_is_that_of_the_queue_and_an_entry_has_its_headers(codec, stored, kind, value) -> None:  # type: ignore[no-untyped-def]
    async with scene(codec) as on:
        on.cluster.write("prices", b"k", stored, [("content-type", b"text/html")])
        await on.settle()
        plain = await on.client.get("/v1/queues/prices/values/k")
        assert (plain.headers["content-type"], plain.body) == (kind, stored)
        entry = await on.client.get("/v1/queues/prices/values/k", accept=ENTRY)
        assert entry.headers["content-type"] == ENTRY
        assert entry.headers["etag"] != plain.headers["etag"]
        row = entry.json
        assert row.pop("timestamp") > 0
        assert row == {"key": "k", "position": "prices/0/2", "headers": {"content-type": "text/html"}, **value}
        as_json = await on.client.get("/v1/queues/prices/values/k", accept="application/json")
        assert as_json.headers["content-type"] == "application/json"
        assert as_json.body == (stored if codec is JSON else entry.body)
        assert (await on.client.get("/v1/queues/prices/values/k", accept="image/png")).status == 406


async def test_r2_r46_a_key_may_be_any_bytes() -> None:
    keys = [b"", b"a/b", b"a b", b"%2F", "Zürich".encode(), b"\xff\x00", b"a?b#c", b"+", b"..a"]
    async with scene() as on:
        for number, key in enumerate(keys):
            on.cluster.write("prices", key, b"%d" % number)
        await on.settle()
        for number, key in enumerate(keys):
            reply = await on.client.get(f"/v1/queues/prices/values/{quote(key, safe='')}")
            assert (reply.status, reply.body) == (200, b"%d" % number), key
        assert (await on.client.get("/v1/queues/prices/values/a/b")).status == 404
        assert (await on.client.get("/v1/queues/prices/values/%zz")).status == 400


async def test_r46_a_missing_key_is_a_problem_with_the_cut() -> None:
    async with scene() as on:
        reply = await on.client.get("/v1/queues/prices/values/FB")
        assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
        assert (reply.headers["lvq-cut"], reply.headers["lvq-state"]) == ("0=2", "caught-up")
        assert reply.json["detail"] == "prices has no value for the key 'FB'."
        on.put(IBM=None)
        await on.settle()
        assert (await on.client.get(IBM)).status == 404


class TestWaiting:
    async def test_r46_a_wait_ends_when_the_value_changes(self) -> None:
        async with scene() as on:
            tag = (await on.client.get(IBM)).headers["etag"]
            waits = [
                asyncio.ensure_future(on.client.get(f"{IBM}?wait=15", if_none_match=tag)),
                asyncio.ensure_future(on.client.get(f"{IBM}?wait=15")),
            ]
            await self.waiting(on, 2)
            on.put(MSFT="28.00")
            await on.settle()
            assert not any(wait.done() for wait in waits)
            on.put(IBM="119.00")
            replies = await asyncio.gather(*waits)
            assert [(reply.status, reply.body) for reply in replies] == [(200, b"119.00")] * 2
            await self.waiting(on, 0)

    async def test_r46_a_wait_that_ends_without_a_change_says_so(self) -> None:
        async with scene() as on:
            tag = (await on.client.get(IBM)).headers["etag"]
            assert (await on.client.get(f"{IBM}?wait=0.01", if_none_match=tag)).status == 304
            assert (await on.client.get(f"{IBM}?wait=0.01")).body == b"118.50"
            assert (await on.client.get("/v1/queues/prices/values/FB?wait=0.01")).status == 404

    async def test_r46_a_client_that_has_an_old_value_does_not_wait(self) -> None:
        async with scene() as on:
            assert (await on.client.get(f"{IBM}?wait=15", if_none_match='"old"')).status == 200
            assert (await on.client.get("/v1/queues/prices/values/FB?wait=15", if_none_match='"old"')).status == 404

    async def test_r46_a_wait_for_a_missing_key_ends_with_its_first_value_and_one_for_a_delete_with_it(self) -> None:
        async with scene() as on:
            wait = asyncio.ensure_future(on.client.get("/v1/queues/prices/values/FB?wait=15"))
            gone = asyncio.ensure_future(on.client.get(f"{IBM}?wait=15"))
            await self.waiting(on, 2)
            on.put(FB="27.78", IBM=None)
            assert (await wait).body == b"27.78"
            assert (await gone).status == 404

    async def test_a_wait_of_a_client_that_leaves_ends(self) -> None:
        async with scene() as on:
            leave = asyncio.Event()
            wait = asyncio.ensure_future(on.client.get(f"{IBM}?wait=15", leave=leave))
            await self.waiting(on, 1)
            leave.set()
            await wait
            await self.waiting(on, 0)

    async def test_waits_are_bounded_in_time_and_number_and_end_with_the_server(self) -> None:
        async with scene(max_streams=1, max_wait=30) as on:
            assert "from 0 to 30" in (await on.client.get(f"{IBM}?wait=31")).json["detail"]
            wait = asyncio.ensure_future(on.client.get(f"{IBM}?wait=15"))
            await self.waiting(on, 1)
            refused = await on.client.get(f"{IBM}?wait=15")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert (await on.client.get(IBM)).status == 200
            on.app.end_streams()
            assert (await wait).body == b"118.50"
            assert (await on.client.get(f"{IBM}?wait=15")).status == 503

    async def waiting(self, on, number: int) -> None:  # type: ignore[no-untyped-def]
        """Wait until this many requests wait, each with a watch."""
        async with asyncio.timeout(10):
            while (on.app.open_streams, len(on.view._shared.notifier)) != (number, number):
                await asyncio.sleep(0)


class TestPositions:
    async def test_g7_r46_a_read_after_a_write_has_it(self) -> None:
        async with scene() as on:
            on.put(IBM="119.00")
            assert (await on.client.get(f"{IBM}?at-least=prices/0/2")).body == b"119.00"
            wait = asyncio.ensure_future(on.client.get(f"{IBM}?at-least=prices/0/3&wait=15"))
            on.put(IBM="120.00")
            assert (await wait).body == b"120.00"
            on.put(IBM=None)
            gone = await on.client.get(f"{IBM}?at-least=prices%2F0%2F4")
            assert (gone.status, gone.headers["lvq-cut"]) == (404, "0=5")

    async def test_g7_r46_a_wait_for_a_position_is_not_answered_with_an_older_value_when_the_server_ends(self) -> None:
        async with scene() as on:
            wait = asyncio.ensure_future(on.client.get(f"{IBM}?at-least=prices/0/9&wait=15"))
            async with asyncio.timeout(10):
                while on.app.open_streams == 0:
                    await asyncio.sleep(0)
            on.app.end_streams()
            assert (await wait).status == 503

    async def test_r46_waits_that_hold_a_thread_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hundreds, which each change wakes, would hold up everybody else."""
        monkeypatch.setattr(long_answers, "_MOST_THREADS", 2)
        async with scene() as on:
            waits = [asyncio.ensure_future(on.client.get(f"{IBM}?at-least=prices/0/9&wait=15")) for _ in range(2)]
            async with asyncio.timeout(10):
                while on.app.open_streams != 2:
                    await asyncio.sleep(0)
            page = (await on.client.get("/v1/queues/prices/values?limit=1")).json["token"]
            token = replace(PageToken.parse(page, "after"), offsets={0: 9}).text
            for path in (f"{IBM}?at-least=prices/0/9&wait=15", f"/v1/queues/prices/values?after={token}"):
                refused = await on.client.get(path)
                assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            at_once = f"/v1/queues/prices/values?after={page}"
            for path in (IBM, f"{IBM}?at-least=prices/0/1", f"{IBM}?wait=0.01", at_once):
                assert (await on.client.get(path)).status == 200
            on.app.end_streams()
            assert [(await wait).status for wait in waits] == [503, 503]
            assert (on.app._long_answers._threads, on.app.open_streams) == (0, 0)

    async def test_g7_r46_a_position_that_is_not_reached_in_time_is_a_problem(self) -> None:
        async with scene() as on:
            late = await on.client.get(f"{IBM}?at-least=prices/0/9&wait=0.01")
            assert (late.status, late.json["error"], late.headers["retry-after"]) == (503, "CatchUpTimeout", "1")
            for other, status in {"orders/0/1": 400, "prices/0/7": 503, "garbage": 400, "": 400}.items():
                assert (await on.client.get(f"{IBM}?at-least={other}&wait=0")).status == status

    async def test_r46_a_position_in_a_partition_that_does_not_exist_is_400(self) -> None:
        async with scene(partitions=2) as on:
            assert (await on.client.get(f"{IBM}?at-least=prices/1/9&wait=0.01")).status == 503
            none = await on.client.get(f"{IBM}?at-least=prices/2/0&wait=0.01")
            assert (none.status, "retry-after" in none.headers) == (400, False)
            assert "The topic prices has no partition 2." in none.json["detail"]
            on.cluster.disconnect()
            async with asyncio.timeout(20):
                while on.view.state == "caught-up":
                    await asyncio.sleep(0.001)
            unknown = await on.client.get(f"{IBM}?at-least=prices/2/0&wait=0.01")
            assert unknown.status == 503, "there may be one by now"
            on.cluster.reconnect()


async def test_a_json_value_is_what_was_written() -> None:
    async with scene(JSON) as on:
        on.put(k='{"b":1,"a":[1.50]}')
        await on.settle()
        assert json.loads((await on.client.get("/v1/queues/prices/values/k")).body) == {"b": 1, "a": [1.5]}


@pytest.mark.parametrize("codec", [DECLARED, BYTES, serializers(StringSerializer(), StringDeserializer())])
async def test_r53_values_have_the_type_of_the_declared_format_or_of_their_codec(codec: Any) -> None:
    cluster = MemoryCluster()
    LastValueQueue.declare("prices", key_header="ticker", value=JSON, cluster=cluster)
    cluster.write("prices", b"IBM", b"[1]")
    async with (queue := LastValueQueue.open("prices", value=codec, cluster=cluster)).view() as view:
        await view.wait_caught_up_async(10)
        reply = await AsgiClient(app(view)).get(IBM)
    assert queue.definition.format == "json"
    assert reply.body == b"[1]"
    assert reply.headers["content-type"] == ("application/json" if codec is DECLARED else "application/octet-stream")
