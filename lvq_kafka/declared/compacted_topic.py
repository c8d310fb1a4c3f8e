"""A small compacted topic of this library's own, which maps names to documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import NoReturn

from lvq_kafka.cluster import Cluster
from lvq_kafka.cluster.reading_to_end import read_to_end
from lvq_kafka.cluster.rights import lacking
from lvq_kafka.core.facts import Right, Shortfall
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.core.log.progress import Progress, describe
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.errors import (
    BrokerUnavailable,
    CatchUpTimeout,
    DeliveryFailed,
    TopicNotFound,
    TransportError,
    Unauthorized,
)

__all__ = ["CompactedTopic"]

_POLL = 0.1  # seconds
_SETTINGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",  # from when an alteration holds must not depend on a client's clock
    "segment.ms": "86400000",
    "min.cleanable.dirty.ratio": "0.1",
}


class CompactedTopic:
    """A topic with one partition, which is only as large as the number of names.

    Every call reads it to its end.

    Args:
        topic: its name. It is created before the first write.
        spared: what needs no right to write here, as a sentence for those who lack it.
        timeout: seconds for each request to the cluster.
        first_counts: returns whether the document of a name, in UTF-8, stands until it is deleted. The writer of one
            that comes later is about to notice, and to restore the first. Otherwise, the last one counts, as it does
            after compaction.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        spared: str,
        timeout: float,
        first_counts: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._spared = spared
        self._timeout = timeout
        self._first_counts = first_counts

    def read(self) -> LatestValues:
        """Return what the topic holds; nothing if there is no such topic.

        Raises:
            CatchUpTimeout: reading took too long.
            TransportError: the cluster cannot be reached or refuses.
        """
        values = LatestValues()
        try:
            starts = self._cluster.logs.start_offsets(self._topic, timeout=self._timeout)
        except TopicNotFound:
            return values
        values.progress.advance(starts)
        for batch in self.read_on(starts):
            self.apply(values, batch)
        return values

    def apply(self, values: LatestValues, batch: RecordBatch) -> None:
        """Apply those records of a batch that count."""
        names = set(batch.keys)
        first_counts = self._first_counts
        if first_counts is None or (len(names) == len(batch) and values.table.lacks(names)):
            values.apply(batch)
            return
        for record in batch:
            key = record.key
            if key and (record.value is None or key not in values.table or not first_counts(key)):
                values.apply(RecordBatch.of([record]))

    def read_on(self, positions: Mapping[int, int]) -> Iterator[RecordBatch]:
        """Yield what the topic holds from these positions to its end. Raises what `read` raises."""
        ends = self._cluster.logs.end_offsets(self._topic, timeout=self._timeout)
        progress = Progress(positions)
        if progress.reached(ends):
            return
        with closing(self._cluster.reader(self._topic, positions)) as reader:
            fetches = read_to_end(
                lambda: reader.poll(_POLL), progress, ends, give_up=self._give_up, timeout=self._timeout
            )
            for fetch in fetches:
                yield fetch.batch

    def _give_up(self, shortfalls: list[Shortfall], trouble: TransportError | None) -> NoReturn:
        raise CatchUpTimeout(
            f"Reading {self._topic} took more than {self._timeout:g} s: {describe(shortfalls)}.",
            shortfalls=shortfalls,
            hint="Try again, and check whether a transaction is open in that topic.",
        ) from trouble

    def end(self, timeout: float) -> int:
        """Return the end of the log; 0 if there is no such topic. While it stays, nothing changes.

        Raises:
            TransportError: the cluster cannot be reached or refuses.
        """
        try:
            return self._cluster.logs.end_offsets(self._topic, partitions=1, timeout=timeout).get(0, 0)
        except TopicNotFound:
            return 0

    def config(self) -> Mapping[str, str]:
        """Return the topic's settings.

        Raises:
            Unauthorized: this user may not read them.
        """
        return self._cluster.topics.config(self._topic, timeout=self._timeout)

    def create(self) -> None:
        """Create the topic if there is none."""
        try:
            self._cluster.topics.describe(self._topic, timeout=self._timeout)
        except TopicNotFound:
            self._cluster.topics.create(self._topic, partitions=1, config=_SETTINGS, timeout=self._timeout)

    def check_may_write(self, what: str) -> None:
        """Check that this user may write ``what``, such as "the definition of the queue prices".

        Raises:
            Unauthorized: it may not.
        """
        try:
            self._cluster.topics.check_may("Write", self._topic, timeout=self._timeout)
        except Unauthorized:
            raise self._may_not_write(what) from None

    def append(self, name: str, document: bytes | None, what: str) -> int:
        """Write a document, or a delete, and return its offset.

        Args:
            name: the key, as `key_text` shows it.
            what: the document, for errors.

        Raises:
            Unauthorized: this user may not write to the topic.
            BrokerUnavailable: the write was not acknowledged in time.
        """
        writer = self._cluster.writer()
        try:
            return writer.append(self._topic, encode_key(name), document).result(self._timeout).offset
        except (DeliveryFailed, Unauthorized) as error:
            refusal = error if isinstance(error, Unauthorized) else error.__cause__
            if not isinstance(refusal, Unauthorized):
                raise
            raise self._may_not_write(what) from None
        except TimeoutError:
            raise BrokerUnavailable(
                f"Writing {what} to {self._topic} was not acknowledged within {self._timeout:g} s.",
                code="_TIMED_OUT",
                retriable=True,
                hint="It may still be stored. Try again once the cluster has recovered.",
            ) from None
        finally:
            writer.close(0)  # decided by now, or withdrawn as far as possible

    def _may_not_write(self, what: str) -> Unauthorized:
        return lacking(
            Right("Write", "Topic", self._topic),
            f"write {what} to {self._topic}",
            more=f"Or have someone else do it: {self._spared}",
        )
