"""Random histories of a topic and the table that it is merged into, checked against plain truth after every step."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from lvq_kafka import LastValueQueue
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import force_compaction
from lvq_spark.store import Version, merge, merge_each
from lvq_spark.store.merged_table import MergedTable
from tests.spark.lakehouse.formats import Format
from tests.spark.lakehouse.truth import Journal, Place
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["STEPS", "History"]

_POLICY = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
    "segment.ms": "3600000",
}
_MERGES = ("merge", "merge_up_to", "batch", "two_at_once", "dies", "killed")


class _Crash(BaseException):
    """A simulated kill of the driver."""


class History:
    """A topic, a table, and what happens to both.

    Args:
        cluster: the cluster in which to create the topic.
        format: a table that does not exist yet.
        seed: the same seed gives the same steps.
        kill: kills a process during its merge, with no chance to clean up; without it, no process is killed that way.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: KafkaCluster,
        format: Format,  # noqa: A002  # no other word fits
        topic: str,
        seed: int,
        kill: Callable[[str, str], str] | None = None,
    ) -> None:
        self.spark, self.cluster, self.format, self.topic = spark, cluster, format, topic
        self.tale: list[str] = []
        self.counts: Counter[str] = Counter()
        self._choose, self._kill = random.Random(seed), kill
        self._queue = LastValueQueue(topic, key_header=None, cluster=cluster)
        self._journals: dict[str, Journal] = {}
        self._state: Version | None
        self._values, self._compacted, self._altered = 0, False, False
        self._alterations: dict[int, bool] = {}
        self._columns, self._state = 0, None
        variant = self._choose.choice(format.variants)
        self._tell(f"seed {seed}: {format.name} with {variant}")
        self._begin_topic()
        format.create(variant)
        self._note_version()

    def run(self, steps: int) -> None:
        """Take random steps."""
        for name in self._choose.choices(list(STEPS), list(STEPS.values()), k=steps):
            self.take("dies" if name == "killed" and self._kill is None else name)

    def take(self, name: str) -> None:
        """Take a step, after some records if it is a merge, and check the table. An error shows the whole history."""
        try:
            if name in _MERGES and self._choose.random() < 0.8:
                self._write()
            self.counts[name] += 1
            self._tell(f"{name.replace('_', ' ')}: {getattr(self, f'_{name}')()}")
            self._judge()
        except Exception as error:
            raise AssertionError("\n".join([*self.tale, f"-> {name}: {type(error).__name__}: {error}"])) from error

    def _judge(self) -> None:
        """Compare the table with the truth at its own cut."""
        state = MergedTable(self.spark, self.format.name).state()
        self._state = state
        self._note_version()
        if self._altered:
            return
        table = self.spark.table(self.format.name)
        found = table.select("lvq_role", "key", "partition", "offset", "value").collect()
        if state is None:
            assert not found
            return
        current = [row for row in found if row[0] == "current"]
        rows: dict[bytes, Place] = {bytes(row[1]): (row[2], row[3], bytes(row[4])) for row in current}
        assert len(rows) == len(current), "a key has two rows"
        truth = self._journals[state.topic_id].rows(state.start, state.end)
        assert rows == truth, f"more: {rows.items() - truth.items()}; less: {truth.items() - rows.items()}"
        assert (len(current), len(found)) == (state.rows, state.rows + state.kept + 1)
        assert [row[0] for row in found].count("state") == 1

    # ---------------------------------------------------------------- the topic

    def _begin_topic(self) -> None:
        partitions = self._choose.randint(1, 3)
        eventually(lambda: self.cluster.topics.create(self.topic, partitions=partitions, config=_POLICY), 20)
        self._compacted = False
        self._journals[self._topic_id] = Journal(self.cluster.config.bootstrap_servers, self.topic)
        self._tell(f"topic {self._topic_id} with {partitions} partitions")

    @property
    def _topic_id(self) -> str:
        return self.cluster.topics.describe(self.topic).id

    def _ends(self) -> dict[int, int]:
        return {p: found.offset for p, found in self.cluster.logs.stable_ends(self.topic).items()}

    def _pairs(self) -> list[tuple[bytes, bytes | None]]:
        def pair() -> tuple[bytes, bytes | None]:
            self._values += 1
            value = None if self._choose.random() < 0.3 else b"%d" % self._values
            return b"k%d" % self._choose.randrange(15), value

        return [pair() for _ in range(self._choose.randint(1, 20))]

    def _write(self) -> str:
        """Write with our partitioner or, now and then, another one."""
        pairs, settings = self._pairs(), {"bootstrap.servers": self.cluster.config.bootstrap_servers}
        stray = self._choose.random() < 0.3
        producer = Producer({**settings, "partitioner": "consistent" if stray else "murmur2_random"})
        for key, value in pairs:
            producer.produce(self.topic, value, key)
        assert producer.flush(20) == 0
        self._journals[self._topic_id].read_on()
        return f"{len(pairs)} records{' astray' if stray else ''}, to {self._ends()}"

    def _transaction(self) -> str:
        writer, commits = self.cluster.writer(transactional_id=self.topic), self._choose.random() < 0.5
        writer.begin_transaction()
        for key, value in self._pairs():
            writer.append(self.topic, key, value)
        writer.flush(20)
        (writer.commit_transaction if commits else writer.abort_transaction)(20)
        writer.close()
        eventually(lambda: self._ends() == self.cluster.logs.end_offsets(self.topic), 20)
        self._journals[self._topic_id].read_on()
        return f"{'committed' if commits else 'aborted'}, to {self._ends()}"

    def _compact(self) -> str:
        force_compaction(self.cluster, self.topic)
        self.cluster.topics.alter_config(self.topic, _POLICY)
        self._compacted = True
        self._journals[self._topic_id].read_on()
        return f"to {self._ends()}"

    def _delete_from_the_start(self) -> str:
        starts, ends = self.cluster.logs.start_offsets(self.topic), self._ends()
        before = {p: self._choose.randint(starts[p], starts[p] + (ends[p] - starts[p]) // 2) for p in ends}
        self.cluster.logs.delete_before(self.topic, before)
        return f"before {before}"

    def _add_a_partition(self) -> str:
        total = len(self._ends()) + 1
        if total <= 4:
            self.cluster.topics.add_partitions(self.topic, total)
        return f"{total}"

    def _create_again(self) -> str:
        self.cluster.topics.delete(self.topic)
        self._begin_topic()
        return self._write()

    # ---------------------------------------------------------------- merges

    def _merge(self) -> str:
        return self._merged(merge(self.spark, self._queue, self.format.name))

    def _merged(self, version: Version) -> str:
        """Describe a merge. It must detect changes that others have made, and nothing where they have made none."""
        if version == self._state:
            assert not self._altered
            return "nothing is new"
        found = any("Something other than a merge" in reason for reason in version.reasons)
        assert version.kind == "full" if self._altered else not found, version
        self._altered = False
        self.counts[f"{version.kind} merge"] += 1
        self.counts["alterations found"] += found
        said = f"{version.kind} {version.number} of {version.base}, to {dict(version.end)}"
        return f"{said}; {version.reasons[0]}" if version.reasons else said

    def _merge_up_to(self) -> str:
        state = MergedTable(self.spark, self.format.name).state()
        ends, id_ = self._ends(), self._topic_id
        if self._compacted or self._altered or state is None or state.topic_id != id_ or len(state.end) != len(ends):
            return self._merge()  # a given cut that is no longer available is refused
        starts = self.cluster.logs.start_offsets(self.topic)
        end = {p: self._choose.randint(max(state.end[p], starts[p]), max(ends[p], state.end[p])) for p in ends}
        return self._merged(merge(self.spark, self._queue, self.format.name, end=end))

    def _batch(self) -> str:
        """Merge a batch of a stream: a new one, a repeated one, or an old one after its checkpoint went back."""
        starts, ends = self.cluster.logs.start_offsets(self.topic), self._ends()
        reaches = {p: self._choose.randint(starts[p], end) for p, end in ends.items() if self._choose.random() < 0.8}
        rows = [(self.topic, partition, reach - 1) for partition, reach in reaches.items() if reach > 0]
        batch = self.spark.createDataFrame(rows, "topic string, partition int, offset bigint")
        merge_each(self._queue, self.format.name)(batch, self._choose.randrange(5))
        if not rows:
            return "empty"
        state = MergedTable(self.spark, self.format.name).state()
        assert state is not None
        assert all(state.end[partition] > offset for _, partition, offset in rows), state
        return f"{rows}: {self._merged(state)}"

    def _two_at_once(self) -> str:
        """Merge twice at once; both decide before either commits."""
        both, waited = threading.Barrier(2), threading.local()

        def together(commit: Callable[..., Any], *arguments: Any) -> Any:
            if not hasattr(waited, "once"):
                waited.once = True
                with suppress(threading.BrokenBarrierError):  # the other one had nothing to merge
                    both.wait(20)
            return commit(*arguments)

        self._write()
        with _committing(together), ThreadPoolExecutor(2) as threads:
            one, other = threads.map(lambda _: merge(self.spark, self._queue, self.format.name), range(2))
        assert one == other
        return self._merged(one)

    def _dies(self) -> str:
        """Die before the commit or after it."""
        after = self._choose.random() < 0.5

        def dies(commit: Callable[..., Any], *arguments: Any) -> Any:
            if after:
                commit(*arguments)
            raise _Crash

        with _committing(dies), suppress(_Crash):
            merge(self.spark, self._queue, self.format.name)
        return self._left()

    def _killed(self) -> str:
        assert self._kill is not None
        return f"{self._kill(self.topic, self.format.name)}, {self._left()}"

    def _left(self) -> str:
        state = MergedTable(self.spark, self.format.name).state()
        return "nothing is changed" if state is None or state == self._state else f"all is done: {self._merged(state)}"

    # ---------------------------------------------------------------- the table

    def _note_version(self) -> None:
        versions = self.format.versions()
        self._alterations = {v: altered for v, altered in self._alterations.items() if v in versions}
        if versions:
            self._alterations[versions[-1]] = self._altered

    def _go_back(self) -> str:
        version = self._choose.choice(list(self._alterations) or [None])
        if version is None:
            return "nowhere"
        self.format.go_back(version)
        self._altered = self._alterations[version]
        return f"to {version}"

    def _forget(self) -> str:
        self.format.forget()
        self._alterations.clear()
        return "the versions before"

    def _tidy(self) -> str:
        self.format.tidy()
        return "the files"

    def _add_a_column(self) -> str:
        self._columns += 1
        if self._columns > 2:
            return "there are enough"
        self.spark.sql(f"ALTER TABLE {self.format.name} ADD COLUMNS (note{self._columns} string)")
        return f"note{self._columns}"

    def _alter(self) -> str:
        """Change rows without a merge."""
        name, table = self.format.name, self.spark.table(self.format.name)
        keys = sorted({bytes(row[0]) for row in table.where("partition <> -1").select("key").collect()})
        what = self._choose.choice(("add", "double", "delete", "change") if keys else ("add",))
        if MergedTable(self.spark, name).state() is None:
            return "there is nothing yet"
        key = f"key = X'{self._choose.choice(keys).hex()}' AND partition <> -1" if keys else ""
        self.spark.sql(
            {
                "add": f"INSERT INTO {name} (key, value, partition, offset, lvq_role) "
                f"VALUES (X'66', X'00', 0, {900_000 + self._values}L, 'current')",
                "double": f"INSERT INTO {name} SELECT * FROM {name} WHERE {key}",
                "delete": f"DELETE FROM {name} WHERE {key}",
                "change": f"UPDATE {name} SET offset = offset + 1000 WHERE {key}",
            }[what]
        )
        self._altered = True
        return f"{what} {key}"

    def _tell(self, what: str) -> None:
        self.tale.append(f"{len(self.tale)}. {what}")


STEPS: Mapping[str, int] = {
    "merge": 10,
    "merge_up_to": 8,
    "batch": 8,
    "two_at_once": 6,
    "dies": 6,
    "killed": 6,
    "write": 3,
    "transaction": 5,
    "compact": 4,
    "delete_from_the_start": 3,
    "add_a_partition": 2,
    "create_again": 3,
    "go_back": 5,
    "forget": 4,
    "tidy": 4,
    "add_a_column": 2,
    "alter": 6,
}
"""The possible steps, and their relative frequencies."""


@contextmanager
def _committing(instead: Callable[..., Any]) -> Iterator[None]:
    """Replace the commit of merges; the replacement gets the real one as its first argument."""
    commit = MergedTable.commit
    MergedTable.commit = lambda *arguments: instead(commit, *arguments)  # type: ignore[method-assign]
    try:
        yield
    finally:
        MergedTable.commit = commit  # type: ignore[method-assign]
