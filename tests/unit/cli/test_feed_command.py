"""`lvq feed`: the shell's view of feeding a queue from a topic (R29)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run

FTL = ("--key-header", "Symbol", "--non-destructive", "--selector", "Exchange = 'NYSE'")


@pytest.fixture
def ticker(run: Run, memory_cluster: MemoryCluster) -> Run:
    memory_cluster.topics.create("trades", partitions=1, config={})
    assert run("declare", "ticker", *FTL).code == 0
    return run


def trade(cluster: MemoryCluster, **fields: Any) -> None:
    cluster.write("trades", None, json.dumps(fields).encode())


def test_r29_lvq_feed_writes_its_numbers_as_a_line_of_json(ticker: Run, memory_cluster: MemoryCluster) -> None:
    trade(memory_cluster, Symbol="IBM", Exchange="NYSE")
    trade(memory_cluster, Symbol="IBM", Exchange="LSE")
    memory_cluster.write("trades", None, b"no JSON")
    ran = ticker("feed", "trades", "ticker", "--until-end")
    assert ran.code == 0, ran.stderr
    assert ran.row == {"queue": "ticker", "source": "trades", "read": 3, "fed": 1, "unselected": 1, "unreadable": 1,
                       "refused": 0}  # fmt: skip
    assert "trades/0/2 is left out of ticker" in ran.stderr
    assert ticker("get", "ticker", "IBM").row["value"] == '{"Symbol": "IBM", "Exchange": "NYSE"}'
    assert ticker("feed", "trades", "ticker", "--until-end").row["read"] == 0


def test_lvq_feed_tells_a_person_what_was_fed(ticker: Run, memory_cluster: MemoryCluster) -> None:
    trade(memory_cluster, Symbol="IBM", Exchange="NYSE")
    trade(memory_cluster, Symbol="IBM", Exchange="LSE")
    ran = ticker("feed", "trades", "ticker", "--until-end", person=True)
    assert ran.text == "✓ ticker was fed from trades: 1 message, 1 unselected\n"


def test_lvq_feed_asks_where_to_start_in_the_words_of_the_shell(ticker: Run, memory_cluster: MemoryCluster) -> None:
    trade(memory_cluster, Symbol="IBM", Exchange="NYSE")
    ticker("feed", "trades", "ticker", "--until-end")
    memory_cluster.groups.delete("lvq-feed.trades:ticker")
    ran = ticker("feed", "trades", "ticker", "--until-end")
    assert ran.code == 4
    assert "--start earliest feeds again" in ran.stderr
    assert ticker("feed", "trades", "ticker", "--until-end", "--start", "latest").row["read"] == 0


def test_lvq_feed_names_a_topic_or_queue_that_is_not_there(ticker: Run) -> None:
    assert "nothing" in ticker("feed", "nothing", "ticker", "--until-end").stderr
    assert "No queue nothing is declared" in ticker("feed", "trades", "nothing").stderr
    ran = ticker("feed", "ticker", "ticker")
    assert ran.code == 2
    assert "is the topic of the queue ticker itself" in ran.stderr


def test_r38_lvq_feed_sends_so_it_declares_the_queue_at_an_address_that_says_so(
    ticker: Run, memory_cluster: MemoryCluster
) -> None:
    trade(memory_cluster, Symbol="IBM", Exchange="LSE")
    arguments = "x-declare: {arguments: {'qpid.last_value_queue_key': Symbol}}"
    address = f"fed; {{create: sender, node: {{type: queue, {arguments}}}}}"
    ran = ticker("feed", "trades", address, "--until-end")
    assert ran.code == 0, ran.stderr
    assert (ran.row["queue"], ran.row["fed"]) == ("fed", 1)
