"""The application: what it opens and closes, whom it lets in, and what it says before it is complete (R46)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from lvq_kafka import TEXT, LastValueQueue, Producer, attach
from lvq_kafka.errors import Closed, ConfigError, StateError
from lvq_kafka.serve import QueueApp, app
from lvq_kafka.testing import MemoryCluster
from tests.unit.serve.asgi_client import AsgiClient
from tests.unit.serve.scenes import scene, values_of

IBM = "/v1/queues/prices/values/IBM"
PATHS = (IBM, "/v1/queues/prices/values", "/v1/queues/prices/values/FB", "/v1/queues/prices/events")


async def test_g1_r46_before_it_is_complete_every_read_is_unavailable_and_none_is_not_found() -> None:
    cluster = MemoryCluster()
    queue = values_of(cluster)
    cluster.write("prices", b"IBM", b"118.50")
    with queue.producer(transactional_id="t") as producer, ExitStack() as opened:
        opened.enter_context(producer.transaction())
        producer.put("FB", "1")
        async with app(queue) as served:
            client = AsgiClient(served)
            for path in PATHS:
                reply = await client.get(path)
                assert (reply.status, reply.headers["retry-after"]) == (503, "1"), path
                assert reply.headers["content-type"] == "application/problem+json"
                assert "prices is not complete yet" in reply.json["detail"]
            assert (await client.get("/ready")).status == 503
            assert (await client.get("/v1/queues/prices")).json["complete"] is False
            opened.close()
            async with asyncio.timeout(20):
                while (await client.get("/ready")).status == 503:
                    await asyncio.sleep(0.01)
            assert (await client.get(IBM)).body == b"118.50"
            assert (await client.get("/v1/queues/prices/values/FB")).body == b"1"
            assert (await client.get("/v1/queues/prices/values/GE")).status == 404


async def test_it_opens_queues_and_closes_what_it_has_opened_in_its_lifespan() -> None:
    cluster = MemoryCluster()
    queue = values_of(cluster)
    other = LastValueQueue.declare("other", key_header="k", value=TEXT, cluster=cluster)
    with other.view() as view:
        served = app(queue, view)
        client = AsgiClient(served)
        early = await client.get(IBM)
        assert (early.status, "Its lifespan does not run" in early.json["detail"]) == (503, True)
        assert (await client.get("/ready")).status == 503
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        life = asyncio.ensure_future(served({"type": "lifespan"}, messages.get, sent.put))
        messages.put_nowait({"type": "lifespan.startup"})
        assert (await sent.get())["type"] == "lifespan.startup.complete"
        assert len((await client.get("/v1/queues")).json["queues"]) == 2
        opened = served._queues["prices"].view
        messages.put_nowait({"type": "lifespan.shutdown"})
        assert (await sent.get())["type"] == "lifespan.shutdown.complete"
        await life
        assert (opened.state, view.state) == ("closed", "caught-up")
        assert [(await client.get(path)).status for path in (IBM, "/ready")] == [503, 503]
        async with served, asyncio.timeout(20):
            while (await client.get("/ready")).status == 503:
                await asyncio.sleep(0.01)
            assert (await client.get("/v1/queues/other/values")).status == 200


async def test_r52_producers_are_closed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes some time while the cluster does not answer."""
    cluster, closing, aclose = MemoryCluster(), asyncio.Barrier(3), Producer.aclose

    async def aclose_with_others(producer: Producer[Any], timeout: float | None = None) -> None:
        await asyncio.wait_for(closing.wait(), 10)
        await aclose(producer, timeout)

    monkeypatch.setattr(Producer, "aclose", aclose_with_others)
    queues = [
        LastValueQueue.declare(name, key_header="k", value=TEXT, cluster=cluster) for name in ("prices", "fx", "oil")
    ]
    served = app(*queues, writable=True)
    async with served:
        views = [found.view for found in served._queues.values()]
        producers = [writer._producer for writer in served._writers.values()]
    for producer in producers:
        assert producer is not None
        with pytest.raises(Closed):
            producer.put("a", b"1")
    assert (served._writers, [view.state for view in views]) == ({}, ["closed"] * 3)


async def test_a_queue_that_cannot_be_opened_fails_the_startup_with_the_reason() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue("missing", key_header=None, cluster=cluster)
    messages, sent = iter([{"type": "lifespan.startup"}]), []

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await app(queue)({"type": "lifespan"}, receive, send)
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "missing" in sent[0]["message"]


@pytest.mark.parametrize("attached", [False, True])
async def test_r41_r46_it_serves_views_with_a_store_and_attached_ones(tmp_path: Path, attached: bool) -> None:
    cluster = MemoryCluster()
    queue = values_of(cluster)
    cluster.write("prices", b"IBM", b"118.50")
    with ExitStack() as opened:
        view: Any = opened.enter_context(queue.view(store=tmp_path / "s"))
        if attached:
            view = opened.enter_context(attach(tmp_path / "s", value=TEXT))
        client = AsgiClient(app(view))
        assert (await client.get(IBM)).body == b"118.50"
        page = (await client.get("/v1/queues/prices/values")).json
        async with client.stream("/v1/queues/prices/events") as stream:
            last = (await stream.until("end-of-dump"))[-1].last_id
            cluster.write("prices", b"IBM", b"119.00")
            assert (await stream.event("value")).json["value"] == "119.00"
        for since in (last, page["token"]):
            async with client.stream(f"/v1/queues/prices/events?since={since}") as stream:
                assert [event.name for event in await stream.until("end-of-dump")] == ["state", "value", "end-of-dump"]
        lines = await client.get("/v1/queues/prices/values", accept="application/x-ndjson")
        assert len(lines.body.splitlines()) == 3


async def test_it_can_be_mounted_anywhere() -> None:
    async with scene() as on:
        outer = FastAPI()
        outer.mount("/api/lvq", on.app)
        transport = httpx.ASGITransport(outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            reply = await client.get(f"/api/lvq{IBM}")
            assert (reply.status_code, reply.text) == (200, "118.50")
            on.cluster.write("prices", b"a/b", b"1")
            await on.settle()
            assert (await client.get("/api/lvq/v1/queues/prices/values/a%2Fb")).text == "1"
            assert (await client.get("/api/lvq/live")).json() == {"live": True}
        root = AsgiClient(on.app, root="/behind")
        assert (await root.get(f"/behind{IBM}")).status == 200


class TestAdmission:
    TOKENS = "reader-of-prices-1 prices\nreader-of-all-1234567 *\nreader-of-other-12345 other\n"

    async def test_r46_only_get_and_head_are_answered(self) -> None:
        async with scene() as on:
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "GETS"):
                reply = await on.client.get(IBM, method=method)
                assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")

    async def test_r46_a_request_for_a_foreign_host_is_refused_and_no_origin_is_let_in(self) -> None:
        async with scene() as on:
            evil = AsgiClient(on.app, host="evil.example")
            for path in (IBM, "/live", "/v1/queues"):
                reply = await evil.get(path)
                assert (reply.status, b"118.50" in reply.body) == (421, False)
            reply = await on.client.get(IBM, origin="https://evil.example")
            assert not any(name.startswith("access-control") for name in reply.headers)
        async with scene(hosts=["prices.example.com"]) as on:
            assert (await AsgiClient(on.app, host="prices.example.com:8443").get(IBM)).status == 200

    async def test_r46_a_token_reads_its_queues_and_no_answer_shows_one(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tmp_path / "tokens"
        file.write_text(self.TOKENS)
        caplog.set_level(logging.DEBUG)
        async with scene(token_file=file) as on:

            async def status(path: str, token: str | None) -> int:
                headers = {} if token is None else {"authorization": f"Bearer {token}"}
                reply = await on.client.get(path, **headers)
                assert b"reader-of" not in reply.body
                return reply.status

            mine, every, others = (line.split()[0] for line in self.TOKENS.splitlines())
            assert [await status(IBM, token) for token in (mine, every, others, None, "x" * 20)] == [
                200,
                200,
                403,
                401,
                401,
            ]
            assert [await status("/v1/queues/secret", token) for token in (mine, every, None)] == [403, 404, 401]
            assert [await status(path, None) for path in ("/live", "/ready", "/v1/queues")] == [200, 200, 401]
            listed = await on.client.get("/v1/queues", authorization=f"Bearer {others}")
            assert listed.json == {"queues": []}
            reply = await on.client.get(IBM, authorization=f"Bearer {mine}")
            assert reply.headers["cache-control"] == "private, no-cache"
        assert "reader-of" not in caplog.text

    async def test_a_fault_shows_nothing_of_itself(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with scene() as on:
            monkeypatch.setattr(type(on.view), "look_up", lambda *_: 1 / 0)
            reply = await on.client.get(IBM)
            assert reply.status == 500
            assert b"division" not in reply.body
            assert "division by zero" in caplog.text

    async def test_a_connection_that_is_not_http_is_closed(self) -> None:
        async with scene() as on:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            await on.app({"type": "websocket"}, None, send)  # type: ignore[arg-type]
            assert sent == [{"type": "websocket.close", "code": 1000}]
            with pytest.raises(NotImplementedError):
                await on.app({"type": "other"}, None, send)  # type: ignore[arg-type]


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    queue = values_of(cluster)
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("nothing to serve", (), {}),
        ("neither a queue nor a view", ("prices",), {}),
        ("Two sources are named", (queue, queue), {}),
        ("ready=", (queue,), {"ready": "caught-up"}),
        ("ready=", (queue,), {"ready": ["good"]}),
        ("ready=", (queue,), {"ready": []}),
        ("hosts is", (queue,), {"hosts": "a.example"}),
        ("max_streams", (queue,), {"max_streams": 0}),
        ("max_wait", (queue,), {"max_wait": 0}),
        ("heartbeat", (queue,), {"heartbeat": -1}),
        ("cannot be read: No such file", (queue,), {"token_file": tmp_path / "none"}),
        ("hots", (queue,), {"hots": []}),
    ]
    (tmp_path / "binary").write_bytes(b"\xff")
    cases.append(("not text in UTF-8", (queue,), {"token_file": tmp_path / "binary"}))
    for fault, sources, options in cases:
        with pytest.raises(ConfigError, match=fault):
            app(*sources, **options)
    view = queue.view()
    with pytest.raises(StateError, match="was not started"):
        app(view)
    with view:
        assert isinstance(app(view), QueueApp)
    with pytest.raises(Closed):
        app(view)
