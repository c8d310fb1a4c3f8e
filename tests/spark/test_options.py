"""Options of the format ``lvq``: the connector's names, one typed object, and errors that name the culprits."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, get_args

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import InputPartition

from lvq_kafka import LastValueQueue
from lvq_kafka.cluster import Commit
from lvq_kafka.errors import CommitMapRefused, ConfigError, DataLoss, LVQError
from lvq_kafka.testing import MemoryCluster
from lvq_spark.cut.offset_options import Offsets, Times
from lvq_spark.scan.home_partition import Partitioner
from lvq_spark.scan.scanning import Scan
from lvq_spark.source.partition_rows import _scan, _still_there, rows
from lvq_spark.source.planning import plan, ranges
from lvq_spark.source.source_options import OPTIONS, SourceOptions
from tests.unit.kafka.mock_cluster import MockCluster

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


def parse(**options: str) -> SourceOptions:
    """Parse options, with a topic unless they say what is read."""
    subject = {} if options.keys() & {"subscribe", "assign", "queue", "lvq.queue"} else {"subscribe": "t"}
    return SourceOptions.parse({**SERVERS, **subject, **options})


# -- meaning -----------------------------------------------------------------------------------------------------------


def test_little_has_to_be_said() -> None:
    options = parse()
    assert (options.topic, options.queue, options.partitions) == ("t", None, None)
    assert (options.start, options.end, options.conflate, options.consistency) == (None, None, True, "pinned")
    assert (options.key_header, options.key_mismatch, options.keyless, options.deletes) == (
        None,
        "record",
        "pass",
        None,
    )
    assert (options.fail_on_data_loss, options.patience, options.strays) == (True, 120.0, "fail")
    assert options.config.bootstrap_servers == "localhost:1"


def test_names_and_words_do_not_tell_capitals_apart() -> None:
    options = parse(STARTINGOFFSETS="Earliest", faiLONdataloss="FALSE", **{"LVQ.Consistency": "AtLeast"})
    assert options.start == Offsets("startingOffsets", everywhere=-2)
    assert not options.fail_on_data_loss
    assert options.consistency == "atleast"


def test_client_properties_go_to_the_client_and_secrets_are_in_no_repr() -> None:
    options = parse(**{"kafka.sasl.password": "hunter2", "kafka.client.id": "spark", "lvq.keys": '["aHVudGVyMg=="]'})
    assert options.config.properties["sasl.password"] == "hunter2"
    assert options.config.properties["client.id"] == "spark"
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ({"assign": '{"t": [2, 0]}'}, "partitions", (0, 2)),
        ({"queue": "prices"}, "queue", "prices"),
        ({"lvq.queue": "prices"}, "queue", "prices"),
        (
            {"startingOffsets": '{"t": {"0": 7, "1": -2}}'},
            "start",
            Offsets("startingOffsets", None, "t", {0: 7, 1: -2}),
        ),
        ({"endingOffsets": "latest"}, "end", Offsets("endingOffsets", -1)),
        ({"endingTimestamp": "1767225600000"}, "end", Times("endingTimestamp", 1767225600000)),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 5}}'},
            "start",
            Times("startingOffsetsByTimestamp", None, "t", {0: 5}),
        ),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "or_latest", True),
        ({"kafkaConsumer.pollTimeoutMs": "1500"}, "patience", 1.5),
        ({"lvq.dedupe": "none", "minPartitions": "9"}, "min_partitions", 9),
        ({"maxOffsetsPerTrigger": "10"}, "max_offsets", 10),
        ({"lvq.key": "header:ticker"}, "key_header", "ticker"),
        ({"lvq.key": "header: ticker"}, "key_header", "ticker"),
        ({"lvq.key": "header:ticker"}, "key_mismatch", "header"),
        ({"lvq.key": "header:ticker", "lvq.keyMismatch": "fail"}, "key_mismatch", "fail"),
        ({"lvq.tombstones": "keep"}, "deletes", True),
        ({"lvq.keys": '["SUJN", ""]'}, "keys", frozenset({b"IBM", b""})),
        ({"lvq.keys": "[]", "lvq.partitioner": "consistent_random"}, "partitioner", "consistent_random"),
        ({"lvq.keys": "IBM, MSFT,17"}, "keys", frozenset({b"IBM", b"MSFT", b"17"})),
        ({"lvq.keys": "Zürich"}, "keys", frozenset({"Zürich".encode()})),
        ({"lvq.keys": "[]", "lvq.partitioner": "murmur2_random"}, "strays", "fail"),
        ({"lvq.partitioner": "consistent_random"}, "partitioner", "consistent_random"),
        ({"lvq.keys": "[]", "lvq.partitioner": "fnv1a_random", "lvq.strays": "pass"}, "strays", "pass"),
        ({"lvq.group": "lvq.prices"}, "group", "lvq.prices"),
        ({"lvq.onForeignCommits": "ignore"}, "on_foreign_commits", "ignore"),
        ({"lvq.batchBytes": "4m"}, "bytes", 4 << 20),
        ({"lvq.memoryBytes": "1GiB"}, "memory", 1 << 30),
        ({"lvq.batchRows": "50"}, "rows", 50),
        ({"lvq.extraColumns": "deleted"}, "extra_columns", ("deleted",)),
    ],
)
def test_an_option_sets_what_it_says(option: dict[str, str], field: str, value: object) -> None:
    assert getattr(parse(**option), field) == value


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIONS)
def test_a_name_that_is_nearly_right_is_told(name: str) -> None:
    wrong = name[:-2] + name[-1]
    with pytest.raises(ConfigError) as error:
        parse(**{wrong: "1"})
    assert error.value.options == (wrong.lower(),)
    assert error.value.hint == f"Did you mean {name}?"


STRANGE = (
    *(" ", "x", "-1", "0", "1", "1.5", "1e400", "nan", "9" * 20, "9" * 5000, "9" * 30 + "g", "\u0663", "null", "{}"),
    *("[]", "[" * 2000 + "]" * 2000, '{"t": [true]}', '{"t": {"0": 1}}', '{"t": {"0": 1e3}}', '{"t": [1e3]}', "\0"),
    *('{"t": {"%s": 1}}' % ("9" * 5000), '{"t": {"0": %s}}' % ("9" * 5000), "\ud800", "header:", "a = ", "true"),
)


@pytest.mark.filterwarnings("ignore:The cut through t is from")
@pytest.mark.parametrize("name", OPTIONS)
def test_any_value_of_an_option_has_a_meaning_or_an_error_of_this_library(cluster: MemoryCluster, name: str) -> None:
    cluster.topics.alter_config("t", {"cleanup.policy": "delete"})
    for said in STRANGE:
        for more in ({}, {"lvq.dedupe": "none"}):
            with suppress(LVQError):
                options = parse(**{**more, name: said})
                tasks = list(ranges(options, plan(options, cluster)))
                assert len(tasks) <= 10, "at most one for each record"


@pytest.mark.parametrize("name", ["lvq.topic", "lvq.engine", "engine", "lvq.pin"])
def test_a_name_that_is_like_none_is_told_all_there_are(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(**{name: "1"})
    assert error.value.hint.startswith("Choose one of subscribe, assign, ")
    assert all(known in error.value.hint for known in OPTIONS)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("subscribePattern", r"Load them one by one"),
        ("groupIdPrefix", r"Omit it; .* lvq\.group"),
        ("kafka.group.id", r"Omit it; .* lvq\.group"),
        ("fetchOffset.numRetries", r"Omit it"),
        ("fetchOffset.retryIntervalMs", r"Omit it"),
        ("topic", r"Use subscribe, or queue"),
        ("path", r"Use subscribe, or queue"),
        ("lvq.spill", r"lvq\.memoryBytes .*Omit it"),
        ("lvq_key", r"the column key already holds it\. lvq\.key"),
        ("minOffsetsPerTrigger", r"Use a trigger with an interval"),
        ("maxTriggerDelay", r"belongs to minOffsetsPerTrigger"),
    ],
)
@pytest.mark.parametrize("written", [str, str.upper])
def test_an_option_of_others_that_makes_no_sense_here_is_refused_with_an_alternative(
    name: str, instead: str, written: Callable[[str], str]
) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} cannot be set: .*{instead}") as error:
        parse(**{written(name): "1"})
    assert error.value.options == (name,)


def test_a_client_property_without_its_prefix_is_told() -> None:
    with pytest.raises(ConfigError, match=r"no option sasl\.username\. .*kafka\.sasl\.username"):
        parse(**{"sasl.username": "me"})


@pytest.mark.parametrize(
    ("options", "message", "culprits"),
    [
        ({"subscribe": "a,b"}, "a read covers one topic", ["subscribe"]),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "both given", ["subscribe", "assign"]),
        ({"subscribe": "t", "queue": "q"}, "both given", ["subscribe", "queue"]),
        ({"subscribePattern": "t.*"}, "cannot be set: a read covers one topic", ["subscribePattern"]),
        ({"subscribe": " "}, "is empty", ["subscribe"]),
        ({"assign": "t"}, "not JSON like", ["assign"]),
        ({"assign": '{"t": [0], "u": [1]}'}, "not JSON like", ["assign"]),
        ({"assign": '{"t": []}'}, "not JSON like", ["assign"]),
        ({"startingOffsets": "soon"}, "not earliest, latest or JSON", ["startingOffsets"]),
        ({"startingOffsets": '{"t": {"0": "1"}}'}, "not earliest, latest or JSON", ["startingOffsets"]),
        ({"startingOffsets": '{"t": {"0": 1}, "u": {"0": 1}}'}, "names 2 topics: t, u", ["startingOffsets"]),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "an offset is 0 or more", ["startingOffsets"]),
        ({"endingOffsets": '{"t": {"0": 1, "1": 9, "0": 2}}'}, "it names .*0.* twice", ["endingOffsets"]),
        ({"endingOffsets": '{"t": {"0": 1, "00": 2}}'}, "names a partition twice", ["endingOffsets"]),
        ({"startingOffsets": '{"t": {"0": 1}, "t": {"0": 2}}'}, "it names .*t.* twice", ["startingOffsets"]),
        ({"assign": '{"t": [0], "t": [1]}'}, "not JSON like", ["assign"]),
        ({"endingOffsets": "earliest"}, "would leave nothing to read", ["endingOffsets"]),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "would leave nothing to read", ["endingOffsets"]),
        ({"endingTimestamp": "yesterday"}, "not a time in milliseconds", ["endingTimestamp"]),
        ({"startingTimestamp": "++5"}, "not a time in milliseconds", ["startingTimestamp"]),
        ({"startingTimestamp": "9" * 30}, "not a time in milliseconds", ["startingTimestamp"]),
        (
            {"endingOffsetsByTimestamp": '{"t": {"0": 253402300800000}}'},
            "a time before 1970 or after 9999",
            ["endingOffsetsByTimestamp"],
        ),
        (
            {"endingTimestamp": "1", "endingOffsets": "latest"},
            "both given",
            ["endingTimestamp", "endingOffsets"],
        ),
        ({"includeHeaders": "yes"}, "not one of true, false", ["includeHeaders"]),
        ({"lvq.dedupe": "global"}, "not one of partition, none", ["lvq.dedupe"]),
        ({"minPartitions": "9"}, "one task must see all records of a key", ["minPartitions", "lvq.dedupe"]),
        ({"maxRecordsPerPartition": "9"}, "all records of a key", ["maxRecordsPerPartition", "lvq.dedupe"]),
        ({"lvq.batchRows": "0"}, "not a whole number above 0", ["lvq.batchRows"]),
        ({"lvq.batchBytes": "much"}, "not a number of bytes", ["lvq.batchBytes"]),
        ({"lvq.key": "ticker"}, "neither record nor header:NAME", ["lvq.key"]),
        ({"lvq.keyMismatch": "fail"}, "needs a key header", ["lvq.keyMismatch", "lvq.key"]),
        ({"queue": "q", "lvq.key": "record"}, "both given", ["queue", "lvq.key"]),
        ({"queue": "q", "lvq.queue": "q"}, "both given", ["queue", "lvq.queue"]),
        ({"lvq.queue": "q", "lvq.key": "record"}, "both given", ["lvq.queue", "lvq.key"]),
        ({"lvq.hideConsumed": "true"}, "needs a queue", ["lvq.hideConsumed", "queue"]),
        ({"queue": "q", "lvq.hideConsumed": "true", "lvq.group": "g"}, "both", ["lvq.group", "lvq.hideConsumed"]),
        ({"lvq.group": "g", "startingOffsets": "earliest"}, "both given", ["lvq.group", "startingOffsets"]),
        (
            {"queue": "q", "lvq.hideConsumed": "true", "startingOffsets": "earliest"},
            "both",
            ["lvq.hideConsumed", "startingOffsets"],
        ),
        ({"lvq.keys": '["?"]'}, "JSON list of keys in base64", ["lvq.keys"]),
        ({"lvq.keys": '["IBM"]'}, r"in base64\. For the keys IBM and MSFT, give IBM,MSFT or", ["lvq.keys"]),
        ({"lvq.keys": '{"a": 1}'}, "JSON list of keys in base64", ["lvq.keys"]),
        ({"lvq.keys": "a,,b"}, "neither a comma-separated list of keys", ["lvq.keys"]),
        ({"lvq.keys": "[]", "lvq.partitioner": "murmur"}, "murmur", ["lvq.partitioner"]),
        (
            {"lvq.partitioner": "murmur2_random", "lvq.strays": "pass"},
            r"no effect if lvq\.strays is pass",
            ["lvq.partitioner", "lvq.strays"],
        ),
        ({"lvq.extraColumns": "colour"}, "names 'colour'", ["lvq.extraColumns"]),
        (
            {"lvq.extraColumns": "deleted,lvq_key"},
            "names 'lvq_key'.* column key has what lvq.key",
            ["lvq.extraColumns"],
        ),
        ({"path": "t"}, "a topic is not a path", ["path"]),
        ({"kafka.group.id": "g"}, "no consumer group is joined", ["kafka.group.id"]),
        ({"minOffsetsPerTrigger": "9"}, "a Python data source", ["minOffsetsPerTrigger"]),
    ],
)
def test_a_malformed_or_clashing_option_is_an_error_that_names_it(
    options: dict[str, str], message: str, culprits: list[str]
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        parse(**options)
    assert list(error.value.options) == culprits


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("enable.auto.commit", "cannot be set"),
        ("auto.offset.reset", "a position that is gone is an error"),
        ("enable.partition.eof", "cannot be set"),
        ("isolation.level", "every reader shows committed records only"),
        ("max.poll.records", "share groups only"),
        ("sasl.jaas.config", r"belongs to the Java client.* Use sasl\.username and sasl\.password"),
        ("key.deserializer", "belongs to the Java client"),
    ],
)
def test_client_properties_that_are_the_sources_own_or_javas_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        parse(**{f"kafka.{name}": "x"})
    assert error.value.options == (f"kafka.{name}",)


def test_servers_and_something_to_read_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"No kafka\.bootstrap\.servers"):
        SourceOptions.parse({"subscribe": "t"})
    with pytest.raises(ConfigError, match="No option says what to read"):
        SourceOptions.parse(SERVERS)


# -- from options to a cut ---------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(memory_cluster: MemoryCluster) -> MemoryCluster:
    memory_cluster.topics.create("t", partitions=2, config={"cleanup.policy": "compact,delete"})
    for partition, count in ((0, 4), (1, 6)):
        for n in range(count):
            memory_cluster.write("t", b"k%d" % n, b"v", partition=partition)
    return memory_cluster


def at(**offsets: Any) -> str:
    return json.dumps({"t": {str(partition)[1:]: offset for partition, offset in offsets.items()}})


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({}, {0: 0, 1: 0}, {0: 4, 1: 6}),
        ({"startingOffsets": at(p0=1, p1=-2), "endingOffsets": at(p0=-1, p1=5)}, {0: 1, 1: 0}, {0: 4, 1: 5}),
        ({"assign": '{"t": [1]}', "startingOffsets": at(p1=2)}, {0: 4, 1: 2}, {0: 4, 1: 6}),
        ({"startingOffsets": "latest"}, {0: 4, 1: 6}, {0: 4, 1: 6}),
        ({"startingTimestamp": "5"}, {0: 0, 1: 0}, {0: 4, 1: 6}),
        (
            {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"},
            {0: 4, 1: 6},
            {0: 4, 1: 6},
        ),
        ({"endingTimestamp": "5", "lvq.asOfPolicy": "warn"}, {0: 0, 1: 0}, {0: 0, 1: 0}),
        ({"endingTimestamp": "99999999999999"}, {0: 0, 1: 0}, {0: 4, 1: 6}),
        (
            {"endingOffsetsByTimestamp": at(p0=5, p1=99999999999999), "lvq.asOfPolicy": "warn"},
            {0: 0, 1: 0},
            {0: 0, 1: 6},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The cut through t is from")
def test_a_cut_is_what_the_options_say(
    cluster: MemoryCluster, options: dict[str, str], start: dict[int, int], end: dict[int, int]
) -> None:
    spec = plan(parse(**options), cluster)
    assert (spec.start, spec.end) == (start, end)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": at(p0=1)}, "lacks partition 1"),
        ({"startingOffsets": at(p0=1, p1=1, p7=1)}, "names partition 7, which is not read"),
        ({"startingOffsets": '{"u": {"0": 1}}'}, "is for the topic u, but t is read"),
        ({"assign": '{"t": [5]}'}, "assign names partition 5 of t, which has 2"),
        ({"startingTimestamp": "99999999999999"}, "Partition 0, 1 of t has no record as new"),
        ({"endingTimestamp": "5"}, r"keeps superseded records for 0 s .*lvq\.asOfPolicy"),
    ],
)
def test_options_that_do_not_fit_the_topic_are_an_error(
    cluster: MemoryCluster, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(parse(**options), cluster)


def test_an_error_about_a_cut_names_the_options_that_said_it(cluster: MemoryCluster) -> None:
    with pytest.raises(
        ConfigError, match=r"^endingTimestamp cannot be followed\. The cut through t is from 1970"
    ) as error:
        plan(parse(endingTimestamp="5"), cluster)
    assert error.value.options == ("endingTimestamp",)
    with pytest.raises(ConfigError, match="start 9 is beyond end 6") as error:
        plan(parse(startingOffsets=at(p0=0, p1=9), endingOffsets="latest"), cluster)
    assert error.value.options == ("startingOffsets", "endingOffsets")


def test_offsets_that_are_gone_are_an_error_unless_they_may_be(cluster: MemoryCluster) -> None:
    cluster.delete_records("t", 1, 3)
    options = {"startingOffsets": at(p0=0, p1=1), "endingOffsets": at(p0=9, p1=5)}
    with pytest.raises(DataLoss):
        plan(parse(**options), cluster)
    spec = plan(parse(**options, failOnDataLoss="false"), cluster)
    assert (spec.start, spec.end) == ({0: 0, 1: 3}, {0: 4, 1: 5})


def test_a_queues_definition_says_what_its_key_is(memory_cluster: MemoryCluster) -> None:
    LastValueQueue.declare("q", topic="t", key_header="ticker", key_mismatch="header", cluster=memory_cluster)
    spec = plan(parse(queue="q"), memory_cluster)
    assert (spec.topic, spec.key_header, spec.key_mismatch, spec.done) == ("t", "ticker", "header", None)
    assert plan(parse(queue="q", **{"lvq.hideConsumed": "true"}), memory_cluster).done is not None
    LastValueQueue.declare("free", topic="t", key_header="ticker", non_destructive=True, cluster=memory_cluster)
    with pytest.raises(ConfigError, match="non_destructive"):
        plan(parse(queue="free", **{"lvq.hideConsumed": "true"}), memory_cluster)


def test_commits_of_another_program_are_refused_unless_their_offsets_are_to_count(cluster: MemoryCluster) -> None:
    cluster.groups.commit("g", "t", {0: Commit(1, "a note"), 1: Commit(2)})
    with pytest.raises(CommitMapRefused):
        plan(parse(**{"lvq.group": "g"}), cluster)
    assert plan(parse(**{"lvq.group": "g", "lvq.onForeignCommits": "ignore"}), cluster).start == {0: 1, 1: 2}


def test_a_partition_without_anything_to_read_is_in_no_task(cluster: MemoryCluster) -> None:
    options = parse(endingOffsets=at(p0=0, p1=6))
    [(spec, task)] = ranges(options, plan(options, cluster))
    assert (task, spec.start, spec.end[1], spec.partitions) == (((1, None),), {1: 0}, 6, 2)


@pytest.mark.parametrize("splits", [{"minPartitions": "5"}, {"maxRecordsPerPartition": "2"}])
def test_splits_share_out_every_offset_once(cluster: MemoryCluster, splits: dict[str, str]) -> None:
    options = parse(**{"lvq.dedupe": "none"}, **splits)
    shares = [(p, spec.start[p], spec.end[p]) for spec, ((p, _),) in ranges(options, plan(options, cluster))]
    assert len(shares) == 5
    assert [offset for p, first, after in shares if p == 1 for offset in range(first, after)] == list(range(6))
    assert [offset for p, first, after in shares if p == 0 for offset in range(first, after)] == list(range(4))


def test_records_lost_after_the_cut_was_pinned_are_passed_over_where_they_may_be(
    cluster: MemoryCluster,
) -> None:
    spec = plan(parse(failOnDataLoss="false"), cluster)
    cluster.delete_records("t", 1, 2)
    cluster.elect("t", 1, end=5)
    left = _still_there(cluster, spec, 1)
    assert (left.start[1], left.end[1], left.epochs) == (2, 5, {})


@pytest.mark.parametrize("dedupe", ["partition", "none"])
def test_records_lost_after_a_task_has_looked_are_passed_over_where_they_may_be(
    cluster: MemoryCluster, dedupe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_spark.scan.scanning.KafkaCluster", lambda config: cluster)
    monkeypatch.setattr(cluster, "close", lambda: None)
    make, gone = cluster.reader, 0

    def lose_some_and_read(*arguments: Any, **options: Any) -> Any:
        nonlocal gone
        gone = min(gone + 2, 4)  # again when it starts over, and then no more
        cluster.delete_records("t", 1, gone)
        return make(*arguments, **options)

    monkeypatch.setattr(cluster, "reader", lose_some_and_read)
    strict, lenient = (
        parse(failOnDataLoss=fails, **{"lvq.dedupe": dedupe, "lvq.strays": "pass"}) for fails in ("true", "false")
    )
    monkeypatch.setattr("lvq_spark.scan.shares.SMALL", 1)
    [_, share] = ranges(lenient, plan(lenient, cluster))
    found = [row for batch in rows(lenient, InputPartition(share), ("key",), deletes=True) for row in batch.to_pylist()]
    assert [row["key"] for row in found] == [b"k4", b"k5"]
    with pytest.raises(DataLoss):
        list(rows(strict, InputPartition(share), ("key",), deletes=True))


@pytest.mark.parametrize(("given", "gone"), [(0, 0), (1, 2)])
def test_a_task_does_not_start_over_where_it_has_given_rows_out_or_no_offsets_are_gone(
    cluster: MemoryCluster, given: int, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would repeat rows, or read everything again for the same error, such as keys that have vanished."""
    reads = []

    def lose(self: Scan, _: object, partition: int) -> Iterator[str]:
        reads.append(partition)
        yield from ["a batch"] * given
        cluster.delete_records("t", partition, gone)
        raise DataLoss("Something is gone.")

    monkeypatch.setattr("lvq_spark.scan.scanning.KafkaCluster", lambda config: cluster)
    monkeypatch.setattr(cluster, "close", lambda: None)
    monkeypatch.setattr(Scan, "rows_of", lose)
    options = parse(failOnDataLoss="false")
    share = next(ranges(options, plan(options, cluster)))
    with pytest.raises(DataLoss, match="Something is gone"):
        list(rows(options, InputPartition(share), ("key",), deletes=False))
    assert reads == [0]


def test_the_limits_of_a_task_reach_what_reads_there(cluster: MemoryCluster) -> None:
    limits = {"lvq.batchRows": "50", "lvq.batchBytes": "4m", "lvq.memoryBytes": "1k"}
    options = parse(**limits, **{"kafkaConsumer.pollTimeoutMs": "1500"})
    scan = _scan(options, plan(options, cluster), ("key",), deletes=False, changes=False)
    assert (scan.strays, scan.partitioner) == ("fail", "murmur2_random")
    assert (scan.rows, scan.bytes, scan.memory, scan.patience) == (50, 4 << 20, 1 << 10, 1.5)


@pytest.mark.parametrize("partitioner", get_args(Partitioner))
def test_only_the_partitions_are_read_where_the_keys_lie(memory_cluster: MemoryCluster, partitioner: str) -> None:
    """Each key is where the client itself puts it, with the partitioner of that name."""
    memory_cluster.topics.create("t", partitions=7, config={"cleanup.policy": "compact"})
    where = placed(partitioner, [b"IBM", b"MSFT", b"x", *(b"k%d" % n for n in range(40))])
    for key, partition in where.items():
        memory_cluster.write("t", key, b"v", partition=partition)
    assert len(set(where.values())) == 7

    def read(*keys: bytes, **more: str) -> list[int]:
        said = json.dumps([base64.b64encode(key).decode() for key in keys])
        return plan(parse(**{"lvq.keys": said, "lvq.partitioner": partitioner, **more}), memory_cluster).ranges

    assert [read(key) for key in where] == [[partition] for partition in where.values()]
    assert read(b"IBM", b"MSFT") == sorted({where[b"IBM"], where[b"MSFT"]})
    assert read() == []
    assert len(read(b"")) == (7 if partitioner == "consistent_random" else 1), "to that one an empty key is none"
    with pytest.raises(ConfigError, match="a header is the key") as error:
        read(b"IBM", **{"lvq.key": "header:ticker"})
    assert error.value.options == ("lvq.partitioner", "lvq.keyMismatch")


def placed(partitioner: str, keys: list[bytes]) -> dict[bytes, int]:
    """Return librdkafka's partition for each key, of seven."""
    where: dict[bytes, int] = {}
    with closing(MockCluster()) as mock:
        mock.create_topic("t", 7)
        producer = Producer({"bootstrap.servers": mock.bootstrap_servers, "partitioner": partitioner})
        for key in keys:
            producer.produce("t", b"v", key, on_delivery=lambda _, m: where.update({m.key(): m.partition()}))
        assert producer.flush(20) == 0
    return {key: where[key] for key in keys}
