"""Snapshots of a queue as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never, get_args

from pyspark.sql import DataFrame, SparkSession

from lvq_kafka.core.log.keys import Key, chosen_keys
from lvq_kafka.core.text.validation import at_least_one, choice, instance
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.pinning import Moment, SnapshotSpec, check_queue, pin
from lvq_spark.rules.merge_partitions_spark import candidate_columns, candidates_schema, merge_partitions
from lvq_spark.rules.ranks import RANKS, check_ranked, rank
from lvq_spark.scan.log_range import Consistency
from lvq_spark.scan.serialization import NEEDS, map_in_arrow
from lvq_spark.schema import ON_REQUEST, SCHEMA, SNAPSHOT_COLUMNS, check_columns, ddl
from lvq_spark.session.local_session import require_spark
from lvq_spark.session.removed import refuse_removed

__all__ = ["SCHEMA", "client_config", "snapshot"]


def snapshot(
    spark: SparkSession,
    queue: LastValueQueue[Any],
    *,
    columns: Sequence[str] = SNAPSHOT_COLUMNS,
    keys: Iterable[Key] | None = None,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    as_of: Moment | Mapping[int, Moment] | None = None,
    group: str | None = None,
    selector: str | None = None,
    spec: SnapshotSpec | None = None,
    consistency: Consistency = "pinned",
    slices: int = 1,
    timeout: float = 10.0,
    **removed: Never,
) -> DataFrame:
    """Return the current values of a queue as a DataFrame, one row for each key.

    The cut through the log is fixed here, on the driver, before anything is read. Every action on the DataFrame, every
    retry and every new plan reads that cut, and its rows are those of a view at the same cut (G8)::

        with queue.view() as view:
            cut = view.snapshot()
            lvq_spark.snapshot(spark, queue, end=cut.offsets, as_of=cut.as_of)      # the rows of `cut`

    In a queue with a TTL, a cut also has a time, ``as_of``: what has expired by then has no row (R10), and neither has
    an older value of its key (R8). The same time says which scheduled messages count (R11): one that is not due by then
    hides nothing.

    The columns have the names, order and types of Spark's Kafka connector, without ``timestampType``: ``key`` and
    ``value`` (binary), ``topic``, ``partition``, ``offset``, ``timestamp`` and ``headers`` (null when a message has
    none). Deleted keys have no row. A key in several partitions has one row, of the record that R14 chooses.

    The executors read Kafka themselves. Their Python needs lvq-kafka[spark] in the driver's version, and the files that
    client properties name. Client properties, secrets included, travel inside the serialized tasks, as with Spark's own
    Kafka connector (``spark.network.crypto.enabled`` hides them on the way); they are in no plan, log or event. A task
    that fails appears as Spark's ``PythonException``, with this library's error in its text; within
    `lvq_spark.task_errors` it is that error.

    Each task, when it is done, logs its counts (records, deletes, keys away from home and so on) at INFO to
    ``lvq_spark.tasks``. Set that logger's level here, and the executors log as much.

    A cut does not stay readable forever: a record that has been superseded since may be compacted away. A task that
    cannot rule that out fails with `DataLoss`; see ``consistency``. That cannot happen if the topic's
    ``min.compaction.lag.ms`` is longer than the job. Without such a lag, and once the log has been compacted at its
    start, a key that is new after the cut is enough for a task to fail. A cut older than the topic's
    ``delete.retention.ms`` cannot be verified.

    Args:
        spark: the session.
        queue: the queue, on a Kafka cluster.
        columns: the columns of `SCHEMA` to read, in the order wanted. Omitted ones cost nothing: without ``headers``
            reading takes half the time if messages have any, and without ``value`` no values are sorted or kept on
            disk. A ``select`` comes too late for that, since Spark does not pass it on to the tasks. One more,
            ``expires``, has the time after which a row no longer counts; null if it never expires. So do ``priority``
            and ``sort_key`` the rank of a row, if the queue's order is by rank; see `with_rank`. ``group`` has the
            group of a row, in bytes (R36); null if it has none.
        keys: read only these keys: text, bytes, integers or booleans (R2). The whole log is still read, but rows of
            other keys take no room in a task and never leave it.
        start: as for `pin`.
        end: as for `pin`.
        as_of: as for `pin`.
        group: as for `pin`.
        timeout: as for `pin`.
        selector: only keys whose newest message meets this condition, in the syntax of JMS selectors; in addition to
            the queue's own selector, if it has one (R26, R30). The driver and the executors need the extra
            ``selectors``.
        spec: a cut that `pin` has fixed before; excludes ``start``, ``end``, ``as_of`` and ``group``.
        consistency: the policy for keys whose record in the cut may have been compacted away: ``"pinned"`` fails,
            ``"atleast"`` takes the record that superseded it. See `lvq_spark.scan.log_range.Consistency`.
        slices: how many tasks read each partition. Each reads all of its records, but keeps only a part of its keys:
            for partitions whose keys do not fit into the memory of one task.
        removed: options of earlier versions, ``engine`` and ``connector_options``, which are errors.

    Raises:
        ConfigError: options clash, a column does not exist, the queue is not on a Kafka cluster, or Spark's Python
            packages are missing.
        MissingExtra: there is a selector, and the extra ``selectors`` is not installed.
        TopicNotFound, DataLoss, TransportError: as for `pin`.
    """
    refuse_removed("snapshot", removed)
    choice("consistency", consistency, get_args(Consistency))
    at_least_one(slices=slices)
    columns = check_columns("columns", columns, (*SNAPSHOT_COLUMNS, *ON_REQUEST))
    wanted = chosen_keys(keys)
    config = client_config(queue)
    require_spark(spark)
    if spec is None:
        spec = pin(queue, start=start, end=end, as_of=as_of, group=group, timeout=timeout)
    else:
        instance("spec", spec, SnapshotSpec, "Give the result of `pin`.")
        given = {"start": start, "end": end, "as_of": as_of, "group": group}
        if others := [name for name, value in given.items() if value is not None]:
            raise ConfigError(
                f"spec and {others[0]} are both given; a spec names its offsets.", options=["spec", *others]
            )
        if spec.topic != queue.definition.topic:
            raise ConfigError(
                f"The spec is for the topic {spec.topic}, but the queue's topic is {queue.definition.topic}.",
                options=["spec", "queue"],
            )
    spec, shown = spec.selecting(selector), columns
    check_ranked("columns", shown, queue.name, queue.definition.order)
    if ranks := [name for name in columns if name in RANKS]:
        columns = tuple(dict.fromkeys((*(name for name in columns if name not in RANKS), "headers")))
    rows = _read(spark, spec, config, consistency, columns, wanted, slices)
    if not ranks:
        return rows
    sort_header = queue.definition.sort_header
    return rows.select(*(rank(name, sort_header).alias(name) if name in RANKS else name for name in shown))


def _read(
    spark: SparkSession,
    spec: SnapshotSpec,
    config: ClientConfig,
    consistency: Consistency,
    columns: tuple[str, ...],
    keys: frozenset[bytes] | None,
    slices: int,
) -> DataFrame:
    try:
        from lvq_spark.scan.scanning import Scan
        from lvq_spark.scan.shares import tasks_of
        from lvq_spark.scan.tasks import ReadCandidates, ReadRows
    except ImportError as missing:
        raise ConfigError(f"Spark snapshots need the package {missing.name}.", hint=NEEDS) from None
    tasks = tasks_of(spec, slices)
    places = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    if len(spec.ranges) < 2:
        return map_in_arrow(places, ReadRows(Scan(spec, config, columns, consistency, keys=keys), tasks), ddl(columns))
    read = ReadCandidates(Scan(spec, config, candidate_columns(columns), consistency, keys=keys), tasks)
    return merge_partitions(map_in_arrow(places, read, candidates_schema(columns)), spec, columns)


def client_config(queue: LastValueQueue[Any]) -> ClientConfig:
    """Return the client configuration with which executors reach the queue's cluster.

    Raises:
        ConfigError: the queue is not on a Kafka cluster.
    """
    check_queue(queue)
    if not isinstance(queue.cluster, KafkaCluster):
        raise ConfigError(
            f"The queue {queue.definition.name} is on a {type(queue.cluster).__name__}, which executors cannot reach.",
            options=["queue"],
            hint="A snapshot needs a queue on a Kafka cluster.",
        )
    return queue.cluster.config
