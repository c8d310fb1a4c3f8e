"""A Delta or Iceberg table that is kept equal to a snapshot of a queue, by ``MERGE``.

The table says itself up to where it is: in one more row, which every merge checks and replaces along with all others.
So there is nothing but the format's own commit that has to be atomic, and rows and state cannot part. What a format has
for a commit's metadata (Delta's ``userMetadata``, Iceberg's ``snapshot-property``) goes with the table's history, and
cannot make a merge fail that was overtaken since its plan was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lvq_kafka.core.validation import delays
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_spark.pinning import check_queue
from lvq_spark.remote import require_classic
from lvq_spark.scan.log_range import Consistency
from lvq_spark.store.guards import OnStale, check_policies
from lvq_spark.store.manifest import Version
from lvq_spark.store.merger import Merger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["merge", "merge_each"]


def merge(
    spark: SparkSession,
    queue: LastValueQueue[Any],
    table: str,
    *,
    end: Mapping[int, int] | None = None,
    on_stale: OnStale = "rebuild",
    consistency: Consistency = "pinned",
    timeout: float = 10.0,
) -> Version:
    """Bring a Delta or Iceberg table up to date: a snapshot of a queue, into which only what is new is merged.

    The first merge reads the whole log, every further one what the log has had since. After it the rows whose
    ``lvq_role`` is ``current`` are those of a snapshot at the same cut, one for each key::

        merge(spark, queue, "lake.db.prices")
        spark.table("lake.db.prices").where("lvq_role = 'current'")         # or read_merged

    The other rows are for the next merge: deletes and records of keys in several partitions, for as long as they may
    count against others (R14), and one, ``state``, that says which cut this is. Leave them where they are.

    A merge is one commit of the table's own format: a reader sees all of it or nothing, a merge that dies changes
    nothing, and earlier versions can be read in the format's own way (``VERSION AS OF``). Several may run at once,
    anywhere: one is first, and the others go on from that. Where nothing has changed nothing is committed.

    What rules out that a store's version is built upon does so here, too: see `refresh`. So does that others have added
    rows, deleted some or put other records in their place: each merge looks at which records the table has. It is then
    merged with the whole log, still in one commit, and what others have put there is gone. Changes in keys and values
    alone are not looked for.

    Columns that others add stay theirs, as long as they are nullable: a row keeps them while its key has a value, and
    new rows have null there.

    Args:
        spark: the session, with Delta or Iceberg and the catalog that names the table.
        queue: the queue, on a Kafka cluster.
        table: its name, or a path: ``delta.`/data/prices```, quoted where SQL asks for it. One that is not there is
            created, in the format of its catalog. To say more of it (clustering, properties), create it empty, with the
            columns of a store. Iceberg's ``write.merge.isolation-level`` has to be ``serializable``, as it is by
            default, while the table is empty: with ``snapshot`` two first merges at once would both pass.
        end, on_stale, consistency, timeout: as for `refresh`.

    Returns:
        What was merged, and up to where the table is. It has no files: those are the format's.

    Raises:
        ConfigError: an option is bad; the session cannot create or merge such a table; there is something else at its
            name, or more than one state; ``end`` is older than the table; the table is empty, and its isolation would
            let two first merges pass; or a newer library has written it.
        DataLoss, TopicRecreated, TopicMismatch, QueueMismatch: as for `refresh`.
        OutcomeUnknown: others have merged in between ten times in a row.
        KeyMismatch, CatchUpTimeout, TopicNotFound, TransportError: as for `refresh`.
    """
    return Merger(spark, queue, table, on_stale, consistency, timeout).bring_up_to_date(end)


def merge_each(
    queue: LastValueQueue[Any],
    table: str,
    *,
    on_stale: OnStale = "rebuild",
    consistency: Consistency = "pinned",
    timeout: float = 10.0,
) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` that merges a queue into a table as far as each batch reaches::

        source = spark.readStream.format("kafka").option("subscribe", "prices")...
        source = source.option("kafka.isolation.level", "read_committed")
        stream = source.load().select("topic", "partition", "offset")
        stream.writeStream.foreachBatch(merge_each(queue, "lake.db.prices")).option("checkpointLocation", ...).start()

    The stream says when, and up to where; the records are read from the log, from where the table is. So a batch that
    comes again, comes late or was lost changes nothing, and three of the stream's columns are enough. See `merge`.

    An idle stream has a batch without a record now and then: the table then notes that it has missed nothing, too.

    From Spark 4.2 on the stream may be one of the format ``lvq``, with ``lvq.strays`` set to ``pass``: else it fails
    for good once partitions are added. A merge settles what several of them hold of a key (R14).

    Raises:
        ConfigError: this is a process of Spark Connect. The function it returns raises it where the stream lacks a
            column, or has records of another topic or that no transaction has committed; and all that `merge` raises.
    """
    require_classic("merge_each", "merge")

    check_queue(queue)
    check_policies(on_stale, consistency)
    delays(timeout=timeout)

    def run(batch: DataFrame, batch_id: int) -> None:
        merger = Merger(batch.sparkSession, queue, table, on_stale, consistency, timeout)
        reaches = _reaches(batch, queue.definition.topic)
        if reaches:
            merger.bring_up_to_date(reaches, at_least=True)
        else:
            merger.stay_fresh()

    return run


def _reaches(batch: DataFrame, topic: str) -> dict[int, int]:
    """The offset behind the last record of each partition."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    missing = [name for name in ("topic", "partition", "offset") if name not in batch.columns]
    if missing:
        raise ConfigError(f"The stream lacks the column {', '.join(missing)}.", options=["batch"])
    found = batch.groupBy("topic", "partition").agg(F.max("offset") + 1).collect()
    others = sorted({str(row[0]) for row in found if row[0] != topic})
    if others:
        raise ConfigError(f"The stream has records of the topic {others[0]}, not of {topic}.", options=["batch"])
    return {row[1]: row[2] for row in found}
