"""A frame that computes parts of an expression once for each row."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame

__all__ = ["PREFIX", "StagedFrame"]

PREFIX = "__lvq_decode_"
"""The beginning of the names of columns that hold such parts."""


class StagedFrame:
    """A frame with columns for the parts of an expression.

    Spark computes a part again wherever it is used under a condition: a frame's schema was read six times for each row,
    which took most of the time. A column of a frame of its own is computed once.

    Args:
        df: the frame.
    """

    def __init__(self, df: DataFrame) -> None:
        self.df = df
        self._added: list[str] = []

    def computed(self, part: Column) -> Column:
        """Return a column for a part."""
        name = f"{PREFIX}{len(self._added)}"
        self.df = self.df.withColumn(name, part)
        self._added.append(name)
        return self.df[name]

    def clear(self, df: DataFrame) -> DataFrame:
        """Return a frame that was made of this one, without the columns of parts."""
        return df.drop(*self._added)
