"""Check a broker's readiness the way any client would."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from lvq_kafka.embedded.server_properties import HOST

__all__ = ["wait_until_ready"]

_PAUSE = 0.02


def wait_until_ready(port: int, *, alive: Callable[[], bool], timeout: float, brokers: int = 1) -> bool:
    """Wait until the broker on ``port`` reports all members, and a leader for each partition.

    ``brokers`` is the expected number of members. Return False as soon as ``alive`` does, or after ``timeout`` seconds.
    """
    # The client reports every refused connection on standard error and waits longer after each, so connect it only once
    # something listens.
    deadline = time.monotonic() + timeout
    while not _listens(port):
        if not alive() or time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)

    from lvq_kafka.kafka.readiness_probe import (
        ReadinessProbe,  # only now: starting a broker need not wait for this import
    )

    probe = ReadinessProbe(f"{HOST}:{port}")
    while alive() and time.monotonic() < deadline:
        if probe.serves(brokers):
            return True
        time.sleep(_PAUSE)
    return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        # A connection to a port of the outgoing range can, by chance, connect to itself.
        return probe.connect_ex((HOST, port)) == 0 and probe.getsockname() != probe.getpeername()
