"""Expected failures end with one traceback: the error says what happened, so its cause adds nothing."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import lvq_kafka
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.embedded.cache import cache_dir, filling
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.kafka.settings import culprits_among
from lvq_kafka.runtime.extras import needing
from lvq_kafka.selectors.of_queues import queue_selector

Patch = pytest.MonkeyPatch


def a_missing_package(patch: Patch, file: Path) -> object:
    patch.setitem(sys.modules, "numpy", None)
    with needing("spark", "lvq_spark"):
        return importlib.import_module("numpy")


def a_selector_that_was_stored_damaged(patch: Patch, file: Path) -> object:
    return queue_selector(QueueDefinition(name="q", topic="q", key_header="k", selector="price >"))


def a_setting_that_the_cluster_refuses(patch: Patch, file: Path) -> object:
    with culprits_among({"retention.ms": "soon"}):
        raise ConfigError("Invalid value soon for configuration retention.ms")


def a_cache_that_cannot_be_made(patch: Patch, file: Path) -> object:
    patch.setenv("LVQ_CACHE_DIR", str(file / "cache"))
    return cache_dir()


def a_cache_that_cannot_be_written(patch: Patch, file: Path) -> object:
    with filling(file, "jars"):
        return (file / "jar").open("w")


def data_in_no_directory(patch: Patch, file: Path) -> object:
    return EmbeddedBroker(data_dir=file / "data").start()


def a_server_that_is_none(patch: Patch, file: Path) -> object:
    return lvq_kafka.connect("localhost:port")


@pytest.mark.parametrize(
    "fails",
    [
        a_missing_package,
        a_selector_that_was_stored_damaged,
        a_setting_that_the_cluster_refuses,
        a_cache_that_cannot_be_made,
        a_cache_that_cannot_be_written,
        data_in_no_directory,
        a_server_that_is_none,
    ],
)
def test_an_expected_failure_ends_with_one_traceback(
    fails: Callable[[Patch, Path], object], monkeypatch: Patch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LVQError) as caught:
        fails(monkeypatch, file)
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1
