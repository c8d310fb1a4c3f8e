"""Ask a broker whether it serves, the way any client would."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from lvq_kafka.embedded.server_properties import HOST

__all__ = ["wait_until_ready"]

_PAUSE = 0.02


def wait_until_ready(port: int, *, alive: Callable[[], bool], timeout: float, brokers: int = 1) -> bool:
    """Wait until the broker on ``port`` names ``brokers`` members to a client, and a leader for each partition.

    Return False as soon as ``alive`` does, or after ``timeout`` seconds.
    """
    # The client reports every refused connection on standard error and waits longer after each: connect it only
    # once somebody listens.
    deadline = time.monotonic() + timeout
    while not _listens(port):
        if not alive() or time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)

    from lvq_kafka.kafka.readiness_probe import (
        ReadinessProbe,  # only now: who starts a broker need not wait for the client to be imported
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
        # A connection to a port of the outgoing range can, by chance, be one to itself.
        return probe.connect_ex((HOST, port)) == 0 and probe.getsockname() != probe.getpeername()
