"""The option names of the format ``lvq``.

Options of Spark's Kafka connector mean the same here.
"""

from __future__ import annotations

from lvq_spark.schema import EXPIRES, GROUP, PRIORITY, SORT_KEY

__all__ = ["END", "EXTRA", "OPTIONS", "QUEUE", "REFUSED", "SPLITS", "START", "TTL"]

QUEUE = ("queue", "lvq.queue")
"""Two names for the same option: a short one, and one that matches our other options."""

START = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
END = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""Options that set the end, of which at most one is given; likewise for the start."""

TTL = {"lvq.defaultTtl": "default", "lvq.minTtl": "minimum", "lvq.maxTtl": "maximum"}
"""Options of a topic whose messages may expire, with the fields of `Ttl`; ``lvq.ttl`` alone sets no limit."""

SPLITS = ("minPartitions", "maxRecordsPerPartition")
"""Options that split partitions among tasks."""

EXTRA = ("deleted", EXPIRES, PRIORITY, SORT_KEY, GROUP)
"""Columns that exist only if they are requested by name."""

OPTIONS = (
    *("subscribe", "assign", *QUEUE, *START, *END, "startingOffsetsByTimestampStrategy"),
    *("includeHeaders", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", *SPLITS, "maxOffsetsPerTrigger"),
    *("lvq.dedupe", "lvq.key", "lvq.keyMismatch", "lvq.tombstones", "lvq.nullKeys", "lvq.strays"),
    *("lvq.keys", "lvq.selector", "lvq.partitioner"),
    *(
        "lvq.group",
        "lvq.hideConsumed",
        "lvq.onForeignCommits",
        "lvq.consistency",
        "lvq.asOfPolicy",
        "lvq.asOf",
        "lvq.expired",
    ),
    *("lvq.asOf", "lvq.expired", "lvq.ttl", *TTL, "lvq.maxDelay", "lvq.groupHeader"),
    *("lvq.batchRows", "lvq.batchBytes", "lvq.memoryBytes", "lvq.extraColumns"),
)
"""Every option name, except ``kafka.`` plus a client property."""

_NO_GROUP = "no consumer group is joined. Omit it; to read what a group has not consumed, use lvq.group."
_RETRIED = "transient failures are retried until the request times out. Omit it."
REFUSED = {
    "subscribePattern": "a read covers one topic, and queues of several topics have nothing in common to conflate. "
    "Load them one by one.",
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "fetchOffset.numRetries": _RETRIED,
    "fetchOffset.retryIntervalMs": _RETRIED,
    "minOffsetsPerTrigger": "Spark never has a Python data source wait for more. Use a trigger with an interval.",
    "maxTriggerDelay": "it belongs to minOffsetsPerTrigger.",
    "path": "a topic is not a path. Use subscribe, or queue for a declared queue.",
    "topic": "it is for writing, which lvq_spark.publish does. Use subscribe, or queue for a declared queue.",
    "lvq.spill": "anything beyond lvq.memoryBytes goes to a temporary file by itself. Omit it.",
    "lvq_key": "the column key already holds it. lvq.key says what that is.",
}
"""Options known from elsewhere, above all from Spark's Kafka connector, that are refused.

Each has the reason, and what to use instead.
"""
