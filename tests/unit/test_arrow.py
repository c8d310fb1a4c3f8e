"""Views and snapshots as Arrow (R49): in memory, in a store, and attached to one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lvq_kafka import BYTES, JSON, TEXT, Codec, Groups, Ttl
from lvq_kafka.errors import ConfigError, DecodeError
from lvq_kafka.reading import attached_view
from lvq_kafka.tabular import arrow_rows
from lvq_kafka.tabular.arrow_rows import COLUMNS, USUAL
from tests.unit.test_view_contract import KINDS, World


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with ExitStack() as opened:
        found = World(request.param, tmp_path / "store", opened)
        monkeypatch.setattr(attached_view, "time", SimpleNamespace(time=found.clock))
        yield found


def rows(source: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(source).to_pylist()
    return found


def column(source: Any, name: str) -> list[Any]:
    found: list[Any] = pa.table(source)[name].to_pylist()
    return found


def test_r49_each_key_is_a_row_with_its_position_time_and_headers(world: World) -> None:
    view = world.view(value=TEXT)
    world.clock.now = 1_700_000_000.25
    world.put(b="2")
    world.put(a="1", headers=(("exchange", b"NYSE"), ("exchange", None)))
    view.barrier()
    first, second = rows(view)
    assert tuple(first) == USUAL
    assert first == {
        "key": "a",
        "value": "1",
        "topic": "prices",
        "partition": 0,
        "offset": 1,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC),
        "headers": [{"key": "exchange", "value": b"NYSE"}, {"key": "exchange", "value": None}],
        "expires": None,
    }
    assert second["key"] == "b"
    assert second["headers"] in (None, [{"key": "ticker", "value": b"b"}])


def test_r49_the_metadata_has_the_cut_and_the_state(world: World) -> None:
    view = world.view()
    world.put(a="1")
    view.barrier()
    with view.snapshot().to_arrow() as reader:
        about = json.loads(reader.schema.metadata[b"lvq"])
    assert about["queue"] == about["topic"] == "prices"
    assert about["offsets"] == {"0": 1}
    assert (about["state"], about["complete"], about["lag"]) == ("caught-up", True, 0)
    assert about["topic_id"] == view.cut.topic_id
    assert about["as_of"] == pytest.approx(view.cut.as_of)
    assert about["age"] >= 0


def test_r49_the_same_cut_has_the_same_rows_however_often_it_is_read(world: World) -> None:
    view = world.view()
    world.put(a="1", b="2")
    view.barrier()
    snapshot = view.snapshot()
    world.put(a="3", c="4")
    view.barrier()
    for _ in range(2):
        assert [(row["key"], row["value"]) for row in rows(snapshot)] == [("a", "1"), ("b", "2")]
    assert column(view, "value") == ["3", "2", "4"]


def test_r49_values_have_the_fields_of_their_json(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a='{"price": 1, "at": null, "tags": ["x"]}', b='{"price": 1.5, "deep": {"n": 9007199254740993}}')
    view.barrier()
    assert column(view, "value") == [
        {"price": 1.0, "at": None, "tags": ["x"], "deep": None},
        {"price": 1.5, "at": None, "tags": None, "deep": {"n": 9007199254740993}},
    ]
    kind = view.to_arrow().schema.field("value").type
    assert kind.field("price").type == pa.float64()
    assert kind.field("deep").type.field("n").type == pa.int64()


def test_r49_values_of_several_kinds_are_the_text_of_their_json(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a='{"x": [1]}', b="[1]", c="null", d='"é"')
    view.barrier()
    assert column(view, "value") == ['{"x": [1]}', "[1]", None, '"é"']


DECIMAL = Codec(lambda value: str(value).encode(), lambda data: Decimal(data.decode()))


@pytest.mark.parametrize(("codec", "value"), [(BYTES, b"1.10"), (TEXT, "1.10"), (DECIMAL, "1.10"), (JSON, 1.1)])
def test_r49_no_value_is_rounded(world: World, codec: Any, value: object) -> None:
    view = world.view(value=codec)
    world.put(a="1.10")
    view.barrier()
    assert column(view, "value") == [value]


def test_r49_a_value_that_no_column_can_hold_stays_bytes(world: World) -> None:
    view = world.view(value=Codec(bytes, lambda data: object() if data == b"2" else data.decode()))
    world.put(a="1", b="2")
    view.barrier()
    assert column(view, "value") == [b"1", b"2"]


def test_r49_a_value_that_cannot_be_decoded_ends_the_stream_with_its_position(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a="1", b="{")
    view.barrier()
    with pytest.raises(DecodeError, match="prices/0/1"):
        view.to_arrow().read_all()


def test_r49_with_raw_a_value_that_cannot_be_decoded_is_null_with_its_bytes_beside(world: World) -> None:
    view = world.view(value=JSON, undecodable="raw")
    world.put(a="1", b="{", c='"\\ud800"')
    view.barrier()
    assert [(row["key"], row["value"], row["value_raw"]) for row in rows(view)] == [
        ("a", "1", None),
        ("b", None, b"{"),
        ("c", None, b'"\\ud800"'),
    ]


@pytest.mark.parametrize("bad", ['{"a": 1, "\\ud800": 2}', '{"x\\u0000y": 1}', '{"deep": {"\\u0000": 1}}'])
def test_r49_a_field_whose_name_no_column_can_have_costs_only_its_own_value(world: World, bad: str) -> None:
    view = world.view(value=JSON, undecodable="raw")
    world.put(a='{"a": 1}', b=bad)
    view.barrier()
    assert [(row["value"], row["value_raw"]) for row in rows(view)] == [({"a": 1}, None), (None, bad.encode())]


@pytest.mark.parametrize("good", ["true", "1", "1.5", '"text"', "null", "[true]", '["x"]', "[null]"])
@pytest.mark.parametrize("within", ["%s", '{"a": %s}', "[%s]"])
def test_r49_such_a_field_costs_only_its_own_value_whatever_the_others_are(good: str, within: str) -> None:
    world, bad = World("memory", Path(), ExitStack()), within % '{"\\u0000": 1}'
    with world.view(value=JSON, undecodable="raw") as view:
        world.put(a=within % good, b=bad)
        view.barrier()
        first, second = rows(view)
        assert first["value_raw"] is None
        assert (second["value"], second["value_raw"]) == (None, bad.encode())
        assert list(view.sql("SELECT count(*) FROM prices")) == [(2,)]


def test_r49_such_a_field_is_named_with_its_position(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a='{"active": true}', b='{"active": {"\\u0000": 1}}')
    view.barrier()
    with pytest.raises(DecodeError, match="prices/0/1 has no place in a column: it has a field with a name"):
        view.to_arrow().read_all()


def test_r49_a_time_beyond_the_years_of_utc_has_no_place(world: World) -> None:
    view = world.view(value=Codec(bytes, lambda data: datetime.fromisoformat(data.decode())), undecodable="raw")
    world.put(a="2026-01-01T00:00:00+00:00", b="0001-01-01T00:00:00+14:00")
    view.barrier()
    assert [row["value_raw"] for row in rows(view)] == [None, b"0001-01-01T00:00:00+14:00"]


def test_r49_a_key_that_is_no_text_is_null_and_its_bytes_are_a_column(world: World) -> None:
    view = world.view()
    world.cluster.write("prices", b"\xff", b"1")
    world.put(a="2")
    view.barrier()
    found = view.to_arrow(["key", "key_raw", "value"]).read_all().to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", b"a", "2"), (None, b"\xff", "1")]


def test_r49_a_row_says_when_it_expires_and_an_expired_one_is_none(world: World) -> None:
    view = world.view(ttl=Ttl(default=60))
    world.clock.now = 1_700_000_000.0
    world.put(a="1", headers=(("lvq-ttl", b"5000"),))
    world.put(b="2")
    view.barrier()
    assert [at.timestamp() - 1_700_000_000 for at in column(view, "expires")] == [5, 60]
    snapshot = view.snapshot()
    world.clock.now += 6
    assert column(view, "key") == ["b"]
    assert column(snapshot, "key") == ["a", "b"]


def test_r49_the_group_of_a_message_is_a_column(world: World) -> None:
    view = world.view(groups=Groups(header="customer"))
    world.put(a="1", headers=(("customer", b"c7"),))
    view.barrier()
    assert view.to_arrow(["group"]).read_all().to_pylist() == [{"group": b"c7"}]


def test_r49_the_sort_key_of_a_message_is_a_column(world: World) -> None:
    view = world.view(order="sorted", sort_header="due")
    world.put(a="1", headers=(("due", b"noon"),))
    world.put(b="2")
    view.barrier()
    found = view.to_arrow(["sort_key", "priority"]).read_all().to_pylist()
    assert [tuple(row.values()) for row in found] == [("noon", None), (None, None)]


def test_r49_ranks_are_columns(world: World) -> None:
    view = world.view(order="priority", priorities=2)
    world.put(a="1", headers=(("lvq-priority", b"9"),))
    world.put(b="2")
    view.barrier()
    found = view.to_arrow(["key", "priority", "sort_key", "group"]).read_all().to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", 9, None, None), ("b", 4, None, None)]


@pytest.mark.parametrize(
    ("columns", "hint"),
    [(["keys"], "Did you mean key?"), (["key", "key"], "twice"), ([], "no column"), ("key", "list")],
)
def test_r49_a_column_that_does_not_exist_is_an_error_at_once(columns: Any, hint: str) -> None:
    world = World("memory", Path(), ExitStack())
    with world.view() as view, pytest.raises(ConfigError, match=hint) as error:
        view.to_arrow(columns)
    assert error.value.options == ("columns",)


def test_r49_all_columns_can_be_asked_for(world: World) -> None:
    view = world.view()
    world.put(a="1")
    view.barrier()
    assert tuple(view.to_arrow(COLUMNS).schema.names) == COLUMNS
    assert len(rows(view.to_arrow(COLUMNS))) == 1


def test_r49_an_empty_view_has_a_schema_and_no_rows(world: World) -> None:
    table = pa.table(world.view(value=JSON))
    assert (table.num_rows, tuple(table.schema.names)) == (0, USUAL)


def test_r49_a_stream_makes_one_batch_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "_MOST_ROWS", 10)
    monkeypatch.setattr(arrow_rows, "_MOST_BYTES", 1000)
    view = world.view(value=TEXT)
    world.put(**{f"k{number:03}": "v" * (200 if number >= 50 else 1) for number in range(60)})
    view.barrier()
    reader = view.to_arrow(["key", "value"])
    sizes = [batch.num_rows for batch in reader]
    assert sizes == [10] * 5 + [5, 5]


def test_r49_a_value_with_very_many_nested_fields_is_text_and_so_are_those_beside_it() -> None:
    many = json.dumps({f"a{number}": {str(inner): 1 for inner in range(40)} for number in range(26)})
    world = World("memory", Path(), ExitStack())
    with world.view(value=JSON) as view:
        world.put(a='{"price": 1}', b=many)
        view.barrier()
        assert column(view, "value") == ['{"price": 1}', many]


def test_r49_a_batch_has_the_fewer_rows_the_more_fields_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "_MOST_CELLS", 100)
    world = World("memory", Path(), ExitStack())
    with world.view(value=JSON) as view:
        world.put(**{f"k{number:03}": json.dumps({f"f{number % 10}": number}) for number in range(35)})
        view.barrier()
        reader = view.to_arrow(["key", "value", "expires"])
        batches = list(reader)
    assert [batch.num_rows for batch in batches] == [10, 10, 10, 5]
    assert [row["key"] for batch in batches for row in batch.to_pylist()] == [f"k{number:03}" for number in range(35)]


def test_r49_objects_in_lists_that_would_fill_very_many_cells_cost_only_their_own_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_rows, "_MOST_CELLS", 20)
    monkeypatch.setattr(arrow_rows, "_MOST_CELLS_OF_ONE", 50)
    world, bad = World("memory", Path(), ExitStack()), json.dumps({"of": [[{}] * 9] * 9})
    with world.view(value=JSON, undecodable="raw") as view:
        world.put(a='{"of": [[{"x": 1, "y": 2}]]}', b=bad, c='{"of": [[{"x": 3}]]}', d=json.dumps([1] * 100))
        world.put(d=None)
        view.barrier()
        found = rows(view)
    assert [row["value"] and row["value"]["of"] for row in found] == [
        [[{"x": 1, "y": 2}]],
        None,
        [[{"x": 3, "y": None}]],
    ]
    assert [row["value_raw"] for row in found] == [None, bad.encode(), None]


def test_r49_readers_on_other_threads_share_one_cut(world: World) -> None:
    from concurrent.futures import ThreadPoolExecutor

    view = world.view(value=JSON)
    world.put(**{f"k{number:04}": f'{{"n": {number}}}' for number in range(2000)})
    view.barrier()
    snapshot = view.snapshot()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: pa.table(snapshot)["value"].to_pylist(), range(4)))
    assert found == [[{"n": number} for number in range(2000)]] * 4


def test_r49_the_columns_have_the_names_of_sparks() -> None:
    lvq_spark = pytest.importorskip("lvq_spark.schema")
    assert set(COLUMNS) - {"key_raw", "value_raw"} == set(lvq_spark.TYPES) - {"timestampType", "deleted"}
    assert USUAL[: len(lvq_spark.SNAPSHOT_COLUMNS)] == lvq_spark.SNAPSHOT_COLUMNS
