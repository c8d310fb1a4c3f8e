"""The tables of a fold in a file."""

from __future__ import annotations

from lvq_kafka.core.latest.index_rules import IndexRules
from lvq_kafka.core.latest.tables import Contests
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.storing.index_keeper import IndexKeeper
from lvq_kafka.storing.stored_aside import StoredAside
from lvq_kafka.storing.stored_contests import StoredContests
from lvq_kafka.storing.stored_table import StoredExpiringTable, StoredTable
from lvq_kafka.storing.value_file import ValueFile

__all__ = ["StoredTables"]


class StoredTables:
    """`Tables` in a file of a store. Their changes count once ``file`` has committed them.

    Args:
        file: the file.
        rules: the indexes to keep.
    """

    def __init__(self, file: ValueFile, rules: IndexRules) -> None:
        self.file = file
        self.indexes = IndexKeeper(file, rules)

    def table(self, partitions: int, key_header: str | None) -> StoredTable:
        """See `Tables.table`."""
        return StoredTable(self.file, partitions, key_header, self.indexes)

    def expiring(self, partitions: int, key_header: str | None, expiry_times: ExpiryTimes) -> StoredExpiringTable:
        """See `Tables.expiring`."""
        return StoredExpiringTable(self.file, partitions, key_header, expiry_times, self.indexes)

    def contests(self, key_header: str | None) -> Contests:
        """See `Tables.contests`."""
        return StoredContests(self.file, key_header)

    def aside(self) -> StoredAside:
        """See `Tables.aside`."""
        return StoredAside(self.file)
