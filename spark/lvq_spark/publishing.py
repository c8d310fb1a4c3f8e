"""Publishing a DataFrame into a queue: each row is the new value of its key."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from lvq_kafka.core import quoting
from lvq_kafka.core.validation import choice, delays
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_spark.pinning import pin
from lvq_spark.serialization import map_in_arrow
from lvq_spark.session import require_frame, require_spark
from lvq_spark.snapshots import client_config, snapshot
from lvq_spark.writing.checks import check_deletes, check_rows
from lvq_spark.writing.deleting import Delete
from lvq_spark.writing.rows import missing, newest_rows
from lvq_spark.writing.sending import Write
from lvq_spark.writing.sizes import SizeLimits, suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["Published", "Vanished", "publish"]

Vanished = Literal["keep", "delete"]
"""What becomes of keys that the queue holds and the frame lacks: they stay as they are, or are deleted."""

logger = logging.getLogger("lvq_spark")


@dataclass(frozen=True, slots=True)
class Published:
    """What `publish` wrote.

    Args:
        written: keys that have a new value.
        deleted: keys that the frame deletes, by a null value.
        vanished: keys that were deleted because the frame lacks them.
        spared: keys that the frame lacks, and that were not deleted, because others have written them since the cut.
        overwritten: of those that vanished, keys whose delete came to lie behind a value that others wrote in the
            moment before. A warning names some.
        ends: for each partition written to, the offset behind the last record written. A snapshot whose cut reaches
            these offsets shows all that was published.
    """

    written: int = 0
    deleted: int = 0
    vanished: int = 0
    spared: int = 0
    overwritten: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)


def publish(
    df: DataFrame,
    queue: LastValueQueue[Any],
    *,
    key: str = "key",
    value: str = "value",
    headers: str | None = None,
    newest: str | None = None,
    vanished: Vanished = "keep",
    timeout: float = 10.0,
) -> Published:
    """Write a DataFrame into a queue, from the executors: one record for each row.

    Records are as `Producer.put` and `Producer.delete` write them: the queue's key header is set, keys lie where
    murmur2 puts them, and all in-sync replicas have a record before it counts. A null value deletes its key; an empty
    one is a value. A row whose headers tell that it is a message without a key (R1), as a snapshot has them, is written
    as one. Nothing is written before the whole frame has been checked. For that it is kept, in memory and on
    disk, while it is published, so what was checked is what is written.

    Sizes are checked, too: the client takes no message larger than its ``message.max.bytes``, and a broker no batch
    larger than the topic's ``max.message.bytes``. Batches are made no larger than that. Where the client compresses
    (``compression.type``), nobody knows what a broker will see of a row, and only the client's limit is checked; nor is
    the topic's where this user may not see it (DescribeConfigs).

    **When it fails, part of the frame may be written**: run it again. A task that is tried again writes its rows once
    more, so a record is there at least once. In a queue that changes nothing, since the second is the same value; but
    it goes over what another producer has written to the key in between. Let one job at a time publish a set of keys.

    Args:
        df: the frame, at most one row for each key. It is evaluated once.
        queue: the queue, on a Kafka cluster.
        key: the column of keys: text, bytes, integers or booleans (R2).
        value: the column of values, text or bytes. Turn others into these first, with ``to_json`` or ``to_avro``.
        headers: a column of headers, as snapshots have it: an array of structs of ``key`` and ``value``.
        newest: a column that says which of several rows with the same key is written: the one with the largest value
            in it. By default several rows with the same key are an error, as are several that are the newest.
        vanished: ``"delete"`` also deletes the keys that the queue holds and the frame lacks, as of a cut taken when
            publishing starts, before it writes the frame. A key that others have written since that cut is spared
            (R25). Messages without a key (R1) stay. An empty frame is refused: it would delete all.
        timeout: seconds for each question to the cluster.

    Raises:
        ConfigError: a column is missing or of the wrong type, a key has several rows, a row's header and key disagree
            or it has a header without a name or with a reserved one (R22), or the frame is empty and ``vanished`` is
            ``"delete"``.
        MissingKey: a row has no key.
        MessageTooLarge: a row, or the delete of a key, is larger than the client, or the topic, takes; nothing has been
            written. It names the key of the largest.
        TopicNotFound, TransportError: as for `pin`. A task that fails shows as Spark's ``PythonException``, with this
            library's error in its text.
    """
    choice("vanished", vanished, get_args(Vanished))
    delays(timeout=timeout)
    require_frame(df)
    require_spark(df.sparkSession)
    config, cluster, topic = client_config(queue), queue.cluster, queue.topic
    rows = newest_rows(df, key, value, headers, newest)
    cut = pin(queue, timeout=timeout) if vanished == "delete" else None
    # A missing right is told before anything runs, and so is a missing topic.
    cluster.check_may("Write", topic, timeout=timeout)
    limits, config = SizeLimits.ask(cluster, topic, config, timeout)
    may_be_too_large = suspect(limits, queue.key_header)
    checked = rows.persist()
    deletes: list[Row] = []
    try:
        count = check_rows(
            checked.withColumn("suspect", may_be_too_large), queue.definition, limits, key=key, newest=newest
        )
        if cut is not None:
            if not count:
                raise ConfigError(
                    f'The frame is empty, and vanished="delete" would delete all that {queue.name} holds.',
                    options=["vanished"],
                    hint="If that is meant, delete the keys of a snapshot: publish them with null values.",
                )
            held = snapshot(df.sparkSession, queue, spec=cut, columns=["key", "headers"], timeout=timeout)
            gone = missing(held, checked).persist()
            try:
                if check_deletes(gone.withColumn("suspect", may_be_too_large), limits, queue.key_header):
                    # First, since all that is written to the log since the cut is read before.
                    delete = Delete(cut, queue.key_header, config)
                    deletes = map_in_arrow(gone.select("key"), delete, Delete.REPORT).collect()
            finally:
                gone.unpersist()
        write = Write(topic, queue.key_header, config)
        writes = map_in_arrow(checked, write, Write.REPORT).collect()
    finally:
        checked.unpersist()
    return _published(topic, writes, deletes)


def _published(topic: str, writes: Sequence[Row], deletes: Sequence[Row]) -> Published:
    ends: dict[int, int] = {}
    for row in (*writes, *deletes):
        if row.partition is not None:
            ends[row.partition] = max(row.end, ends.get(row.partition, 0))
    overwritten = [bytes(row.overwritten) for row in deletes if row.overwritten is not None]
    if overwritten:
        logger.warning(
            "%d keys of %s were deleted in the same moment in which others wrote them, and these values are gone, "
            "among them those of %s. Write them again, or let nobody else write while keys that vanished are deleted.",
            len(overwritten),
            topic,
            ", ".join(map(quoting.quoted, overwritten[:5])),
        )
    return Published(
        written=sum(row.written for row in writes),
        deleted=sum(row.deleted for row in writes),
        vanished=sum(row.vanished or 0 for row in deletes),
        spared=sum(row.spared or 0 for row in deletes),
        overwritten=len(overwritten),
        ends=dict(sorted(ends.items())),
    )
