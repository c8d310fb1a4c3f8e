"""What a merged table holds, in three numbers: they go with its state, and differ once others have changed its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Contents"]


class Contents(NamedTuple):
    """How many rows readers see, how many others there are, and a digest of the places of all.

    A place in the log is a record, so the partitions, offsets and roles of a table's rows say which records it has. The
    digest is the exclusive or of a hash of each: a merge works out the next one from the rows that go and come, and to
    look at the table takes three narrow columns of it. Keys and values are not looked at.
    """

    rows: int
    kept: int
    places: int

    @classmethod
    def of(cls, records: DataFrame) -> Self:
        """Look at records. This is a Spark job."""
        from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

        digest = F.coalesce(F.bit_xor(F.xxhash64("partition", "offset", "lvq_role")), F.lit(0))
        counted = records.select(F.count("*"), F.count_if(F.col("lvq_role") == "current"), digest).first()
        assert counted is not None
        return cls(counted[1], counted[0] - counted[1], counted[2])

    def replaced(self, gone: Contents, come: Contents) -> Self:
        """These, without some records and with others."""
        return self._replace(
            rows=self.rows - gone.rows + come.rows,
            kept=self.kept - gone.kept + come.kept,
            places=self.places ^ gone.places ^ come.places,
        )
