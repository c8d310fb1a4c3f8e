"""Queries of SQL over views and snapshots, and the cuts and states of the answers (R49)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lvq_kafka import JSON, TEXT, LastValueQueue, SqlAnswer
from lvq_kafka.errors import Closed, ConfigError, DecodeError, MissingExtra, SqlError
from lvq_kafka.reading import attached_view
from lvq_kafka.reading.view import LiveMapping
from lvq_kafka.testing import MemoryCluster
from tests.unit.test_view_contract import KINDS, World
from tests.waiting import eventually

SECRET = pa.table({"word": ["sesame"]})
"""A table that a query must not reach by its name."""


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with ExitStack() as opened:
        found = World(request.param, tmp_path / "store", opened)
        monkeypatch.setattr(attached_view, "time", SimpleNamespace(time=found.clock))
        yield found


@pytest.fixture
def quotes(memory_cluster: MemoryCluster) -> Iterator[LiveMapping[Any]]:
    queue = LastValueQueue.declare("quotes", key_header="ticker", value=JSON, cluster=memory_cluster)
    with queue.producer() as producer, queue.view() as view:
        producer.put("IBM", {"price": 118.5, "size": 10})
        producer.put("MSFT", {"price": 402})
        producer.flush()
        view.barrier()
        yield view


def test_r49_a_query_sees_the_rows_of_one_cut(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a='{"price": 1}', b='{"price": 2.5}', c='{"price": 9}')
    world.put(c=None)
    view.barrier()
    answer = view.sql("SELECT key, value.price FROM prices WHERE key LIKE 'b%' OR value.price < 2 ORDER BY key DESC")
    assert list(answer) == list(answer) == [("b", 2.5), ("a", 1.0)]
    assert (answer.columns, len(answer), answer.doubts) == (["key", "price"], 2, [])
    assert answer.about["prices"]["offsets"] == {"0": 4}
    assert answer.about["prices"]["state"] == "caught-up"
    world.put(a='{"price": 7}')
    view.barrier()
    assert list(answer) == [("b", 2.5), ("a", 1.0)]
    assert list(view.sql("SELECT max(value.price) FROM queue")) == [(7.0,)]


def test_r49_a_table_may_be_read_several_times_in_one_query(quotes: LiveMapping[Any]) -> None:
    query = "SELECT a.key, b.key FROM quotes a JOIN quotes b ON a.value.price < b.value.price"
    assert list(quotes.sql(query)) == [("IBM", "MSFT")]


def test_r49_several_queues_are_several_tables(quotes: LiveMapping[Any], memory_cluster: MemoryCluster) -> None:
    names = LastValueQueue.declare("names-of.all", key_header="ticker", value=TEXT, cluster=memory_cluster)
    with names.producer() as producer, names.view() as view:
        producer.put("IBM", "International Business Machines").result(5)
        view.barrier()
        answer = quotes.sql(
            'SELECT n.value, q.value.price FROM quotes q JOIN "names-of.all" n USING (key)', view.snapshot()
        )
        assert list(answer) == [("International Business Machines", 118.5)]
        assert set(answer.about) == {"quotes", "names-of.all"}
        with pytest.raises(SqlError, match="queue does not exist"):
            quotes.sql("SELECT 1 FROM queue", view)


def test_r49_parameters_are_values_and_never_text_of_the_query(quotes: LiveMapping[Any]) -> None:
    by_place = quotes.sql("SELECT key FROM quotes WHERE key = ?", parameters=["IBM"])
    by_name = quotes.sql("SELECT key FROM quotes WHERE key = $key", parameters={"key": "IBM' OR true --"})
    assert (list(by_place), list(by_name)) == ([("IBM",)], [])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM SECRET",
        "SELECT * FROM read_parquet('https://example.com/x.parquet')",
        "COPY quotes TO '/tmp/lvq-must-not-exist.csv'",
        "ATTACH '/tmp/lvq-must-not-exist.db'",
        "SELECT * FROM read_duckdb('/tmp/lvq-must-not-exist.db')",
        "SELECT * FROM enable_logging(storage := 'file', storage_path := '/tmp/lvq-must-not-exist.log')",
        "SELECT * FROM enable_profiling(save_location := '/tmp/lvq-must-not-exist.json')",
        "SELECT * FROM arrow_scan(1, 2, 3)",
        "SELECT * FROM pandas_scan(4096)",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA database_list",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO quotes VALUES (1)",
        "DELETE FROM quotes",
        "DROP VIEW quotes",
        "EXPORT DATABASE '/tmp/lvq-must-not-exist'",
        "CALL pragma_version()",
        "SELECT 1; DROP VIEW quotes",
        "",
        ";",
    ],
)
def test_r49_a_query_does_nothing_but_read_the_tables(quotes: LiveMapping[Any], query: str) -> None:
    assert SECRET.num_rows == 1  # it is in a frame that a query might look into
    with pytest.raises(SqlError):
        quotes.sql(query)
    assert not list(Path("/tmp").glob("lvq-must-not-exist*"))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT prize FROM quotes", 'Referenced column "prize" not found'),
        ("SELECT 1 FROM quote", 'Did you mean "quotes"'),
        ("SELECT value.prise FROM quotes", "prise"),
        ("SELECT key::INTEGER FROM quotes", "Could not convert string 'IBM' to INT32"),
        ("INSERT INTO quotes VALUES (1)", "A queue can only be read, and this is INSERT. Give a SELECT."),
        ("SELECT 1; SELECT 2", "There are several queries. Give one SELECT."),
    ],
)
def test_r49_an_error_of_sql_says_where_in_the_query(quotes: LiveMapping[Any], query: str, said: str) -> None:
    with pytest.raises(SqlError) as error:
        quotes.sql(query)
    assert said in str(error.value)
    assert "Error:" not in str(error.value)


def test_r49_an_error_shows_the_line_of_the_query(quotes: LiveMapping[Any]) -> None:
    with pytest.raises(SqlError) as error:
        quotes.sql("SELECT key,\n  prize FROM quotes")
    assert str(error.value).splitlines()[-2:] == ["    LINE 2:   prize FROM quotes", "              ^^^^^"]


def test_r49_a_value_that_cannot_be_decoded_ends_the_query_with_its_position(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a="1", b="{")
    view.barrier()
    with pytest.raises(DecodeError, match="prices/0/1"):
        view.sql("SELECT * FROM prices")


def test_r49_an_error_of_sql_is_told_although_an_earlier_query_met_such_a_value() -> None:
    world = World("memory", Path(), ExitStack())
    with world.view(value=JSON) as view:
        world.put(a="{")
        view.barrier()
        snapshot = view.snapshot()
        with pytest.raises(DecodeError):
            snapshot.sql("SELECT value FROM prices")
        with pytest.raises(SqlError, match="prise"):
            snapshot.sql("SELECT prise FROM prices")


@pytest.mark.parametrize(("missing", "extra"), [("pyarrow", "sql"), ("duckdb", "sql"), ("pyarrow", "arrow")])
def test_a_missing_package_is_named_with_its_extra(
    quotes: LiveMapping[Any], monkeypatch: pytest.MonkeyPatch, missing: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("lvq_kafka.tabular.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=f"needs the package {missing}") as error:
        _ = quotes.to_arrow() if extra == "arrow" else quotes.sql("SELECT 1")
    assert error.value.extra == extra


def test_r49_an_answer_says_that_it_may_be_old(quotes: LiveMapping[Any], memory_cluster: MemoryCluster) -> None:
    memory_cluster.disconnect()
    eventually(lambda: quotes.state == "disconnected")
    (doubt,) = quotes.sql("SELECT count(*) FROM quotes").doubts
    assert doubt.startswith("quotes may not be current: it is disconnected, and was last heard of ")
    memory_cluster.reconnect()


def test_r49_an_answer_says_that_a_queue_is_not_complete(quotes: LiveMapping[Any]) -> None:
    about = quotes.snapshot().about | {"state": "catching-up", "complete": False}
    answer = SqlAnswer(pa.table({}), {"quotes": about})
    assert answer.doubts == ["quotes is not complete yet: it is catching-up"]


def test_an_answer_goes_to_others_as_arrow(quotes: LiveMapping[Any]) -> None:
    answer = quotes.sql("SELECT key, key FROM quotes ORDER BY key")
    assert (
        pa.table(answer).column(1).to_pylist() == answer.to_arrow().read_all().column(0).to_pylist() == ["IBM", "MSFT"]
    )
    assert list(answer) == [("IBM", "IBM"), ("MSFT", "MSFT")]
    assert repr(answer) == "<SqlAnswer of quotes at {'0': 2}, caught-up: 2 rows>"


@pytest.mark.parametrize(
    ("arguments", "named", "option"),
    [
        ({"query": None}, "is not text", "query"),
        ({"query": "SELECT 1", "parameters": "IBM"}, "neither a list nor a mapping", "parameters"),
    ],
)
def test_wrong_arguments_of_a_query_are_named(
    quotes: LiveMapping[Any], arguments: dict[str, Any], named: str, option: str
) -> None:
    with pytest.raises(ConfigError, match=named) as error:
        quotes.sql(**arguments)
    assert error.value.options == (option,)


def test_other_tables_are_views_or_snapshots_of_other_queues(quotes: LiveMapping[Any]) -> None:
    with pytest.raises(ConfigError, match="others"):
        quotes.sql("SELECT 1", {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Two of these are of one name, quotes"):
        quotes.sql("SELECT 1", quotes.snapshot())


def test_a_closed_view_answers_no_query(quotes: LiveMapping[Any]) -> None:
    quotes.close()
    with pytest.raises(Closed):
        quotes.sql("SELECT 1")
