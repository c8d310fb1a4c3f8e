"""Translation of the client's errors into the library's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lvq_kafka.cluster.rights import lacking
from lvq_kafka.core.facts import Resource, Right
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    ConfigError,
    DataLoss,
    LVQError,
    MessageTooLarge,
    TopicNotFound,
    TransportError,
    Unauthorized,
)
from lvq_kafka.kafka.refusals import is_refusal, refusal_of

__all__ = [
    "NOISE",
    "NO_TOPIC",
    "TRANSIENT",
    "UNAUTHORIZED",
    "UNREACHABLE",
    "kafka_error",
    "no_broker_is_ready",
    "translate",
]

UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Codes when no broker answers, or the broker that was asked went away.

``_DESTROY_BROKER`` means that the cluster no longer lists it.
"""

TRANSIENT = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes of a cluster that answers, but is busy with something transient.

The client often does not call these retriable.
"""

_RESOURCES: dict[int, Resource] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalId",
}
"""The type of resource on which a right is missing."""

UNAUTHORIZED = frozenset(_RESOURCES)
"""Codes when the broker knows the user, but denies access."""

NO_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""Codes for a topic that does not exist."""

NOISE = re.compile(r" \(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)")
"""The suffix of the client's messages that varies between repeats and helps no reader."""

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_OUT_OF_RANGE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})
_BAD_REQUEST = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_GROUP_ID,
        KafkaError._INVALID_ARG,
    }
)


def kafka_error(error: BaseException) -> KafkaError | None:
    """Return the client's error inside an exception; None for other exceptions."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def no_broker_is_ready(error: KafkaError) -> bool:
    """Return whether a topic cannot be created for now: the controller hears from no broker.

    A cluster that has just started is in this state, and so is one whose only broker is too starved to send heartbeats.
    Kafka answers with the code of a replication factor that is too high.
    """
    return error.code() == KafkaError.INVALID_REPLICATION_FACTOR and "brokers are currently fenced" in error.str()


def translate(
    error: KafkaError,
    doing: str,
    *,
    topic: str | None = None,
    needs: Sequence[Right] = (),
    servers: str = "",
    detail: str = "",
    properties: Mapping[str, Any] | None = None,
) -> LVQError:
    """Return the library's error for a client's error.

    ``doing`` completes "Cannot …" (``"describe topic 'prices'"``). ``needs`` are the rights that it takes: brokers name
    only the type of resource on which one is missing. ``detail`` is what the client reported about its connections; it
    often says more than the call that failed. ``properties`` are the client's.
    """
    code, name = error.code(), error.name()
    reason = _sentence(error.str())
    what = f"Cannot {doing}: {reason}"
    if is_refusal(error):
        refusal = refusal_of(error, properties or {})
        return AuthenticationFailed(f"{what} {refusal.reason}".rstrip(), code=refusal.code, hint=refusal.hint)
    if code in UNAUTHORIZED:
        missing = _missing(code, needs)
        if missing is not None:
            return lacking(missing, doing, code=name)
        hint = f"Ask for an ACL on the {_RESOURCES[code]} that allows it, or use another user."
        return Unauthorized(what, code=name, hint=hint)
    if code in NO_TOPIC and topic is not None:
        return TopicNotFound(
            f"Cannot {doing}: there is no such topic, or this user may not see it.",
            topic=topic,
            hint="Check the topic's name and the cluster, or declare a queue.",
        )
    if code == KafkaError.BROKER_NOT_AVAILABLE or no_broker_is_ready(error):
        hint = "Try again when the controllers count a broker as alive; the logs of both say why they do not."
        return BrokerUnavailable(what, code=name, retriable=True, hint=hint)
    if code in UNREACHABLE:
        where = f" No answer from {servers}." if servers else ""
        said = f" The client says: {_sentence(detail)}" if detail else f" {reason}"
        return BrokerUnavailable(
            f"Cannot {doing}.{where}{said}",
            code=name,
            retriable=True,
            hint="Check that the broker is running, that host and port are right, and that security.protocol matches "
            "the port.",
        )
    if code in _TOO_LARGE:
        hint = "Send less, or raise the topic's max.message.bytes and the client's message.max.bytes."
        return MessageTooLarge(what, code=name, hint=hint)
    if code in _OUT_OF_RANGE:
        return DataLoss(what, hint="Read from the beginning of the log again. For a queue: lvq repair, or lvq reset.")
    if code in _BAD_REQUEST:
        return ConfigError(what)
    return TransportError(what, code=name, retriable=error.retriable() or code in TRANSIENT)


def _missing(code: int, needs: Sequence[Right]) -> Right | None:
    """Return the required right that a broker's error refers to."""
    resource = _RESOURCES[code]
    for right in needs:
        # Before the first message a broker requires IdempotentWrite on the cluster, or Write on any topic.
        if right.resource == resource or (resource == "Cluster" and (right[:2] == ("Write", "Topic"))):
            return right
    return None


_HANDSHAKE = re.compile(r"(?:SSL handshake failed: )?Disconnected: SSL connection closed by peer.*")
# OpenSSL's own message, which the client prefixes in different ways.
_OPENSSL = re.compile(r"(?:(?:Receive|Send|SSL handshake) failed: )?error:[0-9A-F]+:SSL routines::")
_ADVICE = re.compile(r"(certificate verify failed): broker certificate could not be verified, verify that.*")
_NO_KAFKA = re.compile(r"Receive failed: Invalid response size.*")


def _sentence(text: str) -> str:
    """Return the client's message as a sentence, without details for its authors only."""
    text = NOISE.sub("", text)
    # The client words this in two ways; only the second one adds what it may mean.
    text = _ADVICE.sub(r"\1", _OPENSSL.sub("", text))
    text = _HANDSHAKE.sub("The other side broke off the TLS handshake: is it a PLAINTEXT listener?", text)
    # The client takes the reply of another kind of server, such as a web server, for the size of a Kafka response.
    text = _NO_KAFKA.sub("The server there does not speak Kafka's protocol", text).strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
