"""Tables of librdkafka's properties: whose they are, the secret ones, and Java's names.

Whether a property exists and what values it takes is for librdkafka to judge; these tables only sort and explain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = [
    "COMMON",
    "CONSUMER_ONLY",
    "JAVA_NAMES",
    "OWNED",
    "PRODUCER_ONLY",
    "is_secret",
    "named_in",
    "without_secrets",
]

CONSUMER_ONLY = frozenset(
    {
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
        "share.acknowledgement.mode",
    }
)

PRODUCER_ONLY = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "partitioner",
        "produce.offset.report",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queuing.strategy",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)

COMMON = frozenset(
    {
        "allow.auto.create.topics",
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "bootstrap.servers",
        "broker.address.family",
        "broker.address.ttl",
        "broker.version.fallback",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "debug",
        "enable.metrics.push",
        "enable.random.seed",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "https.ca.location",
        "https.ca.pem",
        "log.connection.close",
        "log.thread.name",
        "log_level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.copy.max.bytes",
        "message.max.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "oauth_cb",
        "plugin.library.paths",
        "receive.message.max.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.blocking.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        "ssl.ca.certificate.stores",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.id",
        "ssl.engine.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.providers",
        "ssl.sigalgs.list",
        "statistics.interval.ms",
        "stats_cb",
        "throttle_cb",
        "topic.blacklist",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)

_SETTLED = "offsets are committed by the library itself, when messages are settled"
_COMMITTED = "every reader shows committed records only"
_DURABLE = "a message counts as sent when all in-sync replicas have it, once and in order"
_CALLBACK = "the library listens there itself"

OWNED = {
    "acks": _DURABLE,
    "request.required.acks": _DURABLE,
    "enable.idempotence": _DURABLE,
    "enable.gapless.guarantee": _DURABLE,
    "delivery.report.only.error": "every send reports its position",
    "partitioner": "keys must live where Java's murmur2 partitioner puts them, or writers would disagree about it",
    "transactional.id": "it names one writer, not a client; give it to the producer",
    "enable.auto.commit": _SETTLED,
    "auto.commit.enable": _SETTLED,
    "auto.commit.interval.ms": _SETTLED,
    "enable.auto.offset.store": _SETTLED,
    "isolation.level": _COMMITTED,
    "auto.offset.reset": "a position that is gone is an error (DataLoss), never a silent jump",
    "enable.partition.eof": "readers need the end of a partition to know that they are caught up",
    "group.id": "the consumer group is named after the queue",
    "partition.assignment.strategy": "partitions move one by one (cooperative-sticky), so that held messages stay held",
    "group.protocol.type": "it is always 'consumer'",
    "allow.auto.create.topics": "topics are created by declare only",
    "share.acknowledgement.mode": "share groups are not used",
    "max.poll.records": "librdkafka uses it in share groups only, and these are not used",
    "error_cb": _CALLBACK,
    "log_cb": _CALLBACK,
    "logger": "the client's log goes to the logger 'lvq_kafka.client'",
    "log.queue": "the client's log goes to the logger 'lvq_kafka.client'",
    "dr_cb": _CALLBACK,
    "dr_msg_cb": _CALLBACK,
    "on_delivery": _CALLBACK,
    "on_commit": _CALLBACK,
    "rebalance_cb": _CALLBACK,
    "default.topic.config": "librdkafka takes topic properties among the others",
}
"""Properties that the guarantees rest on, and why users cannot set them."""

_PEM_TRUST = "Use ssl.ca.location, a PEM file with the CA certificates."
_PEM_KEY = "Use ssl.certificate.location and ssl.key.location (PEM), or ssl.keystore.location (PKCS#12)."
_OAUTH = "Use sasl.oauthbearer.method=oidc and its properties, or the callback oauth_cb."
_BYTES = "Values are bytes here; a codec on the queue turns them into objects."
_NONE = "librdkafka has no such property; leave it out."

JAVA_NAMES = {
    "sasl.jaas.config": "Use sasl.username and sasl.password.",
    "sasl.client.callback.handler.class": _OAUTH,
    "sasl.login.callback.handler.class": _OAUTH,
    "sasl.login.class": _OAUTH,
    "ssl.truststore.location": _PEM_TRUST,
    "ssl.truststore.password": f"{_PEM_TRUST} It needs no password.",
    "ssl.truststore.type": _PEM_TRUST,
    "ssl.truststore.certificates": "Use ssl.ca.pem.",
    "ssl.keystore.type": _PEM_KEY,
    "ssl.keystore.key": "Use ssl.key.pem.",
    "ssl.keystore.certificate.chain": "Use ssl.certificate.pem.",
    "ssl.protocol": _NONE,
    "ssl.enabled.protocols": _NONE,
    "ssl.provider": _NONE,
    "ssl.trustmanager.algorithm": _NONE,
    "ssl.keymanager.algorithm": _NONE,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "buffer.memory": "Use queue.buffering.max.kbytes.",
    "max.request.size": "Use message.max.bytes.",
    "max.block.ms": "Give the call a timeout.",
    "default.api.timeout.ms": "Give the call a timeout.",
    "fetch.max.wait.ms": "Use fetch.wait.max.ms.",
    "receive.buffer.bytes": "Use socket.receive.buffer.bytes.",
    "send.buffer.bytes": "Use socket.send.buffer.bytes.",
    "interceptor.classes": _NONE,
    "metric.reporters": _NONE,
    "partitioner.class": "Leave it out: every writer here places keys as Java's default partitioner does.",
}
"""Properties of the Java client that librdkafka lacks, and what to use instead."""

_SECRET_WORDS = ("password", "secret", "passphrase", "jaas", "private.key", "key.pem", "keystore.key")


def is_secret(name: str) -> bool:
    """Return whether a property's value must not be shown.

    The location of a file may be shown, its contents may not.
    """
    if name.endswith((".location", ".file")):
        return False
    return any(word in name for word in _SECRET_WORDS) or name in ("sasl.oauthbearer.config", "ssl.certificate.pem")


def named_in(text: str, names: Iterable[str]) -> list[str]:
    """Return the names that occur in a text, other than as part of a longer name."""
    return [name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", text)]


def without_secrets(text: str, properties: Mapping[str, object]) -> str:
    """Return a text without the values of secret properties."""
    for name, value in properties.items():
        if is_secret(name) and value:
            text = text.replace(str(value), "***")
    return text
