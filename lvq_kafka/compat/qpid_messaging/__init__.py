"""Qpid's API ``qpid.messaging`` for Python, on queues of this library.

A program that uses it runs on Kafka once its import line says ``lvq_kafka.compat.qpid_messaging``::

    from lvq_kafka.compat.qpid_messaging import Connection, Message

``docs/how-to/qpid-messaging.md`` says what is as it was, and what differs by which rule.
"""

from __future__ import annotations

from uuid import uuid4

from lvq_kafka.compat.qpid_messaging import exceptions
from lvq_kafka.compat.qpid_messaging.connection import Connection
from lvq_kafka.compat.qpid_messaging.constants import AMQP_PORT, AMQPS_PORT, REJECTED, RELEASED, UNLIMITED
from lvq_kafka.compat.qpid_messaging.exceptions import *  # noqa: F403
from lvq_kafka.compat.qpid_messaging.message import Disposition, Message
from lvq_kafka.compat.qpid_messaging.receiver import Receiver
from lvq_kafka.compat.qpid_messaging.sender import Sender
from lvq_kafka.compat.qpid_messaging.session import Session

__all__ = [
    "AMQPS_PORT",
    "AMQP_PORT",
    "REJECTED",
    "RELEASED",
    "UNLIMITED",
    "Connection",
    "Disposition",
    "Message",
    "Receiver",
    "Sender",
    "Session",
    "uuid4",
    *exceptions.__all__,
]
