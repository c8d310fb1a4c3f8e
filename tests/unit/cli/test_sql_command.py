"""``lvq sql``: rows for programs and people, with the cut and the state that they are of (R49)."""

from __future__ import annotations

import pytest

from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run


@pytest.fixture
def quotes(run: Run) -> Run:
    """Return ``run``, with a queue ``quotes`` of JSON and a queue ``names`` of text."""
    assert run("declare", "quotes", "--key-header", "ticker").code == 0
    assert run("put", "quotes", "IBM", '{"price": 118.5}').code == 0
    assert run("put", "quotes", "MSFT", '{"price": 402}').code == 0
    assert run("declare", "names", "--key-header", "ticker").code == 0
    assert run("put", "names", "IBM", '"International Business Machines"').code == 0
    return run


def test_r49_rows_are_lines_and_the_last_line_has_the_cut(quotes: Run) -> None:
    *rows, end = quotes("sql", "SELECT key, value.price FROM quotes ORDER BY key", "quotes", "--format", "json").rows
    assert rows == [{"key": "IBM", "price": 118.5}, {"key": "MSFT", "price": 402.0}]
    assert (end["event"], end["rows"]) == ("end-of-rows", 2)
    (about,) = end["queues"]
    assert (about["queue"], about["offsets"], about["state"], about["complete"]) == (
        "quotes",
        {"0": 2},
        "caught-up",
        True,
    )


def test_r49_several_queues_are_joined(quotes: Run) -> None:
    query = "SELECT n.value, q.value.price FROM quotes q JOIN names n USING (key)"
    row, end = quotes("sql", query, "quotes", "names", "--format", "json").rows
    assert row == {"value": "International Business Machines", "price": 118.5}
    assert [about["queue"] for about in end["queues"]] == ["quotes", "names"]


def test_r49_a_person_sees_a_table_and_the_cut(quotes: Run) -> None:
    ran = quotes("sql", "SELECT key, value FROM queue ORDER BY key", "quotes", person=True)
    assert [line.split() for line in ran.text.splitlines()] == [
        ["key", "value"],
        ["IBM", '{"price":', "118.5}"],
        ["MSFT", '{"price":', "402}"],
    ]
    assert ran.stderr == "2 rows; quotes caught-up at offset 2 of partition 0\n"


def test_every_type_of_sql_has_a_form_in_json(quotes: Run) -> None:
    query = (
        "SELECT 1.5 AS a, 2::DECIMAL(9,2) AS b, 12345678901234567890123456789.5 AS c, 'nan'::DOUBLE AS d, "
        "DATE '2026-11-29' AS e, TIMESTAMPTZ '2026-11-29 20:00:00+00' AS f, [1, NULL] AS g, {'x': 'y'} AS h, "
        "'\\xFF'::BLOB AS i, NULL AS j, true AS k, 170141183460469231731687303715884105727 AS l, sum(2) AS m, 1 AS m"
    )
    row, _ = quotes("sql", query, "quotes").rows
    assert row == {
        "a": 1.5,
        "b": 2,
        "c": "12345678901234567890123456789.5",
        "d": None,
        "e": "2026-11-29",
        "f": "2026-11-29T20:00:00+00:00",
        "g": [1, None],
        "h": {"x": "y"},
        "i": {"base64": "/w=="},
        "j": None,
        "k": True,
        "l": 170141183460469231731687303715884105727,
        "m": 2,
        "m_1": 1,
    }


def test_r49_types_that_arrow_has_none_for_are_text(quotes: Run) -> None:
    query = """SELECT '12:00:00+01'::TIMETZ AS "a""b", '101'::BIT AS b, 1 AS b FROM quotes LIMIT 1"""
    assert quotes("sql", query, "quotes").rows[0] == {'a"b': "12:00:00+01", "b": "101", "b_1": 1}


@pytest.mark.parametrize(
    "value",
    [
        "to_timestamp(1732205000123)",
        "'infinity'::TIMESTAMP",
        "TIMESTAMP_S 'infinity'",
        "DATE '-5000-01-01'",
        "[DATE 'infinity']",
    ],
)
@pytest.mark.parametrize("person", [False, True])
def test_r49_a_time_that_python_cannot_hold_is_an_error_of_sql(quotes: Run, value: str, person: bool) -> None:
    ran = quotes("sql", f"SELECT {value} AS at FROM quotes", "quotes", person=person)
    assert ran.code == 2
    assert ran.stderr.startswith("lvq: The column 'at' has a value of the type ")
    assert "Cast it to VARCHAR" in ran.stderr
    assert quotes("sql", f"SELECT ({value})::VARCHAR AS at FROM quotes", "quotes").code == 0


def test_r49_an_error_of_sql_is_one_of_usage_with_its_place(quotes: Run) -> None:
    ran = quotes("sql", "SELECT prize FROM quotes", "quotes")
    assert ran.code == 2
    first, *excerpt = ran.stderr.splitlines()
    assert first.startswith('lvq: Referenced column "prize" not found in FROM clause!')
    assert excerpt == ["    LINE 1: SELECT prize FROM quotes", "                   ^^^^^"]
    assert quotes("sql", "DROP VIEW quotes", "quotes").code == 2
    assert quotes("sql", "SELECT 1", "nothing").code == 4


def test_r49_a_value_that_is_not_json_is_null_with_its_bytes_beside(quotes: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.write("quotes", b"bad", b"{")
    query = "SELECT key, value_raw FROM quotes WHERE value IS NULL"
    row, _ = quotes("sql", query, "quotes", "--format", "json").rows
    assert row == {"key": "bad", "value_raw": "{"}
