"""Counts that Spark makes while an action runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Observation

from lvq_spark.session.remote import spark_errors

__all__ = ["observed"]


def observed(seen: Observation) -> Mapping[str, Any] | None:
    """Return an observation's counts, once the action is done; None if there are none.

    Adaptive execution replaces the part of a plan that turned out to have no rows, along with the observations in it
    (Spark 4.1 to 4.3). The rows that such a one was to count may have been left out above it.
    """
    try:
        return seen.get or None  # Spark Connect returns an empty one
    except spark_errors() as error:
        if "java.lang.AssertionError" not in str(error):  # of a row without a schema
            raise
        return None
