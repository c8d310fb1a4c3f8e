"""The second engine: Spark's Kafka connector reads, and Spark's sort finds the newest.

Each partition of the log is one task, which reads and reduces it in the JVM: only the newest record of each key leaves
the task. There `Guard` adds, in Arrow, what Spark cannot know: whether compaction has overtaken the cut. As for the
other engine, `lvq_spark.rules.merge_partitions_spark` chooses among several partitions of a key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession

from lvq_kafka.core.timing.terms import Ttl
from lvq_kafka.errors import ConfigError, KeyMismatch
from lvq_kafka.kafka import ClientConfig
from lvq_spark.connector.checking import check_plan, check_rights
from lvq_spark.connector.java_properties import java_properties
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.rules.expiry import MALFORMED, expiry, unreadable
from lvq_spark.rules.grouping import group
from lvq_spark.rules.merge_partitions_spark import (
    candidate_columns,
    candidates_schema,
    judged_columns,
    merge_partitions,
    slot,
)
from lvq_spark.rules.scheduling import MALFORMED_TIME, SCHEDULED, malformed, scheduled
from lvq_spark.scan.log_range import Consistency
from lvq_spark.scan.serialization import NEEDS, map_in_arrow
from lvq_spark.schema import EXPIRES, GROUP, SNAPSHOT_COLUMNS, TYPES, ddl
from lvq_spark.session.connector_check import require_connector
from lvq_spark.session.task_failures import raised

__all__ = ["read_with_connector"]

APART = 32
"""The most partitions of a topic to plan one by one.

Planning more would take long, and one exchange costs less.
"""

_SPLITTING = ("minpartitions", "maxrecordsperpartition")

_OURS = {
    "subscribe": "the topic is the queue's",
    "subscribepattern": "the topic is the queue's",
    "assign": "the partitions are those of the cut",
    "startingoffsets": "the offsets are those of the cut",
    "endingoffsets": "the offsets are those of the cut",
    "startingtimestamp": "the offsets are those of the cut",
    "endingtimestamp": "the offsets are those of the cut",
    "startingoffsetsbytimestamp": "the offsets are those of the cut",
    "endingoffsetsbytimestamp": "the offsets are those of the cut",
    "failondataloss": "a cut with records missing is an error",
    "includeheaders": "the columns of the snapshot say whether there are headers",
    "kafka.bootstrap.servers": "the cluster is the queue's",
    "kafka.isolation.level": "every reader shows committed records only",
}


def read_with_connector(
    spark: SparkSession,
    spec: SnapshotSpec,
    config: ClientConfig,
    *,
    consistency: Consistency = "pinned",
    connector_options: Mapping[str, str] | None = None,
    columns: Sequence[str] = SNAPSHOT_COLUMNS,
    keys: frozenset[bytes] | None = None,
    timeout: float = 10.0,
) -> DataFrame:
    """Read the rows of a cut with Spark's Kafka connector.

    The rows and the schema are those of the Python engine. The connector reads exactly the offsets of the cut,
    committed records only. Keys and values spill to disk as in any Spark sort. With ``minPartitions`` or
    ``maxRecordsPerPartition`` several tasks read one partition, at the cost of one more exchange. Its log is then
    assumed to have gaps, since there is no way to find out.

    The library's own client checks, on the executors and after the reading, that no key of the cut was compacted away
    and that the topic is still the same. It uses the queue's properties; see `Consistency`.

    Args:
        connector_options: options of the connector. ``kafka.*`` are the Java client's own properties: one of
            ``kafka.sasl.*`` or ``kafka.ssl.*`` replaces all of the queue's properties of that family.
        columns: the columns of the snapshot.
        keys: leave out all other keys, and records without a key.
        timeout: seconds to check whether the topic can be read; after that it is left to the tasks.

    Raises:
        ConfigError: the connector is not in this session or rejects its options, an option is fixed by the cut, or a
            client property has no Java counterpart.
        Unauthorized, AuthenticationFailed, TransportError: this user may not read the topic, or the connector cannot
            log in with its properties.
    """
    require_connector(spark)
    claimed = candidate_columns(columns)
    needed = judged_columns(spec, claimed)
    expiring = spec.ttl is not None and EXPIRES in needed
    times = expiring or spec.due_by is not None
    groups = spec.groups is not None and GROUP in needed
    looks_at_headers = "headers" in needed or spec.decisive_header is not None or times or groups
    options = _options(config, connector_options or {}, headers=looks_at_headers)
    try:
        from lvq_spark.connector.guarding import Guard
    except ImportError as missing:
        raise ConfigError(f"Spark snapshots need the package {missing.name}.", hint=NEEDS) from missing
    if not spec.ranges:
        return spark.createDataFrame([], ddl(columns))

    def load(partitions: Sequence[int]) -> DataFrame:
        return spark.read.format("kafka").options(**options, **_offsets(spec, partitions)).load()

    def newest(partitions: Sequence[int]) -> DataFrame:
        records = load(partitions)
        # One task for one partition, which saves Spark an exchange. Several have as many as the connector makes.
        return _newest(records.coalesce(1) if len(partitions) == 1 and not split else records, spec, needed, keys)

    check_rights(spec, config, timeout)
    check_plan(lambda: load(spec.ranges[:1]))

    def guarded(rows: DataFrame, *partitions: int) -> DataFrame:
        guard = Guard(spec, config, consistency, partitions, claimed, split, keys)
        return map_in_arrow(rows, guard, candidates_schema(columns))

    split = any(name.lower() in _SPLITTING for name in options)
    if split or len(spec.ranges) > APART:
        # Every partition is checked at the end, above all one that returned no record.
        marks = spark.createDataFrame([(partition,) for partition in spec.ranges], "partition int")
        rows = newest(spec.ranges).unionByName(marks, allowMissingColumns=True).repartition("partition")
        return merge_partitions(guarded(rows), spec, columns)
    parts = [guarded(newest([p]), p) for p in spec.ranges]
    if len(parts) > 1:
        # This only hides from Spark that each part is one task; it would otherwise make one task of them all.
        parts = [part.coalesce(2) for part in parts]
    return merge_partitions(reduce(lambda some, more: some.unionAll(more), parts), spec, columns)


def _options(config: ClientConfig, given: Mapping[str, str], *, headers: bool) -> dict[str, str]:
    for name in given:
        if reason := _OURS.get(name.lower()):
            raise ConfigError(f"The connector's option {name} cannot be set: {reason}.", options=["connector_options"])
    own = {name[len("kafka.") :]: str(value) for name, value in given.items() if name.startswith("kafka.")}
    properties = {"max.poll.records": "20000", **java_properties(config, own)}
    return {
        **{name: str(value) for name, value in given.items() if not name.startswith("kafka.")},
        **{f"kafka.{name}": value for name, value in properties.items()},
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": str(headers).lower(),
        "failOnDataLoss": "true",
    }


def _offsets(spec: SnapshotSpec, partitions: Sequence[int]) -> dict[str, str]:
    """Return the options that set the range to read."""
    start, end = (
        {str(partition): offsets[partition] for partition in partitions} for offsets in (spec.start, spec.end)
    )
    return {
        "assign": json.dumps({spec.topic: list(partitions)}),
        "startingOffsets": json.dumps({spec.topic: start}),
        "endingOffsets": json.dumps({spec.topic: end}),
    }


def _newest(
    records: DataFrame, spec: SnapshotSpec, columns: Sequence[str], wanted: frozenset[bytes] | None
) -> DataFrame:
    """Return the newest record of each key in each partition, deletes included.

    Each has its number among the records of its task. Of those that do not count yet, the newest is returned beside it,
    so that the last record of the log has a row in any case.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    number = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1)) + 1  # the higher bits are the task's
    cells = {"key": _key(spec), "deleted": F.isnull("value"), **(_expiry(spec.ttl) if EXPIRES in columns else {})}
    cells |= _schedule(spec)
    if GROUP in columns:
        cells[GROUP] = group(spec.groups)
    names = dict.fromkeys((*columns, *cells))
    rows = records.select(*(cells.get(name, F.col(name)).alias(name) for name in names), number.alias("number"))
    if wanted is not None:
        rows = rows.where(F.col("key").isin(*sorted(wanted)))
    apart = (SCHEDULED,) if SCHEDULED in cells else ()
    newest_first = Window.partitionBy("slot", "key", "partition", *apart).orderBy(F.desc("offset"))
    # Keep the filter on row_number(): with it Spark drops the other rows while it sorts, before any exchange.
    rows = rows.withColumn("slot", slot(F.col("offset"))).withColumn("place", F.row_number().over(newest_first))
    return rows.where("place = 1").drop("slot", "place")


def _expiry(ttl: Ttl | None) -> dict[str, Column]:
    """Return the expiry of a record; and whether its TTL is malformed, for `Guard` to count."""
    from pyspark.sql import functions as F  # noqa: N812

    if ttl is None:
        return {EXPIRES: F.lit(None).cast(TYPES[EXPIRES])}
    found = expiry(ttl)
    return {EXPIRES: found.at, MALFORMED: found.malformed}


def _schedule(spec: SnapshotSpec) -> dict[str, Column]:
    """Return what `Guard` has to know of a record that may be scheduled."""
    if spec.max_delay is None or spec.due_by is None:
        return {}
    terms = (spec.max_delay, spec.due_by)
    return {SCHEDULED: scheduled(*terms), MALFORMED_TIME: malformed(*terms)}


def _key(spec: SnapshotSpec) -> Column:
    """Return a record's key (R16).

    The last of the key headers counts; a header without a value says nothing. Our client reads no header of a record if
    a name among them is not UTF-8, and both must agree.
    """
    from pyspark.sql import functions as F  # noqa: N812

    key, name = F.col("key"), spec.decisive_header
    if name is None:
        return key
    named = F.filter("headers", lambda header: header["key"].eqNullSafe(name))
    unknown = unreadable()
    said = F.when(~unknown, F.try_element_at(named, F.lit(-1))["value"])
    if spec.key_mismatch == "header":
        return F.coalesce(said, key)
    position = F.concat(F.lit(f"{spec.topic}/"), F.col("partition"), F.lit("/"), F.col("offset"))
    complaint = F.concat(
        F.lit(raised(KeyMismatch, "The key of the record at ")),
        position,
        F.when(unknown, F.lit(" may disagree with its header, which cannot be read.")).otherwise(
            F.lit(f" and its header {name!r} disagree.")
        ),
    )
    disagree = unknown | (said.isNotNull() & ~said.eqNullSafe(key))
    return F.when(disagree, F.raise_error(complaint).cast("binary")).otherwise(key)
