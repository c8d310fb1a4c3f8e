"""Publishing a DataFrame into a queue: each row is the new value of its key."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pyspark.sql import DataFrame, Row

from lvq_kafka.core.queue.headers import reserved_header
from lvq_kafka.core.queue.message_groups import GROUP_HEADER
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text import quoting
from lvq_kafka.core.text.validation import choice, delays
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.pinning import pin
from lvq_spark.scan.serialization import map_in_arrow
from lvq_spark.schema import GROUP
from lvq_spark.session.local_session import require_frame
from lvq_spark.snapshots import client_config, snapshot
from lvq_spark.writing.checks import (
    check_deletes,
    check_foreign,
    check_groups,
    check_ranks,
    check_rows,
    check_schedules,
    check_ttls,
)
from lvq_spark.writing.deleting import Delete
from lvq_spark.writing.rows import missing, newest_rows
from lvq_spark.writing.sending import Write
from lvq_spark.writing.sizes import SizeLimits, suspect

__all__ = ["Published", "Vanished", "publish"]

Vanished = Literal["keep", "delete"]
"""Policy for keys that the queue holds and the frame lacks: leave them, or delete them."""

logger = logging.getLogger("lvq_spark")


@dataclass(frozen=True, slots=True)
class Published:
    """The result of `publish`.

    Args:
        written: keys with a new value.
        deleted: keys that the frame deletes, with a null value.
        vanished: keys that were deleted because the frame lacks them.
        spared: keys that the frame lacks and that were not deleted, because others have written them since the cut.
        overwritten: vanished keys whose delete landed after a value that others wrote a moment before. A warning names
            some.
        ends: for each partition written to, the offset after the last record written. A snapshot whose cut reaches
            these offsets shows everything that was published.
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
    ttl: str | None = None,
    not_before: str | None = None,
    priority: str | None = None,
    sort: str | None = None,
    group: str | None = None,
    vanished: Vanished = "keep",
    timeout: float = 10.0,
) -> Published:
    """Write a DataFrame into a queue from the executors, one record for each row.

    Records are written as by `Producer.put` and `Producer.delete`: they have the queue's key header, murmur2 chooses
    their partition, and they count once all in-sync replicas have them. A null value deletes its key; an empty one is a
    value. A row whose headers mark it as a message without a key (R1), as in a snapshot, is written as such a message.
    Nothing is written before the whole frame has been checked. The frame is kept in memory and on disk while it is
    published, so the rows that are written are the rows that were checked.

    Sizes are checked, too: the client accepts no message larger than its ``message.max.bytes``, and a broker no batch
    larger than the topic's ``max.message.bytes``. Batches never exceed that. If the client compresses
    (``compression.type``), the size that a broker will see is unknown, and only the client's limit is checked. The
    topic's limit is not checked either if this user may not see it (DescribeConfigs).

    **After a failure, part of the frame may have been written**: run it again. A retried task writes its rows again, so
    each record is there at least once. In a queue the second one changes nothing, since its value is the same; but it
    replaces any value that another producer has written to the key in between. Let only one job at a time publish a set
    of keys.

    Args:
        df: the frame, with at most one row for each key. It is evaluated once.
        queue: the queue, on a Kafka cluster.
        key: the column of keys: text, bytes, integers or booleans (R2).
        value: the column of values, text or bytes. Convert others first, with ``to_json`` or ``to_avro``.
        headers: a column of headers, as in a snapshot: an array of structs of ``key`` and ``value``. Those by which
            other systems schedule messages or name groups are written as the queue's own, as by a producer (R22).
        newest: a column that decides between several rows of a key: the one with the largest value in it is written. By
            default several rows of a key are an error, and so is a tie.
        ttl: a column of numbers: the seconds after which a value expires (R10). Null leaves it to the queue's own TTL,
            and a delete has none.
        not_before: a column of times: the one from which on a value counts (R11), as a timestamp or as seconds since
            the epoch. Null for a value that counts at once, as every delete does.
        priority: a column of whole numbers from 0 to 9, for a queue with ``order="priority"`` (R20). Null for the
            default, 4. A delete has none.
        sort: a column of texts, for a queue with ``order="sorted"``: they become the header by which it is sorted. Null
            to leave that header out, so that the value comes first.
        group: a column of text or bytes: the group that a value belongs to (R36). Null for none. Where messages are
            placed by group, a delete needs the group of its key's value.
        vanished: ``"delete"`` also deletes the keys that the queue holds and the frame lacks, as of a cut taken when
            publishing starts, before the frame is written. A key that others have written since that cut is spared
            (R25). The delete of a key also replaces what is scheduled for it. Messages without a key (R1) stay. An
            empty frame is refused: it would delete everything.
        timeout: seconds for each request to the cluster.

    Raises:
        ConfigError: a column is missing or of the wrong type; a key has several rows; a row's header and key disagree;
            a header has no name or a reserved one (R22); the queue has no TTL, or one that a row has is none; no
            message may be scheduled, or a row is scheduled too far ahead; the queue has no such order, or a rank is
            none; the queue has no groups, or that of a row is blank or missing; headers of a row disagree; or the frame
            is empty and ``vanished`` is ``"delete"``.
        MissingKey: a row has no key.
        MessageTooLarge: a row, or the delete of a key, is larger than the client or the topic accepts; nothing has been
            written. The error names the key of the largest.
        TopicNotFound, TransportError: as for `pin`. A task that fails appears as Spark's ``PythonException``, with this
            library's error in its text.
    """
    choice("vanished", vanished, get_args(Vanished))
    delays(timeout=timeout)
    require_frame(df)
    config, cluster, topic = client_config(queue), queue.cluster, queue.topic
    queue.refresh()  # by what it is altered to
    definition = queue.definition
    groups = definition.groups
    for option, column, allowed, header in (
        ("ttl", ttl, definition.ttl is not None, TTL_HEADER),
        ("not_before", not_before, definition.max_delay is not None, NOT_BEFORE_HEADER),
        ("priority", priority, definition.order == "priority", PRIORITY_HEADER),
        ("sort", sort, definition.order == "sorted", SORT_HEADER),
        ("group", group, groups is not None, GROUP_HEADER),
    ):
        if column is not None and not allowed:
            raise reserved_header(header, topic, option)
    if sort is not None and definition.sort_header == definition.key_header:
        raise ConfigError(
            f"{queue.name} is sorted by its key header, {definition.key_header}.",
            options=["sort", "key"],
            hint="Leave sort out.",
        )
    named = None if group is None or groups is None else (group, groups.header)
    rows = newest_rows(df, key, value, headers, newest, ttl, not_before, priority, sort, definition.sort_header, named)
    cut = pin(queue, timeout=timeout) if vanished == "delete" else None
    # Report a missing right, or a missing topic, before anything runs.
    cluster.topics.check_may("Write", topic, timeout=timeout)
    limits, config = SizeLimits.ask(cluster, topic, config, timeout)
    may_be_too_large = suspect(limits, queue.key_header)
    checked = rows.persist()
    deletes: list[Row] = []
    try:
        count = check_rows(checked.withColumn("suspect", may_be_too_large), definition, limits, key=key, newest=newest)
        if definition.ttl is not None:
            check_ttls(checked)
        if definition.max_delay is not None:
            check_schedules(checked, definition.max_delay, cluster.now())
        if definition.rank_header is not None:
            check_ranks(checked, definition.rank_header)
        if groups is not None:
            check_groups(checked, groups, QueueRules.of(definition).foreign_headers())
        if headers is not None:
            for warning in check_foreign(checked, definition, cluster.now()):
                logger.warning("%s", warning)
        if cut is not None:
            if not count:
                raise ConfigError(
                    f'The frame is empty, and vanished="delete" would delete everything in {queue.name}.',
                    options=["vanished"],
                    hint="If you mean that, delete the keys of a snapshot: publish them with null values.",
                )
            held = snapshot(df.sparkSession, queue, spec=cut, columns=["key", "headers", GROUP], timeout=timeout)
            gone = missing(held, checked).persist()
            try:
                if check_deletes(gone.withColumn("suspect", may_be_too_large), limits, queue.key_header):
                    # Deletes come first, since they read everything that was written to the log since the cut.
                    delete = Delete(cut, QueueRules.of(definition), config)
                    deletes = map_in_arrow(gone.select("key", GROUP), delete, Delete.REPORT).collect()
            finally:
                gone.unpersist()
        write = Write(QueueRules.of(definition), config)
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
            "%d keys of %s were deleted just as others wrote them, and these values are gone, among them those of "
            "%s. Write them again, and let no one else write while vanished keys are deleted.",
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
