"""The rows that a task of the data source reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from lvq_kafka.cluster import Cluster
from lvq_kafka.errors import DataLoss
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.scan.home_partition import JAVA
from lvq_spark.scan.shares import PartitionShare
from lvq_spark.scan.task_metrics import logger
from lvq_spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from lvq_spark.scan.scanning import Scan

__all__ = ["rows"]


def rows(
    options: SourceOptions,
    partition: InputPartition | None,
    columns: tuple[str, ...],
    *,
    deletes: bool,
    changes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of one task.

    If there is no partition at all, Spark passes one of None. The other arguments are those of `Scan`.
    """
    if partition is None or partition.value is None:  # before Spark 4.2 the partition itself is None
        return
    spec, task = partition.value
    from lvq_spark.scan.scanning import connected

    with connected(options.config) as cluster:
        for share in task:
            yield from _rows(cluster, options, spec, share, columns, deletes=deletes, changes=changes)


def _rows(
    cluster: Cluster,
    options: SourceOptions,
    spec: SnapshotSpec,
    share: PartitionShare,
    columns: tuple[str, ...],
    *,
    deletes: bool,
    changes: bool,
) -> Iterator[pa.RecordBatch]:
    left = spec if options.fail_on_data_loss else _still_there(cluster, spec, share.partition)
    given = False
    while True:
        scan = replace(_scan(options, left, columns, deletes=deletes, changes=changes), slice=share.slice)
        try:
            for batch in scan.rows_of(cluster, share.partition):
                given = True
                yield batch
            return
        except DataLoss:
            if given or options.fail_on_data_loss:
                raise
            # Skip whatever was lost since the last check, too; each time there is less left to lose.
            spec, left = left, _still_there(cluster, left, share.partition)
            if left == spec:
                raise


def _scan(
    options: SourceOptions, spec: SnapshotSpec, columns: tuple[str, ...], *, deletes: bool, changes: bool
) -> Scan:
    from lvq_spark.scan.scanning import Scan

    return Scan(
        spec,
        options.config,
        columns,
        consistency=options.consistency,
        deletes=deletes,
        changes=changes,
        keyless=options.keyless,
        strays=options.strays if options.conflate else "pass",
        partitioner=options.partitioner or JAVA,
        conflate=options.conflate,
        keys=options.keys,
        memory=options.memory,
        rows=options.rows,
        bytes=options.bytes,
        patience=options.patience,
    )


def _still_there(cluster: Cluster, spec: SnapshotSpec, partition: int) -> SnapshotSpec:
    """Return the cut without the offsets that the log has lost since it was pinned.

    They may be missing at its start or at its end.
    """
    lowest = cluster.logs.start_offsets(spec.topic)[partition]
    stable = cluster.logs.end_offsets(spec.topic, stable=True)[partition]
    end = min(spec.end[partition], stable)
    start = min(max(spec.start[partition], lowest), end)
    for first, after in ((spec.start[partition], start), (end, spec.end[partition])):
        if first < after:
            logger.warning("%s/%d: the log has lost offsets %d to %d.", spec.topic, partition, first, after)
    return replace(spec, start={**spec.start, partition: start}, end={**spec.end, partition: end}, epochs={})
