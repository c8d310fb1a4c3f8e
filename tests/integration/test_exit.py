"""Programs that end with something open, on a real broker, and the recipe for processes that fork."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.errors import QueueNotDeclared
from lvq_kafka.kafka import KafkaCluster
from tests.pages import block

OPEN = """
import os, signal, sys, threading
from lvq_kafka import TEXT, LastValueQueue

def opened():
    return LastValueQueue.open(sys.argv[2], value=TEXT, bootstrap_servers=sys.argv[1])

def send():
    global producer
    producer = opened().producer()
    for key in range(1000):
        producer.put(key, "v")

"""

PRODUCERS = {
    "the end": "send()",
    "sys.exit": "send(); sys.exit(0)",
    "a signal": f"""
{block("docs/how-to/produce.md", "python", "SIGTERM")}
send()
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait()
""",
    "multiprocessing": """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=send)
child.start()
child.join()
""",
}


def end(program: str, queue: LastValueQueue[str], servers: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", OPEN + program, servers, queue.name]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> LastValueQueue[str]:
    return LastValueQueue.declare(topic_name, key_header="k", value=TEXT, cluster=kafka_cluster)


@pytest.mark.parametrize("program", PRODUCERS.values(), ids=list(PRODUCERS))
def test_a_program_that_ends_loses_nothing_that_a_producer_has_taken(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, program: str
) -> None:
    ended = end(program, queue, kafka_cluster.config.bootstrap_servers)
    assert ended.stderr == ""
    assert ended.returncode == (143 if "SIGTERM" in program else 0)
    with queue.view() as view:
        assert len(view) == 1000


def test_a_program_that_ends_commits_what_a_consumer_has_acked_and_leaves_the_group(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster
) -> None:
    with queue.producer() as producer:
        for key in "ab":
            producer.put(key, key)
    program = "consumer = opened().consumer(commit_interval=60); consumer.acquire(60).ack()"
    ended = end(program, queue, kafka_cluster.config.bootstrap_servers)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert kafka_cluster.groups.member_count(queue.definition.group) == 0
    with queue.consumer() as consumer:
        delivery = consumer.acquire(60)
        assert delivery is not None
        assert delivery.value == "b"


def test_a_producer_that_cannot_reach_its_broker_does_not_hold_up_the_end(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster
) -> None:
    program = """
away = LastValueQueue("t", key_header=None, value=TEXT, bootstrap_servers="127.0.0.1:1").producer()
for key in range(12):
    away.put(key, "v")
send()
"""
    ended = end(program, queue, kafka_cluster.config.bootstrap_servers)
    assert ended.returncode == 0
    assert "lvq_kafka: 12 messages for 't' may be lost" in ended.stderr
    with queue.view() as view:
        assert len(view) == 1000, "one producer does not cost another its time"


PRELOADED = """
import os, sys, types
app = types.ModuleType("app")
exec(sys.argv[2].replace("localhost:9092", sys.argv[1]), app.__dict__)
worker = os.fork()
if not worker:
    with USED.producer() as producer:
        producer.put("EURUSD", "1.09")
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
"""


def fork_after(application: str, used: str, servers: str) -> subprocess.CompletedProcess[str]:
    program = PRELOADED.replace("USED", used)
    command = [sys.executable, "-W", "ignore", "-c", program, servers, application]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_queue_declared_before_a_fork_is_used_after_it_as_the_page_says(kafka_cluster: KafkaCluster) -> None:
    recipe = block("docs/how-to/operate.md", "python", "@cache")
    servers = kafka_cluster.config.bootstrap_servers
    kept = recipe.replace(").close()", ")").replace("LastValueQueue.declare", "queue = LastValueQueue.declare")
    try:
        ran = fork_after(recipe, "app.fx()", servers)
        assert (ran.returncode, ran.stderr) == (0, "")
        with LastValueQueue.open("fx", value=TEXT, cluster=kafka_cluster) as queue, queue.view() as view:
            assert dict(view) == {"EURUSD": "1.09"}
        ran = fork_after(kept, "app.queue", servers)
        assert "BoundToProcess: This connection belongs to the process that opened it" in ran.stderr
    finally:
        with suppress(QueueNotDeclared):
            LastValueQueue.open("fx", cluster=kafka_cluster).drop(delete_topic=True)
