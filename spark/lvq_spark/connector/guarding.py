"""What the connector cannot know of the records it has read: whether compaction has overtaken the cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lvq_kafka.core.records import Record, RecordBatch
from lvq_kafka.kafka import ClientConfig, KafkaLog
from lvq_kafka.ports import Log
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.claims import CLAIM_COLUMNS, to_claims
from lvq_spark.scan.columns import ROWS, arrow_schema, to_arrow
from lvq_spark.scan.reading import PATIENCE, Consistency, check_topic
from lvq_spark.scan.scanning import Scan, vanished

__all__ = ["Guard"]


@dataclass(frozen=True, slots=True)
class Guard:
    """Makes claims of the newest records of whole partitions, once it is sure that none is missing.

    Its column ``number`` counts the records of a partition as they were read, from one. Before the first row comes,
    the log has been read to the end of the cut: rows come sorted. A row without an offset only names a partition.

    Args:
        partitions: those to look at even when no row comes of them, since all of their records may be gone.
    """

    spec: SnapshotSpec
    config: ClientConfig
    consistency: Consistency
    partitions: tuple[int, ...] = ()

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The claims, as `lvq_spark.settling.settled` takes them.

        Raises:
            DataLoss: a key of the cut may be missing, and the cut has to be exact.
            TopicRecreated: the topic is not the one that was pinned.
        """
        watches: dict[int, _Watch] = {}
        with closing(KafkaLog(self.config)) as log:
            for batch in rows:
                for partition in pc.unique(batch["partition"]).to_pylist():
                    if partition not in watches:
                        watches[partition] = self._watch(log, partition)
                    mine = batch.filter(pc.and_(pc.equal(batch["partition"], partition), pc.is_valid(batch["offset"])))
                    watches[partition].see(mine)
                    yield self._claims(mine, partition)
            for partition in self.partitions:
                if partition not in watches:
                    watches[partition] = self._watch(log, partition)
            for partition, watch in sorted(watches.items()):
                for behind in self._missing(watch, partition):
                    yield self._claims(behind, partition)
            check_topic(log, self.spec)

    def _watch(self, log: Log, partition: int) -> _Watch:
        """All keys of records that may have superseded one of the cut; reading it now is not too early, see above."""
        scan = Scan(self.spec, self.config, consistency="atleast")
        return _Watch({record.key: record for record in scan.overtaken(log, partition, frozenset(), PATIENCE)})

    def _missing(self, watch: _Watch, partition: int) -> Iterator[pa.RecordBatch]:
        """The newest records of keys that the cut may have lost: without holes in its offsets it has lost none."""
        spec = self.spec
        if not watch.behind or watch.count == spec.end[partition] - spec.start[partition]:
            return
        if self.consistency == "pinned":
            raise vanished(spec, partition, watch.behind)
        missing = list(watch.behind.values())
        for at in range(0, len(missing), ROWS):
            yield from to_arrow(RecordBatch.of(missing[at : at + ROWS]), spec.topic, columns=CLAIM_COLUMNS)

    def _claims(self, rows: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        # On the way Spark renames what does not matter: the time zone of an instant, the element of a list.
        return to_claims(rows.select(CLAIM_COLUMNS).cast(arrow_schema(CLAIM_COLUMNS)), partition, self.spec)


@dataclass(slots=True)
class _Watch:
    """What was seen of one partition, and what lies behind its cut of keys that were not."""

    behind: dict[bytes | None, Record]
    count: int = field(default=0, init=False)

    def see(self, rows: pa.RecordBatch) -> None:
        # The last record of a partition is the newest of its key, so its number is how many there were.
        self.count = max(self.count, pc.max(rows["number"]).as_py() or 0)
        if self.behind:
            for key in rows["key"].to_pylist():
                self.behind.pop(key, None)
