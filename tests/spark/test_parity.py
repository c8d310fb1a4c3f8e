"""G8 for everything that shows a queue: view, ``lvq export``, Spark, ``row_number`` and a fold by hand agree.

The histories are random, on a real broker: values, empty values and deletes, headers that repeat or have no value, keys
in several partitions, transactions that were committed, aborted or are still open, and compaction. The results must
agree row by row.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from lvq_kafka import Groups, LastValueQueue, TopicSpec, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.reading.entries import Entry
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from lvq_spark import pin, snapshot
from tests.contract import r14
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PARTITIONS = 3
HEADER = "ticker"
QUIET = {"segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.99", "delete.retention.ms": "86400000"}

TTL_HEADERS: list[tuple[str, bytes | None]] = [
    (TTL_HEADER, said) for said in (b"0", b"100", b"5000", b"20000", b"0060000", b"9" * 15, None, b"", b"soon", b"-1")
]
MALFORMED_TIMES = (b"9" * 15, b"9" * 400, None, b"", b"soon", b"-1", b"1\n")

NEWEST = """
    WITH newest AS (
        SELECT *, row_number() OVER (PARTITION BY key, partition ORDER BY offset DESC) AS age FROM records
    ), current AS (
        SELECT *, row_number() OVER (
            PARTITION BY key ORDER BY partition = home DESC, timestamp DESC, partition DESC
        ) AS place FROM newest JOIN homes USING (key) WHERE age = 1
    )
    SELECT key, value, topic, partition, offset, timestamp, headers FROM current WHERE place = 1 AND value IS NOT NULL
"""
"""A key's current record: the newest one in its home partition, else the latest in time of all partitions (R14)."""

Rows = dict[bytes, Record]
Collect = Callable[["DataFrame"], Rows]
MakeQueue = Callable[..., LastValueQueue[bytes]]


class History:
    """Random writes to a topic, as if by several independent programs."""

    def __init__(
        self, servers: str, topic: str, seed: int, *, clock: bool, ttls: bool = False, schedules: bool = False
    ) -> None:
        self._servers, self._topic = servers, topic
        self._random = random.Random(seed)
        self._clock = clock  # producers set timestamps, and wrong ones
        self._ttls = TTL_HEADERS if ttls else []
        self._schedules = schedules
        self._away = [b"away %d" % number for number in range(10)]  # never in their home partition
        self._transactions = 0

    def write(self, count: int, producer: Producer | None = None) -> None:
        """Write some records, by a producer that places keys as it likes, or by a transaction's producer."""
        choose = self._random
        own = producer is None
        producer = producer or Producer({"bootstrap.servers": self._servers, "linger.ms": 2})
        for number in range(count):
            key = choose.choice([b"", b"\xff\x00", *(b"key %d" % n for n in range(30)), *self._away])
            value = choose.choice([None, b"", b"%d" % number, b"%d" % number, choose.randbytes(choose.randrange(50))])
            home = home_partition(key, PARTITIONS)
            away = (home + choose.randrange(1, PARTITIONS)) % PARTITIONS
            partition = away if key in self._away or choose.random() < 0.2 else home
            stamp = {"timestamp": int(time.time() * 1000) + choose.randrange(-60_000, 1)} if self._clock else {}
            producer.produce(self._topic, value, key, partition, headers=self._headers(key), **stamp)
        if own:
            assert producer.flush(30) == 0

    def _headers(self, key: bytes) -> list[tuple[str, bytes | None]]:
        choose = self._random
        said = choose.choice([key, key, key, None, b"key %d" % choose.randrange(40)])
        pairs: list[tuple[str, bytes | None]] = [("n", b"1"), ("n", None), ("empty", b""), (HEADER, said), *self._ttls]
        if self._schedules:
            soon = (b"%d" % (time.time_ns() // 1_000_000 + choose.randrange(-60_000, 60_000)) for _ in range(6))
            pairs += [(NOT_BEFORE_HEADER, said) for said in (*soon, choose.choice(MALFORMED_TIMES))]
        return [choose.choice(pairs) for _ in range(choose.randrange(5))]

    @contextmanager
    def transaction(self, ending: str) -> Iterator[None]:
        """Write some records in a transaction, which ends before the block, or after it if ``ending`` is open."""
        self._transactions += 1
        name = f"{self._topic}-{self._transactions}"
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        self.write(30, producer)
        producer.flush(30)
        if ending == "open":
            yield
        if ending == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        if ending != "open":
            yield


def read_raw(servers: str, topic: str, below: Mapping[int, int]) -> list[Record]:
    """Return all committed records below these offsets, read by a plain client."""
    found: list[Record] = []
    ended: set[int | None] = set()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "raw", "enable.partition.eof": True})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in below])

        def at_the_end() -> bool:
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    if offset < below[partition]:
                        pairs: Any = tuple(message.headers() or ())
                        stamp = message.timestamp()[1]
                        found.append(Record(partition, offset, stamp, message.key(), message.value(), pairs))  # type: ignore[arg-type]
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
            return len(ended) == len(below)

        eventually(at_the_end, 60)
    return sorted(found, key=lambda record: (record.partition, record.offset))


def fold_by_hand(records: list[Record], *, by_header: bool = False) -> Rows:
    """Return each key's current record: the one in its home partition, else the latest in time of all partitions."""
    newest: dict[bytes, dict[int, Record]] = {}
    for record in records:
        key = record.key
        if by_header:
            said = [value for name, value in record.headers if name == HEADER]
            key = said[-1] if said and said[-1] is not None else key
        assert key is not None
        newest.setdefault(key, {})[record.partition] = record._replace(key=key)
    current = {}
    for key, rivals in newest.items():
        late = max(rivals.values(), key=lambda record: (record.timestamp, record.partition))
        winner = rivals.get(home_partition(key, PARTITIONS), late)
        if winner.value is not None:
            current[key] = winner
    return current


def of_view(queue: LastValueQueue[bytes]) -> tuple[Rows, dict[int, int]]:
    with queue.view() as view:
        cut = view.snapshot()
        entries = cut.entries()
    rows = {}
    for entry in entries:
        key, position = entry.key.encode("utf-8", "surrogateescape"), entry.position
        stamp = round(entry.timestamp * 1000)
        rows[key] = Record(position.partition, position.offset, stamp, key, entry.value, entry.headers)
    return rows, cut.offsets


def of_export(servers: str, topic: str) -> tuple[Rows, dict[int, int]]:
    rows, head = exported(servers, topic, "--bare", "--key-header", HEADER)
    return rows, {int(partition): offset for partition, offset in head["offsets"].items()}


def exported(servers: str, *options: str) -> tuple[Rows, dict[str, Any]]:
    """Return the rows of ``lvq export``, and its first line."""
    command = [sys.executable, "-m", "lvq_kafka", "-b", servers, "export", *options]
    run = subprocess.run(command, check=True, capture_output=True, timeout=90)
    head, *lines = map(json.loads, run.stdout.splitlines())
    rows = {}
    for line in lines:
        _, partition, offset = line["position"].rsplit("/", 2)
        pairs = line.get("all_headers", list(line["headers"].items()))
        headers = tuple((name, None if value is None else plain(value)) for name, value in pairs)
        key, stamp = plain(line["key"]), round(line["timestamp"] * 1000)
        rows[key] = Record(int(partition), int(offset), stamp, key, plain(line["value"]), headers)
    return rows, head


def plain(cell: str | dict[str, str]) -> bytes:
    return base64.b64decode(cell["base64"]) if isinstance(cell, dict) else cell.encode()


@pytest.mark.parametrize("slices", [1, 3])
def test_snapshots_have_the_schema_that_is_announced(spark: SparkSession, make_queue: MakeQueue, slices: int) -> None:
    from lvq_spark import SCHEMA

    expected = spark.createDataFrame([], SCHEMA).schema
    queue = make_queue(2)
    assert snapshot(spark, queue, slices=slices).schema == expected
    with queue.producer() as producer:
        producer.put("a", b"1")
    frame = snapshot(spark, queue, slices=slices)
    assert frame.schema == expected
    assert frame.count() == 1


@pytest.mark.parametrize(("seed", "clock"), [(1, False), (2, True)])
def test_g8_all_that_shows_a_queue_shows_the_same_rows(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    seed: int,
    clock: bool,
) -> None:
    """Once with the broker's clock and compaction, once with producers' clocks, which go wrong (R5)."""
    servers = lvq_broker.bootstrap_servers
    times = {"message.timestamp.type": "CreateTime" if clock else "LogAppendTime"}
    queue = make_queue(PARTITIONS, key_header=HEADER, config=times)
    history = History(servers, lvq_topic, seed, clock=clock)
    history.write(200)
    for ending in ("commit", "abort"):
        with history.transaction(ending):
            history.write(40)
    if not clock:
        force_compaction(lvq_cluster, lvq_topic)
        lvq_cluster.topics.alter_config(lvq_topic, QUIET)
    history.write(100)
    with history.transaction("abort"):
        pass
    rows, offsets = of_view(queue)
    records = read_raw(servers, lvq_topic, offsets)
    assert rows == fold_by_hand(records)
    assert of_export(servers, lvq_topic) == (rows, offsets)
    with history.transaction("open"):
        with pytest.warns(UserWarning, match="a transaction open"):
            spec = pin(queue)
        assert spec.end == offsets, "a current snapshot ends before it"
        assert collect(snapshot(spark, queue, spec=spec)) == rows
        assert collect(snapshot(spark, queue, spec=spec, slices=3)) == rows
        assert collect(by_row_number(spark, servers, lvq_topic, offsets)) == rows
    # The history must contain all these cases.
    assert len(rows) > 20
    assert {b"", b"\xff\x00"} & rows.keys()
    assert any(row.value == b"" for row in rows.values())
    assert any(row.partition != home_partition(key, PARTITIONS) for key, row in rows.items())
    assert any(len({name for name, _ in row.headers}) < len(row.headers) for row in rows.values())
    assert sum(offsets.values()) > len(records), "compaction and transactions have left holes"


def by_row_number(spark: SparkSession, servers: str, topic: str, end: Mapping[int, int]) -> DataFrame:
    """Return the current values of keys as Spark's own source and SQL find them."""
    offsets = json.dumps({topic: {str(partition): offset for partition, offset in end.items()}})
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    source = source.option("endingOffsets", offsets).option("includeHeaders", "true")
    source.option("kafka.isolation.level", "read_committed").load().createOrReplaceTempView("records")
    keys = [bytes(row.key) for row in spark.sql("SELECT DISTINCT key FROM records").collect()]
    homes = [(key, home_partition(key, PARTITIONS)) for key in keys]
    spark.createDataFrame(homes, "key binary, home int").createOrReplaceTempView("homes")
    return spark.sql(NEWEST)


def lives(record: Record, ttl: Ttl, as_of: float) -> bool:
    """Return whether a record counts at a time, by the words of R10."""
    said = [value for name, value in record.headers if name == TTL_HEADER]
    seconds = ttl.maximum if ttl.default is None else ttl.default
    if said and said[-1] is not None and said[-1].isdigit() and int(said[-1]):  # 0 says none
        own = int(said[-1]) / 1000
        seconds = min(max(own, ttl.minimum or 0.0), ttl.maximum or own)
    return seconds is None or round(as_of * 1000) <= record.timestamp + round(seconds * 1000)


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.thorough)])
def test_g8_snapshots_show_the_same_rows_at_any_offsets_and_any_time(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    seed: int,
) -> None:
    """Messages have TTLs of their own, some of them malformed; so have deletes and keys in several partitions."""
    choose, servers, begun = random.Random(seed), lvq_broker.bootstrap_servers, time.time()
    make_queue(PARTITIONS, config={**QUIET, "message.timestamp.type": "CreateTime"})
    History(servers, lvq_topic, seed, clock=True, ttls=True).write(400)
    end = lvq_cluster.logs.end_offsets(lvq_topic)
    records = read_raw(servers, lvq_topic, end)
    gone = 0
    for ttl in (Ttl(), Ttl(default=30.0), Ttl(minimum=1.0, maximum=40.0), Ttl(default=3.0, maximum=10.0)):
        queue = LastValueQueue(lvq_topic, key_header=None, ttl=ttl, cluster=lvq_cluster)
        cut = {partition: choose.randint(offset // 2, offset) for partition, offset in end.items()}
        as_of = round(begun - 60 + choose.random() * 120, choose.choice([0, 3]))
        folded = fold_by_hand([record for record in records if record.offset < cut[record.partition]])
        rows = {key: record for key, record in folded.items() if lives(record, ttl, as_of)}
        gone += len(folded) - len(rows)
        spec = pin(queue, end=cut, as_of=as_of)
        assert (spec.end, spec.as_of) == (cut, as_of)
        for slices in (1, 3):
            assert collect(snapshot(spark, queue, spec=spec, slices=slices)) == rows, (slices, spec)
            narrow = snapshot(spark, queue, spec=spec, slices=slices, columns=["expires", "offset"])
            assert narrow.count() == len(rows)
            assert narrow.where(f"unix_millis(expires) < {round(as_of * 1000)}").isEmpty()
        with queue.view() as view:
            shown = view.snapshot()
        rows = {key: record for key, record in fold_by_hand(records).items() if lives(record, ttl, shown.as_of)}
        assert {entry.key.encode("utf-8", "surrogateescape"): entry.value for entry in shown.entries()} == {
            key: record.value for key, record in rows.items()
        }
        assert collect(snapshot(spark, queue, end=shown.offsets, as_of=shown.as_of)) == rows
    assert 20 < gone < 160
    declare = LastValueQueue.declare
    queue = declare(
        lvq_topic, key_header=HEADER, ttl=ttl, on_mismatch="warn", non_destructive=True, cluster=lvq_cluster
    )
    rows, head = exported(servers, lvq_topic)
    folded = fold_by_hand(records)
    assert rows == {key: record for key, record in folded.items() if lives(record, ttl, head["as_of"])}
    assert collect(snapshot(spark, queue, end=end, as_of=head["as_of"])) == rows
    queue.drop()


def counts(record: Record, max_delay: float, as_of: float) -> bool:
    """Return whether a record counts at a time, by the words of R11."""
    said = [value for name, value in record.headers if name == NOT_BEFORE_HEADER]
    if not said or said[-1] is None or not said[-1].isdigit() or len(said[-1]) > 15:
        return True
    due = min(int(said[-1]), record.timestamp + round(max_delay * 1000))
    return due <= max(round(as_of * 1000), record.timestamp)


@pytest.mark.parametrize("seed", [8, pytest.param(9, marks=pytest.mark.thorough)])
def test_g8_snapshots_show_what_is_due_at_any_offsets_and_any_time(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    seed: int,
) -> None:
    """Messages are scheduled, some by a malformed time, and expire; keys are deleted, and lie in several partitions."""
    choose, begun = random.Random(seed), time.time()
    make_queue(PARTITIONS, config={**QUIET, "message.timestamp.type": "CreateTime"})
    History(lvq_broker.bootstrap_servers, lvq_topic, seed, clock=True, ttls=True, schedules=True).write(500)
    end = lvq_cluster.logs.end_offsets(lvq_topic)
    records = read_raw(lvq_broker.bootstrap_servers, lvq_topic, end)
    differ = 0
    for max_delay, ttl in ((20.0, None), (100.0, Ttl(default=40.0)), (31_536_000.0, Ttl())):
        queue = LastValueQueue(lvq_topic, key_header=None, ttl=ttl, max_delay=max_delay, cluster=lvq_cluster)
        cut = {partition: choose.randint(offset // 2, offset) for partition, offset in end.items()}
        as_of = round(begun - 60 + choose.random() * 120, choose.choice([0, 3]))
        within = [record for record in records if record.offset < cut[record.partition]]
        folded = fold_by_hand([record for record in within if counts(record, max_delay, as_of)])
        rows = {key: record for key, record in folded.items() if ttl is None or lives(record, ttl, as_of)}
        differ += fold_by_hand(within) != folded
        spec = pin(queue, end=cut, as_of=as_of)
        for slices in (1, 3):
            assert collect(snapshot(spark, queue, spec=spec, slices=slices)) == rows, (slices, spec)
            assert snapshot(spark, queue, spec=spec, slices=slices, columns=["key"]).count() == len(rows)
        with queue.view() as view:
            shown = view.snapshot()
        due = [record for record in records if counts(record, max_delay, shown.as_of)]
        rows = {key: one for key, one in fold_by_hand(due).items() if ttl is None or lives(one, ttl, shown.as_of)}
        assert {entry.key.encode("utf-8", "surrogateescape"): entry.value for entry in shown.entries()} == {
            key: record.value for key, record in rows.items()
        }
        assert collect(snapshot(spark, queue, end=shown.offsets, as_of=shown.as_of)) == rows
    assert differ == 3


def selected(record: Record) -> bool:
    """Judge by the words of `test_g8_all_that_shows_a_queue_with_a_selector_shows_the_same_rows`."""
    assert record.key is not None
    said = dict(record.headers)
    return said.get("n") == b"1" or record.key.startswith(b"away") or (said.get(HEADER) or b"").endswith(b"7")


def test_g8_all_that_shows_a_queue_with_a_selector_shows_the_same_rows(
    spark: SparkSession, collect: Collect, lvq_broker: ProvidedBroker, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    """R26, R30, R14: the current message of a key decides, over all partitions and after compaction."""
    servers = lvq_broker.bootstrap_servers
    queue = LastValueQueue.declare(
        lvq_topic,
        key_header=HEADER,
        selector="n = 1 OR lvq_key LIKE 'away%' OR ticker LIKE '%7'",
        non_destructive=True,
        spec=TopicSpec(partitions=PARTITIONS),
        cluster=lvq_cluster,
    )
    history = History(servers, lvq_topic, 6, clock=False)
    history.write(200)
    force_compaction(lvq_cluster, lvq_topic)
    lvq_cluster.topics.alter_config(lvq_topic, QUIET)
    history.write(200)
    rows, offsets = of_view(queue)
    folded = fold_by_hand(read_raw(servers, lvq_topic, offsets))
    assert rows == {key: record for key, record in folded.items() if selected(record)}
    assert 5 < len(rows) < len(folded) - 5
    assert queue.stats().depth >= len(rows), "it counts by partition"
    with queue.browser(follow=False) as browser:
        shown = {event.key.encode("utf-8", "surrogateescape") for event in browser if isinstance(event, Entry)}
    assert shown == rows.keys()
    for slices in (1, 3):
        assert collect(snapshot(spark, queue, end=offsets, slices=slices)) == rows, slices
    queue.drop()


@pytest.mark.parametrize("slices", [1, 3])
def test_g8_where_headers_name_the_keys_snapshots_show_the_rows_of_a_view(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    slices: int,
) -> None:
    """The last header of that name counts, and one without a value says nothing (R16)."""
    make_queue(PARTITIONS)
    queue = LastValueQueue(lvq_topic, key_header=HEADER, key_mismatch="header", cluster=lvq_cluster)
    History(lvq_broker.bootstrap_servers, lvq_topic, 3, clock=False).write(200)
    rows, offsets = of_view(queue)
    assert rows == fold_by_hand(read_raw(lvq_broker.bootstrap_servers, lvq_topic, offsets), by_header=True)
    assert collect(snapshot(spark, queue, end=offsets, slices=slices)) == rows


@pytest.mark.parametrize("passed", [False, True])
def test_a_key_in_two_partitions_shows_for_a_group_as_in_a_browser_that_is_opened_now(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    passed: bool,
) -> None:
    """The newer value is at home and consumed; the older one is elsewhere, and consumers can still get it.

    As long as the newer one is after the group's base, it is read, and hides the older one (R7, R14). Once the base has
    passed it, nobody reads it any more; see docs/maintainers/known-limits.md.
    """
    make_queue(PARTITIONS)
    queue = LastValueQueue.declare(lvq_topic, key_header=HEADER, cluster=lvq_cluster)
    home, other = b"k", next(b"x%d" % n for n in range(99) if home_partition(b"x%d" % n, PARTITIONS) == _home(b"k"))
    writer = Producer({"bootstrap.servers": lvq_cluster.config.bootstrap_servers})
    writer.produce(lvq_topic, b"older", home, (_home(home) + 1) % PARTITIONS, headers=[(HEADER, home)])
    assert writer.flush(30) == 0
    if not passed:
        writer.produce(lvq_topic, b"left", other, _home(other), headers=[(HEADER, other)])
    writer.produce(lvq_topic, b"newer", home, _home(home), headers=[(HEADER, home)])
    assert writer.flush(30) == 0
    with queue.consumer() as consumer:
        handed_out = [consumer.acquire(30) for _ in range(2 if passed else 3)]
        [newer] = [one for one in handed_out if one is not None and one.value == b"newer"]
        newer.ack().result(30)
    maps = lvq_cluster.groups.committed(queue.definition.group, lvq_topic)
    assert (maps[_home(home)].offset == newer.position.offset + 1) is passed
    with queue.browser(follow=False) as browser:
        shown = {event.key.encode(): event.value for event in browser if isinstance(event, Entry)}
    assert shown == ({home: b"older"} if passed else {other: b"left"})
    spec = pin(queue, group=queue.definition.group)
    for slices in (1, 3):
        rows = collect(snapshot(spark, queue, spec=spec, slices=slices))  # type: ignore[arg-type]
        assert {key: row.value for key, row in rows.items()} == shown, slices
    queue.drop()


def _home(key: bytes) -> int:
    return home_partition(key, PARTITIONS)


@pytest.fixture(scope="module", params=[1, 3])
def slices(request: Any) -> Any:
    return request.param


def r14_snapshot(
    spark: SparkSession, broker: ProvidedBroker, slices: int, groups: Groups | None
) -> Mapping[bytes, bytes]:
    """Return the values of a snapshot of R14's cases."""
    topic = f"r14-{slices}-{'key' if groups is None else 'group'}"
    with closing(KafkaCluster(broker.bootstrap_servers)) as cluster:
        cluster.topics.create(topic, partitions=r14.PARTITIONS, config={"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition, _, timestamp, key, value, _ in r14.records(start=int(time.time() * 1000) - 10_000):
            producer.produce(topic, value, key, partition, timestamp=timestamp)
        assert producer.flush(30) == 0
        queue = LastValueQueue(topic, key_header=None, groups=groups, cluster=cluster)
        found = snapshot(spark, queue, slices=slices).collect()
        cluster.topics.delete(topic)
    return {bytes(row.key): bytes(row.value) for row in found}


@pytest.fixture(scope="module")
def placed_by_key(spark: SparkSession, lvq_broker: ProvidedBroker, slices: int) -> Mapping[bytes, bytes]:
    return r14_snapshot(spark, lvq_broker, slices, None)


@pytest.fixture(scope="module")
def placed_by_group(spark: SparkSession, lvq_broker: ProvidedBroker, slices: int) -> Mapping[bytes, bytes]:
    return r14_snapshot(spark, lvq_broker, slices, r14.BY_GROUP)


class TestSnapshots(r14.R14Contract):
    @pytest.fixture
    def current(self, placed_by_key: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        return placed_by_key


class TestSnapshotsByGroup(r14.R14ByGroupContract):
    @pytest.fixture
    def current(self, placed_by_group: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        return placed_by_group
