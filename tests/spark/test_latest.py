"""The newest record of each key when memory has no room for all: the file is part of the fold, and goes with it."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.errors import KeyMismatch, SpillFailed
from lvq_spark.scan import spilling
from lvq_spark.scan.latest import RECORD, Latest
from lvq_spark.session.task_failures import task_errors
from tests.effort import examples


def fold(memory: int = 0, **options: Any) -> Latest:
    return Latest("t", **{"key_header": None, "key_mismatch": "record", "memory": memory, "keyless": True, **options})


def found_in(latest: Latest, rows: int = 7) -> list[Record]:
    return [record for batch in latest.batches(rows) for record in batch]


# -- contents ----------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
VALUES = st.sampled_from([None, b"", b"v", bytes(100), bytes(1000)])
CELLS = st.none() | st.binary(max_size=3)
HEADERS = st.just(()) | st.lists(st.tuples(st.text(max_size=3), CELLS), max_size=5).map(tuple)
WRITTEN = st.lists(st.tuples(KEYS, VALUES, HEADERS), max_size=40)


@settings(max_examples=examples(100), deadline=None)
@given(WRITTEN, st.integers(1, 9), st.integers(0, 6 * RECORD), st.integers(1, 5), st.booleans())
def test_the_file_changes_nothing_of_what_comes_in_blocks_of_whatever_size(
    written: list[tuple[bytes | None, bytes | None, Headers]], fetch: int, memory: int, rows: int, keyless: bool
) -> None:
    records = [Record(3, 2 * n + 5, n << 33, *cells) for n, cells in enumerate(written)]
    newest = {record.key: record for record in records if record.key is not None}
    unkeyed = [record for record in records if record.key is None]
    expected = sorted([*newest.values(), *(unkeyed if keyless else ())])
    with (
        patch.object(spilling, "ROWS", rows + 1),
        patch.object(spilling, "BYTES", 150),
        fold(memory, keyless=keyless) as latest,
    ):
        for start in range(0, len(records), fetch):
            latest.apply(RecordBatch.of(records[start : start + fetch]))
        assert {key for key in (b"", b"a", b"b", b"c", b"d") if key in latest} == newest.keys()
        assert {key: latest.offset(key) for key in newest if key is not None} == {
            key: record.offset for key, record in newest.items()
        }
        assert latest.keyless == len(unkeyed)
        assert latest.replaced == len(records) - len(unkeyed) - len(newest)
        found = list(latest.batches(rows))
    assert [record for batch in found for record in batch] == expected
    assert all(0 < len(batch) <= rows for batch in found)


LARGE: dict[str, Callable[[int], Record]] = {
    "values": lambda n: Record(0, n, 0, b"%d" % n, bytes([n]) * (1 << 20)),
    "keys": lambda n: Record(0, n, 0, b"%d" % n + bytes(1 << 16), None),
    "headers": lambda n: Record(0, n, 0, b"%d" % n, b"", tuple((f"h{at % 7}", bytes(at)) for at in range(1000))),
    "names": lambda n: Record(0, n, 0, None, None, (("\ud800" + "n" * 40_000, None),) * 9),
    "numbers": lambda n: Record(2**31 - 1, 2**62 + n, -1, b"%d" % n, b"v"),
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_records_of_any_shape_come_back_from_the_file(make: Callable[[int], Record]) -> None:
    records = [make(n) for n in range(20)]
    with fold() as latest:
        for start in (0, 9, 18):
            latest.apply(RecordBatch.of(records[start : start + 9]))
        assert latest.spilled == sum(len(record.value or b"") for record in records)
        assert found_in(latest) == records


def test_values_beyond_the_memory_go_to_a_file_and_dead_ones_do_not() -> None:
    def some(start: int, *keys: bytes) -> RecordBatch:
        return RecordBatch.of(Record(0, start + n, 0, key, bytes([n]) * 300) for n, key in enumerate(keys))

    with fold(1000 + 4 * RECORD) as same:
        for start in range(100):
            same.apply(some(start, b"a"))
        assert same.spilled == 0
    with fold(1000 + 4 * RECORD) as many:
        for start in range(0, 40, 4):
            many.apply(some(start, *(b"%d" % (start + n) for n in range(4))))
        assert many.spilled == 40 * 300
        many.apply(some(40, b"0"))
        found = [record for batch in many.batches(7) for record in batch]
        assert [record.offset for record in found] == list(range(1, 41))
        assert [record.value for record in found] == [bytes([n % 4]) * 300 for n in range(1, 41)]


def test_headers_take_memory_too() -> None:
    records = RecordBatch.of(Record(0, n, 0, b"%d" % n, b"v", (("h", bytes(1000)), ("n", None))) for n in range(20))
    with fold(20 * RECORD + 1000) as latest:
        latest.apply(records)
        assert latest.spilled == len(records)
        assert [record for batch in latest.batches(7) for record in batch] == list(records)


def test_a_file_larger_than_the_memory_that_a_worker_may_have_is_read_back() -> None:
    """``spark.executor.pyspark.memory`` limits address space, and a mapped file takes as much of it as its length."""
    code = """
import resource
from pathlib import Path
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_spark.scan.latest import Latest

with Latest("t", key_header=None, key_mismatch="record", memory=0, keyless=True) as latest:
    for n in range(128):
        latest.apply(RecordBatch.of([Record(0, n, 0, b"%d" % n, bytes(1 << 20))]))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20),) * 2)
    print(sum(len(batch) for batch in latest.batches(10_000)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "128\n", done.stderr


@pytest.mark.parametrize(
    ("directories", "expected"), [("{0}/first,{0}/second", "first"), ("{0}/gone,{0}/second", None), (None, None)]
)
def test_the_file_lies_where_spark_has_its_own(
    directories: str | None, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    if directories is not None:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", directories.format(tmp_path))
    make, places = tempfile.TemporaryFile, []

    def remember(**options: Any) -> Any:
        places.append(options.get("dir"))
        return make(**options)

    monkeypatch.setattr(tempfile, "TemporaryFile", remember)
    with fold() as latest:
        latest.apply(RecordBatch.of([Record(0, 0, 0, b"a", b"1")]))
        assert latest.spilled == 1
    assert places == [None if expected is None else str(tmp_path / expected)]


def test_values_that_nobody_wants_do_not_go_to_the_file_and_deletes_are_still_told() -> None:
    with fold(values=False) as latest:
        latest.apply(RecordBatch.of([Record(0, 0, 0, b"a", bytes(300)), Record(0, 1, 0, b"b", None)]))
        assert latest.spilled == 0
        assert [(record.key, record.value) for batch in latest.batches(9) for record in batch] == [
            (b"a", b""),
            (b"b", None),
        ]


def test_a_batch_from_the_file_is_no_larger_than_an_arrow_batch_may_be() -> None:
    records = [Record(0, n, 0, b"%d" % n, bytes(1 << 20)) for n in range(20)]
    with fold() as latest:
        latest.apply(RecordBatch.of(records))
        found = list(latest.batches(10_000))
    assert [record for batch in found for record in batch] == records
    assert max(batch.size for batch in found) <= spilling.BYTES


def test_many_records_are_few_writes_and_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Counting(io.BytesIO):
        def write(self, block: Any) -> int:
            done.append("write")
            return super().write(block)

        def read(self, length: int | None = -1) -> bytes:
            done.append("read")
            return super().read(length)

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Counting())
    records = [Record(0, n, 0, b"%d" % n, b"v") for n in range(25_000)]
    with fold() as latest:
        latest.apply(RecordBatch.of(records))
        assert found_in(latest, 10_000) == records
    assert done == ["write"] * 3 + ["read"] * 3


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts this process's open files in Spark's directory; none has a name there."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))

    def opened() -> Iterator[str]:
        for descriptor in Path("/proc/self/fd").iterdir():
            try:
                yield os.readlink(descriptor)
            except FileNotFoundError:  # it was the descriptor of this listing
                continue

    def count() -> int:
        assert not list(tmp_path.iterdir())
        return sum(place.startswith(f"{tmp_path}/") for place in opened())

    return count


SOME = RecordBatch.of(Record(0, n, 0, b"%d" % n, b"v", (("ticker", b"0"),)) for n in range(3))


def test_the_file_is_gone_after_the_last_record(files: Callable[[], int]) -> None:
    with fold() as latest:
        assert files() == 0
        latest.apply(SOME)
        assert files() == 1
        assert len(found_in(latest)) == 3
    assert files() == 0


def test_the_file_is_gone_after_an_error(files: Callable[[], int]) -> None:
    latest = fold(key_header="ticker", key_mismatch="fail")
    latest.apply(SOME.rows(0, 1))
    assert files() == 1
    with pytest.raises(KeyMismatch), latest:
        latest.apply(SOME)
    assert files() == 0


def test_the_file_is_gone_when_nobody_reads_on(files: Callable[[], int]) -> None:
    def batches() -> Iterator[RecordBatch]:
        with fold() as latest:
            latest.apply(SOME)
            yield from latest.batches(1)

    reading = batches()
    next(reading)
    assert files() == 1
    reading.close()
    assert files() == 0


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a directory in which files can be created, but have no room."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b"))  # noqa: SIM115
    return tmp_path


def test_a_full_disk_is_an_error_with_a_type_that_names_the_directory_and_the_remedy(full_disk: Path) -> None:
    said = r"No space left.*spark\.local\.dir.*lvq\.memoryBytes"
    with pytest.raises(SpillFailed, match=said) as error, fold() as latest:
        latest.apply(SOME)
    assert error.value.path == full_disk
    assert str(full_disk) in str(error.value)
    assert isinstance(error.value.__cause__, OSError)
    assert error.value.__cause__.errno == errno.ENOSPC
    with pytest.raises(SpillFailed, match=said), task_errors():
        raise PySparkException(f"A task failed.\n{SpillFailed.__module__}.SpillFailed: {error.value}")


def test_a_directory_that_takes_no_files_is_such_an_error_too(full_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(SpillFailed, match=f"{full_disk} could not be made: Permission denied"), fold() as latest:
        latest.apply(SOME)


def test_where_there_is_no_directory_for_temporary_files_at_all_it_is_such_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example, a container with a read-only file system."""
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/no/such", "/proc"])
    with pytest.raises(SpillFailed, match=r"No usable temporary directory .*spark\.local\.dir"), fold() as latest:
        latest.apply(SOME)
