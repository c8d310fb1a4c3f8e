"""A merged table's contents in three numbers, which show changes that others made.

They are stored with the table's state.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from pyspark.sql import DataFrame

__all__ = ["Contents"]


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
