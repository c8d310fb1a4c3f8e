"""Publishing a DataFrame into a queue: each row is the new value of its key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from lvq_kafka.core import quoting
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.headers import RESERVED, UNKEYED_HEADER, reserved_header
from lvq_kafka.core.options import choice, delays
from lvq_kafka.errors import ConfigError, MissingKey
from lvq_kafka.kafka import ClientConfig, KafkaLog
from lvq_kafka.producer import Producer
from lvq_kafka.queue import LastValueQueue
from lvq_spark.pinning import pin
from lvq_spark.schema import quoted
from lvq_spark.session import require_frame, require_spark
from lvq_spark.shipping import map_in_arrow
from lvq_spark.snapshots import client_config, snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["Published", "Vanished", "Write", "publish"]

Vanished = Literal["keep", "delete"]
"""What becomes of keys that the queue holds and the frame lacks: they stay as they are, or are deleted."""

_COUNTS = "partition int, last bigint, written bigint, deleted bigint, vanished bigint"
_HEADERS = "array<struct<key: string, value: binary>>"
_KEY_TYPES = ("binary", "string", "tinyint", "smallint", "int", "bigint", "boolean")
_VALUE_TYPES = ("binary", "string")
_HEADER_TYPES = tuple(f"array<struct<key:string,value:{kind}>>" for kind in _VALUE_TYPES)
_HEADERS_WANTED = "Headers are an array of structs of key (text) and value (text or bytes)."


@dataclass(frozen=True, slots=True)
class Published:
    """What `publish` wrote.

    Args:
        written: keys that have a new value.
        deleted: keys that the frame deletes, by a null value.
        vanished: keys that were deleted because the frame lacks them.
        ends: for each partition written to, the offset behind the last record written. A snapshot whose cut reaches
            these offsets shows all that was published.
    """

    written: int = 0
    deleted: int = 0
    vanished: int = 0
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
            publishing starts. Messages without a key (R1) stay. An empty frame is refused then: it would delete all.
        timeout: seconds for each question to the cluster.

    Raises:
        ConfigError: a column is missing or of the wrong type, a key has several rows, a row's header and key disagree
            or it has a header without a name or with a reserved one (R22), or the frame is empty and ``vanished`` is
            ``"delete"``.
        MissingKey: a row has no key.
        TopicNotFound, TransportError: as for `pin`. A task that fails shows as Spark's ``PythonException``, with this
            library's error in its text.
    """
    choice("vanished", vanished, get_args(Vanished))
    delays(timeout=timeout)
    require_frame(df)
    require_spark(df.sparkSession)
    config = client_config(queue)
    rows = _rows(df, key, value, headers, newest)
    cut = pin(queue, timeout=timeout) if vanished == "delete" else None
    # A missing right is told before anything runs, and so is a missing topic.
    queue.log.check_may("Write", queue.topic, timeout=timeout)
    checked = rows.persist()
    try:
        count = _check(checked, queue.definition, key, newest)
        if cut is not None:
            if not count:
                raise ConfigError(
                    f'The frame is empty, and vanished="delete" would delete all that {queue.name} holds.',
                    options=["vanished"],
                    hint="If that is meant, delete the keys of a snapshot: publish them with null values.",
                )
            held = snapshot(df.sparkSession, queue, spec=cut, timeout=timeout)
            rows = checked.unionByName(_vanished(held, checked))
        written = map_in_arrow(rows, Write(queue.topic, queue.key_header, config), _COUNTS).collect()
    finally:
        checked.unpersist()
    ends: dict[int, int] = {}
    for row in written:
        if row.partition is not None:
            ends[row.partition] = max(row.last + 1, ends.get(row.partition, 0))
    return Published(
        sum(row.written for row in written),
        sum(row.deleted for row in written),
        sum(row.vanished for row in written),
        dict(sorted(ends.items())),
    )


@dataclass(frozen=True, slots=True)
class Write:
    """Writes rows of key, value, headers and vanished to a topic. ``config`` holds the secrets; its repr hides them."""

    topic: str
    key_header: str | None
    config: ClientConfig

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row of counts for each partition written to, when all is acknowledged."""
        import pyarrow as pa

        from lvq_spark.scan.arrays import integers

        lasts: dict[int, int] = {}
        written = deleted = vanished = 0
        with (
            closing(KafkaLog(self.config)) as log,
            Producer(log, self.topic, key_header=self.key_header) as producer,
        ):
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("key", "value", "headers", "vanished"))
                receipts = []
                for key, value, headers, is_gone in zip(*columns):
                    pairs = [(header["key"], header["value"]) for header in headers or ()]
                    if value is None:
                        receipts.append(producer.delete(key, pairs))
                        vanished += is_gone
                        deleted += not is_gone
                    else:
                        receipts.append(producer.put(key, value, pairs))
                        written += 1
                producer.flush()
                for position in (receipt.result() for receipt in receipts):
                    lasts[position.partition] = max(position.offset, lasts.get(position.partition, 0))
        if lasts:
            nothing = [0] * (len(lasts) - 1)
            yield pa.RecordBatch.from_arrays(
                [
                    integers(pa.int32(), list(lasts)),
                    integers(pa.int64(), list(lasts.values())),
                    *(integers(pa.int64(), [count, *nothing]) for count in (written, deleted, vanished)),
                ],
                ["partition", "last", "written", "deleted", "vanished"],
            )


# ---------------------------------------------------------------- the frame


def _rows(df: DataFrame, key: str, value: str, headers: str | None, newest: str | None) -> DataFrame:
    """The frame as `Write` takes it: keys and values in bytes, of several rows with one key the newest."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    keys = _column(df, "key", key, _KEY_TYPES, "Keys are text, bytes, integers or booleans: cast it to string.")
    if df.schema[key].dataType.simpleString() != "binary":
        keys = keys.cast("string").cast("binary")  # the bytes that `encode_key` makes of it
    values = _column(df, "value", value, _VALUE_TYPES, "Make it text or bytes first, with to_json or to_avro.")
    pairs = F.lit(None) if headers is None else _column(df, "headers", headers, _HEADER_TYPES, _HEADERS_WANTED)
    columns = [
        keys.alias("key"),
        values.cast("binary").alias("value"),
        pairs.cast(_HEADERS).alias("headers"),
        F.lit(False).alias("vanished"),
    ]
    if newest is None:
        return df.select(columns)
    # A rank, not a row number: of two that are both the newest neither is, and the check tells of them.
    rank = F.rank().over(Window.partitionBy("key").orderBy(F.desc_nulls_last("newest")))
    ranked = df.select(*columns, _column(df, "newest", newest).alias("newest")).withColumn("rank", rank)
    return ranked.where("rank = 1").drop("newest", "rank")


def _column(df: DataFrame, option: str, name: str, types: tuple[str, ...] = (), hint: str = "") -> Column:
    if name not in df.columns:
        near = difflib.get_close_matches(name, df.columns, 1)
        raise ConfigError(
            f"{option}={name!r} names no column of the frame, which has {', '.join(df.columns)}.",
            options=[option],
            hint=f"Did you mean {near[0]}?" if near else f"Name one of them with {option}=... .",
        )
    found = df.schema[name].dataType.simpleString()
    if types and found not in types:
        raise ConfigError(f"The column {name} is {found}.", options=[option], hint=hint)
    return df[quoted(name)]


def _check(rows: DataFrame, definition: QueueDefinition, key: str, newest: str | None) -> int:
    """The number of keys, when each row can be written as it is."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    key_header = definition.key_header

    def disagrees(header: Column) -> Column:
        return (header["key"] == F.lit(key_header)) & (header["value"] != F.col("key"))

    clash = F.lit(False) if key_header is None else F.coalesce(F.exists("headers", disagrees), F.lit(False))
    nameless = F.coalesce(F.exists("headers", lambda header: header["key"].isNull()), F.lit(False))
    reserved = F.array_min(F.filter(F.col("headers")["key"], lambda name: name.isin(*sorted(RESERVED))))
    refused = _unkeyed() if definition.keyless == "refuse" else F.lit(False)
    keys = rows.groupBy("key", (F.col("key").isNull() | refused).alias("keyless")).agg(
        F.count(F.lit(1)).alias("n"),
        F.max(clash).alias("clash"),
        F.max(nameless).alias("nameless"),
        F.min(reserved).alias("reserved"),
    )
    several = F.col("key").isNotNull() & (F.col("n") > 1)
    found = keys.agg(
        F.count("key").alias("keys"),
        F.sum(F.when(F.col("keyless"), F.col("n"))).alias("keyless"),
        F.count(F.when(several, 1)).alias("several"),
        F.min(F.when(several, F.struct("key", "n"))).alias("example"),
        F.count(F.when(F.col("clash"), 1)).alias("clashes"),
        F.min(F.when(F.col("clash"), F.col("key"))).alias("clashing"),
        F.count(F.when(F.col("nameless"), 1)).alias("nameless"),
        F.min(F.when(F.col("nameless"), F.col("key"))).alias("unnamed"),
        F.min("reserved").alias("reserved"),
    ).collect()[0]
    if found.keyless:
        raise MissingKey(
            f"{_many(found.keyless, 'row has', 'rows have')} no key (the column {key} is null, or the headers say so).",
            hint="A row names the value that it replaces. Leave such rows out.",
        )
    if found.several:
        which = "rows" if newest is None else f"rows that are the newest by {newest}"
        raise ConfigError(
            f"{_many(found.several, 'key has', 'keys have')} several {which}, "
            f"among them {quoting.quoted(bytes(found.example.key))} with {found.example.n}.",
            options=["key"] if newest is None else ["newest"],
            hint="newest=... names a column that says which of them counts." if newest is None else "",
        )
    if found.clashes:
        raise ConfigError(
            f"{_many(found.clashes, 'row has', 'rows have')} a header {key_header!r} that disagrees with the key, "
            f"among them the one of {quoting.quoted(bytes(found.clashing))}.",
            options=["key", "headers"],
            hint="The header is set from the key: leave it out.",
        )
    if found.nameless:
        raise ConfigError(
            f"{_many(found.nameless, 'row has', 'rows have')} a header without a name, among them the one of "
            f"{quoting.quoted(bytes(found.unnamed))}.",
            options=["headers"],
            hint=_HEADERS_WANTED,
        )
    if found.reserved is not None:
        raise reserved_header(found.reserved, definition.topic)
    return int(found.keys)


def _vanished(held: DataFrame, rows: DataFrame) -> DataFrame:
    """The deletes of what the queue holds and the frame lacks; messages that never had a key are no part of it (R1)."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    gone = held.where(~_unkeyed()).join(rows.select("key"), "key", "left_anti")
    return gone.select(
        "key",
        F.lit(None).cast("binary").alias("value"),
        F.lit(None).cast(_HEADERS).alias("headers"),
        F.lit(True).alias("vanished"),
    )


def _unkeyed() -> Column:
    """Whether a row is a message that never had a key."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    return F.coalesce(F.exists("headers", lambda header: header["key"] == F.lit(UNKEYED_HEADER)), F.lit(False))


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"
