"""``lvq export`` into files that others read: Parquet, Arrow and CSV (R49)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lvq_kafka.tabular import arrow_files
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run


@pytest.fixture
def quotes(run: Run) -> Run:
    """Return ``run``, with a queue ``quotes`` whose values are JSON."""
    assert run("declare", "quotes", "--key-header", "ticker").code == 0
    assert run("put", "quotes", "MSFT", '{"price": 402, "size": 100}').code == 0
    assert run("put", "quotes", "IBM", '{"price": 118.5}').code == 0
    return run


def read(file: Path) -> pa.Table:
    if file.suffix == ".parquet":
        return pq.read_table(file)
    with pa.OSFile(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".PARQUET"])
def test_r49_the_ending_of_a_file_chooses_its_form(quotes: Run, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"quotes{ending}"
    ran = quotes("export", "quotes", str(file), "--format", "json", person=True)
    assert ran.code == 0
    assert ran.stderr == f"2 values of quotes in {file}, caught-up at offset 2 of partition 0\n"
    table = read(file.rename(file.with_suffix(ending.lower())))
    assert table.select(["key", "value", "offset"]).to_pylist() == [
        {"key": "IBM", "value": {"price": 118.5, "size": None}, "offset": 1},
        {"key": "MSFT", "value": {"price": 402.0, "size": 100}, "offset": 0},
    ]
    about = json.loads(table.schema.metadata[b"lvq"])
    assert (about["queue"], about["offsets"], about["state"], about["complete"]) == (
        "quotes",
        {"0": 2},
        "caught-up",
        True,
    )


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_r49_columns_are_those_asked_for(quotes: Run, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"quotes{ending}"
    assert quotes("export", "quotes", str(file), "--columns", "key, expires").code == 0
    assert read(file).to_pylist() == [{"key": "IBM", "expires": None}, {"key": "MSFT", "expires": None}]
    ran = quotes("export", "quotes", str(file), "--columns", "kye")
    assert ran.code == 2
    assert "Did you mean key?" in ran.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_columns_are_for_arrow_and_parquet(quotes: Run, tmp_path: Path) -> None:
    ran = quotes("export", "quotes", str(tmp_path / "quotes.csv"), "--columns", "key")
    assert ran.code == 2
    assert ".parquet or .arrow" in ran.stderr


def test_r49_a_csv_has_a_line_for_each_value_in_queue_order(
    quotes: Run, tmp_path: Path, memory_cluster: MemoryCluster
) -> None:
    memory_cluster.write("quotes", b'x,"y"\n', b"\xff\n")
    file = tmp_path / "quotes.csv"
    ran = quotes("export", "quotes", str(file))
    assert (ran.code, ran.stdout) == (0, b"")
    assert ran.stderr == f"3 values of quotes in {file}, caught-up at offset 3 of partition 0\n"
    with file.open(newline="") as lines:
        head, *rows = csv.reader(lines)
    assert head == ["key", "value", "position", "timestamp", "base64"]
    assert [row[:3] + row[4:] for row in rows] == [
        ["MSFT", '{"price": 402, "size": 100}', "quotes/0/0", ""],
        ["IBM", '{"price": 118.5}', "quotes/0/1", ""],
        ['x,"y"\n', "/wo=", "quotes/0/2", "value"],
    ]


def test_r49_fractions_of_json_are_floats_and_the_text_of_json_is_as_it_was(
    quotes: Run, tmp_path: Path, memory_cluster: MemoryCluster
) -> None:
    exact = '{"price": 1234567.1234567890123}'
    memory_cluster.write("quotes", b"GOOG", exact.encode())
    arguments = ["sql", "SELECT value.price AS price FROM quotes WHERE key = 'GOOG'", "quotes", "--format", "json"]
    assert quotes(*arguments).rows[0] == {"price": 1234567.123456789}
    file = tmp_path / "quotes.jsonl"
    assert quotes("export", "quotes", str(file), "--format", "text").code == 0
    assert quotes("declare", "copy", "--key-header", "ticker").code == 0
    assert quotes("put", "copy", "--from-jsonl", str(file), "--format", "text").code == 0
    assert quotes("get", "copy", "GOOG", "--format", "text").row["value"] == exact


def test_an_export_is_read_back_whatever_characters_its_json_has(
    quotes: Run, tmp_path: Path, memory_cluster: MemoryCluster
) -> None:
    memory_cluster.write("quotes", b"half", rb'"\ud800\u0000"')
    file = tmp_path / "quotes.jsonl"
    assert quotes("export", "quotes", str(file), "--format", "json").code == 0
    assert quotes("declare", "copy", "--key-header", "ticker", "--format", "json").code == 0
    assert quotes("put", "copy", "--from-jsonl", str(file)).code == 0
    assert quotes("get", "copy", "half").row["value"] == "\ud800\0"


def test_r49_a_csv_has_no_nul_and_leaves_formulas_as_they_are(
    quotes: Run, tmp_path: Path, memory_cluster: MemoryCluster
) -> None:
    for key, value in ((b"a\0b", b"1"), (b"nul", b"a\0b"), (b"formula", b"=1+1"), (b"text", b'"a\\u0000b"')):
        memory_cluster.write("quotes", key, value)
    file = tmp_path / "quotes.csv"
    for form, code, text in (("bytes", 0, ['"a\\u0000b"', ""]), ("json", 5, ["YQBi", "value"])):
        assert quotes("export", "quotes", str(file), "--format", form).code == code
        with file.open(newline="") as lines:
            rows = {row[0]: [row[1], row[4]] for row in csv.reader(lines)}
        assert b"\0" not in file.read_bytes()
        assert rows["YQBi"] == ["1", "key"]
        assert rows["nul"] == ["YQBi", "value"]
        assert rows["formula"] == ["=1+1", ""]
        assert rows["text"] == text


@pytest.mark.parametrize("command", ["put", "send"])
def test_an_export_that_was_cut_short_is_read_with_a_warning(quotes: Run, command: str) -> None:
    lines = quotes("export", "quotes").stdout.splitlines(keepends=True)
    assert quotes("declare", "copy", "--key-header", "ticker").code == 0
    ran = quotes(command, "copy", "--from-jsonl", "-", stdin=b"".join(lines))
    assert (ran.code, ran.stderr) == (0, "")
    ran = quotes(command, "copy", "--from-jsonl", "-", stdin=b"".join(lines * 2)[: -len(lines[-1])])
    assert (ran.code, len(ran.rows)) == (0, 3)
    assert ran.stderr == "lvq: warning: Only 3 of the 4 values of this export are here.\n"


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_r49_values_and_keys_that_have_no_place_are_counted(
    quotes: Run, tmp_path: Path, memory_cluster: MemoryCluster, ending: str
) -> None:
    file = tmp_path / f"quotes{ending}"
    memory_cluster.write("quotes", b"bad", b"{")
    ran = quotes("export", "quotes", str(file), "--format", "json")
    assert (ran.code, ran.stderr) == (5, "lvq: 1 value could not be read as json; see --format.\n")
    (bad,) = [row for row in read(file).to_pylist() if row["key"] == "bad"]
    assert (bad["value"], bad["value_raw"]) == (None, b"{")
    memory_cluster.write("quotes", b"\xff", b"1")
    ran = quotes("export", "quotes", str(file))
    assert ran.code == 5
    assert "1 key is not UTF-8" in ran.stderr
    assert quotes("export", "quotes", str(file), "--columns", "key,key_raw,value").code == 0


def test_r49_a_file_has_large_groups_of_rows(
    quotes: Run, tmp_path: Path, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.tabular.arrow_rows._MOST_ROWS", 10)
    monkeypatch.setattr(arrow_files, "_MOST_ROWS", 25)
    for number in range(98):
        memory_cluster.write("quotes", b"k%d" % number, b"1")
    file = tmp_path / "quotes.parquet"
    assert quotes("export", "quotes", str(file)).code == 0
    parts = pq.ParquetFile(file).metadata
    assert [parts.row_group(number).num_rows for number in range(parts.num_row_groups)] == [30, 30, 30, 10]


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_an_export_that_fails_leaves_the_file_as_it_was(
    quotes: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    file = tmp_path / f"quotes{ending}"
    assert quotes("export", "quotes", str(file)).code == 0
    complete = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr("lvq_kafka.cli.commands.export.csv_line", full)
    monkeypatch.setattr("lvq_kafka.tabular.arrow_rows._next_part", full)
    assert quotes("export", "quotes", str(file)).code == 2
    assert file.read_bytes() == complete
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("there", [True, False])
def test_an_export_through_a_link_replaces_what_it_points_to(quotes: Run, tmp_path: Path, there: bool) -> None:
    file, link = tmp_path / "there" / "dump.csv", tmp_path / "quotes.csv"
    file.parent.mkdir()
    if there:
        file.write_text("old")
    link.symlink_to(file)
    assert quotes("export", "quotes", str(link)).code == 0
    assert link.is_symlink()
    assert file.read_text().startswith("key,value,")
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_stream_that_fails_leaves_no_file_that_looks_whole(form: Any, first: int) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(first):
            yield pa.record_batch({"key": ["IBM"]})
        raise KeyboardInterrupt

    file = io.BytesIO()
    reader = pa.RecordBatchReader.from_batches(pa.schema([("key", pa.string())]), batches())
    with pytest.raises(KeyboardInterrupt):
        list(arrow_files.write_batches(reader, file, form))
    assert not_whole(file, form)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_stream_that_is_not_read_to_its_end_leaves_no_file_that_looks_whole(form: Any) -> None:
    file, table = io.BytesIO(), pa.table({"key": ["IBM"]})
    written = arrow_files.write_batches(table.to_reader(), file, form)
    assert next(written).num_rows == 1
    written.close()  # type: ignore[attr-defined]
    assert not_whole(file, form)


def not_whole(file: io.BytesIO, form: str) -> bool:
    with pytest.raises(pa.ArrowInvalid):
        _ = pq.read_table(file) if form == "parquet" else pa.ipc.open_file(file)
    return True
