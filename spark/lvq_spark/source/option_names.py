"""The names of the options of the format ``lvq``. Those of Spark's Kafka connector mean what they mean there."""

from __future__ import annotations

__all__ = ["END", "EXTRA", "OPTIONS", "QUEUE", "REFUSED", "SPLITS", "START"]

QUEUE = ("queue", "lvq.queue")
"""Two names of one thing: the short one to write, and the one that goes with the other options of ours."""

START = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
END = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""Options that say where to end, of which one at most is given; likewise to start."""

SPLITS = ("minPartitions", "maxRecordsPerPartition")
"""Options that split partitions among tasks."""

EXTRA = ("deleted",)
"""Columns that are there only when they are asked for by name."""

OPTIONS = (
    *("subscribe", "assign", *QUEUE, *START, *END, "startingOffsetsByTimestampStrategy"),
    *("includeHeaders", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", *SPLITS, "maxOffsetsPerTrigger"),
    *("lvq.dedupe", "lvq.key", "lvq.keyMismatch", "lvq.tombstones", "lvq.nullKeys", "lvq.strays"),
    *("lvq.keys", "lvq.partitioner"),
    *("lvq.group", "lvq.hideConsumed", "lvq.onForeignCommits", "lvq.consistency", "lvq.asOfPolicy"),
    *("lvq.batchRows", "lvq.batchBytes", "lvq.memoryBytes", "lvq.extraColumns"),
)
"""Every name there is, besides ``kafka.`` and a property of the client."""

_NO_GROUP = "no consumer group is joined. Leave it out; for what a group has not consumed there is lvq.group."
_RETRIED = "what fails for the moment is asked again for as long as the question may take. Leave it out."
REFUSED = {
    "subscribePattern": "a read is of one topic, and queues of several topics have nothing in common to conflate. "
    "Load them one by one.",
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "fetchOffset.numRetries": _RETRIED,
    "fetchOffset.retryIntervalMs": _RETRIED,
    "minOffsetsPerTrigger": "Spark asks no Python data source to wait for more. Use a trigger with an interval.",
    "maxTriggerDelay": "it goes with minOffsetsPerTrigger.",
    "path": "a topic is not a path. Use subscribe, or queue for a declared queue.",
    "topic": "it is for writing, which lvq_spark.publish does. Use subscribe, or queue for a declared queue.",
    "lvq.spill": "what is more than lvq.memoryBytes goes to a temporary file by itself. Leave it out.",
    "lvq_key": "the column key holds it already. lvq.key says what that is.",
}
"""Options that others have, Spark's Kafka connector above all, and that make no sense here; why, and what does."""
