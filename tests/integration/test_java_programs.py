"""The programs of docs/moving/java.md: Java and Python write values that the other one reads.

They run from their source, with the embedded broker's jars, which takes a JDK: `make test` installs one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from lvq_kafka import TEXT, LastValueQueue, TopicSpec
from lvq_kafka.embedded import ensure_jars, find_java
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from tests.pages import DOCS

PROGRAMS = DOCS / "moving" / "java"

LOG_TO_STDERR = """
rootLogger = info, stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %msg%n
"""

Java = Callable[..., AbstractContextManager[subprocess.Popen[str]]]


@pytest.fixture(scope="module")
def jdk() -> Path:
    """Return a Java that can compile."""
    java = find_java().executable
    if subprocess.run([java, "--describe-module", "jdk.compiler"], capture_output=True, check=False).returncode:
        pytest.skip(f"{java} belongs to no JDK, so Java programs cannot be compiled; docker/install-java.sh jdk helps")
    return java


@pytest.fixture
def java(jdk: Path, broker: ProvidedBroker, tmp_path: Path) -> Java:
    """Return a function that starts a program of the page on the session's broker. Its log is on stderr."""
    log = tmp_path / "log4j2.properties"
    log.write_text(LOG_TO_STDERR)
    flags = [f"-Dlog4j2.configurationFile={log}", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    flags += ["-cp", os.pathsep.join(map(str, ensure_jars()))]

    @contextmanager
    def start(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [jdk, *flags, PROGRAMS / program, broker.bootstrap_servers, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            encoding="utf-8",
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    return start


def printed(process: subprocess.Popen[str]) -> dict[str, str]:
    """Wait for the end of a program, and return the values that it has printed."""
    out, log = process.communicate(timeout=240)
    assert process.returncode == 0, out + log
    values = dict(line.split("=", 1) for line in out.splitlines())
    assert len(values) == len(out.splitlines()), "a key was printed twice"
    return values


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> LastValueQueue[str]:
    """Declare a queue whose readers fail where the key header is not the record key."""
    return LastValueQueue.declare(
        topic_name,
        key_header="ticker",
        key_mismatch="fail",
        value=TEXT,
        spec=TopicSpec(partitions=3),
        cluster=kafka_cluster,
    )


@pytest.mark.timeout(600)
def test_a_view_and_a_consumer_have_what_the_java_producer_put(java: Java, queue: LastValueQueue[str]) -> None:
    pairs = ["IBM=118.50", "MSFT=27.95", "GE=1", "IBM=119.00", "GE", "ключ=", "Ø=a=b"]
    with java("PutValues.java", queue.topic, "ticker", *pairs) as process:
        assert printed(process) == {}
    with queue.view() as view, queue.producer() as producer:
        assert dict(view) == {"IBM": "119.00", "MSFT": "27.95", "ключ": "", "Ø": "a=b"}
        was = view.entry("IBM").position
        assert dict(view.entry("IBM").headers) == {"ticker": b"IBM"}
        position = producer.put("IBM", "120.00").result(30)
        assert position.partition == was.partition, "both put a key where the other one does"
        view.barrier(timeout=30)
        assert view["IBM"] == "120.00"
    with queue.consumer() as consumer:
        taken = [consumer.acquire(30) for _ in range(4)]
    assert {each.key: each.value for each in taken if each} == {
        "IBM": "120.00",
        "MSFT": "27.95",
        "ключ": "",
        "Ø": "a=b",
    }


@pytest.mark.timeout(600)
def test_the_java_consumer_prints_the_current_values_of_a_view(
    java: Java, queue: LastValueQueue[str], kafka_cluster: KafkaCluster
) -> None:
    """Compaction has left holes, so no count of records would be right."""
    names = [f"k{number}" for number in range(30)]
    with queue.producer() as producer:
        for name in names:
            producer.put(name, "old")
        for name in names[:20]:
            producer.put(name, f"new, of {name}")
        for name in names[:10]:
            producer.delete(name)
        producer.put("ключ", "")
    force_compaction(kafka_cluster, queue.topic, drop_tombstones=True)
    with queue.producer() as producer:
        producer.put("k0", "again")
        producer.delete("k25")
    with queue.view() as view:
        current = dict(view)
    kept = {name: f"new, of {name}" for name in names[10:20]} | {name: "old" for name in names[20:] if name != "k25"}
    assert current == kept | {"k0": "again", "ключ": ""}
    with java("CurrentValues.java", queue.topic) as process:
        assert printed(process) == current


@pytest.mark.timeout(600)
def test_the_java_consumer_prints_nothing_where_all_was_aborted(
    java: Java, queue: LastValueQueue[str], topic_name: str
) -> None:
    """Two partitions are empty. The third one ends with the marker of the abort, which is no record."""
    producer = queue.producer(transactional_id=topic_name)
    with closing(producer), suppress(ZeroDivisionError), producer.transaction():
        producer.put("IBM", "aborted").result(30)
        raise ZeroDivisionError
    with java("CurrentValues.java", queue.topic) as process:
        assert printed(process) == {}


@pytest.mark.timeout(600)
def test_the_java_consumer_waits_for_a_transaction_that_was_open_when_it_began(
    java: Java, kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    """A value that somebody puts meanwhile is acknowledged, but comes out only after the transaction."""
    queue = LastValueQueue.declare(topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster)
    with closing(queue.producer(transactional_id=topic_name)) as transactional, ExitStack() as stack:
        with transactional.transaction():
            transactional.put("IBM", "in the transaction").result(30)
            with queue.producer() as producer:
                producer.put("MSFT", "meanwhile")
            process = stack.enter_context(java("CurrentValues.java", topic_name))
            assert any("Seeking to" in line for line in process.stderr or ()), "it looks up the ends before that"
        assert printed(process) == {"IBM": "in the transaction", "MSFT": "meanwhile"}
