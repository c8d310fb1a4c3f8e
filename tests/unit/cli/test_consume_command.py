from __future__ import annotations

from pathlib import Path

import pytest

from lvq_kafka import LastValueQueue, Message
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.waiting import eventually


def left(run: Run, queue: str = "prices") -> list[str]:
    return [row["key"] for row in run("browse", queue).rows[:-1]]


def test_consume_takes_what_it_writes(prices: Run) -> None:
    ran = prices("consume", "prices", "--count", "2")
    assert ran.code == 0
    assert [(row["key"], row["value"], row["position"]) for row in ran.rows] == [
        ("IBM", "118.50", "prices/0/0"),
        ("MSFT", "402.10", "prices/0/1"),
    ]
    assert left(prices) == []


def test_consume_ends_after_a_count(prices: Run) -> None:
    assert [row["key"] for row in prices("consume", "prices", "-n", "1").rows] == ["IBM"]
    assert left(prices) == ["MSFT"]


def test_consume_ends_with_1_when_the_timeout_came_first(prices: Run) -> None:
    ran = prices("consume", "prices", "--count", "3", "--timeout", "0.2")
    assert ran.code == 1
    assert len(ran.rows) == 2
    assert "no further message arrived" in ran.stderr
    ran = prices("consume", "prices", "--timeout", "0.2")
    assert ran.code == 1
    assert ran.stdout == b""
    prices("put", "prices", "IBM", "1")
    assert prices("consume", "prices", "--timeout", "0.2").code == 0


def test_a_message_that_could_not_be_written_is_not_taken(prices: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", "stdout")

    with monkeypatch.context() as patch:
        patch.setattr("lvq_kafka.cli.output.Output.flush", fail)
        assert prices("consume", "prices", "--count", "1").code == 2
    assert left(prices) == ["IBM", "MSFT"]


def test_consume_writes_values_that_it_cannot_read_and_ends_with_5(prices: Run) -> None:
    prices("put", "prices", "bad", "{")
    ran = prices("consume", "prices", "--format", "json", "--timeout", "0.2")
    assert ran.code == 5
    assert [row.get("value", row.get("undecodable")) for row in ran.rows] == [118.5, 402.1, "{"]


def test_a_person_sees_a_table_and_how_many_there_were(prices: Run) -> None:
    ran = prices("consume", "prices", "--count", "2", person=True)
    assert [line.split()[0] for line in ran.text.splitlines()] == ["KEY", "IBM", "MSFT"]
    assert ran.stderr == "waiting for messages; Ctrl-C stops\n2 messages consumed\n"


def test_a_command_gets_each_message_and_takes_it_by_ending_with_0(prices: Run, tmp_path: Path) -> None:
    file = tmp_path / "got"
    command = f'(cat; echo " $LVQ_KEY $LVQ_POSITION $LVQ_TIMESTAMP $LVQ_HEADERS") >> {file}'
    assert prices("consume", "prices", "--count", "2", "--exec", command).code == 0
    first, second = (line.split(maxsplit=4) for line in file.read_text().splitlines())
    assert first[:3] == ["118.50", "IBM", "prices/0/0"]
    assert float(first[3]) > 1e9
    assert first[4] == '{"ticker": "IBM", "exchange": "NYSE"}'
    assert second[1] == "MSFT"
    assert left(prices) == []


def test_a_message_whose_command_fails_stays_and_the_run_ends_with_6(prices: Run) -> None:
    ran = prices("consume", "prices", "--exec", 'test "$LVQ_KEY" = IBM')
    assert ran.code == 6
    assert "MSFT at prices/0/1; the message is still in the queue" in ran.stderr
    assert left(prices) == ["MSFT"]


@pytest.mark.parametrize("choice", ["stop", "reject"])
def test_a_message_that_no_environment_can_hold_is_one_whose_command_fails(
    prices: Run, memory_cluster: MemoryCluster, choice: str
) -> None:
    with LastValueQueue.open("prices", cluster=memory_cluster).producer() as producer:
        producer.send(Message(b"1", headers={"ticker": "IBM", "long": "x" * (1 << 18)})).result()
    ran = prices("consume", "prices", "--exec", "true", "--on-failure", choice, "--count", "2", "--timeout", "5")
    assert "at prices/0/2 could not be run: Argument list too long" in ran.stderr
    if choice == "stop":
        assert ran.code == 6
        assert left(prices) == ["IBM"]
    else:
        assert ran.code == 0
        assert left(prices) == []


def test_a_message_whose_command_fails_can_be_removed(prices: Run) -> None:
    ran = prices("consume", "prices", "--exec", "exit 3", "--on-failure", "reject", "--count", "2")
    assert ran.code == 0
    assert [line.split(":")[1] for line in ran.stderr.splitlines()] == [" warning", " warning"]
    assert ran.stderr.count("the command exited with 3") == 2
    assert left(prices) == []


def test_a_message_whose_command_fails_can_be_tried_again(
    prices: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.cli.commands.consume._RETRY_PAUSE", 0.01)
    flag = tmp_path / "flag"
    ran = prices("consume", "prices", "--count", "1", "--on-failure", "retry", "--exec", f"rm {flag} || ! touch {flag}")
    assert ran.code == 0
    assert "retrying" in ran.stderr
    assert left(prices) == ["MSFT"]


def test_a_queue_that_cannot_be_consumed_is_refused(prices: Run, memory_cluster: MemoryCluster) -> None:
    assert prices("consume", "nope", "--timeout", "0").code == 4
    LastValueQueue.declare("board", key_header="ticker", topic="prices", non_destructive=True, cluster=memory_cluster)
    ran = prices("consume", "board", "--timeout", "0")
    assert ran.code == 2
    assert "--non-destructive" in ran.stderr
    memory_cluster.groups.delete("lvq.prices")
    ran = prices("consume", "prices", "--timeout", "0")
    assert ran.code == 4
    assert "lvq.prices" in ran.stderr


# ---------------------------------------------------------------- concurrent commands


def test_several_commands_run_at_a_time(prices: Run, tmp_path: Path) -> None:
    """Each command waits for the other, so neither could end alone."""
    command = f"touch {tmp_path}/$LVQ_KEY; for i in $(seq 200); do [ -e {tmp_path}/IBM ] && [ -e {tmp_path}/MSFT ] && exit 0; sleep 0.05; done; exit 1"  # noqa: E501
    assert prices("consume", "prices", "--count", "2", "--workers", "2", "--exec", command).code == 0
    assert left(prices) == []


def test_several_workers_refuse_more_than_asked(prices: Run, tmp_path: Path) -> None:
    for number in range(8):
        prices("put", "prices", f"k{number}", "x")
    file = tmp_path / "got"
    ran = prices("consume", "prices", "-n", "5", "--workers", "4", "--exec", f'echo "$LVQ_KEY" >> {file}')
    assert ran.code == 0
    taken = file.read_text().split()
    assert len(taken) == 5
    assert sorted(taken + left(prices)) == sorted(["IBM", "MSFT", *(f"k{number}" for number in range(8))])


def test_several_workers_end_when_nothing_comes(prices: Run) -> None:
    ran = prices("consume", "prices", "--workers", "3", "--exec", "true", "--timeout", "0.2")
    assert (ran.code, left(prices)) == (0, [])
    ran = prices("consume", "prices", "--workers", "3", "--exec", "true", "--timeout", "0.2", "--count", "1")
    assert ran.code == 1


def test_a_command_that_fails_stops_the_other_workers_too(prices: Run) -> None:
    ran = prices("consume", "prices", "--workers", "4", "--exec", 'test "$LVQ_KEY" = IBM')
    assert ran.code == 6
    assert "MSFT at prices/0/1; the message is still in the queue" in ran.stderr
    assert "MSFT" in left(prices)


def test_a_command_that_ctrl_c_has_ended_ends_the_run_and_leaves_its_message(prices: Run) -> None:
    for workers in ("1", "3"):
        for command in ("kill -INT $$", "exit 130"):
            ran = prices("consume", "prices", "--workers", workers, "--on-failure", "reject", "--exec", command)
            assert ran.code == 130
            assert left(prices) == ["IBM", "MSFT"]


def test_workers_without_a_command_are_refused(prices: Run) -> None:
    ran = prices("consume", "prices", "--workers", "2")
    assert ran.code == 2
    assert "--workers goes with --exec" in ran.stderr


# ---------------------------------------------------------------- failing messages


def test_rejected_messages_go_to_the_dead_letters(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("bad", partitions=1, config={})
    ran = prices("consume", "prices", "-n", "2", "--exec", "exit 3", "--on-failure", "reject", "--dead-letters", "bad")
    assert ran.code == 0
    first, second = memory_cluster.records("bad")
    assert (first.key, second.key) == (b"IBM", b"MSFT")
    headers = dict(first.headers)
    assert headers["lvq-dlq-source"] == b"prices/0/0"
    assert headers["lvq-dlq-reason"] == b"the command exited with 3 for IBM at prices/0/0"
    assert left(prices) == []


def test_a_missing_dead_letter_topic_is_said(prices: Run) -> None:
    ran = prices("consume", "prices", "--dead-letters", "nowhere")
    assert ran.code == 4
    assert ran.stderr.startswith("lvq: The dead letter topic nowhere does not exist")
    assert ran.stderr.endswith(": lvq declare nowhere --record-key\n")


def test_the_advice_about_a_missing_dead_letter_topic_helps(prices: Run) -> None:
    assert prices("declare", "nowhere", "--record-key").code == 0
    command = ("consume", "prices", "-n", "2", "--exec", "false", "--on-failure", "reject", "--dead-letters", "nowhere")
    assert prices(*command).code == 0
    assert left(prices) == []
    assert left(prices, "nowhere") == ["IBM", "MSFT"]


def test_a_message_is_tried_as_often_as_said_and_then_rejected(
    prices: Run, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lvq_kafka.cli.commands.consume._RETRY_PAUSE", 0.01)
    memory_cluster.topics.create("bad", partitions=1, config={})
    file = tmp_path / "got"
    command = f'echo "$LVQ_KEY $LVQ_DELIVERY_COUNT" >> {file}; test "$LVQ_KEY" = MSFT'
    ran = prices(
        "consume", "prices", "-n", "2", "--exec", command,
        "--on-failure", "retry", "--max-deliveries", "3", "--dead-letters", "bad",
    )  # fmt: skip
    assert ran.code == 0
    tried = file.read_text().splitlines()
    assert [line for line in tried if line.startswith("IBM")] == ["IBM 1", "IBM 2", "IBM 3"]
    (dead,) = memory_cluster.records("bad")
    assert dict(dead.headers)["lvq-dlq-count"] == b"3"
    assert left(prices) == []


def test_deliveries_are_counted_over_runs(prices: Run) -> None:
    arguments = ("consume", "prices", "--exec", "exit 1", "--max-deliveries", "2")
    assert "IBM at prices/0/0; the message is still in the queue" in prices(*arguments).stderr
    assert "IBM at prices/0/0; the message was rejected after its last delivery" in prices(*arguments).stderr
    assert left(prices) == ["MSFT"]


def test_a_message_whose_lock_times_out_is_handed_on(prices: Run, tmp_path: Path) -> None:
    """The first command waits for the second, which gets the same message."""
    file = tmp_path / "got"
    command = f'echo "$LVQ_KEY $LVQ_DELIVERY_COUNT" >> {file}; while [ "$(wc -l < {file})" -lt 2 ]; do sleep 0.05; done'
    prices("delete", "prices", "MSFT")
    ran = prices("consume", "prices", "-n", "2", "--workers", "2", "--lock-timeout", "0.5", "--timeout", "1.5",
                 "--exec", command)  # fmt: skip
    assert file.read_text().splitlines() == ["IBM 1", "IBM 2"]
    assert ran.code == 1, "one message was consumed, however often it was handed out"
    assert left(prices) == []


def test_consume_beside_a_consumer_of_the_only_partition_says_that_it_stands_by(
    prices: Run, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.idle_warnings._PARTITIONLESS", 0.2)
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._LOOK", 0.1)
    with LastValueQueue.open("prices", cluster=memory_cluster).consumer() as first:
        eventually(lambda: first.stats.partitions)
        ran = prices("consume", "prices", "--timeout", "3")
        assert ran.code == 1
        assert ran.stderr.count("2 members, 1 partition: 1 stands by") == 1
        assert "workers" in ran.stderr
        assert "consumer.session()" in ran.stderr


def test_a_queue_says_after_how_many_failures_of_a_command_its_message_is_given_up(
    run: Run, memory_cluster: MemoryCluster
) -> None:
    run("declare", "dead", "--record-key")
    assert run("declare", "jobs", "-k", "id", "--max-deliveries", "2", "--dead-letters", "dead").code == 0
    run("put", "jobs", "a", "1")
    run("consume", "jobs", "--exec", "exit 3", "--on-failure", "retry", "--count", "1", "--timeout", "20")
    assert left(run, "dead") == ["a"]
    assert run("alter", "jobs", "--max-deliveries", "9", "--unset", "dead-letters").row["changes"] == {
        "max_deliveries": {"before": 2, "after": 9},
        "dead_letters": {"before": "dead", "after": None},
    }
