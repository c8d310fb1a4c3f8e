"""``lvq`` with groups of messages (R36)."""

from __future__ import annotations

import pytest

from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_write_commands import lines, stored


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def orders(run: Run) -> Run:
    """Return ``run``, with a queue ``orders`` that is placed by its groups, the customers."""
    options = "-k id --groups sticky --group-header customer --place-by group --partitions 5"
    assert run("declare", "orders", *options.split()).code == 0
    return run


def place(group: str) -> int:
    return home_partition(group.encode(), 5)


def test_r36_declare_makes_groups_and_lists_them(run: Run) -> None:
    row = run("declare", "q", "-k", "id", "--groups", "shared", "--default-group", "rest").row
    assert row["groups"] == {"header": "lvq-group", "mode": "shared", "default": "rest", "placement": "key"}
    assert row["findings"] == []
    by_group = run("declare", "p", "-k", "id", "--group-header", "JMSXGroupID", "--place-by", "group").row
    assert by_group["groups"] == {"header": "JMSXGroupID", "mode": "sticky", "placement": "group"}
    assert [listed["groups"] for listed in run("queues").rows] == [by_group["groups"], row["groups"]]
    shown = run("queues", person=True).text
    assert "sticky, by header JMSXGroupID, placed by group" in shown
    assert "shared, by header lvq-group" in shown
    assert "; groups: shared, by header lvq-group" in run("stats", "q", person=True).text
    assert run("stats", "p").row["groups"] == by_group["groups"]


def test_r36_declare_and_stats_say_that_groups_lie_in_several_partitions(run: Run) -> None:
    declared = run("declare", "q", "-k", "id", "--groups", "sticky", "--partitions", "3")
    assert (declared.code, declared.row["findings"][0]["setting"]) == (0, "groups")
    assert "Place messages by group (--place-by group)" in declared.row["findings"][0]["remedy"]
    assert "Place messages by group (--place-by group)" in declared.stderr
    looked = run("stats", "q")
    assert (looked.code, [finding["setting"] for finding in looked.row["findings"]]) == (0, ["groups"])


def test_r36_options_of_other_brokers_declare_groups(run: Run) -> None:
    legacy = "-o lvqKey=id -o messageGroupType=SHARED_GROUPS -o messageGroupDefaultGroup=d"
    assert run("declare", "q", *legacy.split()).row["groups"] == {
        "header": "JMSXGroupID",
        "mode": "shared",
        "default": "d",
        "placement": "key",
    }


def test_r36_messages_are_sent_to_the_partition_of_their_group(orders: Run, memory_cluster: MemoryCluster) -> None:
    some = lines({"key": "b", "value": "1"}, {"key": "c", "value": "1", "headers": {"customer": "own"}})
    assert orders("put", "orders", "a", "1", "--group", "ann").code == 0
    assert orders("send", "orders", "1", "-H", "id=z", "--group", "ann").code == 0
    assert orders("put", "orders", "--from-jsonl", "-", "--group", "ann", stdin=some).code == 0
    found = {
        record.key: (dict(record.headers)["customer"], record.partition) for record in memory_cluster.records("orders")
    }
    ann = (b"ann", place("ann"))
    assert found == {b"a": ann, b"z": ann, b"b": ann, b"c": (b"own", place("own"))}
    assert "customer: ann" in orders("browse", "orders", person=True).text.replace("=", ": ")


def test_r36_deletes_go_where_the_value_is(orders: Run, memory_cluster: MemoryCluster) -> None:
    assert orders("put", "orders", "a", "1", "--group", "ann").code == 0
    assert orders("put", "orders", "b", "1").code == 0
    refused = orders("delete", "orders", "a")
    assert refused.code == 2
    assert "The delete of 'a' needs the group of its value" in refused.stderr
    assert "Pass --group; or, for a value without a group, --no-group" in refused.stderr
    assert orders("delete", "orders", "a", "--group", "ann").code == 0
    assert orders("delete", "orders", "b", "--no-group").code == 0
    assert [record.partition for record in memory_cluster.records("orders") if record.value is None] in (
        [place("ann"), place("b")],
        [place("b"), place("ann")],
    )
    assert orders("stats", "orders").row["values"] == 0


def test_r36_stats_name_the_keys_whose_group_has_changed(orders: Run) -> None:
    for group in ("ann", "bob"):
        assert orders("put", "orders", "a", "1", "--group", group).code == 0
    assert place("ann") != place("bob")
    looked = orders("stats", "orders")
    assert looked.row["split_keys"] == ["a"]
    assert "1 key in several partitions (a): their group has changed" in orders("stats", "orders", person=True).text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["declare", "q", "-k", "id", "--groups", "sticky", "--default-group", "d"],
            "default-group is for shared groups",
        ),
        (["declare", "q", "-k", "id", "--groups", "both"], "'both' is not one of"),
        (["declare", "q", "-k", "id", "--groups", "sticky", "-o", "groups=shared"], "--groups and -o groups"),
        (["declare", "q", "-k", "id", "-o", "group-buckets=8"], "-o group-buckets=8 is not possible"),
        (["put", "orders", "a", "1", "--group", " "], "--group must be text that is not blank"),
        (["put", "orders", "a", "1", "--group", "g", "-H", "lvq-group=g"], "named by another one"),
        (["put", "orders", "a", "1", "--group", "g", "-H", "customer=h"], "--group and the header customer"),
        (["put", "orders", "a", "1", "--group", "g", "-H", "JMSXGroupID=h"], "--group and the header JMSXGroupID"),
        (["delete", "orders", "a", "--group", "g", "--no-group"], "mutually exclusive"),
    ],
)
def test_r36_options_that_make_no_sense_are_refused(orders: Run, arguments: list[str], said: str) -> None:
    refused = orders(*arguments)
    assert refused.code == 2
    assert said in refused.stderr


def test_r22_a_queue_without_groups_takes_none(run: Run, memory_cluster: MemoryCluster) -> None:
    assert run("declare", "q", "-k", "id").code == 0
    refused = run("put", "q", "a", "1", "--group", "g")
    assert refused.code == 2
    assert "'lvq-group' is reserved" in refused.stderr
    assert stored(memory_cluster, "q") == []
