"""Failures of Java's Kafka client, or of Spark's connector above it, as library errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from lvq_kafka.cluster.rights import lacking
from lvq_kafka.core.facts import Right
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    ConfigError,
    DataLoss,
    LVQError,
    TopicNotFound,
    Unauthorized,
)

__all__ = ["java_error"]


def java_error(text: str) -> LVQError | None:
    """Return the error that the text of a Spark error describes; None if it describes none.

    The text may include Java's stack trace.
    """
    if found := _DENIED.search(text):
        right = Right("Read", "Topic" if found[1] == "Topic" else "Group", found[2])
        return lacking(right, "read with Spark's Kafka connector")
    for pattern, make, hint in _KINDS:
        if found := pattern.search(text):
            said = found[1].strip().rstrip(".")
            return make(f"Spark's Kafka connector has failed: {said}.", hint=hint)
    return None


def _kind(
    pattern: str, make: Callable[..., LVQError], hint: str
) -> tuple[re.Pattern[str], Callable[..., LVQError], str]:
    return re.compile(pattern), make, hint


# Each Java task reads one topic, as a member of one group.
_DENIED = re.compile(r"\.(Topic|Group)AuthorizationException: Not authorized to access (?:topics|group): \[?([\w.-]+)")

# From specific to general: when a broker refuses, an outer Java exception often reports a timeout.
_KINDS = (
    _kind(
        r"\.((?:Topic|Group|Cluster)AuthorizationException: .*)",
        partial(Unauthorized, code=""),
        "Ask for an ACL that allows reading it, or use another user.",
    ),
    _kind(
        r"\.((?:SaslAuthentication|SslAuthentication|UnsupportedSaslMechanism|IllegalSaslState)Exception: .*)",
        partial(AuthenticationFailed, code=""),
        "Check the security properties in connector_options or, if it has none, those of the queue's client.",
    ),
    _kind(
        r"\.(UnknownTopicOrPartitionException: .*)",
        partial(TopicNotFound, topic=""),
        "The topic was deleted after the cut was pinned: pin a new one.",
    ),
    _kind(
        r"(\[KAFKA_DATA_LOSS[^\n]*|[^\n]*OffsetOutOfRangeException: .*)",
        DataLoss,
        "The log has lost records of the cut: take a new one.",
    ),
    _kind(
        r"java\.lang\.((?:NoSuchFieldError|NoSuchMethodError|NoClassDefFoundError): [^\n]*)(?=[^:]*sql\.kafka010)",
        partial(ConfigError, options=["engine"]),
        "It is for another Spark version: use yours, --packages org.apache.spark:spark-sql-kafka-0-10_2.13:...",
    ),
    _kind(
        r"org\.apache\.kafka\.common\.errors\.((?:Timeout|Disconnect|BrokerNotAvailable)Exception: .*)",
        partial(BrokerUnavailable, code="", retriable=True),
        "Check that the brokers run, and that the executors can reach the addresses that they advertise.",
    ),
)
