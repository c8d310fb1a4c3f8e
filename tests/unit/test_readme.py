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
from lvq_kafka.testing import MemoryLog
from tests.readme import README, block
from tests.waiting import eventually


def test_the_example_without_a_broker_runs() -> None:
    exec(block("python", "MemoryLog()"), {})


def test_the_example_with_async_for_runs(memory_log: MemoryLog, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(block("python", "view.watch()"), names)
    queue = LastValueQueue.declare("prices", key_header="ticker", log=memory_log)
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


def test_the_examples_of_consuming_run(memory_log: MemoryLog) -> None:
    names: dict[str, Any] = {}
    exec(block("python", "max_deliveries=5"), names)
    for name in ("prices", "doubled"):
        LastValueQueue.declare(name, key_header="ticker", value=TEXT, log=memory_log)
    memory_log.create_topic("prices.dlq", partitions=1, config={})
    queue, output = (LastValueQueue.open(name, value=TEXT, log=memory_log) for name in ("prices", "doubled"))
    with queue.producer() as producer:
        producer.put("IBM", "1")
        producer.put("MSFT", "2")

    def refuse(delivery: Delivery[str]) -> None:
        if delivery.key == "IBM":
            delivery.reject("no such ticker")
        else:
            delivery.release(delay=60)
        if memory_log.end_offsets("prices.dlq") == {0: 1}:
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


def test_the_table_of_settings_is_what_declare_does() -> None:
    rows = dict(re.findall(r"^\| `([a-z.]+)`[^|]*\| [^|]*\| ([^|]*) \|$", README, re.MULTILINE))
    created = topic_settings(TopicSpec(replication_factor=3)).keys()
    assert {setting for setting in created if setting not in README} == set()
    for setting, reason in rows.items():
        assert setting in created
        if setting in ("cleanup.policy", "message.timestamp.type", "delete.retention.ms", "min.insync.replicas"):
            assert reason == reason_for(setting)


def test_every_error_of_the_tree_is_in_the_tree() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        assert re.search(rf"\b{name}\b", errors.__doc__), f"{name} is missing from the picture in errors.py"
