"""Functions shipped to the executors, which report why they cannot run there."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from lvq_kafka import __version__
from lvq_kafka.errors import ConfigError
from lvq_spark.scan.task_metrics import logger
from lvq_spark.schema import quoted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NEEDS", "Step", "carried", "map_in_arrow", "portable"]

NEEDS = "Install lvq-kafka[spark]: it brings pyspark, pyarrow and pandas."

Step = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""A function that an executor runs on the batches of one task."""


def map_in_arrow(rows: DataFrame, step: Step, schema: str) -> DataFrame:
    """Return the rows that a step makes of these, task by task.

    An empty list arrives as null, since that is its meaning here.

    Raises:
        ConfigError: the step cannot be sent to the executors, or a Python package is missing here.
    """
    with warnings.catch_warnings():
        # Callers cannot act on this warning, and nothing here goes through pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        try:
            return _without_null_lists(rows).mapInArrow(portable(_ListsAsTheyWere(step)), schema)
        except ImportError as missing:
            raise ConfigError(f"This Python lacks a package for Spark: {missing}", hint=NEEDS) from None


def _without_null_lists(rows: DataFrame) -> DataFrame:
    """Replace null lists with empty ones.

    Spark asks for the size of its Arrow batch after each row, and Arrow's list vector then walks all nulls since the
    last list. Without headers that is half the cost of handing rows over (Spark 4.3: ``ArrayWriter.setNull`` does not
    notify the vector, see GH-40796 of apache/arrow).
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.types import ArrayType

    def filled(name: str, kind: ArrayType) -> Column:
        nothing = F.slice(F.array(F.lit(None).cast(kind.elementType)), 1, 0)  # typed, whatever array() makes
        return F.coalesce(quoted(name), nothing)

    lists = {field.name: field.dataType for field in rows.schema if isinstance(field.dataType, ArrayType)}
    return rows.withColumns({name: filled(name, kind) for name, kind in lists.items()}) if lists else rows


@dataclass(frozen=True, slots=True)
class _ListsAsTheyWere:
    """A step that first restores the nulls sent as empty lists."""

    step: Step

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from lvq_spark.scan.arrays import nulls_for_empty_lists

        return self.step(map(nulls_for_empty_lists, batches))


def portable(step: Step) -> Step:
    """Wrap a step in a function that can travel to an executor.

    Raises:
        ConfigError: the step cannot be pickled.
    """
    from pyspark import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps(step)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigError(
            f"The client's properties cannot be sent to the executors: {error}",
            hint="Callbacks (oauth_cb, stats_cb, throttle_cb) must be functions that can be pickled.",
        ) from error
    arrive, version, level = _arrival(), __version__, logger.getEffectiveLevel()

    def lvq_step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from arrive(packed, version, level)(batches)

    return lvq_step


def carried(make: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the ``__reduce__`` value of an object made by ``make(*arguments)``.

    The object is made again wherever it arrives.
    """
    arrive = _arrival()

    def lvq_part(packed: bytes, version: str, level: int) -> Any:
        make, arguments = arrive(packed, version, level)
        return make(*arguments)

    return lvq_part, (pickle.dumps((make, arguments)), __version__, logger.getEffectiveLevel())


def _arrival() -> Callable[[bytes, str, int], Any]:
    """Return the function that unpacks, on an executor, what this version has packed.

    It reports why it cannot, and sets the executor to log as much as this process does.

    Spark pickles it by value, since it is local. Names from this package would be looked up on arrival, and an executor
    without the package would fail before it could say why.
    """

    def lvq_arrival(packed: bytes, version: str, level: int) -> Any:
        import pickle
        import sys

        try:
            import lvq_kafka

            there = lvq_kafka.__version__
            if there != version:
                raise RuntimeError(
                    f"The driver has lvq-kafka {version}, this executor {there}. Install the same version on both."
                )
            from lvq_spark.scan.task_metrics import listen

            listen(level)
            return pickle.loads(packed)
        except ImportError as missing:
            raise ImportError(
                f"The Python of this executor, {sys.executable}, lacks a package: {missing}. "
                f"Install lvq-kafka[spark]=={version} there, or set PYSPARK_PYTHON to a Python that has it."
            ) from missing

    return lvq_arrival
