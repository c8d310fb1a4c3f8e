"""The page *Run queues in production*: its disasters happen, and its commands mend them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.cluster import Cluster, Commit
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.errors import CommitMapRefused, ConfigError, GroupNotFound, LVQError, TopicNotFound, TopicRecreated
from lvq_kafka.testing import MemoryCluster
from tests.pages import lvq_commands, page, rows
from tests.unit.cli.conftest import Run
from tests.unit.managing import commits, consume, declare, drained, put

PAGE = "docs/how-to/operations.md"
QUEUE = "night-prices"


def commands(section: str) -> list[list[str]]:
    """Return the commands below a heading of the page."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page(PAGE), re.MULTILINE | re.DOTALL)
    return [command for script in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for command in lvq_commands(script)]


@pytest.fixture
def night(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    """Return the page's queue with three values, one of which is consumed."""
    queue = declare(memory_cluster, QUEUE)
    put(queue, "IBM=119.00", "MSFT=27.95", "AAPL=5.00")
    consume(queue, "MSFT")
    return queue


def fails(queue: LastValueQueue[str]) -> type[LVQError]:
    """Return the error of a consumer of the queue."""
    with pytest.raises(LVQError) as caught:
        queue.consumer()
    return caught.type


def test_a_queue_whose_topic_is_lost_is_restored_from_its_export(
    night: LastValueQueue[str], run: Run, memory_cluster: MemoryCluster, tmp_path: Path
) -> None:
    place = str(tmp_path / "night.jsonl")

    def do(command: list[str]) -> None:
        ran = run(*(word.replace("/tmp/night-prices.jsonl", place) for word in command))
        assert ran.code == 0, (command, ran.stderr)

    for command in commands("Backup"):
        do(command)
    memory_cluster.topics.delete(QUEUE)
    assert fails(night) is TopicNotFound
    *restore, purge = commands("A topic is lost")
    assert [command[0] for command in (*restore, purge)] == ["declare", "repair", "put", "purge"]
    do(restore[0])
    assert fails(declare(memory_cluster, QUEUE)) in (GroupNotFound, TopicRecreated)
    do(restore[1])
    do(restore[2])
    again = declare(memory_cluster, QUEUE)
    assert again.stats().depth == 3, "what was consumed comes again, too"
    do(purge)
    assert again.stats().depth == 0
    with again.view() as view:
        assert dict(view) == {"IBM": "119.00", "MSFT": "27.95", "AAPL": "5.00"}


def test_a_lost_group_is_replaced_by_what_a_person_chooses(
    night: LastValueQueue[str], run: Run, memory_cluster: MemoryCluster
) -> None:
    memory_cluster.groups.delete(night.definition.group)
    assert fails(night) is GroupNotFound
    (repair,) = commands("A group is lost")
    assert run(*repair).code == 0
    assert sorted(drained(night)) == ["119.00", "27.95", "5.00"]


def mirrored(queue: LastValueQueue[str], commit: Callable[[Commit], Commit]) -> Cluster:
    """Return a mirror with the values of a queue, at other offsets, and its commits."""
    mirror, source = MemoryCluster(), queue.cluster
    assert isinstance(source, MemoryCluster)
    mirror.topics.create(QUEUE, partitions=1, config={"cleanup.policy": "compact"})
    for record in source.records(QUEUE):
        mirror.write(QUEUE, b"before", b"0")
        mirror.write(QUEUE, record.key, record.value, record.headers)
    copied = {partition: commit(one) for partition, one in commits(queue).items()}
    mirror.groups.commit(queue.definition.group, QUEUE, copied)
    return mirror


@pytest.mark.parametrize(
    ("copy", "error"),
    [(lambda commit: commit, TopicRecreated), (lambda commit: Commit(commit.offset * 2), CommitMapRefused)],
    ids=["as they are", "translated, without texts"],
)
def test_commits_of_a_mirror_are_refused_and_without_them_all_comes_again(
    night: LastValueQueue[str], copy: Callable[[Commit], Commit], error: type[LVQError]
) -> None:
    mirror = mirrored(night, copy)
    with pytest.raises(error):
        declare(mirror, QUEUE)
    mirror.groups.delete(night.definition.group)
    queue = declare(mirror, QUEUE)
    assert sorted(drained(queue)) == ["0", "119.00", "27.95", "5.00"]


OLDER: dict[str, Callable[[LastValueQueue[str]], None]] = {}


def older(text: str) -> Callable[[Callable[[LastValueQueue[str]], None]], None]:
    """Note what checks the row of the page that begins with a text."""

    def noted(check: Callable[[LastValueQueue[str]], None]) -> None:
        OLDER[text] = check

    return noted


@older("a definition with options that it does not know")
def _definition(queue: LastValueQueue[str]) -> None:
    cluster = queue.cluster
    assert isinstance(cluster, MemoryCluster)
    for name, more in (("newer", {"version": 3}), ("larger", {"version": 2, "colour": "red"})):
        said = {"name": name, "topic": name, "key_header": "ticker", **more}
        cluster.write(REGISTRY_TOPIC, name.encode(), json.dumps(said).encode())
        with pytest.raises(ConfigError, match="upgrade"):
            LastValueQueue.open(name, cluster=cluster)
    assert sorted(drained(queue)) == ["119.00", "5.00"]


@older("the text of a commit in a later form")
def _commit_text(queue: LastValueQueue[str]) -> None:
    (before,) = commits(queue).values()
    later = Commit(before.offset, before.metadata.replace("lvq1.", "lvq2."))
    queue.cluster.groups.commit(queue.definition.group, QUEUE, {0: later})
    with pytest.raises(CommitMapRefused) as caught:
        queue.consumer()
    assert caught.value.reason == "newer"
    assert "upgrade" in caught.value.hint
    assert queue.repair().left == ()
    assert len(drained(queue)) == 3, "above the offset of the commit, messages come again"


ELSEWHERE = {
    "an alteration that it does not know": "tests/unit/test_altering.py",
    "a store of another format": "tests/unit/test_stored_views.py",
    "a store that a process attaches to": "tests/unit/test_attached_views.py",
    "a version of a Spark store": "tests/spark",
    "an export of a later form": "tests/unit/test_json_lines.py",
}
"""Rows that tests of their subject check."""


def test_each_row_about_older_versions_is_checked() -> None:
    assert [row[0] for row in rows(PAGE, "a newer version wrote")] == [
        text for text, _ in rows(PAGE, "a newer version wrote") if text in OLDER.keys() | ELSEWHERE.keys()
    ]
    assert len(OLDER) + len(ELSEWHERE) == len(rows(PAGE, "a newer version wrote"))


@pytest.mark.parametrize("text", OLDER)
def test_an_older_version_does_as_the_page_says(night: LastValueQueue[str], text: str) -> None:
    OLDER[text](night)
