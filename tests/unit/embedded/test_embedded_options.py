"""Wrong options of the embedded broker, refused before anything is started."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.errors import ConfigError


@pytest.mark.parametrize("port", [-1, 65536, True, 1.5, "9092"])
def test_a_port_that_is_none_is_named(port: Any) -> None:
    with pytest.raises(ConfigError, match=f"port={port!r} is not a port") as caught:
        EmbeddedBroker(port=port)
    assert caught.value.options == ("port",)


@pytest.mark.parametrize("timeout", [math.nan, True, "5"])
def test_a_time_to_wait_that_is_no_number_is_named(timeout: Any) -> None:
    with pytest.raises(ConfigError, match="startup_timeout must be a number of seconds") as caught:
        EmbeddedBroker(startup_timeout=timeout)
    assert caught.value.options == ("startup_timeout",)


def test_port_0_is_any_that_is_free() -> None:
    assert EmbeddedBroker(port=0)._options.port is None


def test_a_listener_cannot_have_the_name_of_one_of_the_brokers_own() -> None:
    with pytest.raises(ConfigError, match="already has a listener named controller"):
        EmbeddedBroker(listeners={"controller": Listener.sasl({"alice": "secret"})})
