"""The format ``lvq``: a queue's current values as a Spark data source, without a shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_spark.scan.serialization import carried
from lvq_spark.schema import TYPES, check_columns, ddl
from lvq_spark.source.catalog import created_with, keeping, kept
from lvq_spark.source.option_map import merged
from lvq_spark.source.partition_rows import rows
from lvq_spark.source.planning import plan, ranges
from lvq_spark.source.source_options import EXTRA, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["LvqDataSource", "LvqReader", "check_schema", "lvq_source"]

_OPTIONAL = ("headers", *EXTRA)

_ONLY_STREAMS = "it is for streams. For a batch, set startingOffsets and endingOffsets."


class LvqDataSource(DataSource):
    """The data source for last value queues, in batches and in streams.

    Use it as ``spark.read.format("lvq")`` and ``spark.readStream.format("lvq")``; `lvq_spark.register` makes it known
    to a session. Its columns are those of Spark's Kafka connector; columns that a schema leaves out are not built. A
    DataFrame has the cut that is pinned at its first action, and so does a view ``USING lvq``. Each query on a table,
    ``CREATE TABLE prices USING lvq OPTIONS (...)``, has a cut of its own unless ``endingOffsets`` fixes it. The format
    does not write: `lvq_spark.publish` does.

    ============================== ===================================================================================
    option                         values, the default first
    ============================== ===================================================================================
    kafka.*                        librdkafka properties; ``kafka.bootstrap.servers`` is required
    subscribe, assign, queue       one topic; ``{"topic": [0, 1]}``; or a declared queue, with its key and its policies
    lvq.address                    instead of these, a queue by its address as in Qpid, Artemis or Broker-J, with the
                                   selector and the subject of the address. A read declares no queue: one that is
                                   missing, and that the address would create, is read as the address says
    startingOffsets, endingOffsets earliest, latest, ``{"topic": {"0": 23, "1": -2}}``; a stream starts at the earliest
    startingTimestamp, ...         ms since the epoch: start at the first record that is not older;
                                   ``...OffsetsByTimestamp`` for each partition;
                                   ``startingOffsetsByTimestampStrategy`` error, latest
    endingTimestamp, ...           the same, as the end of a batch; ``lvq.asOfPolicy`` fail, warn if compaction may
                                   have removed records of that time
    includeHeaders                 false, true
    failOnDataLoss                 true, false: skip offsets that the log has lost
    kafkaConsumer.pollTimeoutMs    120000; reading fails after this long without progress, whatever failOnDataLoss is
    maxOffsetsPerTrigger           the most offsets in a batch of a stream
    lvq.dedupe                     partition: one row for each key; none: one for each record, and then
                                   ``minPartitions`` and ``maxRecordsPerPartition`` may split partitions among tasks
    lvq.key, lvq.keyMismatch       record, header:NAME; if both exist and differ: header, record, fail
    lvq.tombstones                 drop; keep: a delete is a row with a null value, which is also the default for
                                   streams and with ``lvq.dedupe`` none
    lvq.ttl                        false; true: messages may carry a TTL, as a declared queue's definition says for it.
                                   ``lvq.defaultTtl``, ``lvq.minTtl``, ``lvq.maxTtl``: its limits, in seconds
    lvq.expired                    delete: a key is deleted when its newest value has expired (R8); keep: that value
                                   has a row like any other, as with ``lvq.dedupe`` none
    lvq.maxDelay                   seconds by which messages may be scheduled ahead (R11), as a declared queue's
                                   definition says for it; by default none may. Streams need ``lvq.dedupe`` none then
    lvq.asOf                       seconds since the epoch: what has expired by then, and what is due. By default that
                                   is the end's time, or else now; for a stream's batch, when it was planned
    lvq.nullKeys                   pass: a record without a key is a row of its own; drop; fail
    lvq.strays                     fail if a key lies outside its home partition, since it may lie there, too; pass, as
                                   a queue of several partitions needs whose messages are placed by group
    lvq.partitioner                murmur2_random, consistent_random (CRC32, librdkafka's default), fnv1a_random: the
                                   partitioner that every writer of the topic has always used. It decides where keys
                                   are at home
    lvq.keys                       only these: text, ``IBM,MSFT``, or a JSON list of keys in base64, ``["SUJN"]``. With
                                   ``lvq.partitioner`` only their home partitions are read; a wrong one loses rows
    lvq.slices                     1; n: that many tasks read each partition, and each keeps a part of its keys, for
                                   partitions whose keys do not fit into the memory of a task. For batches only
    lvq.selector                   only keys whose newest message meets this condition, in the syntax of JMS; with
                                   ``lvq.dedupe=none`` only messages that meet it. A queue's own selector counts, too
    lvq.group, lvq.hideConsumed    only what this group, or the queue's own (true), has not consumed, as a browser
                                   opened now shows it; ``lvq.onForeignCommits`` refuse, ignore
    lvq.consistency                pinned, atleast; see `lvq_spark.scan.log_range.Consistency`
    lvq.batchRows, lvq.batchBytes  10000, 8m; limits of an Arrow batch
    lvq.memoryBytes                256m; records that a task holds in memory; the rest goes to a temporary file
    lvq.groupHeader                the header that names the group of a message (R36), as a declared queue's definition
                                   says for it
    lvq.extraColumns               deleted: whether the row is a delete; expires: the time after which it no longer
                                   counts, null if it never expires; priority, sort_key: the rank of the row, in a
                                   queue with order="priority" or "sorted" (R20); group: its group, null if it has none
    ============================== ===================================================================================
    """

    def __init__(self, options: Mapping[str, str], defaults: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(dict(options))
        self._defaults = dict(defaults)

    def _parsed(self, options: Mapping[str, str] | None = None) -> SourceOptions:
        """Parse the options.

        The constructor does not, so an attempt to write is reported as such, not as a wrong option for reading.
        """
        return SourceOptions.parse(merged(self._defaults, self.options if options is None else options))

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lvq"

    def schema(self) -> str | StructType:
        """Return the columns of a read that asks for none.

        For a table that is being created, they also hold its options.
        """
        table = created_with(self.options)
        parsed = self._parsed(table)
        more = ("headers",) * parsed.include_headers + parsed.extra_columns
        columns = [name for name in TYPES if name not in _OPTIONAL or name in more]
        return ddl(columns) if table is None else keeping(columns, table)

    def reader(self, schema: StructType) -> LvqReader:
        """Return the reader of a batch.

        Raises:
            ConfigError: the schema does not match the available columns, or an option is for streams only.
        """
        parsed = self._parsed(self._read_as(schema))
        parsed.refuse({"maxOffsetsPerTrigger": _ONLY_STREAMS})
        return LvqReader(parsed, check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name for it
        """Return the reader of a stream.

        Raises:
            ConfigError: as for `reader`, or this Spark is too old.
        """
        if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
            raise ConfigError(
                f"Streams of the format lvq need Spark 4.2 or newer, but this is {pyspark.__version__}.",
                hint="Read batches, or upgrade Spark.",
            )
        from lvq_spark.source.streaming import LvqStreamReader  # needs what older versions lack

        return LvqStreamReader(self._parsed(self._read_as(schema)), check_schema(schema))

    def _read_as(self, schema: StructType) -> Mapping[str, str]:
        """Return the options, with those that a table keeps."""
        options = merged(kept(schema), self.options)
        if not options and not self._defaults:
            raise ConfigError(
                "There are no options: Spark passes none of those of a table created with columns of its own.",
                options=["schema"],
                hint="Create it without columns: CREATE TABLE prices USING lvq OPTIONS (...).",
            )
        return options

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write.

        Raises:
            ConfigError: always; the error names the function that writes.
        """
        raise _no_writing()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802  # Spark's name for it
        """Refuse to write, as `writer` does."""
        raise _no_writing()

    def __repr__(self) -> str:
        return f"LvqDataSource({self._parsed()!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return carried(LvqDataSource, self.options, self._defaults)


def lvq_source(defaults: Mapping[str, str], options: Mapping[str, str]) -> LvqDataSource:
    """Make a source with the defaults of a session."""
    return LvqDataSource(options, defaults)


def _no_writing() -> ConfigError:
    return ConfigError(
        "The format lvq does not write: its tasks could not tell whether a key has several rows, nor which one counts.",
        options=["format"],
        hint="lvq_spark.publish(frame, queue) writes a DataFrame once all of it has been checked; for a stream use "
        "writeStream.foreachBatch(lambda rows, _: lvq_spark.publish(rows, queue)).",
    )


class LvqReader(DataSourceReader):
    """The reader of a cut, pinned when Spark plans the DataFrame's first action and then kept.

    It must never accept filters: if a source does, Spark 4.3 leaves a filter in the plans of other queries on the same
    DataFrame, which then miss rows.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the tasks that read the partitions with anything to read."""
        with closing(KafkaCluster(self._options.config)) as cluster:
            spec = plan(self._options, cluster)
        return [InputPartition(share) for share in ranges(self._options, spec)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        said = self._options.deletes
        deletes = not self._options.conflate if said is None else said
        return rows(self._options, partition, self._columns, deletes=deletes)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return carried(LvqReader, self._options, self._columns)


def check_schema(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a schema asks for.

    Raises:
        ConfigError: it asks for none, for an unknown one, for one of another type, or for one that must not be null.
    """
    names = check_columns("schema", schema.fieldNames(), TYPES)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if TYPES[field.name].replace(" ", "").removesuffix("_ltz") != kind or not field.nullable:
            what = f"{field.name} {kind}{'' if field.nullable else ' NOT NULL'}"
            raise ConfigError(
                f"The format lvq has no column {what}.", options=["schema"], hint=f"It has {ddl([field.name])}."
            )
    return names
