"""Values that others write to a queue after a cut, read as late as possible."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from lvq_kafka.cluster.reading_to_end import read_to_end
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.kafka import KafkaCluster
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.scan.log_range import PATIENCE, POLL, check_topic, raise_halted

__all__ = ["NewValue", "Tail"]


class NewValue(NamedTuple):
    """A value that was written after a cut, and its position."""

    key: bytes
    partition: int
    offset: int


class Tail:
    """The log after a cut, read over a connection of its own. Use it as a context manager.

    Records of undecided transactions count: what is open now may be committed later, at offsets below anything written
    in the meantime.

    Raises:
        TopicRecreated: the topic is not the one that was pinned.
        TransportError: the cluster cannot be reached or refuses.
    """

    def __init__(self, cluster: KafkaCluster, cut: SnapshotSpec) -> None:
        check_topic(cluster, cut)
        self._cluster, self._cut = cluster, cut
        self._progress = Progress(cut.end)
        looks_at_headers = cut.decisive_header is not None
        self._reader = cluster.reader(cut.topic, cut.end, headers=looks_at_headers, decided=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reader.close()

    def new_values(self) -> Iterator[NewValue]:
        """Yield the values added since the last call, in all partitions, up to the current end.

        Raises:
            DataLoss: some of the log has been deleted.
            KeyMismatch: a record's header and key disagree, and the queue's policy is ``"fail"``.
            CatchUpTimeout: nothing moved for `PATIENCE` seconds.
            TransportError: the cluster cannot be reached or refuses.
        """
        ends, progress = self._cluster.logs.end_offsets(self._cut.topic), self._progress
        if added := dict.fromkeys(ends.keys() - progress.positions.keys(), 0):
            self._reader.assign(added)
            progress.advance(added)
        halted = partial(raise_halted, self._cut.topic)
        for fetch in read_to_end(partial(self._reader.poll, POLL), progress, ends, give_up=halted, patience=PATIENCE):
            yield from self._values(fetch.batch)

    def _values(self, batch: RecordBatch) -> Iterator[NewValue]:
        keys = self._cut.keys_of(batch)
        for key, value, partition, offset in zip(keys, batch.values, batch.partitions, batch.offsets):
            if key is not None and value is not None:
                yield NewValue(key, partition, offset)
