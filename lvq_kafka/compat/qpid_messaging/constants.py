"""The constants of ``qpid.messaging``."""

from __future__ import annotations

__all__ = ["AMQPS_PORT", "AMQP_PORT", "REJECTED", "RELEASED", "UNLIMITED", "Constant"]

AMQP_PORT = 5672
"""The port of AMQP brokers. A Kafka is not there: a host without a port is taken for that host's 9092."""

AMQPS_PORT = 5671
"""The port of AMQP brokers for TLS; see `AMQP_PORT`."""


class Constant:
    """A value that equals only itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


UNLIMITED = Constant("UNLIMITED")
"""The capacity of a sender or receiver without a limit."""

REJECTED = Constant("REJECTED")
"""The disposition of a message that is removed from its queue without being processed."""

RELEASED = Constant("RELEASED")
"""The disposition of a message that is returned to its queue."""
