"""What the README shows works, as far as it needs no broker; tests/integration/test_readme.py has the rest."""

from __future__ import annotations

import asyncio
import re

import pytest

from lvq_kafka import LastValueQueue, errors
from lvq_kafka.core.policy import TopicSpec, reason_for, topic_settings
from lvq_kafka.testing import MemoryLog
from tests.readme import README, block


def test_the_example_without_a_broker_runs() -> None:
    exec(block("python", "MemoryLog()"), {})


def test_the_example_with_async_for_runs(memory_log: MemoryLog, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(block("python", "async for"), names)
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
