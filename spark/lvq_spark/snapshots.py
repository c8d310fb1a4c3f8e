"""Snapshots of a queue as Spark DataFrames."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from lvq_kafka import __version__
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig, KafkaLog
from lvq_kafka.queue import LastValueQueue
from lvq_spark.pinning import SnapshotSpec, pin
from lvq_spark.reading import Consistency

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SCHEMA", "snapshot"]

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns of a snapshot: names, order and types are those of Spark's Kafka connector, without ``timestampType``."""

_NEEDS = "Install lvq-kafka[spark]: it brings pyspark, pyarrow and pandas."

Step = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def snapshot(
    spark: SparkSession,
    queue: LastValueQueue[Any],
    *,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    spec: SnapshotSpec | None = None,
    consistency: Consistency = "pinned",
    timeout: float = 10.0,
) -> DataFrame:
    """The current values of a queue as a DataFrame, one row for each key.

    The cut through the log is fixed here, on the driver, before anything is read. Every action on the DataFrame, every
    retry and every new plan reads that cut, and its rows are those of a view at the same offsets (G8)::

        with queue.view() as view:
            cut = view.snapshot()
            lvq_spark.snapshot(spark, queue, end=cut.offsets)      # the rows of `cut`

    The columns are those of Spark's Kafka connector, by name, order and type, ``timestampType`` left out: ``key`` and
    ``value`` (binary), ``topic``, ``partition``, ``offset``, ``timestamp`` and ``headers`` (null when a message has
    none). Deleted keys have no row. A key that lies in several partitions has one row, of the record that R14 chooses.

    The executors read Kafka themselves. Their Python needs lvq-kafka[spark] in the version of the driver, and the
    files that client properties name. Client properties, secrets among them, travel inside the serialized tasks, as
    with Spark's own Kafka connector (``spark.network.crypto.enabled`` hides them on the way); they are in no plan, log
    or event. A task that fails shows as Spark's ``PythonException``, with this library's error in its text.

    A cut does not stay readable for ever: a record that a newer one has superseded since may be compacted away. A task
    that cannot rule that out fails with `DataLoss`; see ``consistency``. Where the topic's ``min.compaction.lag.ms``
    is longer than the job this cannot happen. A cut older than the topic's ``delete.retention.ms`` cannot be judged.

    Args:
        spark: the session.
        queue: the queue, on a Kafka cluster.
        start, end, timeout: as for `pin`.
        spec: a cut that `pin` has fixed before; excludes ``start`` and ``end``.
        consistency: what to do about keys whose record of the cut may be gone: ``"pinned"`` fails, ``"atleast"`` takes
            the record that superseded it. See `lvq_spark.reading.Consistency`.

    Raises:
        ConfigError: options clash, the queue does not lie on a Kafka cluster, or Spark's Python packages are missing.
        TopicNotFound, DataLoss, TransportError: as for `pin`.
    """
    if consistency not in get_args(Consistency):
        raise ConfigError(
            f"consistency={consistency!r} is none of {', '.join(get_args(Consistency))}.", options=["consistency"]
        )
    config = _client_config(queue)
    if spec is None:
        spec = pin(queue, start=start, end=end, timeout=timeout)
    elif start is not None or end is not None:
        other = "start" if start is not None else "end"
        raise ConfigError(f"spec and {other} are both given; a spec names its offsets.", options=["spec", other])
    elif spec.topic != queue.definition.topic:
        raise ConfigError(
            f"The spec is of the topic {spec.topic}, the queue lies on {queue.definition.topic}.",
            options=["spec", "queue"],
        )
    try:
        from lvq_spark.columns import SNAPSHOT_COLUMNS
        from lvq_spark.scanning import Scan
        from lvq_spark.tasks import Merge, Read
    except ImportError as missing:
        raise ConfigError(f"Spark snapshots need the package {missing.name}.", hint=_NEEDS) from missing
    tasks = len(spec.ranges)
    several = tasks > 1
    read = Read(Scan(spec, config, SNAPSHOT_COLUMNS, consistency, deletes=several))
    rows = _map(spark.range(0, tasks, 1, max(1, tasks)), read)
    if not several:
        return rows
    return _map(rows.repartition("key"), Merge(spec.topic, spec.partitions))


def _client_config(queue: LastValueQueue[Any]) -> ClientConfig:
    if not isinstance(queue.log, KafkaLog):
        raise ConfigError(
            f"The queue {queue.definition.name} lies on a {type(queue.log).__name__}, which executors cannot reach.",
            options=["queue"],
            hint="A snapshot needs a queue on a Kafka cluster.",
        )
    return queue.log.config


def _map(rows: DataFrame, step: Step) -> DataFrame:
    with warnings.catch_warnings():
        # A session of its own cannot act on it, and nothing here goes through pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        try:
            return rows.mapInArrow(_portable(step), SCHEMA)
        except ImportError as missing:
            raise ConfigError(f"Spark snapshots lack a package: {missing}", hint=_NEEDS) from missing


def _portable(step: Step) -> Step:
    """A function that carries a step to an executor, and explains itself where the step cannot be unpacked.

    Spark pickles it by value, since it is local; a function of this package would be looked up on arrival, and an
    executor without the package would fail before it could say why.
    """
    from pyspark import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps(step)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigError(
            f"The client's properties cannot be sent to the executors: {error}",
            hint="Callbacks (oauth_cb, stats_cb, throttle_cb) must be functions that can be pickled.",
        ) from error
    version = __version__

    def lvq_snapshot(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import sys

        try:
            import lvq_kafka

            there = lvq_kafka.__version__
            if there != version:
                raise RuntimeError(
                    f"The driver has lvq-kafka {version}, this executor {there}. Install the same version on both."
                )
            unpacked: Step = pickle.loads(packed)
        except ImportError as missing:
            raise ImportError(
                f"The Python of this executor, {sys.executable}, lacks a package: {missing}. "
                f"Install lvq-kafka[spark]=={version} there, or set PYSPARK_PYTHON to a Python that has it."
            ) from missing
        yield from unpacked(batches)

    return lvq_snapshot
