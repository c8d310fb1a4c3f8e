"""Metrics over HTTP (R48), for those who may read the queues (R46)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.serve import app
from lvq_kafka.telemetry import Metrics
from lvq_kafka.testing import MemoryCluster
from tests.unit.serve.asgi_client import AsgiClient, Reply
from tests.unit.serve.scenes import scene, values_of

TOKENS = "a" * 32 + " prices\n" + "b" * 32 + " *\n"


def numbers(reply: Reply) -> dict[tuple[str, str], float]:
    assert reply.status == 200
    return {
        (sample.name, sample.labels.get("lvq_queue", "")): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


async def test_r48_the_metrics_of_views_are_served_as_prometheus_asks_for_them() -> None:
    async with scene() as here:
        plain = await here.client.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert plain.headers["cache-control"] == "no-store"
        found = numbers(plain)
        assert found["lvq_reader_values", "prices"] == 2
        assert found["lvq_serve_streams", ""] == 0
        asked = await here.client.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
        assert asked.headers["content-type"].startswith("application/openmetrics-text")
        assert asked.body.endswith(b"# EOF\n")
        async with here.client.stream("/v1/queues/prices/events"):
            assert numbers(await here.client.get("/metrics"))["lvq_serve_streams", ""] == 1
        assert (await here.client.get("/metrics?a=1")).status == 400
        assert (await here.client.get("/metrics", method="HEAD")).body == b""


async def test_r46_r48_metrics_need_a_token_and_name_no_queue_that_its_bearer_may_not_read(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    cluster = MemoryCluster()
    other = LastValueQueue.declare("other", key_header="k", value=TEXT, cluster=cluster)
    with values_of(cluster).view() as prices, other.view() as others:
        client = AsgiClient(app(prices, others, token_file=tmp_path / "tokens"))
        assert (await client.get("/metrics")).status == 401
        some = await client.get("/metrics", authorization=f"Bearer {'a' * 32}")
        assert ("other" in some.body.decode(), ("lvq_reader_values", "prices") in numbers(some)) == (False, True)
        everything = numbers(await client.get("/metrics", authorization=f"Bearer {'b' * 32}"))
        assert {queue for _, queue in everything} == {"", "prices", "other"}
        async with app(prices, others, writable=[other], token_file=tmp_path / "tokens") as written:
            client = AsgiClient(written)
            some = await client.get("/metrics", authorization=f"Bearer {'a' * 32}")
            assert "other" not in some.body.decode(), "also as the topic of a producer"
            everything = await client.get("/metrics", authorization=f"Bearer {'b' * 32}")
            assert 'messaging_destination_name="other"' in everything.body.decode()


async def test_r48_a_view_that_was_closed_is_measured_no_longer_and_its_counters_stay() -> None:
    cluster = MemoryCluster()
    queue = values_of(cluster)
    cluster.write("prices", b"IBM", b"1")
    served = app(queue)
    client = AsgiClient(served)
    for read in (1, 2):
        async with served:
            await served._queues["prices"].view.wait_caught_up_async(10)
            assert numbers(await client.get("/metrics"))["lvq_reader_read_total", "prices"] == read
        ended = numbers(await client.get("/metrics"))
        assert ended["lvq_reader_read_total", "prices"] == read
        assert ("lvq_reader_values", "prices") not in ended


async def test_r48_a_program_shows_its_own_clients_beside_the_views() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="k", value=TEXT, cluster=cluster)
    with queue.producer() as producer:
        metrics = Metrics().add(producer)
        producer.put("IBM", "1")
        alone = numbers(await AsgiClient(app(metrics=metrics)).get("/metrics"))
        assert alone["messaging_client_sent_messages_total", ""] == 1


async def test_r48_metrics_without_the_package_of_prometheus_say_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client.exposition", None)
    async with scene() as here:
        reply = await here.client.get("/metrics")
        assert (reply.status, "lvq-kafka[prometheus]" in reply.json["detail"]) == (501, True)


def test_an_argument_that_is_no_metrics_is_refused() -> None:
    with pytest.raises(ConfigError, match="metrics"):
        app(metrics="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nothing to serve"):
        app()
