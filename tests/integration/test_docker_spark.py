"""The Spark image: its jobs on the compose file's cluster and on Kubernetes, as its page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue, TopicSpec
from tests.integration.composing import Compose, answers, composed, docker, require_compose, run, stopped
from tests.integration.kubernetes import kubernetes
from tests.running import ROOT
from tests.spark.cluster import QUICK
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("docker_engine"), pytest.mark.timeout(900)]

WORKERS = ("spark-worker-1", "spark-worker-2")

READ_BACK = """
import json

import lvq_spark
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frames = {
    "snapshot": spark.read.parquet("/data/snapshot"),
    "first": lvq_spark.read_version(spark, "/data/store", 1),
    "second": lvq_spark.read_version(spark, "/data/store", 2),
}
rows = {name: sorted((bytes(row.key).decode(), bytes(row.value).decode()) for row in frame.collect())
        for name, frame in frames.items()}
print(json.dumps(rows))
"""


@dataclass(frozen=True)
class Cluster:
    """A broker, a master and two workers in containers, with one core for each worker."""

    compose: Compose
    image: str

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.compose.ports['KAFKA_PORT']}"

    def submit(self, job: str, *arguments: str, executors: int = 1) -> dict[str, Any]:
        """Return the result that a job prints. The master spreads executors over the workers."""
        properties = {**QUICK, "spark.cores.max": str(executors)}
        options = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
        said = self.compose("run", "--rm", "-T", "spark-submit", *options, job, *arguments)
        result: dict[str, Any] = json.loads(said.splitlines()[-1])
        return result

    def inside(self, service: str, *command: str) -> str:
        return docker("exec", self.compose.container(service), *command)

    def finished_tasks(self) -> list[set[str]]:
        """Return, for each worker, the applications whose executors have finished tasks."""
        every = ("sh", "-c", "grep -l 'Finished task' /tmp/spark-worker/app-*/*/stderr || true")
        return [set(re.findall(r"app-[\d-]+", self.inside(worker, *every))) for worker in WORKERS]


@pytest.fixture(scope="module")
def image(docker_engine: None) -> str:
    """Build the image. The first time takes half a minute, while other workers run tests."""
    require_compose()
    build = str(ROOT / "docker" / "build-spark-image.sh")
    return run([build], {**os.environ, "PYTHON": sys.executable}, timeout=800).strip()


@pytest.fixture(scope="module")
def cluster(image: str) -> Iterator[Cluster]:
    with composed("spark", "spark-submit", images={"SPARK_IMAGE": image}) as compose:
        compose("--profile", "spark", "up", "--detach")
        compose.wait_healthy("kafka", "spark-master")
        yield Cluster(compose, image)


def test_jobs_run_on_the_workers_and_what_they_write_is_there_for_the_next(cluster: Cluster) -> None:
    before = {f"k{n}": str(n) for n in range(20)}
    after = {**before, "k1": "newer", "new": "20"}
    del after["k2"]
    with (
        LastValueQueue.declare(
            "prices",
            key_header="ticker",
            value=TEXT,
            spec=TopicSpec(partitions=2),
            bootstrap_servers=cluster.bootstrap_servers,
        ) as queue,
        queue.producer() as producer,
    ):
        for key, value in before.items():
            producer.put(key, "superseded")
            producer.put(key, value)
        producer.flush()
        first = cluster.submit("refresh.py", "prices", "--store", "/data/store")
        producer.put("k1", "newer")
        producer.delete("k2")
        producer.put("new", "20")
        producer.flush()
        second = cluster.submit("refresh.py", "prices", "--store", "/data/store")
        refreshed = cluster.finished_tasks()
        snapshot = cluster.submit("snapshot.py", "prices", "--output", "/data/snapshot", "--slices", "2", executors=2)
        ends = queue.cluster.logs.end_offsets(queue.topic)

    assert (first["version"], first["kind"], first["rows"]) == (1, "full", 20)
    assert (second["version"], second["kind"], second["rows"]) == (2, "delta", 20)
    assert (second["upserts"], second["deletes"]) == (3, 1), "of three new records one is a delete"
    assert snapshot["rows"] == 20
    assert {int(partition): end for partition, end in snapshot["end"].items()} == ends
    of_the_snapshot = [now - then for now, then in zip(cluster.finished_tasks(), refreshed, strict=True)]
    assert set.union(*refreshed), "no worker had a part in a refresh"
    assert [len(application) for application in of_the_snapshot] == [1, 1], "each worker has read a slice"
    assert of_the_snapshot[0] == of_the_snapshot[1]

    cluster.inside("spark-master", "sh", "-c", 'echo "$1" >/data/read_back.py', "sh", READ_BACK)
    rows = cluster.submit("/data/read_back.py")
    assert {name: dict(pairs) for name, pairs in rows.items()} == {"snapshot": after, "first": before, "second": after}
    assert [len(rows[name]) for name in ("snapshot", "first", "second")] == [20, 20, 20]


def test_a_job_runs_on_kubernetes_with_a_driver_and_executors_of_the_image(cluster: Cluster, tmp_path: Path) -> None:
    """In cluster mode, as an unnamed user id in the group root, as on OpenShift."""
    with (
        LastValueQueue.declare(
            "cells",
            key_header="cell",
            value=TEXT,
            spec=TopicSpec(partitions=2),
            bootstrap_servers=cluster.bootstrap_servers,
        ) as queue,
        queue.producer() as producer,
    ):
        for number in range(40):
            producer.put(f"k{number % 20}", str(number))
        producer.flush()
        ends = queue.cluster.logs.end_offsets(queue.topic)
    job = (
        "local:///opt/lvq/jobs/snapshot.py",
        "cells",
        "--slices",
        "2",
        "--format",
        "noop",
        "--mode",
        "overwrite",
        "--output",
        "none",
    )

    with kubernetes(cluster.image, cluster.compose.network("kafka"), user="4242:0", folder=tmp_path) as pods:
        properties = {
            **QUICK,
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            "spark.kubernetes.allocation.batch.delay": "200ms",
            "spark.kubernetes.container.image": cluster.image,
            "spark.kubernetes.driver.master": pods.master.removeprefix("k8s://"),
            "spark.kubernetes.submission.waitAppCompletion": "false",
            "spark.kubernetes.driverEnv.LVQ_BOOTSTRAP_SERVERS": "kafka:19092",
        }
        options = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
        submit = ["spark-submit", "--master", pods.master, "--deploy-mode", "cluster", *options, *job]
        docker("run", "--rm", "--network", pods.network, cluster.image, *submit)
        driver, *executors = pods.run_until_all_have_ended(300.0)

    assert driver.exit_code == 0, driver.err
    result = json.loads(driver.out.splitlines()[-1])
    assert (result["rows"], {int(partition): end for partition, end in result["end"].items()}) == (20, ends)
    assert [executor.labels["spark-exec-id"] for executor in executors] == ["1", "2"]
    for executor in executors:
        assert "Finished task" in executor.err


def test_an_executor_that_spark_has_not_started_says_what_is_missing(image: str) -> None:
    done = subprocess.run(["docker", "run", "--rm", image, "executor"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("executor: SPARK_DRIVER_URL SPARK_EXECUTOR_ID ")


def test_a_command_gets_the_signals_of_its_container(image: str) -> None:
    assert docker("run", "--rm", image, "sh", "-c", "echo $$") == "1"


@pytest.mark.parametrize("service", ["spark-master", "spark-worker-1"])
def test_a_daemon_that_stands_still_is_unhealthy(cluster: Cluster, service: str) -> None:
    container = cluster.compose.container(service)
    eventually(lambda: answers(container), 60.0, every=0.5)  # a worker is healthy once the master has registered it
    with stopped(container):
        assert not answers(container)
    eventually(lambda: answers(container), 60.0, every=0.5)


def test_nothing_runs_as_root(cluster: Cluster) -> None:
    assert docker("image", "inspect", "--format", "{{.Config.User}}", cluster.image) == "10001:10001"
    for service in ("spark-master", *WORKERS):
        assert cluster.inside(service, "id", "-u") == "10001"
        assert cluster.inside(service, "stat", "-c", "%u", "/proc/1", "/data").split() == ["10001", "10001"]


def test_the_image_holds_the_locked_versions(image: str) -> None:
    program = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    installed = set(docker("run", "--rm", image, "python3", "-c", program).lower().replace("_", "-").split())
    locked = set(re.findall(r"^([\w.-]+==[\w.]+)", (ROOT / "requirements.lock").read_text().lower(), re.MULTILINE))

    names = {item.partition("==")[0] for item in installed}
    assert {"confluent-kafka", "pandas", "pyarrow", "pyspark"} <= names
    assert names.isdisjoint({"pytest", "testcontainers"})
    assert {item for item in installed if item.partition("==")[0] not in ("pip", "uv")} <= locked


def test_the_imports_of_jobs_are_compiled_in_the_image(image: str) -> None:
    """The job's user cannot keep compiled files: each Python of a job would compile pandas and everything else."""
    program = """
import os, sys
import confluent_kafka, lvq_spark, lvq_spark.submitting, pandas, pyarrow, pyspark.sql, pyspark.worker

kept = [module.__spec__.cached for module in list(sys.modules.values()) if getattr(module, "__spec__", None)]
print(*(path for path in kept if path is not None and not os.path.exists(path)))
"""
    assert docker("run", "--rm", image, "python3", "-c", program).split() == []
