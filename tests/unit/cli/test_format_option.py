"""Commands that read and write values in the format that their queue was declared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run

PRICE = {"bid": 118.4}


@pytest.fixture
def quotes(run: Run) -> Run:
    """Return ``run``, with a queue ``quotes`` of JSON that holds IBM."""
    assert run("declare", "quotes", "-k", "ticker", "--format", "json").row["format"] == "json"
    assert run("put", "quotes", "IBM", '{"bid": 118.4}').code == 0
    return run


def test_r53_reading_commands_need_not_be_told_the_format(quotes: Run) -> None:
    assert quotes("get", "quotes", "IBM").row["value"] == PRICE
    for command in (["browse", "quotes"], ["export", "quotes"], ["consume", "quotes", "--count", "1"]):
        values = [row["value"] for row in quotes(*command).rows if "value" in row]
        assert values == [PRICE], command


def test_r53_sql_sees_the_fields_of_each_queue_that_has_json(quotes: Run) -> None:
    quotes("declare", "names", "-k", "ticker", "--format", "text")
    quotes("put", "names", "IBM", "Big Blue")
    query = "SELECT q.value.bid AS bid, n.value AS name FROM quotes q JOIN names n USING (key)"
    row = quotes("sql", query, "quotes", "names").rows[0]
    assert row == {"bid": 118.4, "name": "Big Blue"}


def test_r53_the_option_counts_before_the_declaration(quotes: Run) -> None:
    assert quotes("get", "quotes", "IBM", "--format", "text").row["value"] == '{"bid":118.4}'
    assert quotes("put", "quotes", "MSFT", "no JSON", "--format", "bytes").code == 0
    ran = quotes("get", "quotes", "MSFT")
    assert ran.row["undecodable"] == "no JSON"
    assert "json" in ran.stderr


def test_r53_a_value_of_another_format_is_not_written(quotes: Run, memory_cluster: MemoryCluster) -> None:
    ran = quotes("put", "quotes", "MSFT", "no JSON")
    assert (ran.code != 0, "The value is not JSON" in ran.stderr) == (True, True)
    assert [record.key for record in memory_cluster.records("quotes")] == [b"IBM"]


def test_r53_an_export_is_read_back_by_a_queue_of_the_same_format(quotes: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "quotes.jsonl")
    assert quotes("export", "quotes", file).code == 0
    quotes("declare", "copy", "-k", "ticker", "--format", "json")
    assert quotes("put", "copy", "--from-jsonl", file).code == 0
    assert quotes("get", "copy", "IBM").row["value"] == PRICE
    quotes("declare", "plain", "-k", "ticker")
    assert "Give --format json here too" in quotes("put", "plain", "--from-jsonl", file).stderr
    assert quotes("put", "plain", "--from-jsonl", file, "--format", "json").code == 0


def test_r53_a_queue_can_be_given_another_format(quotes: Run) -> None:
    assert quotes("alter", "quotes", "--format", "text").row["changes"] == {
        "format": {"before": "json", "after": "text"}
    }
    assert quotes("get", "quotes", "IBM").row["value"] == '{"bid":118.4}'
    assert quotes("alter", "quotes", "--unset", "format").row["changes"] == {
        "format": {"before": "text", "after": None}
    }
    assert quotes("declare", "quotes", "-k", "ticker", "--format", "json").code == 0, "as it once was"


def test_r53_json_that_lines_have_as_text_is_not_written_as_text_within_json(quotes: Run) -> None:
    quotes("declare", "plain", "-k", "ticker")
    quotes("put", "plain", "IBM", '{"bid": 1}')
    lines = quotes("browse", "plain").text
    ran = quotes("put", "quotes", "--from-jsonl", "-", stdin=lines)
    assert (ran.code != 0, "has JSON as text" in ran.stderr, "--format bytes" in ran.stderr) == (True, True, True)
    assert quotes("get", "quotes", "IBM").row["value"] == PRICE
    assert quotes("put", "quotes", "--from-jsonl", "-", "--format", "bytes", stdin=lines).code == 0
    assert quotes("get", "quotes", "IBM").row["value"] == {"bid": 1}
    assert quotes("put", "quotes", "--from-jsonl", "-", stdin='{"key": "A", "value": "[not JSON"}\n').code == 0
    assert quotes("get", "quotes", "A").row["value"] == "[not JSON"
