"""The table that queues are merged into: its rows, its state, and the ``MERGE`` of both."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Literal, NamedTuple, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lvq_kafka.core.text.validation import text
from lvq_kafka.errors import ConfigError, DataLoss
from lvq_spark.cut.pinning import zoned
from lvq_spark.rules.expiry import lives
from lvq_spark.schema import SNAPSHOT_COLUMNS
from lvq_spark.session.local_session import require_spark
from lvq_spark.store.guards import AGAIN, now
from lvq_spark.store.layout.layers import STORED
from lvq_spark.store.manifest import Version, decode, encode

__all__ = ["Contents", "How", "MergedTable", "read_merged"]

logger = logging.getLogger("lvq_spark.store")

_COLUMNS = [field.split()[0] for field in re.sub(r"<.*>", "", STORED).split(", ")]
_FILLED = ("key", "partition", "lvq_role")
"""The columns in which every row has a value."""

_ISOLATION, _SERIALIZABLE = "write.merge.isolation-level", "serializable"
"""Iceberg's property and its default.

No isolation level of Delta's lets two merges into an empty table succeed.
"""

_STATE = -1
"""The partition of the row that holds the state, as its value.

The row's key is empty, which a record's key may be, too.
"""

_SETTINGS = (
    "Delta needs its package (io.delta:delta-spark of this Spark's version), "
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog; Iceberg needs its own "
    "(org.apache.iceberg:iceberg-spark-runtime), and a catalog: "
    "spark.sql.catalog.<name>=org.apache.iceberg.spark.SparkCatalog, with its type and warehouse."
)

# Errors of Delta (Concurrent...Exception) and Iceberg when any other commit came first.
_OVERTAKEN = re.compile(r"\.Concurrent\w+Exception|ValidationException|CommitFailedException|CommitStateUnknown")


class MergedTable:
    """A Delta or Iceberg table, by name."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self.name = name
        self._read: tuple[Version, bytes] | None = None

    def create(self) -> None:
        """Create the table, without rows, if it does not exist.

        Raises:
            ConfigError: this session cannot create it, or the name belongs to something else.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import AnalysisException, PySparkException

        try:
            there = False
            with suppress(AnalysisException):
                there = self._spark.catalog.tableExists(self.name)  # a read of what is missing is logged as an error
            if not there:
                self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self.name} ({STORED}) USING {self._format()}")
            columns = self._spark.table(self.name).schema
        except (PySparkException, Py4JJavaError) as error:  # the latter where a class is missing
            raise ConfigError(
                f"The table {self.name} does not exist and cannot be created: {_first_line(error)}",
                options=["table"],
                hint=_SETTINGS,
            ) from error
        self._check(columns)

    def _check(self, columns: StructType) -> None:
        """Check that a table has room for a queue's rows. Columns that others added stay theirs."""
        there = {field.name: field for field in columns}
        asked = {field.name: field.dataType.simpleString() for field in self._spark.createDataFrame([], STORED).schema}
        if any(name not in there or there[name].dataType.simpleString() != kind for name, kind in asked.items()):
            raise ConfigError(
                f"{self.name} is not a queue's table: it has the columns {', '.join(there)}.",
                options=["table"],
                hint=f"A queue's table needs at least these columns: {STORED}.",
            )
        filled = [field.name for field in columns if not field.nullable and field.name not in _FILLED]
        if filled:
            raise ConfigError(
                f"{self.name} has NOT NULL columns that not every row has a value for: {', '.join(filled)}.",
                options=["table"],
                hint=f"In a queue's table, only {', '.join(_FILLED)} may be NOT NULL.",
            )

    def check_isolation(self) -> None:
        """Check that one of two concurrent merges into a table without rows fails.

        Once the table has a state, both replace that row, which no format lets both do.

        Raises:
            ConfigError: both merges would succeed.
        """
        properties = {row[0]: row[1] for row in self._spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}
        if str(properties.get(_ISOLATION, _SERIALIZABLE)).lower() != _SERIALIZABLE:
            raise ConfigError(
                f"{self.name} has no rows yet, and {_ISOLATION}={properties[_ISOLATION]}: two first merges at once "
                "would both succeed, and every row would be there twice.",
                options=["table"],
                hint=f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{_ISOLATION}'='{_SERIALIZABLE}'). It may be "
                "changed back after the first merge.",
            )

    def _format(self) -> str:
        from pyspark.errors import PySparkException

        if _is_path(self.name):
            return "delta"
        first = _parts(self.name)[0]
        try:
            catalog = first if self._spark.conf.get(f"spark.sql.catalog.{first}", None) else None
            catalog = catalog or self._spark.catalog.currentCatalog()
            made_by = str(self._spark.conf.get(f"spark.sql.catalog.{catalog}", None))
        except PySparkException as error:
            raise ConfigError(f"{self.name}: {_first_line(error)}", options=["table"], hint=_SETTINGS) from error
        for known in ("iceberg", "delta"):
            if known in made_by.lower():
                return known
        raise ConfigError(
            f"The table {self.name} does not exist, and the catalog {catalog} is neither Delta's nor Iceberg's.",
            options=["table"],
            hint=f"Create it empty, with these columns: {STORED}. {_SETTINGS}",
        )

    def state(self) -> Version | None:
        """Return the state of the table; None if it is empty.

        Raises:
            ConfigError: its rows are not a queue's, or were written by a newer library.
        """
        table = _as_it_is(self._spark, self.name)
        found = table.where(f"partition = {_STATE}").select("value").take(2)
        if len(found) == 1:
            content = bytes(found[0][0] or b"")
            try:
                state = decode(content, f"The state of {self.name}")
            except DataLoss as damage:
                raise ConfigError(
                    f"The state of {self.name} is damaged: someone has changed it.", options=["table"], hint=self._cure
                ) from damage
            self._read = (state, content)
            return state
        if found or not table.isEmpty():
            raise ConfigError(
                f"{self.name} has rows, and {'more than one state' if found else 'no state'}: it is not a queue's "
                "table, or someone has changed it.",
                options=["table"],
                hint=self._cure,
            )
        return None

    @property
    def _cure(self) -> str:
        return (
            "Name another table, or restore an earlier version of this one. Emptied by DELETE FROM "
            f"{self.name}, it is merged with the whole log."
        )

    def rows(self) -> DataFrame:
        """Return all records: those that readers see, and those kept for the next contest (R14)."""
        return self._spark.table(self.name).where(f"NOT partition <=> {_STATE}").select(*_COLUMNS)

    def contents(self, base: Version) -> Contents:
        """Return the contents of the table in this state."""
        places = Contents.of(self.rows()).places if base.places is None else base.places  # not stored earlier
        return Contents(base.rows, base.kept, places)

    def altered(self, base: Version) -> DataLoss | None:
        """Return an error if others have changed the rows that were left with this state."""
        there, left = Contents.of(_as_it_is(self._spark, self.name).where(f"NOT partition <=> {_STATE}")), base
        if there == (left.rows, left.kept, there.places if left.places is None else left.places):
            return None
        if self.state() != base:
            return None  # another merge changed it, and this one's commit will notice
        return DataLoss(
            f"Something other than a merge changed {self.name}: it has {there.rows} rows for readers and "
            f"{there.kept} others, and merge {left.number} left {left.rows} and {left.kept}"
            + (", of other records." if there[:2] == (left.rows, left.kept) else "."),
            hint=AGAIN,
        )

    def commit(self, news: DataFrame, base: Version | None, version: Version, how: How) -> Version | None:
        """Merge records and the new state in one step; return None if another writer was faster.

        Args:
            news: the newest records of keys in their partitions. Rows with ``lvq_forget`` are not to be in the table.
            base: the state that the table must still have.
            version: the state that it then has.
            how: see `How`.

        Raises:
            ConfigError: another first merge ran at the same time, and the format let both succeed.
        """
        version = replace(version, committed=now())
        state = self._spark.createDataFrame([(encode(version),)], "value binary").selectExpr(
            "X'' AS key", "value", "string(null) AS topic", f"{_STATE} AS partition", "bigint(null) AS offset",
            "timestamp(null) AS timestamp", "null AS headers", "'state' AS lvq_role", "false AS lvq_forget",
        )  # fmt: skip
        try:
            self._spark.sql(_statement(self.name, self._held(base), how), news=news.unionByName(state))
        except Exception as error:
            if not self._overtaken(base, version, error):
                raise
            return version if self.state() == version else None
        logger.info("%s: %s merge %d, %d rows.", self.name, version.kind, version.number, version.rows)
        if base is None:
            self.state()  # fails on two states, if the format let a concurrent first merge succeed
        return version

    def _held(self, base: Version | None) -> bytes | None:
        """Return a state exactly as the table has it.

        Other versions of this library may have written it in another form.
        """
        if base is None:
            return None
        return self._read[1] if self._read is not None and self._read[0] == base else encode(base)

    def _overtaken(self, base: Version | None, version: Version, error: Exception) -> bool:
        """Return whether the table has changed, so that another attempt may succeed."""
        state = self.state()
        if state != base or _OVERTAKEN.search(str(error)):
            logger.info("Another writer of %s committed before merge %d.", self.name, version.number)
            return True
        return False


How = Literal["delta", "whole", "replace"]
"""Treatment of the table's rows that a merge's records do not match.

``delta`` leaves them, and ``whole`` deletes them. ``replace`` matches only the state and deletes all other rows, so it
works even if others have inserted rows twice.
"""


def _statement(name: str, state: bytes | None, how: How) -> str:
    """Return the ``MERGE`` statement for records and state.

    The records have one row for each key and partition, and the state is one more. It is checked where the rows are
    written, so the row that is compared is the row that is replaced. Between plan and commit, the formats themselves
    keep others from changing it.
    """
    held = "NULL" if state is None else f"X'{state.hex()}'"
    overtaken = "CAST(raise_error('Another merge was faster.') AS BINARY)"
    is_state, columns = f"news.partition = {_STATE}", ", ".join(_COLUMNS)
    checked = f"CASE WHEN {is_state} AND NOT table.value <=> {held} THEN {overtaken} ELSE news.value END"
    first = "news.value" if state is None else f"CASE WHEN {is_state} THEN {overtaken} ELSE news.value END"
    updated = ", ".join(f"table.{c} = {checked if c == 'value' else f'news.{c}'}" for c in _COLUMNS)
    inserted = ", ".join(first if c == "value" else f"news.{c}" for c in _COLUMNS)
    return (
        f"MERGE INTO {name} AS table USING {{news}} AS news "
        f"ON table.key = news.key AND table.partition = news.partition{f' AND {is_state}' if how == 'replace' else ''} "
        "WHEN MATCHED AND news.lvq_forget THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {updated} "
        f"WHEN NOT MATCHED AND NOT news.lvq_forget THEN INSERT ({columns}) VALUES ({inserted})"
        + (" WHEN NOT MATCHED BY SOURCE THEN DELETE" if how != "delta" else "")
    )


def read_merged(spark: SparkSession, table: str, *, as_of: datetime | None = None) -> DataFrame:
    """Return a queue's table as it is now, one row for each key.

    Its columns are those of `lvq_spark.snapshot`.

    Args:
        spark: the session, as for `merge`.
        table: the table's name.
        as_of: a moment with a time zone: leave out the values that have expired by then (R10). By default those are
            missing that had expired when the table was last merged.

    Raises:
        ConfigError: Spark finds no such table, or it is not a queue's; or ``as_of`` is not a time with a time zone.
    """
    require_spark(spark)
    text("table", table)
    if as_of is not None:
        zoned("as_of", as_of)
    rows = _found(spark, table).where("lvq_role = 'current'")
    if as_of is not None:
        state = MergedTable(spark, table).state()
        at = as_of.timestamp()
        rows = rows.where(lives(state.times, at)) if state is not None and state.times.expires else rows
    return rows.select(*SNAPSHOT_COLUMNS)


def _found(spark: SparkSession, table: str) -> DataFrame:
    """Return a table that a queue was merged into.

    Raises:
        ConfigError: there is none of that name, or it is another one.
    """
    from pyspark.errors import PySparkException

    wrong = ""
    try:
        if not spark.catalog.tableExists(table):
            wrong = f"No table is called {table}."
    except PySparkException as error:
        wrong = f"{table!r} cannot be the name of a table here: {_first_line(error)}"
    if wrong:
        raise ConfigError(wrong, options=["table"], hint="merge creates it.")
    rows = _as_it_is(spark, table)
    lacks = [name for name in _COLUMNS if name not in rows.columns]
    if lacks:
        raise ConfigError(
            f"{table} is not a queue's table: it lacks {', '.join(lacks)}.",
            options=["table"],
            hint="Name one that merge has filled.",
        )
    return rows


def _as_it_is(spark: SparkSession, table: str) -> DataFrame:
    """Read a table with everything committed so far, including by other sessions.

    A stream, for example, has a session of its own.
    """
    if not _is_path(table):  # Spark cannot refresh a Delta path, and need not
        spark.catalog.refreshTable(table)  # Iceberg's catalogs may lag by half a minute
    return spark.table(table)


_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")


def _parts(name: str) -> list[str]:
    """Return the parts of a name, without quotes."""
    return [quoted.replace("``", "`") or bare for quoted, bare in _PART.findall(name)] or [name]


def _is_path(name: str) -> bool:
    """Return whether a name is a Delta path, which no catalog knows."""
    parts = _parts(name)
    return len(parts) == 2 and parts[0].lower() == "delta" and "/" in parts[1]


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.getMessage()).strip().partition("\n")[0]


class Contents(NamedTuple):
    """The number of visible rows, the number of others, and a digest of the places of all.

    A place in the log identifies a record, so the partitions, offsets and roles of a table's rows show which records it
    has. The digest is the exclusive or of one hash per row. So a merge can compute the next digest from the rows that
    it removes and adds, and checking the table takes only three narrow columns. Keys and values are not covered.
    """

    rows: int
    kept: int
    places: int

    @classmethod
    def of(cls, records: DataFrame) -> Self:
        """Count and digest records. This is a Spark job."""
        from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

        digest = F.coalesce(F.bit_xor(F.xxhash64("partition", "offset", "lvq_role")), F.lit(0))
        counted = records.select(F.count("*"), F.count_if(F.col("lvq_role") == "current"), digest).first()
        assert counted is not None
        return cls(counted[1], counted[0] - counted[1], counted[2])

    def replaced(self, gone: Contents, come: Contents) -> Self:
        """Return the contents after some records are removed and others added."""
        return self._replace(
            rows=self.rows - gone.rows + come.rows,
            kept=self.kept - gone.kept + come.kept,
            places=self.places ^ gone.places ^ come.places,
        )
