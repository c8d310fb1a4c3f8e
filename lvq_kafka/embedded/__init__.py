"""A real Apache Kafka for development and tests, without Docker or an installation.

:class:`EmbeddedBroker` is a child process of the program that starts it, and ends with it. :func:`start_daemon` starts
one that runs until :func:`stop_daemon`. Needs Linux or macOS, Java 17 or newer, and the extra ``embedded``.
"""

from __future__ import annotations

from lvq_kafka.embedded.broker import EmbeddedBroker
from lvq_kafka.embedded.daemon import BrokerStatus, daemon_status, start_daemon, stop_daemon
from lvq_kafka.embedded.jars import ensure_jars
from lvq_kafka.embedded.java import Java, find_java
from lvq_kafka.embedded.listeners import Listener

__all__ = [
    "BrokerStatus",
    "EmbeddedBroker",
    "Java",
    "Listener",
    "daemon_status",
    "ensure_jars",
    "find_java",
    "start_daemon",
    "stop_daemon",
]
