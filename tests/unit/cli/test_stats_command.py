from __future__ import annotations

import re
from random import Random
from typing import Any, get_args

import pytest

from lvq_kafka import LastValueQueue, Limits
from lvq_kafka.cli.commands.stats import _REMEDIES
from lvq_kafka.core.facts import Depth
from lvq_kafka.core.queue.limits import OverflowPolicy
from lvq_kafka.errors import Unauthorized
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.unit.managing import overwrite, said
from tests.waiting import eventually


def test_status_tells_the_definition_what_it_holds_and_what_waits(run: Run) -> None:
    run("declare", "prices", "-k", "ticker", "--partitions", "2")
    for key in ("IBM", "MSFT", "AAPL", "IBM"):
        run("put", "prices", key, "1")
    run("delete", "prices", "AAPL")
    row = run("stats", "prices").row
    assert (row["name"], row["topic"], row["key_header"], row["group"]) == ("prices", "prices", "ticker", "lvq.prices")
    assert (row["state"], row["values"], row["waiting"]) == ("caught-up", 2, 2)
    assert [partition["partition"] for partition in row["partitions"]] == [0, 1]
    assert sum(partition["end"] for partition in row["partitions"]) == 5
    assert sum(partition["values"] for partition in row["partitions"]) == 2
    assert all(partition["consumed"] == 0 for partition in row["partitions"])
    assert row["problems"] == row["findings"] == row["split_keys"] == row["blocked"] == []
    run("consume", "prices", "--timeout", "0.2")
    row = run("stats", "prices").row
    assert (row["values"], row["waiting"]) == (2, 0)
    assert [partition["consumed"] for partition in row["partitions"]] == [p["end"] for p in row["partitions"]]


def test_a_topic_that_breaks_promises_is_a_problem(run: Run, memory_cluster: MemoryCluster) -> None:
    run("declare", "prices", "-k", "ticker")
    memory_cluster.topics.alter_config("prices", {"cleanup.policy": "delete"})
    ran = run("stats", "prices")
    assert ran.code == 4
    assert ran.row["findings"][0]["setting"] == "cleanup.policy"
    assert "cleanup.policy" in ran.row["problems"][0]
    assert ran.stderr.startswith("lvq: prices has 1 problem: cleanup.policy is delete")


def test_a_group_that_is_gone_is_a_problem(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.groups.delete("lvq.prices")
    ran = prices("stats", "prices")
    assert ran.code == 4
    assert "lvq.prices" in ran.row["problems"][0]
    (damage,) = ran.row["damage"]
    assert (damage["kind"], damage["partitions"], damage["needs_start"]) == ("group-gone", [0], True)
    (partition,) = ran.row["partitions"]
    assert (partition["values"], partition["consumed"], partition["waiting"], partition["lag"]) == (2, None, None, None)
    assert (ran.row["waiting"], ran.row["oldest"], ran.row["consumers"]) == (None, None, None)
    lines = prices("stats", "prices", person=True).text
    assert "lvq repair prices --start earliest --apply" in " ".join(lines.split())
    assert " ? " in lines


def test_waiting_messages_are_counted_whatever_the_order_of_the_acks(
    prices: Run, memory_cluster: MemoryCluster
) -> None:
    prices("put", "prices", "AAPL", "1")
    prices("purge", "prices", "--key", "MSFT", "--yes")
    row = prices("stats", "prices").row
    assert (row["values"], row["waiting"], row["lag"], row["attempted"], row["consumers"]) == (3, 2, 3, 0, 0)
    (partition,) = row["partitions"]
    assert (partition["consumed"], partition["waiting"], partition["oldest"]) == (0, 2, row["oldest"])
    (first, *_) = memory_cluster.records("prices")
    assert row["oldest"] == first.timestamp / 1000


def test_a_commit_text_without_room_is_told(prices: Run, memory_cluster: MemoryCluster) -> None:
    for number in range(24_000):
        memory_cluster.write("prices", b"k%d" % number, b"1")
    queue, rng = LastValueQueue.open("prices", cluster=memory_cluster), Random(1)
    runs = [len(run) for run in re.findall("0+|1+", f"0{rng.getrandbits(23_500):023500b}1")]
    overwrite(queue, p0=said(queue, memory_cluster.logs.end_offsets("prices")[0] - 24_000, *runs))
    row = prices("stats", "prices").row
    assert row["crowded"] == [0]
    text = " ".join(prices("stats", "prices", person=True).text.split())
    assert "the commit text of partition 0 is full (" in text
    assert "of 4,095 characters): until lower messages are settled, acks are not stored" in text
    assert "max_deliveries" in text


def test_each_policy_that_can_be_breached_has_a_remedy() -> None:
    full = Depth(messages=2, bytes=2)
    breached = {policy for policy in get_args(OverflowPolicy) if Limits(policy=policy, messages=1).breach(full)}
    assert breached == set(_REMEDIES.keys())


@pytest.mark.parametrize(
    ("policy", "remedy"),
    [("none", "nothing is done"), ("ring", "start one"), ("reject", "refuse new keys"), ("block", "wait until")],
)
def test_a_breach_of_limits_is_a_problem(policy: Any, remedy: str, run: Run, memory_cluster: MemoryCluster) -> None:
    limits = Limits(policy=policy, messages=2, bytes=100)
    LastValueQueue.declare("prices", key_header="k", limits=limits, cluster=memory_cluster)
    for key in (b"a", b"b"):
        memory_cluster.write("prices", key, b"1")
    row = run("stats", "prices").row
    assert (row["bytes"], row["waiting"], row["problems"]) == (4, 2, [])
    text = " ".join(run("stats", "prices", person=True).text.split())
    assert f"limits: 2 messages and 100 bytes ({policy}), has 4 bytes" in text
    memory_cluster.write("prices", b"c", b"1")
    ran = run("stats", "prices")
    (problem,) = ran.row["problems"]
    assert ran.code == 4
    assert "It holds more than its limits allow: 3 messages where 2 are allowed." in problem
    assert remedy in problem


def test_a_breach_of_a_queue_that_is_not_consumed_is_a_problem(run: Run, memory_cluster: MemoryCluster) -> None:
    limits = Limits(policy="none", messages=1)
    LastValueQueue.declare("prices", key_header="k", limits=limits, non_destructive=True, cluster=memory_cluster)
    for key in (b"a", b"b"):
        memory_cluster.write("prices", key, b"1")
    ran = run("stats", "prices")
    assert (ran.code, ran.row["bytes"], len(ran.row["problems"])) == (4, 4, 1)


def test_messages_handed_out_before_and_active_consumers_are_shown(prices: Run, memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.open("prices", cluster=memory_cluster)
    with queue.consumer(commit_interval=0.01) as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        eventually(lambda: prices("stats", "prices").row["attempted"] == 1)
        text = " ".join(prices("stats", "prices", person=True).text.split())
        assert "1 active consumer; the oldest message is from " in text
        assert "1 may have been handed out before: in work or returned" in text


def test_the_fate_of_the_values_is_shown(prices: Run, memory_cluster: MemoryCluster) -> None:
    prices("purge", "prices", "--key", "MSFT", "--yes")
    for key in ("AAPL", "AAPL", "ORCL"):
        prices("put", "prices", key, "1")
    prices("delete", "prices", "ORCL")
    row = prices("stats", "prices").row
    assert row["tally"] == {"added": 5, "replaced": 1, "deleted": 1, "consumed": 1, "expired": 0, "scheduled": 0}
    assert (row["waiting"], row["redelivered"]) == (2, 0)
    text = prices("stats", "prices", person=True).text
    assert "of the newest 5 values 1 was replaced, 1 was deleted, 1 was consumed, 2 are left to consume" in text


def test_scheduled_messages_are_counted(run: Run) -> None:
    run("declare", "prices", "-k", "ticker", "--non-destructive", "--max-delay", "3600")
    run("put", "prices", "IBM", "1")
    run("put", "prices", "IBM", "2", "--delay", "600")
    row = run("stats", "prices").row
    assert (row["values"], row["scheduled"]) == (1, 1)
    assert "holds 1 value, 1 scheduled" in run("stats", "prices", person=True).text


def test_redeliveries_are_told_where_they_are_counted(prices: Run, memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.open("prices", cluster=memory_cluster)
    overwrite(queue, p0=said(queue, 0, delivered=2, counts={0: 3, 1: 2}))
    assert prices("stats", "prices").row["redelivered"] == 3
    assert "redelivered 3 times" in prices("stats", "prices", person=True).text


def test_softer_findings_and_strange_records_are_told_and_are_no_problem(
    prices: Run, memory_cluster: MemoryCluster
) -> None:
    memory_cluster.topics.alter_config("prices", {"message.timestamp.type": "CreateTime"})
    memory_cluster.topics.add_partitions("prices", 2)
    memory_cluster.write("prices", b"IBM", b"1", [("ticker", b"OTHER")], partition=0)
    memory_cluster.write("prices", b"IBM", b"1", partition=1)
    ran = prices("stats", "--bare", "prices", "--key-header", "ticker")
    assert ran.code == 0
    assert [finding["setting"] for finding in ran.row["findings"]] == ["message.timestamp.type"]
    assert ran.row["split_keys"] == ["IBM"]
    assert ran.row["mismatched"] == 1
    assert ran.row["group"] is None
    assert ran.row["waiting"] is None
    text = prices("stats", "--bare", "prices", "--key-header", "ticker", person=True).text
    assert "! message.timestamp.type is CreateTime" in text
    assert "1 key in several partitions (IBM)" in text
    assert "1 record whose key header differs from the record key" in text


def test_an_open_transaction_is_told_at_once(prices: Run, memory_cluster: MemoryCluster) -> None:
    writer = memory_cluster.writer(transactional_id="tx")
    writer.begin_transaction()
    writer.append("prices", b"IBM", b"120").result(5)
    row = prices("stats", "prices").row
    assert row["state"] == "blocked"
    assert row["blocked"] == [{"partition": 0, "open_since": 2, "target": 3}]
    assert "! some records are not visible" in prices("stats", "prices", person=True).text
    writer.abort_transaction()


def test_a_setting_that_this_user_may_not_see_is_mentioned(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.fail_next("topics.config", Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED"), 9)
    ran = prices("stats", "prices")
    assert ran.code == 0
    assert "may not read" in ran.row["unchecked"][0]


def test_a_person_reads_it_on_one_screen(prices: Run) -> None:
    lines = prices("stats", "prices", person=True).text.splitlines()
    assert lines[0] == "prices  holds 2 values, 2 left to consume"
    assert "the header ticker" in lines[1]
    assert "group lvq.prices" in lines[2]
    assert lines[3].startswith("no active consumer; the oldest message is from ")
    assert lines[4] == "of the newest 2 values 2 are left to consume"
    assert lines[6].split() == ["PARTITION", "START", "END", "VALUES", "CONSUMED", "TO", "CONSUME", "LAG"]
    assert lines[7].split() == ["0", "0", "2", "2", "0", "2", "2"]
    assert lines[8].startswith("LAG counts offsets from CONSUMED to END")
    assert lines[9] == ""
    assert lines[10] == "✓ its topic's settings suit a last value queue"


@pytest.mark.parametrize("width", [30, 45])
def test_the_partitions_fit_a_narrow_terminal(prices: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ran = prices("stats", "prices", person=True)
    lines = ran.text.splitlines()
    at = next(number for number, line in enumerate(lines) if "PARTITION" in line)
    assert "TO CONSUME" in lines[at]
    assert len(lines[at + 1].split()) == len(lines[at].replace("TO CONSUME", "TO_CONSUME").split())
    assert max(map(len, lines)) <= width
    assert "hidden for lack of space: START" in ran.stderr


def test_consumers_that_stand_by_are_told_of_with_what_helps(prices: Run, memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.open("prices", cluster=memory_cluster)
    with queue.consumer() as first, queue.consumer() as second:
        eventually(lambda: first.stats.partitions or second.stats.partitions)
        row = prices("stats", "prices").row
        assert (row["consumers"], row["standby"]) == (2, 1)
        told = " ".join(prices("stats", "prices", person=True).text.split())
        assert "! 2 members, 1 partition: 1 stands by. Share one consumer" in told
        for helps in ("workers=8", "consumer.session()", "more partitions"):
            assert helps in told
    row = prices("stats", "prices").row
    assert (row["consumers"], row["standby"]) == (0, 0)


def test_r20_r36_messages_are_counted_by_priority_and_group(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("declare", "jobs", "-k", "id", "--order", "priority", "--groups", "shared")
    for number, (priority, group) in enumerate([("9", "a"), ("9", "b"), ("4", "a"), ("0", "a")]):
        assert run("put", "jobs", str(number), "1", "--priority", priority, "-H", f"lvq-group={group}").code == 0
    row = run("stats", "jobs").row
    counted = row["waiting_by_priority"]
    assert {said: one["depth"] for said, one in counted.items() if one["depth"]} == {"9": 2, "4": 1, "0": 1}
    assert counted["5"] == {"depth": 0, "oldest": None}
    assert counted["9"]["oldest"] == row["oldest"] == row["oldest_in_group"]
    assert row["waiting_groups"] == 2
    monkeypatch.setenv("COLUMNS", "40")
    lines = run("stats", "jobs", person=True).text.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:1] == ["PRIORITY"])
    assert [line.split()[:2] for line in lines[head + 1 : head + 4]] == [["9", "2"], ["4", "1"], ["0", "1"]]
    assert "2 message groups to consume from" in " ".join(" ".join(lines).split())


def test_without_priorities_and_groups_stats_say_nothing_of_them(prices: Run) -> None:
    row = prices("stats", "prices").row
    assert (row["waiting_by_priority"], row["waiting_groups"], row["oldest_in_group"]) == ({}, None, None)
    text = prices("stats", "prices", person=True).text
    assert "PRIORITY" not in text
    assert "group to" not in text
