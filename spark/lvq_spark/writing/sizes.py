"""Find messages that client or broker would reject for their size, before writing any."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

from pyspark.sql import Column

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.errors import Unauthorized
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.size_limits import batch_limit, compresses, message_limit

__all__ = ["SizeLimits", "oversize", "suspect"]

_CLIENT = 36
"""Bytes the client adds to key, value and headers when it checks a size.

The actual overhead may differ.
"""
_BATCH = 61
"""Bytes of a record batch without its records.

Brokers check the size of whole batches, and a single record is a batch, too.
"""
_RECORD = 3
"""Bytes of the fixed fields of a record that is alone in its batch.

They are its attributes and its timestamp and offset deltas.
"""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Limits for the size of a message, in bytes.

    Args:
        client: the client's ``message.max.bytes``, for the uncompressed message.
        topic: the topic's ``max.message.bytes``, for a batch as the client sends it. None if nothing can be predicted
            from it: this user may not see it, or the client compresses, to an unknown size.
        name: the topic's name.
    """

    client: int
    topic: int | None
    name: str

    @classmethod
    def ask(cls, cluster: Cluster, topic: str, config: ClientConfig, timeout: float) -> tuple[SizeLimits, ClientConfig]:
        """Return the current limits, and a client config with batches that the topic takes.

        A broker would otherwise reject an oversized batch with all its messages, none of which is too large.
        """
        try:
            said = cluster.topics.config(topic, timeout=timeout).get("max.message.bytes")
        except Unauthorized:
            said = None
        properties, most = config.properties, None if said is None else int(said)
        if most is not None and most < batch_limit(properties):
            config = ClientConfig(config.bootstrap_servers, {**properties, "batch.size": most})
        return cls(message_limit(properties), None if compresses(properties) else most, topic), config


def oversize(limits: SizeLimits, key_header: str | None) -> Column:
    """Return the size of a row of key, value and headers if it is too large, else null.

    The size is negative if it is too large for the topic. It is that of the message, including the key header that the
    producer adds if it is missing.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    def has(header: Column) -> Column:
        named = (header["key"] == F.lit(key_header)) & header["value"].isNotNull()
        return named | (header["key"] == F.lit(UNKEYED_HEADER))

    def with_header(total: Column, header: Column) -> Column:
        return total + _field(header["key"]) + _field(header["value"])

    given = F.coalesce(F.aggregate("headers", F.lit(0).cast("bigint"), with_header), F.lit(0))
    count = F.coalesce(F.size("headers"), F.lit(0))
    if key_header is not None:
        added = ~F.coalesce(F.exists("headers", has), F.lit(False))
        given = given + F.when(added, _field(F.lit(key_header)) + _field(F.col("key"))).otherwise(0)
        count = count + added.cast("int")
    held = F.octet_length("key") + F.coalesce(F.octet_length("value"), F.lit(0)).cast("bigint") + given
    found = F.when(held + _CLIENT > limits.client, held + _CLIENT)
    if limits.topic is not None:
        record = reduce(add, (_field(F.col("key")), _field(F.col("value")), _number(count), given, F.lit(_RECORD)))
        batch = record + _number(record) + _BATCH
        found = found.when(batch > limits.topic, -batch)
    return found


def suspect(limits: SizeLimits, key_header: str | None) -> Column:
    """Return whether a row may be too large: a cheap check that clears nearly all rows."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    def with_header(total: Column, header: Column) -> Column:
        text, value = F.octet_length(header["key"]), F.octet_length(header["value"])
        return total + F.coalesce(text, F.lit(0)) + F.coalesce(value, F.lit(0)) + 10

    headers = F.when(F.col("headers").isNotNull(), F.aggregate("headers", F.lit(0).cast("bigint"), with_header))
    named = F.lit(len((key_header or "").encode()) + 128)
    value = F.coalesce(F.octet_length("value"), F.lit(0))
    most = 2 * F.octet_length("key").cast("bigint") + value + F.coalesce(headers, F.lit(0)) + named
    return most > min(limits.client, limits.topic or limits.client)


def _field(cell: Column) -> Column:
    """Return the bytes that text or bytes take, including their length; null takes one."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    length = F.octet_length(cell).cast("bigint")
    return F.coalesce(_number(length) + length, F.lit(1))


def _number(number: Column) -> Column:
    """Return the bytes that a non-negative number takes.

    Each byte holds seven bits, and one bit of them all is for the sign.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    sizes = F.when(number < 1 << 6, 1).when(number < 1 << 13, 2).when(number < 1 << 20, 3).when(number < 1 << 27, 4)
    return sizes.otherwise(F.when(number.isNotNull(), 5))
