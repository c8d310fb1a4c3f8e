"""Tests of Delta and Iceberg, which do not run on the newest Spark that this library supports.

They run on a Spark that both formats support, in its own Python; see ``lakehouse/environment.py``. Some of the other
tests run there, too, since the library must work on both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.effort import TIMES
from tests.spark.children import run_tests
from tests.spark.jars import LAKEHOUSE
from tests.spark.lakehouse.environment import lakehouse_environment, lakehouse_python

HERE = Path(__file__).resolve().parent

TESTS = (
    "lakehouse/merging.py",  # first: it starts the session, which the others share
    "lakehouse/tampering.py",
    "test_source.py::test_there_is_one_row_for_each_key_in_the_columns_of_the_connector",
    "test_store_refresh.py::test_the_first_version_is_read_from_the_whole_log_and_later_ones_from_what_is_new",
)
THOROUGH = (
    "test_source.py::test_an_empty_topic_has_no_rows",
    "test_source.py::test_every_action_and_every_plan_on_a_frame_reads_the_cut_of_its_first_action",
    "test_source.py::test_a_filter_leaves_no_trace_in_other_queries_on_the_frame",
    "test_snapshots.py::test_g8_keys_in_several_partitions_have_the_row_that_a_view_shows",
    "test_store_of_upsert.py::test_a_store_that_upsert_wrote_is_refreshed",
)


@pytest.mark.timeout(0)
def test_tables_of_delta_and_iceberg_are_merged_and_the_library_works_on_their_spark() -> None:
    LAKEHOUSE.ensure()  # that Python cannot fetch them
    run_tests(
        lakehouse_python(),
        [HERE / test for test in (*TESTS, *(THOROUGH if TIMES > 1 else ()))],
        lakehouse_environment(),
        *("-p", "lvq_kafka.testing.plugin"),
        # PySpark 4.1 leaves the sockets that rows arrive on to the garbage collector.
        *("-W", "ignore::pytest.PytestUnraisableExceptionWarning", "-W", "ignore::ResourceWarning"),
    )
