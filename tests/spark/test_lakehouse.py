"""Delta and Iceberg do not run on the newest Spark that this library does. Their tests run on one that they know.

That is a Python of their own, with the packages of ``lakehouse/requirements.lock``; it is kept below ``build``. Some of
the tests of everything else run there, too: the library is to work on both.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOCK = HERE / "lakehouse" / "requirements.lock"

TESTS = (
    "lakehouse/merging.py",  # first: it starts the session, which the others use, too
    "test_source.py::test_there_is_one_row_for_each_key_in_the_columns_of_the_connector",
    "test_source.py::test_an_empty_topic_has_no_rows",
    "test_source.py::test_every_action_and_every_plan_on_a_frame_reads_the_cut_of_its_first_action",
    "test_source.py::test_a_filter_leaves_no_trace_in_other_queries_on_the_frame",
    "test_snapshots.py::test_g8_keys_in_several_partitions_have_the_row_that_a_view_shows",
    "test_store_refresh.py::test_the_first_version_is_read_from_the_whole_log_and_later_ones_from_what_is_new",
    "test_store_upsert.py::test_each_batch_becomes_a_version_with_one_row_for_each_key",
)


def lakehouse_python() -> Path:
    """The Python with the packages of the lock, made when it is not there."""
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:8]
    home = ROOT / "build" / f"lakehouse-{digest}"
    python, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists():
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        assert uv, "uv makes the environment; `make test` installs it"
        shutil.rmtree(home, ignore_errors=True)
        for command in (
            ["venv", "--quiet", "--python", sys.executable, str(home)],
            ["pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", str(python), "-r", str(LOCK)],
        ):
            done = subprocess.run([uv, *command], capture_output=True, text=True, timeout=250, check=False)
            assert done.returncode == 0, done.stderr
        ready.touch()
    return python


@pytest.mark.timeout(900)  # on a busy machine, with all to be fetched
def test_tables_of_delta_and_iceberg_are_merged_and_the_library_works_on_their_spark() -> None:
    python = lakehouse_python()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "spark"))), "LVQ_TEST_BROKER": "embedded"}
    environment.pop("PYTEST_ADDOPTS", None)
    run = subprocess.run(
        [
            *(str(python), "-m", "pytest", "-q", "-p", "lvq_kafka.testing.plugin", "-p", "no:cacheprovider"),
            # PySpark 4.1 leaves the sockets that rows come over to the garbage collector.
            *("-W", "ignore::pytest.PytestUnraisableExceptionWarning", "-W", "ignore::ResourceWarning"),
            *(str(HERE / test) for test in TESTS),
        ],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=850,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-30_000:]
