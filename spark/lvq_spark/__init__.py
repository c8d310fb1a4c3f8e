"""Last value queues in Spark: the newest message of each key as one row.

- `snapshot` returns the current values of a queue as a DataFrame, cut at the same offsets as a view. `pin` fixes such a
  cut in advance, for use more than once.
- `register` enables ``spark.read.format("lvq")`` and ``spark.readStream.format("lvq")``.
- `refresh` keeps versions of a snapshot in Parquet up to date with new records in the log; `versions` and
  `read_version` read them. `merge`, `merge_each` and `read_merged` do the same for a Delta or Iceberg table.
- `publish` writes a DataFrame into a queue. `decode` turns values into typed columns; `read_subject` reads the schemas
  for that from a registry. `group_of` finds the group of each row, and `with_rank` adds the column by which a queue is
  ordered.
- `task_errors` turns the failure of an action into an error of this library.
- `local_session` creates a Spark session on this machine.
"""

from typing import TYPE_CHECKING, Never

from lvq_kafka.runtime.extras import needing

with needing("spark", "lvq_spark"):
    from lvq_spark.cut.pinning import SnapshotSpec, pin
    from lvq_spark.decoding.decode import decode
    from lvq_spark.decoding.protobuf_message import ProtobufMessage
    from lvq_spark.decoding.schema_registry import SubjectSchemas, read_subject
    from lvq_spark.rules.grouping import group_of
    from lvq_spark.rules.ranks import with_rank
    from lvq_spark.schema import SCHEMA
    from lvq_spark.session.local_session import local_session
    from lvq_spark.session.removed import successor
    from lvq_spark.session.task_failures import task_errors
    from lvq_spark.snapshots import snapshot
    from lvq_spark.source.registering import register
    from lvq_spark.store import Version, merge, merge_each, read_merged, read_version, refresh, versions
    from lvq_spark.writing.publishing import Published, publish

__all__ = [
    "SCHEMA",
    "ProtobufMessage",
    "Published",
    "SnapshotSpec",
    "SubjectSchemas",
    "Version",
    "decode",
    "group_of",
    "local_session",
    "merge",
    "merge_each",
    "pin",
    "publish",
    "read_merged",
    "read_subject",
    "read_version",
    "refresh",
    "register",
    "snapshot",
    "task_errors",
    "versions",
    "with_rank",
]

if not TYPE_CHECKING:  # else every name would pass the type checker

    def __getattr__(name: str) -> Never:
        """Refuse a name; an error for one of an earlier version names its successor."""
        raise successor(name) or AttributeError(f"module {__name__!r} has no attribute {name!r}")
