"""Choose free ports."""

from __future__ import annotations

import random
import socket

from lvq_kafka.embedded.server_properties import HOST

__all__ = ["free_ports", "is_free"]

# Below the ports that Linux and macOS use for outgoing connections. A client might take one of those while the broker
# is down between a kill and a restart; often it is the very client that is trying to reach it.
_RANGE = range(20_000, 32_000)
_random = random.SystemRandom()


def is_free(port: int) -> bool:
    """Return whether a server could listen on ``port`` of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: TIME_WAIT does not count
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports. Another process may still be quicker to use one."""
    chosen: list[int] = []
    while len(chosen) < count:
        port = _random.choice(_RANGE)
        if port not in chosen and is_free(port):
            chosen.append(port)
    return chosen
