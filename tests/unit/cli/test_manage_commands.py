from __future__ import annotations

import re

import click
import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.cluster import Commit
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.waiting import eventually


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list to fill with a person's answers at the terminal, whatever the questions."""
    given: list[bool] = []
    monkeypatch.setattr("lvq_kafka.cli.confirm._can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: given.pop(0))
    return given


def waiting(run: Run, queue: str = "prices") -> int:
    found: int = run("stats", queue).row["waiting"]
    return found


class TestPurge:
    def test_all_of_it(self, prices: Run) -> None:
        assert prices("purge", "prices", "--yes").row == {
            "purged": "prices",
            "messages": 2,
            "without_room": 0,
            "offsets": {"0": 2},
        }
        assert waiting(prices) == 0
        assert prices("get", "prices", "IBM").code == 0

    def test_some_keys(self, prices: Run) -> None:
        assert prices("purge", "prices", "-k", "IBM", "-k", "nobody", "--yes").row["messages"] == 1
        assert waiting(prices) == 1
        text = prices("purge", "prices", "-k", "MSFT", "--yes", person=True).text
        assert text == "✓ 1 message of prices marked as consumed\n"

    def test_messages_without_room_are_reported_to_a_person_too(
        self, prices: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lvq_kafka.managing.management.MOST_TEXT", 1)
        ran = prices("purge", "prices", "-k", "MSFT", "--yes", person=True)
        assert ran.text == "✓ 0 messages of prices marked as consumed\n"
        assert "No room for 1 message more" in ran.stderr


def test_expire(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.write("prices", b"OLD", b"1", timestamp=1000)
    assert prices("expire", "prices", "--older-than", "3600", "--yes").row == {
        "expired": "prices",
        "messages": 1,
        "without_room": 0,
        "offsets": {"0": 0},
    }
    assert waiting(prices) == 2
    assert prices("expire", "prices", "--yes").code == 2
    assert prices("expire", "prices", "--older-than", "-1", "--yes").code == 2


class TestReset:
    @pytest.mark.parametrize(
        ("arguments", "base"),
        [
            (["--to", "earliest"], 0),
            (["--to", "latest"], 2),
            (["--to", "1000.5"], 0),
            (["--to", "2000-01-01"], 0),
            (["--to", "2100-01-01T12:30+02:00"], 2),
            (["--offset", "0=1"], 1),
        ],
    )
    def test_to_a_point(self, prices: Run, arguments: list[str], base: int) -> None:
        assert prices("reset", "prices", *arguments, "--yes").row == {"reset": "prices", "offsets": {"0": base}}
        assert waiting(prices) == 2 - base

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["--to", "earliest", "--offset", "0=1"],
            ["--to", "yesterday"],
            ["--to", "-5"],
            ["--to", "inf"],
            ["--to", "nan"],
            ["--to", "1e30"],
            ["--to", ""],
            ["--offset", "0=x"],
            ["--offset", "0"],
            ["--offset", "0=9"],
            ["--offset", "7=0"],
        ],
    )
    def test_to_no_point_is_an_error_of_usage(self, prices: Run, arguments: list[str]) -> None:
        assert prices("reset", "prices", *arguments, "--yes").code == 2
        assert waiting(prices) == 2

    def test_a_person_reads_where_it_goes_on(self, prices: Run) -> None:
        assert prices("reset", "prices", "--to", "latest", "-y", person=True).text == "✓ prices continues at 0: 2\n"


class TestKeepAlive:
    def test_r50_of_each_queue(self, prices: Run) -> None:
        assert prices("declare", "orders", "-k", "code").code == 0
        ran = prices("keep-alive", "prices", "orders")
        assert (ran.code, ran.rows) == (
            0,
            [{"kept": "prices", "renewed": True}, {"kept": "orders", "renewed": True}],
        )
        text = prices("keep-alive", "prices", person=True).text
        assert text == "✓ what prices has consumed is kept as if a consumer had just left\n"
        assert prices("keep-alive").code == 2

    def test_r50_of_a_queue_that_is_consumed(self, prices: Run, memory_cluster: MemoryCluster) -> None:
        with LastValueQueue.open("prices", cluster=memory_cluster).consumer() as consumer:
            eventually(lambda: consumer.stats.partitions)
            assert prices("keep-alive", "prices").row == {"kept": "prices", "renewed": False}
            text = prices("keep-alive", "prices", person=True).text
            assert text == "✓ consumers of prices are active and keep it: there is nothing to do\n"

    def test_r50_a_queue_that_fails_does_not_keep_others_from_their_turn(
        self, prices: Run, memory_cluster: MemoryCluster
    ) -> None:
        assert prices("declare", "orders", "-k", "code").code == 0
        memory_cluster.groups.delete("lvq.orders")
        ran = prices("keep-alive", "orders", "nobody", "prices")
        assert (ran.code, ran.rows) == (4, [{"kept": "prices", "renewed": True}])
        first, second = ran.stderr.splitlines()
        assert first.startswith("lvq: The consumer group 'lvq.orders' of queue 'orders' holds no position")
        assert "lvq repair orders --start earliest --apply" in first
        assert second.startswith("lvq: No queue nobody")


class TestRepair:
    def test_of_what_is_whole(self, prices: Run) -> None:
        ran = prices("repair", "prices")
        assert (ran.code, ran.row["found"], ran.row["applied"]) == (0, [], False)
        assert prices("repair", "prices", person=True).text == "✓ nothing is wrong with prices\n"

    def test_shows_and_mends_only_when_told_to(self, prices: Run, memory_cluster: MemoryCluster) -> None:
        memory_cluster.topics.add_partitions("prices", 2)
        ran = prices("repair", "prices")
        assert ran.code == 4
        assert (ran.row["found"][0]["kind"], ran.row["offsets"], ran.row["applied"]) == (
            "partitions-added",
            {"0": 0, "1": 0},
            False,
        )
        assert ran.stderr == "lvq: 1 problem with prices; --apply repairs it.\n"
        text = prices("repair", "prices", person=True).text
        assert "✗ The topic 'prices' gained partition 1" in text
        assert "with --apply it would continue at 0: 0, 1: 0" in text
        text = prices("repair", "prices", "--apply", person=True).text
        assert "✓ repaired: The topic 'prices' gained partition 1" in text
        assert prices("repair", "prices").code == 0

    def test_a_start_that_only_a_person_can_know_has_to_be_given(
        self, prices: Run, memory_cluster: MemoryCluster
    ) -> None:
        memory_cluster.groups.delete("lvq.prices")
        ran = prices("repair", "prices", "--apply")
        assert ran.code == 4
        assert (ran.row["left"][0]["kind"], ran.row["left"][0]["needs_start"]) == ("group-gone", True)
        assert ran.stderr == "lvq: 1 problem with prices; give --start.\n"
        ran = prices("repair", "prices", "--start", "earliest", "--apply")
        assert (ran.code, ran.row["applied"]) == (0, True)
        assert waiting(prices) == 2


class TestMove:
    def test_all_or_some(self, prices: Run) -> None:
        prices("declare", "archive", "-k", "ticker")
        assert prices("move", "prices", "archive", "-k", "IBM", "-y").row == {
            "moved": "prices",
            "to": "archive",
            "messages": 1,
            "offsets": {"0": 1},
        }
        text = prices("move", "prices", "archive", "--not-atomic", "-y", person=True).text
        assert text == "✓ 1 message moved from prices to archive\n"
        assert (waiting(prices), waiting(prices, "archive")) == (0, 2)

    def test_to_no_queue_or_to_itself_is_refused(self, prices: Run) -> None:
        assert prices("move", "prices", "nowhere", "-y").code == 4
        assert prices("move", "prices", "prices", "-y").code == 2


class TestReclaim:
    def test_consumed_messages_go_for_good(self, run: Run) -> None:
        run("declare", "prices", "-k", "ticker", "--topic-config", "cleanup.policy=compact,delete")
        for key in ("a", "b", "c"):
            run("put", "prices", key, "1")
        assert "nothing to delete" in run("reclaim", "prices", person=True).text
        run("purge", "prices", "-k", "a", "-k", "b", "-y")
        assert run("reclaim", "prices").code == 2
        assert run("reclaim", "prices", "-y").row == {"reclaimed": "prices", "offsets": 2, "starts": {"0": 2}}
        assert run("get", "prices", "a").code == 1

    def test_a_topic_that_is_only_compacted_is_refused_until_it_is_declared_otherwise(self, prices: Run) -> None:
        ran = prices("reclaim", "prices", "-y")
        assert ran.code == 4
        named = "--topic-config cleanup.policy=compact,delete and --on-mismatch reconcile"
        assert named in ran.stderr
        assert prices("declare", "prices", "-k", "ticker", *named.replace(" and", "").split()).code == 0
        assert prices("reclaim", "prices", "-y").code == 0


COMMANDS = [
    ["purge", "prices"],
    ["purge", "prices", "-k", "IBM"],
    ["expire", "prices", "--older-than", "0"],
    ["reset", "prices", "--to", "latest"],
    ["reset", "prices", "--to", "0"],
    ["reset", "prices", "--offset", "0=1"],
    ["move", "prices", "archive"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
class TestAsking:
    def test_a_user_who_cannot_be_asked_has_to_say_yes(self, prices: Run, arguments: list[str]) -> None:
        prices("declare", "archive", "-k", "ticker")
        ran = prices(*arguments)
        assert ran.code == 2
        assert "--yes" in ran.stderr
        assert waiting(prices) == 2

    def test_a_person_may_say_no(self, prices: Run, arguments: list[str], answers: list[bool]) -> None:
        prices("declare", "archive", "-k", "ticker")
        answers += [False, True]
        ran = prices(*arguments)
        assert ran.code == 1
        assert re.fullmatch(r"lvq: Nothing was \w+\.\n", ran.stderr)
        assert waiting(prices) == 2
        assert prices(*arguments).code == 0
        assert answers == []


@pytest.mark.parametrize("command", ["purge", "expire", "reset", "move", "repair", "reclaim"])
def test_a_queue_that_is_not_there_is_an_error(run: Run, command: str) -> None:
    more = {"expire": ["--older-than", "1"], "reset": ["--to", "latest"], "move": ["nowhere"]}.get(command, [])
    yes = [] if command == "repair" else ["--yes"]
    assert run(command, "nope", *more, *yes).code == 4


def test_a_damaged_queue_names_its_way_out(prices: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.groups.commit("lvq.prices", "prices", {0: Commit(1, "foreign")})
    for arguments in (["purge", "prices", "-y"], ["expire", "prices", "--older-than", "1", "-y"]):
        ran = prices(*arguments)
        assert ran.code == 4
        assert "lvq repair" in ran.stderr
