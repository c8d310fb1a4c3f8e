"""The jobs on a real standalone cluster, submitted as users submit them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.spark.cluster import Cluster, Done, standalone_cluster

pytestmark = pytest.mark.timeout(900)  # four times a JVM for the driver and one for an executor

MakeQueue = Callable[..., LastValueQueue[bytes]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def result(done: Done) -> dict[str, Any]:
    """Return a job's output. ``spark-submit`` sends Python's standard error to standard output, too."""
    assert done.code == 0, done.out + done.err[:6000]
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return found


def test_the_jobs_run_on_a_cluster_whose_executors_get_the_package_as_users_ship_it(
    cluster: Cluster, make_queue: MakeQueue, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    import pyarrow as pa

    queue = make_queue(partitions=2)
    bare = (queue.topic, "--bare", "-b", lvq_broker.bootstrap_servers)
    rows = pa.table({"key": [f"k{n}" for n in range(20)], "price": [float(n) for n in range(20)]})
    pq.write_table(rows, tmp_path / "prices.parquet")
    query = "SELECT key, to_json(struct(price)) AS value FROM input"

    published = result(
        cluster.submit("publish.py", *bare, "--input", f"file://{tmp_path}/prices.parquet", "--query", query)
    )
    assert (published["written"], published["vanished"]) == (20, 0)
    assert {int(p): offset for p, offset in published["ends"].items()} == queue.cluster.logs.end_offsets(queue.topic)

    store = ("--store", f"file://{tmp_path}/store")
    with ThreadPoolExecutor() as threads:
        snapshotting = threads.submit(
            *(cluster.submit, "snapshot.py", *bare, "--output", f"file://{tmp_path}/snapshot", "--slices", "2"),
            executors=2,
        )
        refreshing = threads.submit(cluster.submit, "refresh.py", *bare, *store)
        nothing_shipped = threads.submit(
            cluster.submit, "snapshot.py", *bare, "--output", f"file://{tmp_path}/never", shipped=False
        )
    refreshed = result(refreshing.result())
    assert (refreshed["version"], refreshed["rows"], refreshed["end"]) == (1, 20, published["ends"])
    written = result(snapshotting.result())
    assert (written["rows"], written["end"]) == (20, published["ends"])
    table = pq.read_table(tmp_path / "snapshot")
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == {
        f"k{n}".encode(): b'{"price":%.1f}' % n for n in range(20)
    }

    [said] = cluster.shared().values()
    assert ["Finished task" in one for one in said] == [True, True], "each worker has read a slice"

    failed = nothing_shipped.result()
    assert failed.code == 6
    last = failed.out.splitlines()[-1]
    assert last.startswith(f"snapshot.py: ImportError: The Python of this executor, {cluster.python}, lacks a package")
    assert "Install lvq-kafka[spark]==" in last
