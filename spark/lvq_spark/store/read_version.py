"""The versions that a store holds, and one of them as a DataFrame."""

from __future__ import annotations

from datetime import UTC, datetime
from os import PathLike

from pyspark.sql import DataFrame, SparkSession

from lvq_kafka.core.text.validation import at_least_one
from lvq_kafka.errors import ConfigError, DataLoss
from lvq_spark.cut.pinning import zoned
from lvq_spark.session.local_session import require_spark
from lvq_spark.session.task_failures import REBUILT, task_errors
from lvq_spark.store.layout.layers import visible
from lvq_spark.store.manifest import Version
from lvq_spark.store.open_storage import open_storage
from lvq_spark.store.storage import storage_errors
from lvq_spark.store.versions import READ, Store

__all__ = ["read_version", "versions"]


def versions(spark: SparkSession, path: str | PathLike[str]) -> list[Version]:
    """Return the versions of a store, oldest first; none if there is no store.

    A version whose manifest is damaged is left out, and a warning names it.

    Raises:
        ConfigError: a manifest is newer than this library; or ``path`` is not a directory that Spark knows.
        StoreFailed: the directory cannot be read.
    """
    require_spark(spark)
    store = Store(open_storage(spark, path))
    with storage_errors(store.storage.root):
        return store.all()


def read_version(
    spark: SparkSession, path: str | PathLike[str], version: int | None = None, *, as_of: datetime | None = None
) -> DataFrame:
    """Return a version of a store as a DataFrame, one row for each key.

    Its columns are those of `lvq_spark.snapshot`. The version is chosen here, and every action on the DataFrame reads
    that one. It stays readable for as long as the store's refreshes keep it, and for their ``grace`` time after it has
    stopped being the newest. A later action fails with Spark's FAILED_READ_FILE; within `lvq_spark.task_errors` that is
    a `DataLoss`.

    Whether a scheduled message counts (R11) was decided when the version was written, at its own ``as_of``.

    Args:
        spark: the session.
        path: the store's directory.
        version: its number; by default the newest.
        as_of: a moment with a time zone; by default the current time. Values that have expired by then are left out
            (R10). Without ``version``, read the newest whose cut had been pinned by then.

    Raises:
        ConfigError: there is no such version; its manifest is newer than this library; or ``version`` was pinned after
            ``as_of``.
        DataLoss: the version is being pruned, or one of its files, or its manifest, is not what was written. This call
            verifies up to 64 MB; the rest is verified while it is read.
        StoreFailed: the directory cannot be read.
    """
    require_spark(spark)
    if version is not None:
        at_least_one(version=version)
    if as_of is not None:
        zoned("as_of", as_of)
    store = Store(open_storage(spark, path))
    with storage_errors(store.storage.root):
        found = _chosen(store, version, as_of)
        changed = "" if found is None else store.changed(found, READ)
    if found is None:
        numbers = store.numbers()
        there = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "it has none"
        wanted = f"no version {version}" if version is not None else f"no version of {as_of}" if as_of else "no version"
        raise ConfigError(
            f"The store {store.storage.root} has {wanted}: {there}.",
            options=["version" if version is not None else "as_of" if as_of else "path"],
            hint="Older ones are pruned; refresh writes the first.",
        )
    if changed:
        raise DataLoss(f"Version {found.number} is damaged: {changed}.", hint=REBUILT)
    if as_of is not None and found.pinned > as_of:
        raise ConfigError(
            f"Version {found.number} was pinned at {found.pinned}, after {as_of}.",
            options=["version", "as_of"],
            hint="Read it as of that time or later.",
        )
    with task_errors():
        return visible(spark, store, found, (as_of or datetime.now(UTC)).timestamp())


def _chosen(store: Store, number: int | None, as_of: datetime | None) -> Version | None:
    if number is not None:
        return store.get(number)
    return store.latest() if as_of is None else store.as_of(as_of)
