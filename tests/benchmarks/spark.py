"""Latest value per key in Spark: our format, our snapshots, and the usual recipes over Spark's Kafka connector.

Each contestant has its own process and Spark session. It first reads a topic of the same kind without a clock, since
the JVM must load and compile its code. Then it writes all columns of the result to nowhere. The cost is the processor
time of the whole process family (driver, JVM, Python workers, including those that have ended): Spark spreads
over processes, and wall time depends on the machine's load.

One more process brings a store up to date, first from all but the last hundredth of the log, then from that.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil

from lvq_kafka.kafka import KafkaCluster
from tests.benchmarks.children import result, say, start
from tests.benchmarks.topics import Topic, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = ("format lvq", "snapshot")
RECIPES = ("max_by", "max_by, 20 k polls", "row_number", "row_number, 20 k polls")
REFRESHES = ("refresh, first 99 %", "refresh, last 1 %")
STEPS = 20  # refreshes before the clock starts
HEADERS = [("ticker", b"IBM"), ("source", b"bench")]

Read = Callable[["SparkSession", str, str, bool], "DataFrame"]


def _format(spark: SparkSession, servers: str, topic: str, headers: bool) -> DataFrame:
    from lvq_spark import register

    register(spark)
    source = spark.read.format("lvq").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return source.option("includeHeaders", str(headers).lower()).load().drop("timestampType")


def _snapshot(spark: SparkSession, servers: str, topic: str, headers: bool) -> DataFrame:
    """Read a snapshot as users do; it has headers whether they are used or not."""
    from lvq_kafka import LastValueQueue
    from lvq_spark import snapshot

    return snapshot(spark, LastValueQueue(topic, key_header=None, bootstrap_servers=servers))


def _records(spark: SparkSession, servers: str, topic: str, headers: bool, polls: int | None) -> DataFrame:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    source = source.option("includeHeaders", str(headers).lower())
    if polls is not None:
        source = source.option("kafka.max.poll.records", polls)
    return source.load().drop("timestampType")


def _max_by(spark: SparkSession, servers: str, topic: str, headers: bool, polls: int | None = None) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    records = _records(spark, servers, topic, headers, polls)
    rest = F.struct(*[name for name in records.columns if name != "key"])
    newest = records.groupBy("key").agg(F.max_by(rest, "offset").alias("newest"))
    return newest.select("key", "newest.*").where("value is not null")


def _row_number(spark: SparkSession, servers: str, topic: str, headers: bool, polls: int | None = None) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    records = _records(spark, servers, topic, headers, polls)
    place = F.row_number().over(Window.partitionBy("key").orderBy(F.desc("offset")))
    return records.withColumn("place", place).where("place = 1 and value is not null").drop("place")


READS: dict[str, Read] = {
    "format lvq": _format,
    "snapshot": _snapshot,
    "max_by": _max_by,
    "max_by, 20 k polls": partial(_max_by, polls=20_000),
    "row_number": _row_number,
    "row_number, 20 k polls": partial(_row_number, polls=20_000),
}


def family() -> list[psutil.Process]:
    """Return this process and all its descendants."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds() -> float:
    """Return the family's processor time so far; an ended process counts for the one that waited for it.

    Nobody waits for PySpark's workers: their daemon ignores their ends, and then the system does, too. Their last known
    times stay; otherwise a worker that Spark ends after an idle minute would take its time out of the next measurement.
    A process that ends during the count would count nowhere, so the count starts again.
    """
    while True:
        asked = family()
        with suppress(psutil.NoSuchProcess):
            used = {process: sum(process.cpu_times()[:4]) for process in asked}
            not_waited_for = {process: used.pop(process) for process in asked[1:] if _ignores_ends(process.ppid())}
            if family() == asked:
                _NOT_WAITED_FOR.update(not_waited_for)
                return sum(used.values()) + sum(_NOT_WAITED_FOR.values())


_NOT_WAITED_FOR: dict[psutil.Process, float] = {}
"""Processes whose parents ignore their ends, and the last known time of each."""


def _ignores_ends(pid: int) -> bool:
    """Return whether a process ignores its children's ends (``SIGCHLD``), so their times never count for it."""
    with suppress(OSError):
        ignored = re.search(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGCHLD - 1) & 1)
    return False


def peak_memory() -> dict[str, int]:
    """Return the peak resident bytes of the JVM and of all Pythons, each at its own time."""
    found = {"jvm": 0, "python": 0}
    for process in family():
        try:
            kind = "jvm" if "java" in process.name() else "python"
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (psutil.NoSuchProcess, OSError):
            continue
        found[kind] += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    return found


def read(
    spark: SparkSession, contestant: str, servers: str, topics: Sequence[tuple[str, bool]]
) -> list[dict[str, Any]]:
    """Read the topics; read the first one an extra time before the clock runs."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    found = []
    for number, (topic, headers) in enumerate([topics[0], *topics]):
        seen = Observation()
        cpu, wall = cpu_seconds(), time.perf_counter()
        frame = READS[contestant](spark, servers, topic, headers)
        checksum = F.sum(F.crc32(F.concat("key", "value"))).alias("checksum")
        frame = frame.observe(seen, F.count("*").alias("keys"), checksum)
        frame.write.format("noop").mode("overwrite").save()
        measured = {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}
        if number:
            peak = peak_memory()
            found.append({**measured, **seen.get, "peak_jvm": peak["jvm"], "peak_python": peak["python"]})
    return found


def refreshed(spark: SparkSession, servers: str, topics: Sequence[tuple[str, bool]]) -> list[dict[str, Any]]:
    """Refresh a store of the second topic, after a warm-up on the first in as many steps as a JVM needs.

    In a JVM that has just started, a small refresh mostly costs the JVM's own compiler.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from lvq_kafka import LastValueQueue
    from lvq_spark.store import read_version, refresh

    found = []
    for number, (topic, _) in enumerate(topics):
        queue = LastValueQueue(topic, key_header=None, bootstrap_servers=servers)
        ends = queue.cluster.logs.end_offsets(topic)
        with TemporaryDirectory() as path:
            for share in (99, 100) if number else range(100 - STEPS, 101):
                cpu, wall = cpu_seconds(), time.perf_counter()
                version = refresh(spark, queue, path, end={p: end * share // 100 for p, end in ends.items()})
                measured = {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}
                if number:
                    peak = peak_memory()
                    about = {"contestant": REFRESHES[share - 99], "records": version.records_read}
                    found.append({**about, **measured, "peak_jvm": peak["jvm"], "peak_python": peak["python"]})
            checksum = F.sum(F.crc32(F.concat("key", "value")))
            row = read_version(spark, path).select(F.count("*"), checksum).first()
    assert row is not None
    return [{**measured, "keys": row[0], "checksum": row[1]} for measured in found]


# ------------------------------------------------------------------ the parent process


@contextmanager
def loaded(servers: str, records: int) -> Iterator[list[tuple[Topic, bool, int]]]:
    """Yield topics with ten records per key: one plain, one with headers, then a quarter, half and twice the size."""
    with closing(KafkaCluster(servers)) as cluster, ExitStack() as at_the_end:
        topics = []
        for label, share, headers in (
            ("plain", 1.0, False),
            ("headers", 1.0, True),
            ("quarter", 0.25, False),
            ("half", 0.5, False),
            ("double", 2.0, False),
        ):
            count = int(records * share)
            topic = load(cluster, label, count, count // 10, HEADERS if headers else None)
            at_the_end.callback(cluster.topics.delete, topic.name)
            topics.append((topic, headers, count))
        yield topics


def run(servers: str, topics: Sequence[tuple[Topic, bool, int]], rounds: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each contestant, topic and round; the recipes read only the first two topics.

    Stores are refreshed from the first topic, after a warm-up on the third.
    """
    contestants = (*OURS, *RECIPES)
    for number in range(rounds):
        turn = number % len(contestants)
        for contestant in contestants[turn:] + contestants[:turn]:
            mine = topics if contestant in OURS else topics[:2]
            names = json.dumps([(topic.name, headers) for topic, headers, _ in mine])
            measured = result(start("spark", contestant, servers, names), timeout=1800)["topics"]
            for (topic, headers, count), figures in zip(mine, measured, strict=True):
                yield _checked(topic, {"records": count, **figures}, number, contestant, headers)
        names = json.dumps([(topic.name, headers) for topic, headers, _ in (topics[2], topics[0])])
        for figures in result(start("spark", "refresh", servers, names), timeout=1800)["topics"]:
            yield _checked(topics[0][0], figures, number, figures["contestant"], False)


def _checked(topic: Topic, figures: dict[str, Any], number: int, contestant: str, headers: bool) -> dict[str, Any]:
    if (figures["keys"], figures.pop("checksum")) != topic.content:
        raise RuntimeError(f"{contestant} does not give the newest value of every key of {topic.label}")
    return {"round": number, "contestant": contestant, "topic": topic.label, "headers": headers, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contestant", choices=[*READS, "refresh"])
    parser.add_argument("servers")
    parser.add_argument("topics", type=json.loads)
    options = parser.parse_args()
    from lvq_spark import local_session
    from tests.spark.jars import with_jars

    spark = local_session("local[2]", with_jars(**{"spark.driver.memory": "4g"}))
    if options.contestant == "refresh":
        say({"topics": refreshed(spark, options.servers, options.topics)})
    else:
        say({"topics": read(spark, options.contestant, options.servers, options.topics)})
    spark.stop()


if __name__ == "__main__":
    main()
