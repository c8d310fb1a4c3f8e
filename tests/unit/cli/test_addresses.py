"""Addresses of Qpid, Artemis and Broker-J in the place of a queue's name."""

from __future__ import annotations

import pytest

from lvq_kafka import LastValueQueue, queues
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run

CREATED = "prices; {create: always, node: {x-declare: {arguments: {lvqKey: ticker}}}}"
BROWSED = "prices; {mode: browse}"


def names(cluster: MemoryCluster) -> list[str]:
    return [definition.name for definition in queues(cluster=cluster)]


def test_r38_a_command_that_sends_or_receives_declares_what_the_address_says(
    run: Run, memory_cluster: MemoryCluster
) -> None:
    assert run("put", CREATED, "IBM", "118.50").code == 0
    assert run("send", CREATED, "27.95", "-H", "ticker=MSFT").code == 0
    assert [row["key"] for row in run("browse", BROWSED).rows if "key" in row] == ["IBM", "MSFT"]
    assert run("get", BROWSED, "IBM", "--raw").text == "118.50"
    assert run("export", CREATED).rows[0]["queue"] == "prices"
    assert run("consume", CREATED, "--count", "1").row["key"] == "IBM"
    assert run("delete", CREATED, "MSFT").row["key"] == "MSFT"
    assert names(memory_cluster) == ["prices"]


@pytest.mark.parametrize("command", ["browse", "export", "get", "consume"])
def test_r38_each_command_that_receives_declares_a_missing_queue(
    run: Run, memory_cluster: MemoryCluster, command: str
) -> None:
    more = {"get": ["IBM"], "consume": ["--timeout", "0"]}.get(command, [])
    assert run(command, CREATED, *more).code in (0, 1)
    assert names(memory_cluster) == ["prices"]


@pytest.mark.parametrize(
    "command",
    [
        ("stats", CREATED),
        ("purge", CREATED, "--yes"),
        ("expire", CREATED, "--older-than", "0", "--yes"),
        ("reset", CREATED, "--to", "earliest", "--yes"),
        ("move", CREATED, "other", "--yes"),
        ("move", "other", CREATED, "--yes"),
        ("repair", CREATED),
        ("reclaim", CREATED, "--yes"),
        ("drop", CREATED, "--yes"),
        ("delete", CREATED, "IBM"),
    ],
    ids=lambda command: "-".join(command[::4]),
)
def test_r38_a_command_that_manages_a_queue_never_declares_it(
    run: Run, memory_cluster: MemoryCluster, command: tuple[str, ...]
) -> None:
    LastValueQueue.declare("other", key_header="ticker", cluster=memory_cluster)
    ran = run(*command)
    assert (ran.code, names(memory_cluster)) == (4, ["other"])
    assert ran.stderr.startswith("lvq: No queue prices is declared.")


def test_a_command_that_manages_a_queue_takes_its_address_and_reports_its_name(prices: Run) -> None:
    assert prices("stats", CREATED).row["name"] == "prices"
    assert prices("purge", CREATED, "--key", "IBM", "--yes").row["purged"] == "prices"
    assert prices("expire", CREATED, "--older-than", "1000", "--yes").row["expired"] == "prices"
    assert prices("reset", CREATED, "--to", "earliest", "--yes").row["reset"] == "prices"
    assert prices("repair", CREATED).row["repair"] == "prices"
    prices("declare", "copies", "--key-header", "ticker")
    moved = prices("move", CREATED, "copies; {}", "--yes").row
    assert (moved["moved"], moved["to"]) == ("prices", "copies")
    assert prices("drop", BROWSED, "--yes").row["dropped"] == "prices"


def test_a_command_that_manages_a_queue_refuses_an_address_that_selects(prices: Run) -> None:
    for command in (("stats",), ("purge", "--yes"), ("drop", "--yes")):
        ran = prices(*command, "prices; {link: {selector: 'a = 1'}}")
        assert ran.code == 2
        assert ran.stderr.startswith("lvq: Column 27 of the address: The address selects messages")
        assert "^" in ran.stderr
    assert prices("get", "prices", "IBM").code == 0


def test_a_command_that_reads_selects_as_its_address_says(prices: Run) -> None:
    selecting = "prices; {link: {selector: \"exchange = 'NYSE'\"}}"
    assert [row["key"] for row in prices("browse", selecting).rows if "key" in row] == ["IBM"]
    assert [row["key"] for row in prices("export", selecting).rows if "key" in row] == ["IBM"]
    assert prices("get", selecting, "MSFT").code == 1
    ran = prices("consume", selecting, "--timeout", "0")
    assert (ran.code, ran.stderr.splitlines()[0][:38]) == (2, "lvq: Column 27 of the address: A consu")
    assert prices("consume", BROWSED).stderr.startswith("lvq: Column 16 of the address: The address is for browsing")


def test_r38_a_queue_that_differs_from_its_address_is_used_with_one_warning(prices: Run) -> None:
    ran = prices("put", "prices?last-value-key=code", "GE", "1")
    assert ran.code == 0
    assert ran.stderr == (
        "lvq: warning: The queue prices is not as its address says: it is declared with --key-header 'ticker' "
        "(requested: 'code'). It is used as it is.\n"
    )
    asserted = prices("put", "prices; {assert: sender, node: {x-declare: {arguments: {lvqKey: code}}}}", "GE", "2")
    assert asserted.code == 4
    assert prices("get", "prices", "GE", "--raw").text == "1"


def test_declare_takes_an_address_that_says_all_of_it(run: Run, memory_cluster: MemoryCluster) -> None:
    assert run("declare", "stock::prices?last-value-key=ticker&non-destructive=true").row["topic"] == "stock"
    (definition,) = queues(cluster=memory_cluster)
    assert (definition.name, definition.key_header, definition.non_destructive) == ("prices", "ticker", True)
    assert run("declare", "prices?last-value-key=ticker", "--non-destructive").code == 2
    assert run("declare", "orders; {mode: browse}", "--key-header", "id").row["name"] == "orders"
    ran = run("declare", "orders?last-value-kex=id")
    assert ran.stderr.startswith("lvq: Column 8 of the address: last-value-kex is not a queue option.")


def test_an_address_with_a_password_is_refused_and_not_repeated(run: Run) -> None:
    for command in ("put", "stats", "drop", "declare"):
        ran = run(command, "amqp://guest:s3cret@broker/prices", *(["a", "1"] if command == "put" else []))
        assert ran.code == 2
        assert "s3cret" not in ran.text + ran.stderr
        assert "holds a user or a password" in ran.stderr


def test_a_bare_topic_has_no_address(run: Run) -> None:
    ran = run("get", "prices; {mode: browse}", "IBM", "--bare")
    assert (ran.code, "cannot be the name of a queue" in ran.stderr) == (2, True)
