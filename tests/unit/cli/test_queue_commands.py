from __future__ import annotations

import re
import time
import warnings
from typing import Any

import click
import pytest

from lvq_kafka import QueueDefinition
from lvq_kafka.errors import Unauthorized
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run

NO_OPTIONS = {
    "ttl": None,
    "expiry_topic": None,
    "selector": None,
    "default_filters": None,
    "max_delay": None,
    "conflate": True,
    "priorities": None,
    "sort_header": None,
    "groups": None,
    "limits": None,
    "from_settings": None,
    "max_deliveries": None,
    "dead_letters": None,
    "format": None,
}
DEFAULTS = {"keyless": "pass", "order": "tail", "key_mismatch": "record", "non_destructive": False, **NO_OPTIONS}


def test_declare_says_what_it_created_and_next_time_that_all_is_there(run: Run) -> None:
    ran = run("declare", "prices", "-k", "ticker", "--partitions", "3")
    assert ran.code == 0
    assert ran.row == {
        "name": "prices",
        "topic": "prices",
        "key_header": "ticker",
        **DEFAULTS,
        "created_queue": True,
        "created_topic": True,
        "findings": [],
        "reconciled": [],
        "unchecked": [],
    }
    again = run("declare", "prices", "-k", "ticker").row
    assert (again["created_queue"], again["created_topic"]) == (False, False)


def test_declare_takes_every_property_of_a_queue(run: Run, memory_cluster: MemoryCluster) -> None:
    options = "-k id --topic t --order in-place --keyless refuse --key-mismatch fail --non-destructive --partitions 2"
    row = run("declare", "q", *options.split(), "--topic-config", "segment.ms=1000").row
    assert (row["topic"], row["order"], row["keyless"], row["key_mismatch"]) == ("t", "in-place", "refuse", "fail")
    assert row["non_destructive"] is True
    assert memory_cluster.topics.describe("t").partitions == 2
    assert memory_cluster.topics.config("t")["segment.ms"] == "1000"


def test_declare_takes_the_options_of_time(run: Run, memory_cluster: MemoryCluster) -> None:
    row = run("declare", "q", "--record-key", "--default-ttl", "60", "--max-ttl", "3600").row
    assert row["ttl"] == {"default_ms": 60_000, "maximum_ms": 3_600_000}
    assert (row["key_header"], row["findings"]) == (None, [])
    config = memory_cluster.topics.config("q")
    assert (config["cleanup.policy"], config["retention.ms"]) == ("compact,delete", "7200000")
    assert run("declare", "own", "-k", "id", "--ttl").row["findings"][0]["setting"] == "ttl"
    assert run("put", "own", "a", "1", "--ttl", "1.5").code == 0
    (record,) = memory_cluster.records("own")
    assert dict(record.headers)["lvq-ttl"] == b"1500"
    assert "TTL: 60 s by default, 3,600 s at most" in run("stats", "q", person=True).text
    assert "as messages say" in run("queues", person=True).text
    refused = run("declare", "q2", "-k", "id", "--min-ttl", "5", "--max-ttl", "4")
    assert refused.code == 2
    assert "--min-ttl 5 exceeds --max-ttl 4" in refused.stderr


def test_declare_lets_messages_be_scheduled(run: Run, memory_cluster: MemoryCluster) -> None:
    row = run("declare", "q", "--record-key", "--max-delay", "3600").row
    assert (row["max_delay"], row["findings"]) == ({"ms": 3_600_000}, [])
    assert memory_cluster.topics.config("q")["min.compaction.lag.ms"] == "3660000"
    (listed,) = run("queues").rows
    assert listed["max_delay"] == {"ms": 3_600_000}
    assert "up to 3,600 s ahead" in run("queues", person=True).text
    assert "; scheduled up to 3,600 s ahead" in run("stats", "q", person=True).text
    assert run("declare", "p", "-k", "id", "-o", "max-delay=0.5", "-o", "holdOnPublishEnabled=true").row[
        "max_delay"
    ] == {"ms": 500}
    assert run("declare", "plain", "-k", "id").row["max_delay"] is None


def test_lvq_says_that_a_topic_compacts_too_soon_for_scheduled_messages(
    run: Run, memory_cluster: MemoryCluster
) -> None:
    assert run("declare", "q", "-k", "id", "--max-delay", "60").code == 0
    memory_cluster.topics.alter_config("q", {"min.compaction.lag.ms": "0"})
    looked = run("stats", "q")
    assert looked.code == 4
    assert looked.row["findings"][0]["setting"] == "min.compaction.lag.ms"
    assert "min.compaction.lag.ms is 0, not 120000: else compaction removes the value that counts" in looked.stderr
    refused = run("declare", "q", "-k", "id", "--max-delay", "60")
    assert refused.code == 4
    assert "goes dark" in refused.stderr
    mended = run("declare", "q", "-k", "id", "--max-delay", "60", "--on-mismatch", "reconcile").row
    assert [found["setting"] for found in mended["reconciled"]] == ["min.compaction.lag.ms"]
    assert run("stats", "q").code == 0


def test_stats_of_a_bare_topic_need_no_registry(run: Run, memory_cluster: MemoryCluster) -> None:
    assert run("declare", "q", "-k", "id").code == 0
    memory_cluster.fail_next("logs.start_offsets", Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED"))
    looked = run("stats", "--bare", "--key-header", "id", "q")
    assert (looked.code, looked.row["findings"]) == (0, [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max-delay", "0"], "--max-delay 0 is not a number of seconds from 0.001"),
        (["--max-delay", "nan"], "'nan' is not a valid number of seconds"),
        (["--max-delay", "soon"], "'soon' is not a valid number of seconds"),
        (["-o", "holdOnPublishEnabled=true"], "-o holdOnPublishEnabled=true needs --max-delay"),
        (["--max-delay", "5", "-o", "max-delay=5"], "--max-delay and -o max-delay are both given"),
        (
            ["--max-delay", "5", "--topic-config", "min.compaction.lag.ms=0"],
            "min.compaction.lag.ms=0 and max_delay=5 exclude each other",
        ),
    ],
)
def test_declare_refuses_delays_that_cannot_be(run: Run, arguments: list[str], said: str) -> None:
    ran = run("declare", "q", "-k", "id", *arguments)
    assert ran.code == 2
    assert said in ran.stderr
    assert run("queues").rows == []


def test_declare_takes_what_selects(run: Run) -> None:
    selecting = ["--selector", "exchange = 'NYSE'", "--default-selector", "price > 5", "--default-replay-period", "60"]
    row = run("declare", "q", "-k", "id", *selecting).row
    assert row["selector"] == "exchange = 'NYSE'"
    assert row["default_filters"] == {"replay_period_ms": 60_000, "selector": "price > 5"}
    assert run("declare", "q", "-k", "id", "-o", "selector=exchange = 'NYSE'").code == 4, "it differs"
    assert run("declare", "p", "--record-key", *selecting).row["selector"] == "exchange = 'NYSE'"
    assert "exchange = 'NYSE'" in run("queues", person=True).text
    sent = [("a", "NYSE", "6"), ("b", "NYSE", "4"), ("c", "LSE", "9")]
    for key, exchange, price in sent:
        run("put", "q", key, "1", "-H", f"exchange={exchange}", "-H", f"price={price}")
    assert [row["key"] for row in run("browse", "q").rows[:-1]] == ["a"]
    assert [row["key"] for row in run("browse", "q", "--no-default-filters").rows[:-1]] == ["a", "b"]
    assert [row["key"] for row in run("export", "q").rows[1:]] == ["a", "b"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--selector", "exchange =", "The --selector is wrong at column 11"),
        ("--selector", "", "--selector '' is empty"),
        ("--default-selector", "exchange =", "The --default-selector is wrong at column 11"),
        ("--default-replay-period", "-5", "not -5.0"),
    ],
)
def test_declare_refuses_what_cannot_select(run: Run, option: str, value: str, said: str) -> None:
    ran = run("declare", "q", "-k", "id", option, value)
    assert ran.code == 2
    assert said in ran.stderr
    assert run("queues").rows == []


def test_a_queue_with_record_keys_may_have_the_name_of_a_reserved_header(run: Run) -> None:
    row = run("declare", "lvq-ttl", "--record-key").row
    assert (row["name"], row["key_header"]) == ("lvq-ttl", None)


def test_declare_takes_options_by_the_names_of_other_brokers(run: Run) -> None:
    row = run("declare", "q", "-o", "qpid.last_value_queue_key=id", "-o", "ensureNondestructiveConsumers=true").row
    assert (row["key_header"], row["non_destructive"]) == ("id", True)


def test_the_record_key_can_be_the_key(run: Run) -> None:
    assert run("declare", "q", "--record-key", "--order", "in-place").row["key_header"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["q"], "--record-key if it is the record key"),
        (["q", "-o", "order=tail"], "needs the name of its key header"),
        (["q", "-k", ""], "needs the name of its key header"),
        (["q", "-o", "last-value-key"], "NAME=VALUE"),
        (["q", "-k", "id", "-o", "last-value=false"], "last-value=false"),
        (["q", "-k", "id", "-o", "qpid.priorities=10"], "Say --order priority to have both"),
        (["q", "-k", "id", "-o", "qpid.paging=true"], "is not possible here: there is no paging of whole queues"),
        (["q", "-k", "id", "--priorities", "5", "-o", "priorities=5"], "both given"),
        (
            ["q", "-k", "id", "--order", "sorted", "--priorities", "5"],
            "--order sorted and --priorities (for",
        ),
        (
            ["q", "-k", "id", "--order", "priority", "--sort-header", "a"],
            "--order priority and --sort-header (",
        ),
        (["q", "-k", "id", "--order", "priority", "--priorities", "11"], "whole number from 2 to 10"),
        (["q", "-k", "id", "-o", "ordre=tail"], "Did you mean order"),
        (["q", "-k", "id", "--order", "tail", "-o", "order=tail"], "both given"),
        (["q", "-k", "id", "-o", "order=tail", "-o", "order=in-place"], "order is given twice"),
        (["q", "-k", "id", "--topic-config", "a=1", "--topic-config", "a=2"], "a is given twice"),
        (["q", "-k", "id", "--record-key"], "mutually exclusive"),
        (["q", "--record-key", "-o", "order=tail"], "mutually exclusive"),
        (["q", "-k", "id", "--order", "random"], "tail"),
        (["q", "-k", "id", "--partitions", "0"], "partitions"),
        (["bad name", "-k", "id"], "cannot be the name"),
    ],
)
def test_a_declaration_that_cannot_be_is_an_error_of_usage(run: Run, arguments: list[str], said: str) -> None:
    ran = run("declare", *arguments)
    assert ran.code == 2
    assert said in ran.stderr
    assert run("queues").rows == []


def test_another_declaration_of_the_same_queue_is_refused(prices: Run) -> None:
    ran = prices("declare", "prices", "-k", "symbol")
    assert ran.code == 4
    assert "ticker" in ran.stderr
    assert "symbol" in ran.stderr


def test_a_topic_that_does_not_suit_is_refused_told_or_mended(run: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "delete"})
    ran = run("declare", "t", "-k", "id")
    assert ran.code == 4
    assert "cleanup.policy" in ran.stderr

    warned = run("declare", "t", "-k", "id", "--on-mismatch", "warn")
    assert warned.code == 0
    (finding, *_) = warned.row["findings"]
    assert (finding["setting"], finding["actual"], finding["severity"]) == ("cleanup.policy", "delete", "error")
    assert finding["reason"]
    assert warned.stderr.count("cleanup.policy") == 1
    assert warned.stderr.startswith("lvq: warning: topic t: cleanup.policy")

    mended = run("declare", "t", "-k", "id", "--on-mismatch", "reconcile").row
    assert "cleanup.policy" in [finding["setting"] for finding in mended["reconciled"]]
    assert memory_cluster.topics.config("t")["cleanup.policy"] == "compact"


def test_a_person_reads_sentences(run: Run) -> None:
    text = run("declare", "prices", "-k", "ticker", person=True).text
    assert "✓ prices declared: the header ticker is the key" in text
    assert "✓ topic prices created with 1 partition" in text
    assert "exists and matches" in run("declare", "prices", "-k", "ticker", person=True).text


def test_a_number_of_partitions_that_is_not_so_is_told(run: Run) -> None:
    run("declare", "prices", "-k", "ticker")
    ran = run("declare", "prices", "-k", "ticker", "--partitions", "3", "--replication-factor", "2")
    assert ran.code == 0
    told = [(finding["setting"], finding["expected"], finding["actual"]) for finding in ran.row["findings"]]
    assert told == [("partitions", "3", "1"), ("replication_factor", "2", "1")]
    assert ran.stderr.startswith("lvq: warning: topic prices: partitions is 1, not 3: an existing topic keeps")
    assert "✓ prices is there: " in run("declare", "prices", "-k", "ticker", "--partitions", "3", person=True).text
    assert "and matches" in run("declare", "prices", "-k", "ticker", "--partitions", "1", person=True).text
    run("declare", "many", "-k", "ticker", "--partitions", "3")
    assert run("declare", "many", "-k", "ticker").row["findings"] == [], "nothing was asked for"


def test_queues_lists_what_is_declared(run: Run) -> None:
    assert run("queues").rows == []
    assert "No queue is declared" in run("queues", person=True).stderr
    run("declare", "b", "-k", "id", "--non-destructive")
    run("declare", "a", "--record-key")
    assert [row["name"] for row in run("queues").rows] == ["a", "b"]
    lines = run("queues", person=True).text.splitlines()
    assert lines[0].split()[:3] == ["QUEUE", "WAITING", "KEY"], "nothing waits, so nothing is the oldest"
    assert lines[1].split()[:5] == ["a", "0", "the", "record", "key"]
    assert lines[2].split()[-1] == "never"


def test_queues_shows_how_much_waits_in_each_and_for_how_long(run: Run, memory_cluster: MemoryCluster) -> None:
    run("declare", "jobs", "-k", "id")
    run("declare", "users", "-k", "id", "--non-destructive")
    begin = time.time()
    for key, value in (("a", "1"), ("b", "2"), ("a", "3")):
        run("put", "jobs", key, value)
    run("put", "users", "u", "1")
    jobs, users = run("queues").rows
    assert (jobs["waiting"], users["waiting"], users["oldest"]) == (2, None, None), "of each key the newest"
    assert begin - 1 < jobs["oldest"] < time.time() + 1
    assert re.search(r"jobs +2 +\d+ (?:s|min)", run("queues", person=True).text)
    assert "waiting" not in run("queues", "--definitions").rows[0]
    assert "WAITING" not in run("queues", "--definitions", person=True).text


def test_a_queue_that_cannot_be_measured_is_listed_and_warned_of(
    run: Run, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("declare", "a", "-k", "id")
    run("declare", "b", "-k", "id")
    memory_cluster.topics.delete("a")
    ran = run("queues")
    assert ran.code == 0
    assert [(row["name"], row["waiting"]) for row in ran.rows] == [("a", None), ("b", 0)]
    assert "warning: what waits in a is unknown: " in ran.stderr
    assert re.search(r"^a +\?", run("queues", person=True).text, re.MULTILINE)


def test_drop_deletes_a_queue_and_its_topic_only_when_asked(prices: Run, memory_cluster: MemoryCluster) -> None:
    assert prices("drop", "prices", "--yes").row == {"dropped": "prices", "topic": "prices", "topic_deleted": False}
    assert prices("queues").rows == []
    assert memory_cluster.records("prices")
    prices("declare", "prices", "-k", "ticker")
    assert prices("drop", "prices", "--with-topic", "-y").row["topic_deleted"] is True
    assert prices("get", "--bare", "prices", "IBM").code == 4


def test_drop_asks_and_takes_no_for_an_answer(prices: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = prices("drop", "prices")
    assert ran.code == 2
    assert "--yes" in ran.stderr
    answers = iter([False, True])
    monkeypatch.setattr("lvq_kafka.cli.confirm._can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: next(answers))
    ran = prices("drop", "prices")
    assert ran.code == 1
    assert "Nothing was deleted" in ran.stderr
    assert prices("drop", "prices").code == 0


def question(run: Run, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Return what a command asks before it does something."""
    asked: list[str] = []
    monkeypatch.setattr("lvq_kafka.cli.confirm._can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text))
    assert run(*arguments).code == 1
    (text,) = asked
    return text


def test_drop_says_that_what_was_consumed_comes_again(prices: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert question(prices, monkeypatch, "drop", "prices") == (
        "Its topic prices stays, and what was consumed comes again if the queue is declared again. "
        "Delete the queue prices?"
    )
    assert "again" not in question(prices, monkeypatch, "drop", "prices", "--with-topic")
    prices("declare", "boards", "--topic", "prices", "-k", "ticker", "--non-destructive")
    assert "again" not in question(prices, monkeypatch, "drop", "boards"), "nothing of it is ever consumed"

    assert prices("consume", "prices", "-n", "2", "--timeout", "10").code == 0
    assert prices("drop", "prices", "--yes").code == 0
    assert prices("declare", "prices", "-k", "ticker").code == 0
    assert len(prices("consume", "prices", "-n", "2", "--timeout", "10").rows) == 2, "it is as the question says"


def test_ctrl_c_at_the_question_deletes_nothing(prices: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> bool:
        raise click.Abort

    monkeypatch.setattr("lvq_kafka.cli.confirm._can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", interrupted)
    ran = prices("drop", "prices")
    assert (ran.code, ran.stdout, ran.stderr) == (130, b"", "")
    assert len(prices("queues").rows) == 1


def test_dropping_a_queue_that_is_not_there_is_an_error(run: Run) -> None:
    assert run("drop", "nope", "--yes").code == 4


def test_a_warning_of_python_is_a_line_of_lvq(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from_options = QueueDefinition.from_options

    def warned(*arguments: Any, **options: Any) -> QueueDefinition:
        warnings.warn("too late", UserWarning, stacklevel=1)
        return from_options(*arguments, **options)

    monkeypatch.setattr(QueueDefinition, "from_options", warned)
    ran = run("declare", "q", "-k", "id")
    assert ran.code == 0
    assert "lvq: warning: too late\n" in ran.stderr
    assert "UserWarning" not in ran.stderr


@pytest.mark.parametrize("width", [20, 30, 45, 59, 120])
def test_the_list_of_queues_fits_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    run("declare", "prices", "-k", "ticker")
    run("declare", "positions", "--record-key", "--topic", "app.positions.v2")
    monkeypatch.setenv("COLUMNS", str(width))
    ran = run("queues", person=True)
    head, *rows = ran.text.splitlines()
    assert [row.split()[0] for row in rows] == ["positions", "prices"], "a row for each, whole names"
    assert all(len(line) <= width for line in (head, *rows))
    assert ("WITHOUT KEY" in head) == (width == 120)
    assert ("hidden for lack of space: ORDER" in ran.stderr) == (width < 120)
