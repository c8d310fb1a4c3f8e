"""Last value queues in Spark.

`snapshot` gives the current values of a queue as a DataFrame, one row for each key, cut at the same offsets as a view.
`pin` fixes such a cut beforehand, to be used more than once. `local_session` is a Spark session on this machine.
"""

from lvq_spark.pinning import SnapshotSpec, pin
from lvq_spark.session import local_session
from lvq_spark.snapshots import SCHEMA, snapshot

__all__ = ["SCHEMA", "SnapshotSpec", "local_session", "pin", "snapshot"]
