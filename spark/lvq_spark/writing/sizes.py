"""Which messages client and broker refuse for their size, told before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.headers import UNKEYED_HEADER
from lvq_kafka.errors import Unauthorized
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.limits import batch_limit, compresses, message_limit

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["SizeLimits", "oversize", "suspect"]

_CLIENT = 36
"""Bytes that the client reckons for a message beside key, value and headers, whatever it takes in the end."""
_BATCH = 61
"""Bytes of a batch of records beside these. A broker looks at whole batches, and one record is one, too."""
_RECORD = 3
"""Bytes of a record that is alone in its batch: attributes, and how far its time and offset are from the batch's."""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """How large a message may be, in bytes.

    Args:
        client: its ``message.max.bytes``, for the message as it is.
        topic: its ``max.message.bytes``, for a batch as the client sends it. None where it tells nothing beforehand:
            this user may not see it, or the client compresses, and nobody knows to what.
        name: the topic's name.
    """

    client: int
    topic: int | None
    name: str

    @classmethod
    def ask(cls, cluster: Cluster, topic: str, config: ClientConfig, timeout: float) -> tuple[SizeLimits, ClientConfig]:
        """The limits now, and properties for a client whose batches are no larger than the topic takes.

        A batch that is too large would be refused with all its messages, none of which is.
        """
        try:
            said = cluster.topic_config(topic, timeout=timeout).get("max.message.bytes")
        except Unauthorized:
            said = None
        properties, most = config.properties, None if said is None else int(said)
        if most is not None and most < batch_limit(properties):
            config = ClientConfig(config.bootstrap_servers, {**properties, "batch.size": most})
        return cls(message_limit(properties), None if compresses(properties) else most, topic), config


def oversize(limits: SizeLimits, key_header: str | None) -> Column:
    """The size of a row of key, value and headers that is too large, below 0 if that is for the topic. Null for others.

    It is that of the message, whose key header the producer adds where it is missing.
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
    """Whether a row may be too large: a cheap comparison that settles it for nearly all rows."""
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
    """Bytes that a text or bytes take with their length; null takes one."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    length = F.octet_length(cell).cast("bigint")
    return F.coalesce(_number(length) + length, F.lit(1))


def _number(number: Column) -> Column:
    """Bytes that a number takes, none below 0: seven bits in each, and one of all bits for its sign."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    sizes = F.when(number < 1 << 6, 1).when(number < 1 << 13, 2).when(number < 1 << 20, 3).when(number < 1 << 27, 4)
    return sizes.otherwise(F.when(number.isNotNull(), 5))
