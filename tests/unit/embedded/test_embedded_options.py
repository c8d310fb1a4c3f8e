"""Wrong options of the embedded broker, refused before anything is started."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka import embedded
from lvq_kafka.embedded import EmbeddedBroker, find_java, start_daemon, stop_daemon
from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.errors import ConfigError


@pytest.mark.parametrize("port", [-1, 65536, True, 1.5, "9092"])
def test_a_port_that_is_none_is_named(port: Any) -> None:
    with pytest.raises(ConfigError, match=f"port={port!r} is not a port") as caught:
        EmbeddedBroker(port=port)
    assert caught.value.options == ("port",)


NUMBERS: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
    "EmbeddedBroker.port": (lambda x: EmbeddedBroker(port=x), [-1, 65536, True, 1.5, "9092"]),
    "EmbeddedBroker.startup_timeout": (lambda x: EmbeddedBroker(startup_timeout=x), [math.nan, True, "5"]),
    "start_daemon.port": (lambda x: start_daemon(port=x), [-1, 65536, True, 1.5, "9092"]),
    "start_daemon.startup_timeout": (lambda x: start_daemon(startup_timeout=x), [math.nan, True, "5"]),
    "stop_daemon.timeout": (lambda x: stop_daemon(timeout=x), [math.nan, True, "5"]),
    "find_java.minimum": (lambda x: find_java(x), [0, True, 17.0, "17"]),
}
RESULTS = ("BrokerStatus", "Java")


def numeric_options() -> Iterator[str]:
    """Yield the numeric parameters of all public calls."""
    for name in set(embedded.__all__) - set(RESULTS):
        public = getattr(embedded, name)
        calls = [public.__init__, *vars(public).values()] if inspect.isclass(public) else [public]
        for call in filter(inspect.isfunction, calls):
            for parameter in inspect.signature(call).parameters.values():
                if {"int", "float"} & set(str(parameter.annotation).split(" | ")):
                    yield f"{name}.{parameter.name}"


def test_the_table_has_every_numeric_option() -> None:
    assert set(numeric_options()) == NUMBERS.keys()


@pytest.mark.parametrize("option", NUMBERS)
def test_a_number_that_makes_no_sense_is_refused_by_name(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LVQ_CACHE_DIR", str(tmp_path))
    call, wrong = NUMBERS[option]
    for bad in wrong:
        with pytest.raises(ConfigError) as caught:
            call(bad)
        assert caught.value.options == (option.rpartition(".")[2],), bad


def test_port_0_is_any_that_is_free() -> None:
    assert EmbeddedBroker(port=0)._options.port is None


def test_a_listener_cannot_have_the_name_of_one_of_the_brokers_own() -> None:
    with pytest.raises(ConfigError, match="already has a listener named controller"):
        EmbeddedBroker(listeners={"controller": Listener.sasl({"alice": "secret"})})
