"""What the README shows works, as far as it needs no broker; tests/integration/test_readme.py has the rest."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue, errors
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.policy import TopicSpec, reason_for, topic_settings
from lvq_kafka.testing import MemoryCluster
from tests.readme import README, block
from tests.waiting import eventually


def test_the_example_without_a_broker_runs() -> None:
    exec(block("python", "MemoryCluster()"), {})


def test_the_example_with_async_for_runs(memory_cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(block("python", "view.watch()"), names)
    queue = LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster)
    with queue.view() as view, queue.producer() as producer:

        async def main() -> None:
            task = asyncio.ensure_future(names["follow"](view))  # type: ignore[operator]
            await asyncio.sleep(0)
            producer.put("IBM", b"1")
            while "IBM" not in capsys.readouterr().out:
                await asyncio.sleep(0)
            view.close()
            await task

        asyncio.run(asyncio.wait_for(main(), 10))


def test_the_example_of_a_program_in_asyncio_runs(
    memory_cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    exec(block("python", "view.watch()"), names)
    LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster)
    asyncio.run(asyncio.wait_for(names["serve"](cluster=memory_cluster), 20))
    assert "visible: 119.50" in capsys.readouterr().out


def test_the_examples_of_consuming_run(memory_cluster: MemoryCluster) -> None:
    names: dict[str, Any] = {}
    exec(block("python", "max_deliveries=5"), names)
    for name in ("prices", "doubled"):
        LastValueQueue.declare(name, key_header="ticker", value=TEXT, cluster=memory_cluster)
    assert "`lvq declare prices.dlq --record-key`" in README
    LastValueQueue.declare("prices.dlq", key_header=None, cluster=memory_cluster)
    queue, output = (LastValueQueue.open(name, value=TEXT, cluster=memory_cluster) for name in ("prices", "doubled"))
    with queue.producer() as producer:
        producer.put("IBM", "1")
        producer.put("MSFT", "2")

    def refuse(delivery: Delivery[str]) -> None:
        if delivery.key == "IBM":
            delivery.reject("no such ticker")
        else:
            delivery.release(delay=60)
        if memory_cluster.logs.end_offsets("prices.dlq") == {0: 1}:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        names["consume"](queue, refuse)

    class Done(Exception):
        pass

    async def stop(value: str) -> None:
        assert value == "2"
        raise Done

    with pytest.raises(Done):
        asyncio.run(asyncio.wait_for(names["consume_async"](queue, stop), 20))

    def double(value: str) -> str:
        if value == "stop":
            raise Done
        return value * 2

    with queue.producer() as producer, output.view() as view, ThreadPoolExecutor() as threads:
        work = threads.submit(names["transform"], queue, output, double)
        eventually(lambda: dict(view) == {"MSFT": "22"})
        producer.put("IBM", "stop")
        with pytest.raises(Done):
            work.result(20)
        assert dict(view) == {"MSFT": "22"}


def test_the_example_of_browsing_runs(
    memory_cluster: MemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    exec(block("python", "def browse(queue)"), names)
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=memory_cluster)
    browsers: list[Any] = []
    browser = queue.browser
    monkeypatch.setattr(queue, "browser", lambda: browsers.append(browser()) or browsers[-1])
    said = ""

    def has_said(text: str) -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return said.endswith(text)

    with queue.producer() as producer, ThreadPoolExecutor() as threads:
        producer.put("MSFT", "27.95").result(10)
        browsing = threads.submit(names["browse"], queue)
        try:
            eventually(lambda: has_said("that was all there is; updates follow\n"))
            producer.put("IBM", "119.00").result(10)
            eventually(lambda: has_said("IBM 119.00 prices/0/1\n"))
            with queue.consumer() as consumer:
                taken = consumer.acquire(10)
                assert taken is not None
                taken.ack(wait=True)
            eventually(lambda: has_said("MSFT was consumed; a view still shows its value\n"))
            producer.delete("IBM").result(10)
            eventually(lambda: has_said("IBM is gone\n"))
        finally:
            eventually(lambda: browsers)[0].close()
        browsing.exception(10)
    dump, *updates = said.splitlines()
    assert dump == "MSFT 27.95 prices/0/0"
    assert updates == [
        "that was all there is; updates follow",
        "IBM 119.00 prices/0/1",
        "MSFT was consumed; a view still shows its value",
        "IBM is gone",
    ]


def test_the_table_of_settings_is_what_declare_does() -> None:
    created = topic_settings(TopicSpec(replication_factor=3))
    rows = re.findall(r"^\| (`[a-z.]+`(?:, `[a-z.]+`)*) \| ([^|]*) \| ([^|]*) \|$", README, re.MULTILINE)
    told: dict[str, str] = {}
    for names, values, reason in rows:
        settings = re.findall(r"`([a-z.]+)`", names)
        for setting, value in zip(settings, values.split(", "), strict=True):
            told[setting] = value
            if setting in ("cleanup.policy", "message.timestamp.type", "delete.retention.ms", "min.insync.replicas"):
                assert reason == reason_for(setting)
    assert {setting: in_kafka(value) for setting, value in told.items()} == created


def in_kafka(value: str) -> str:
    """A value of the table as Kafka has it."""
    match value.strip("`").split():
        case [number, unit] if unit in UNITS:
            return str(int(number) * UNITS[unit])
        case [number, "of", "3"]:
            return number
        case [text]:
            return text
    raise AssertionError(f"{value} cannot be compared")


UNITS = {"minute": 60_000, "h": 3_600_000, "day": 86_400_000, "MiB": 1 << 20}


def test_every_error_of_the_tree_is_in_the_tree() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        assert re.search(rf"\b{name}\b", errors.__doc__), f"{name} is missing from the picture in errors.py"
