"""Shipping steps to the executors, so that one that cannot run them says why."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from lvq_kafka import __version__
from lvq_kafka.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["NEEDS", "Step", "map_in_arrow", "portable"]

NEEDS = "Install lvq-kafka[spark]: it brings pyspark, pyarrow and pandas."

Step = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""What an executor runs on the batches of one task."""


def map_in_arrow(rows: DataFrame, step: Step, schema: str) -> DataFrame:
    """The rows that a step makes of these, task by task.

    Raises:
        ConfigError: the step cannot be sent to the executors, or a Python package is missing here.
    """
    with warnings.catch_warnings():
        # A session of its own cannot act on it, and nothing here goes through pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        try:
            return rows.mapInArrow(portable(step), schema)
        except ImportError as missing:
            raise ConfigError(f"This Python lacks a package for Spark: {missing}", hint=NEEDS) from missing


def portable(step: Step) -> Step:
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

    def lvq_step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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

    return lvq_step
