"""Keep a Delta or Iceberg table equal to a snapshot of a queue, by ``MERGE``.

The table itself records the cut it is at, in one extra row that every merge checks and replaces along with all others.
So only the format's own commit has to be atomic, and rows and state cannot diverge. The commit metadata that the
formats offer (Delta's ``userMetadata``, Iceberg's ``snapshot-property``) expires with the table's history. It also
cannot fail a merge that was overtaken after it was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lvq_kafka.core.text.validation import at_least_one, delays
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.pinning import check_queue
from lvq_spark.scan.log_range import Consistency
from lvq_spark.session.local_session import require_frame
from lvq_spark.session.remote import require_classic
from lvq_spark.store.guards import OnStale, check_policies
from lvq_spark.store.manifest import Version
from lvq_spark.store.merger import Merger

__all__ = ["merge", "merge_each"]


def merge(
    spark: SparkSession,
    queue: LastValueQueue[Any],
    table: str,
    *,
    end: Mapping[int, int] | None = None,
    on_stale: OnStale = "rebuild",
    consistency: Consistency = "pinned",
    slices: int = 1,
    timeout: float = 10.0,
) -> Version:
    """Bring a Delta or Iceberg table up to date with a queue by merging only what is new.

    The first merge reads the whole log, each later one what was written since. Afterwards the rows whose ``lvq_role``
    is ``current`` are those of a snapshot at the same cut, one for each key::

        merge(spark, queue, "lake.db.prices")
        spark.table("lake.db.prices").where("lvq_role = 'current'")         # or read_merged

    The other rows are for the next merge: deletes, and records of keys in several partitions, for as long as they may
    count against others (R14). One more row, ``state``, records the cut. Leave them all in place.

    A merge also removes the values that have expired by then (R10), so between two merges the table may show some that
    have expired since. `read_merged` leaves them out if it is given a time. Messages that have become due since
    the last merge (R11) come with it, even if nothing was written.

    A merge is one commit of the table's own format. Readers see all of it or nothing, a merge that dies changes
    nothing, and earlier versions can be read in the format's own way (``VERSION AS OF``). Several merges may run at
    once, anywhere: one wins, and the others continue from its result. If nothing has changed, nothing is committed.

    The conditions that rule out building on a store's version apply here, too; see `refresh`. One more is that others
    have added or deleted rows, or replaced records: each merge checks which records the table has. The whole log is
    then merged, still in one commit, and rows that others put there are deleted. Changes to keys and values alone are
    not detected.

    Columns that others add are left to them, as long as they are nullable: a row keeps its values in them while its key
    has a value, and new rows have null there.

    Args:
        spark: the session, with Delta or Iceberg and the catalog that names the table.
        queue: the queue, on a Kafka cluster.
        table: the table's name, or a path: ``delta.`/data/prices```, quoted where SQL requires it. A missing table is
            created in the format of its catalog. To choose more (clustering, properties), create it empty, with the
            columns of a store. While the table is empty, Iceberg's ``write.merge.isolation-level`` must be
            ``serializable``, its default: with ``snapshot``, two concurrent first merges would both succeed.
        end: as for `refresh`.
        on_stale: as for `refresh`.
        consistency: as for `refresh`.
        slices: as for `refresh`.
        timeout: as for `refresh`.

    Returns:
        A `Version` that describes the merge and the table's cut. It has no files: those belong to the format.

    Raises:
        ConfigError: an option is invalid; the session cannot create or merge such a table; the name belongs to
            something else, or the table has more than one state; ``end`` is older than the table; the table is empty,
            and its isolation level would let two first merges succeed; or a newer library has written it.
        DataLoss, TopicRecreated, TopicMismatch, QueueMismatch: as for `refresh`.
        OutcomeUnknown: other merges were faster ten times in a row.
        KeyMismatch, CatchUpTimeout, TopicNotFound, TransportError: as for `refresh`.
    """
    return Merger(spark, queue, table, on_stale, consistency, timeout, slices).bring_up_to_date(end)


def merge_each(
    queue: LastValueQueue[Any],
    table: str,
    *,
    on_stale: OnStale = "rebuild",
    consistency: Consistency = "pinned",
    slices: int = 1,
    timeout: float = 10.0,
) -> Callable[[DataFrame, int], None]:
    """Return a ``foreachBatch`` function that merges a queue into a table.

    Each call merges up to the end of its batch::

        source = spark.readStream.format("kafka").option("subscribe", "prices")...
        source = source.option("kafka.isolation.level", "read_committed")
        stream = source.load().select("topic", "partition", "offset")
        stream.writeStream.foreachBatch(merge_each(queue, "lake.db.prices")).option("checkpointLocation", ...).start()

    The stream only determines when to merge and up to where. The records are read from the log, starting at the table's
    cut. So repeated, late and lost batches do no harm, and three of the stream's columns are enough. See `merge`.

    An idle stream delivers an empty batch now and then; the table then also records that nothing was missed.

    From Spark 4.2 on, the stream may use the format ``lvq``, with ``lvq.strays`` set to ``pass``: otherwise it fails
    permanently once partitions are added. A merge resolves keys that lie in several partitions (R14).

    Raises:
        ConfigError: this is a process of Spark Connect. The returned function raises it if the stream lacks a column,
            or has records of another topic or of an uncommitted transaction. It also raises everything that `merge`
            raises.
    """
    require_classic("merge_each", "merge")

    check_queue(queue)
    check_policies(on_stale, consistency)
    delays(timeout=timeout)
    at_least_one(slices=slices)

    def run(batch: DataFrame, batch_id: int) -> None:
        require_frame(batch, "batch")
        merger = Merger(batch.sparkSession, queue, table, on_stale, consistency, timeout, slices)
        reaches = _reaches(batch, queue.definition.topic)
        if reaches:
            merger.bring_up_to_date(reaches, at_least=True)
        else:
            merger.stay_fresh()

    return run


def _reaches(batch: DataFrame, topic: str) -> dict[int, int]:
    """Return the offset after the last record of each partition."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    missing = [name for name in ("topic", "partition", "offset") if name not in batch.columns]
    if missing:
        raise ConfigError(f"The stream lacks the column {', '.join(missing)}.", options=["batch"])
    found = batch.groupBy("topic", "partition").agg(F.max("offset") + 1).collect()
    others = sorted({str(row[0]) for row in found if row[0] != topic})
    if others:
        raise ConfigError(f"The stream has records of the topic {others[0]}, not of {topic}.", options=["batch"])
    return {row[1]: row[2] for row in found}
