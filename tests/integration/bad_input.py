"""Tools for tests of bad input: provoke errors in Python and in the shell, and check what holds for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import LVQError
from lvq_kafka.kafka import ClientConfig
from tests.integration.secure import PASSWORD

__all__ = ["AT_ONCE", "IN_TIME", "enter", "error_of", "lvq", "queue_of", "send"]

AT_ONCE = 8.0  # seconds, less than any default timeout: nothing should wait for the impossible
IN_TIME = 15.0  # seconds: the default timeouts, and some slack


def queue_of(config: ClientConfig, name: str = "prices", **options: Any) -> LastValueQueue[Any]:
    """Return the queue without checking its declaration."""
    return LastValueQueue(name, key_header="ticker", config=config, **options)


def enter(reader: Any) -> None:
    with reader:
        raise AssertionError("it can be opened")


def send(queue: LastValueQueue[Any]) -> None:
    with queue.producer() as producer:
        producer.put("IBM", b"never")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def error_of(call: Callable[[], object], seconds: float) -> LVQError:
    """Return the error of a call that must fail in time, with a hint and without secrets."""
    with within(seconds), pytest.raises(LVQError) as caught:
        call()
    error = caught.value
    assert error.hint
    assert error.hint in str(error)
    assert PASSWORD not in f"{error} {error!r} {error.__cause__}"
    return error


def lvq(*arguments: str, config: ClientConfig | str, folder: Path) -> tuple[int, str]:
    """Run ``lvq``, and return its exit code and its last line. It must show no secrets, even with ``--debug``."""
    command = [sys.executable, "-m", "lvq_kafka", *arguments]
    if isinstance(config, str):
        command += ["-b", config]
    else:
        file = folder / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in config.properties.items()))
        file.chmod(0o600)  # else there is a warning, too
        command += ["--config", str(file)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LVQ_")}
    with within(IN_TIME + 10), ThreadPoolExecutor() as pool:  # includes the start of an interpreter
        ran, debugged = pool.map(
            lambda more: subprocess.run(
                [*command, *more], capture_output=True, text=True, env=environment, timeout=60, check=False
            ),
            ([], ["--debug"]),
        )
    assert PASSWORD not in ran.stdout + ran.stderr + debugged.stdout + debugged.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("lvq: ")
    assert line in debugged.stderr
    return ran.returncode, line
