"""A queue as a stream: a micro-batch has a row for each changed key, deletes included."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.log.progress import describe
from lvq_kafka.core.timing.time_rule import ALWAYS, TimeRule
from lvq_kafka.errors import DataLoss
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.bounds import TopicSettings
from lvq_spark.cut.offset_options import EARLIEST, Offsets, resolve
from lvq_spark.cut.pinning import SnapshotSpec, times_of
from lvq_spark.rules.scheduling import scheduled_in_stream
from lvq_spark.scan.serialization import carried
from lvq_spark.scan.task_metrics import logger
from lvq_spark.source.partition_rows import rows
from lvq_spark.source.planning import assigned, open_queue, ranges
from lvq_spark.source.source_options import SLICES, SourceOptions
from lvq_spark.source.stream_offsets import Hidden, StreamOffset, limited

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LvqStreamReader"]

SELDOM = 60.0
"""Minimum time in seconds between batches without a record, since each costs a job."""

_ENDLESS = "a stream has no end; it stops when the query is stopped, or with trigger(availableNow=True)."
_OPEN = "a stream takes what comes, while the group keeps consuming."
_REFUSED = {
    **dict.fromkeys(("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "lvq.asOfPolicy"), _ENDLESS),
    **dict.fromkeys(("lvq.group", "lvq.hideConsumed"), f"{_OPEN} Load a batch to see what is left."),
    SLICES: "each slice would read the whole batch again. maxOffsetsPerTrigger limits what a task has to hold.",
    "lvq.asOf": "each batch goes by the time at which it was planned.",
    "lvq.consistency": "records that compaction takes from a batch come with a later one, so no key is lost.",
}


class LvqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a queue in micro-batches, each between pinned offsets.

    A batch holds the newest record of each key among its offsets, so a key has a row in each batch in which it changes,
    and the last of them is right. A delete is a row with a null value, unless the options say otherwise; so is a value
    that had expired when the batch was planned. One that expires later brings no row: nobody writes one. Partitions
    that are added are read from their beginning. A stream that stays idle has a batch without a record now and then:
    its checkpoint then shows that it has missed nothing so far.

    A stream ends before any records that open transactions hide. The ``latestOffset`` in its progress is the end of the
    log nevertheless, so the stream appears behind. A warning is logged once that lasts, or if ``availableNow`` ends
    this way.

    Args:
        options: the options of the read.
        columns: the columns to build.

    Raises:
        ConfigError: an option makes no sense in a stream, or messages may be scheduled (R11): nobody writes anything
            when one becomes due. Only ``lvq.dedupe=none`` streams such a queue.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        options.refuse(_REFUSED)
        if options.max_delay is not None and options.conflate:
            raise scheduled_in_stream(str(options.topic), ["lvq.maxDelay"])
        self._options = options
        self._columns = columns
        self._initial: dict[str, Any] | None = None
        self._target: tuple[int, dict[int, int]] | None = None
        self._hidden = Hidden()
        self._cluster: KafkaCluster | None = None
        self._queue: LastValueQueue[bytes] | None = None

    # ---------------------------------------------------------------- on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # these names are Spark's
        """Return where a new query starts.

        Spark asks more than once, and must get the same answer.
        """
        if self._initial is None:
            options, cluster, topic = self._options, self._opened(), self._topic
            described = cluster.topics.describe(topic)
            start = resolve(
                options.start or Offsets("startingOffsets", everywhere=EARLIEST),
                cluster,
                topic,
                assigned(options, topic, described.partitions),
                or_latest=options.or_latest,
            )
            self._initial = StreamOffset(topic, described.id, start, _now()).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that ``maxOffsetsPerTrigger`` sets."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the target of a query with this trigger: everything committed so far."""
        highest = self._highest()
        self._target = _, ends = _now(), self._ends()
        # Requested in this order, only an open transaction can set them apart.
        self._warn([Shortfall(p, end, highest[p], end) for p, end in ends.items() if end < highest.get(p, 0)])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where a batch that starts there ends.

        That is the same offset if there is nothing to read and nothing to note.

        Raises:
            TopicRecreated: the topic is not the one that the offset is for.
            DataLoss: the log has lost offsets from there on, or never had them, and that is an error.
        """
        begun = StreamOffset.of_json(start)
        cluster, topic = self._opened(), self._topic
        begun.check_topic(topic, cluster.topics.describe(topic).id)
        asked, ends = self._target or (_now(), self._ends())
        highest = self._highest()
        if self._target is None:
            self._warn(self._hidden.newly_hidden(ends, highest, time.monotonic()))
        starts = self._starts(begun, ends, highest)
        end = {partition: max(starts[partition], offset) for partition, offset in ends.items()}
        caught_up = True
        if isinstance(limit, ReadMaxRows):
            caught_up, end = limited(starts, end, limit.max_rows)
        # Keep partitions that a target leaves out.
        reached = {**begun.offsets, **end}
        if reached == begun.offsets and not (caught_up and self._has_to_say_so(begun, asked)):
            return start
        return StreamOffset(
            topic, begun.topic_id, reached, asked if caught_up else begun.caught_up, self._as_of(begun, asked)
        ).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the log, for the progress of the query.

        A batch ends earlier, before uncommitted records.
        """
        return {self._topic: {str(p): end for p, end in self._assigned(self._highest()).items()}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks that read the partitions with anything to read.

        Raises:
            As `latestOffset`.
        """
        begun, reached = StreamOffset.of_json(start), StreamOffset.of_json(end)
        cluster, topic = self._opened(), self._topic
        described = cluster.topics.describe(topic)
        reached.check_topic(topic, described.id)
        starts = self._starts(begun, reached.offsets, self._highest())
        definition, settings = self._definition_queue.definition, TopicSettings.ask(cluster, topic)
        times, judged = self._times(), self._options.conflate and not self._options.keep_expired
        everything = range(max(described.partitions, *(partition + 1 for partition in reached.offsets)))
        ends = {partition: reached.offsets.get(partition, 0) for partition in everything}
        spec = SnapshotSpec(
            topic=topic,
            topic_id=described.id,
            start={**ends, **{p: min(offset, ends[p]) for p, offset in starts.items()}},
            end=ends,
            key_header=definition.key_header,
            key_mismatch=definition.key_mismatch,
            timestamp_type=settings.timestamp_type,
            delete_retention=settings.delete_retention if self._options.fail_on_data_loss else math.inf,
            pinned=begun.caught_up / 1000,
            times=times if times.expires else ALWAYS,
            as_of=(reached.as_of or reached.caught_up) / 1000 if times.expires and judged else None,
            selector=definition.selector,
            order=definition.order,
            sort_header=definition.sort_header,
            groups=definition.groups,
        ).selecting(self._options.selector, "lvq.selector")
        return [InputPartition(share) for share in ranges(self._options, spec)]

    def stop(self) -> None:
        """Close the connection."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _opened(self) -> KafkaCluster:
        if self._cluster is None:
            self._cluster = KafkaCluster(self._options.config)
        return self._cluster

    @property
    def _definition_queue(self) -> LastValueQueue[bytes]:
        if self._queue is None:
            self._queue = open_queue(self._options, self._opened())
            self._times()
        return self._queue

    def _times(self) -> TimeRule:
        """Return from when until when messages count, as far as the queue has been altered by now.

        Raises:
            ConfigError: they may be scheduled, which a stream has no row for.
        """
        queue = self._definition_queue
        times = times_of(queue)
        if times.may_schedule and self._options.conflate:
            raise scheduled_in_stream(queue.name, ["queue"])
        return times

    @property
    def _topic(self) -> str:
        return self._options.topic or self._definition_queue.definition.topic

    def _ends(self) -> dict[int, int]:
        """Return the end of the committed records in each partition that is read."""
        return self._assigned(self._opened().logs.end_offsets(self._topic, stable=True))

    def _assigned(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Select the partitions that are read."""
        return {partition: ends[partition] for partition in assigned(self._options, self._topic, len(ends))}

    def _highest(self) -> dict[int, int]:
        """Return the end of each partition's log, uncommitted records included."""
        return self._opened().logs.end_offsets(self._topic)

    def _warn(self, hidden: Sequence[Shortfall]) -> None:
        if hidden:
            logger.warning(
                "The stream of %s ends early: %s. Commit or abort it, or wait for its timeout; kafka-transactions.sh "
                "finds it.",
                self._topic,
                describe(hidden),
            )

    def _starts(self, begun: StreamOffset, ends: Mapping[int, int], highest: Mapping[int, int]) -> dict[int, int]:
        """Return where to continue: at the offset, or at the start of an added partition."""
        topic = self._topic
        lowest = self._opened().logs.start_offsets(topic)
        starts = {partition: begun.offsets.get(partition, lowest.get(partition, 0)) for partition in ends}
        if not self._options.fail_on_data_loss:
            return {p: min(max(offset, lowest[p]), highest[p]) for p, offset in starts.items()}
        for partition, offset in starts.items():
            if not lowest[partition] <= offset <= highest[partition]:
                raise DataLoss(
                    f"The stream is at offset {offset} of partition {partition} of {topic}, which holds "
                    f"{lowest[partition]} to {highest[partition]}.",
                    hint="Start over with another checkpoint, or skip the missing records with failOnDataLoss=false.",
                )
        return starts

    def _as_of(self, begun: StreamOffset, asked: int) -> int | None:
        """Return the time of a batch, which a restart must not change; it is never set back."""
        if not self._times().expires:
            return None
        return max(asked, begun.as_of or asked)

    def _has_to_say_so(self, begun: StreamOffset, asked: int) -> bool:
        """Return whether an idle stream has to note that it has caught up.

        Otherwise the next batch would find it long behind. Only the stream's offset is kept, and a new offset makes a
        batch, even one without records. So this is done seldom, but in time for deletes still to come.
        """
        idle = (asked - begun.caught_up) / 1000
        return idle > SELDOM and idle > TopicSettings.ask(self._opened(), self._topic).delete_retention / 2

    # ---------------------------------------------------------------- on the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        deletes = self._options.deletes is not False
        return rows(self._options, partition, self._columns, deletes=deletes, changes=True)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return carried(LvqStreamReader, self._options, self._columns)


def _now() -> int:
    return round(time.time() * 1000)
