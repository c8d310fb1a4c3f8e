"""Foreign commits in a queue's group: they do not count as consumption unless the caller says so (R17).

Plain clients and Kafka's tools commit an offset without a text. That forgets acks above the offset, and messages below
it were perhaps never handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.cluster import Commit
from lvq_kafka.errors import CommitMapRefused, DataLoss, ReaderFailed
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import commits, consume, declare, drained, maps, overwrite, put
from tests.waiting import eventually

KEYS = "abcdefgh"
texts = pytest.mark.parametrize("text", ["", "foreign"], ids=["without a text", "with another text"])
offsets = pytest.mark.parametrize("offset", [0, 3, 8], ids=["below", "between", "above"])


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    """Return a queue of eight messages, every second one acked."""
    queue = declare(memory_cluster)
    put(queue, *(f"{key}={key}" for key in KEYS))
    consume(queue, *KEYS[1::2])
    assert (maps(queue)[0].base, queue.stats().depth) == (0, 4)
    return queue


def browsed(queue: LastValueQueue[str], **options: Any) -> str:
    with queue.browser(follow=False, **options) as browser:
        return "".join(event.key for event in browser if hasattr(event, "key"))


USES: dict[str, Callable[[LastValueQueue[str]], object]] = {
    "consumer": lambda queue: queue.consumer(),
    "browser": browsed,
    "stats": lambda queue: queue.stats(),
    "purge": lambda queue: queue.purge(),
    "purge of keys": lambda queue: queue.purge(keys=["a"]),
    "expire": lambda queue: queue.expire(0.0),
    "move": lambda queue: queue.move(declare(queue.cluster, "archive", on_mismatch="warn")),
}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
@texts
@offsets
def test_it_is_refused_and_left_alone(
    queue: LastValueQueue[str], use: Callable[[LastValueQueue[str]], object], text: str, offset: int
) -> None:
    overwrite(queue, p0=Commit(offset, text))
    with pytest.raises(CommitMapRefused, match=r"lvq repair.*lvq reset") as caught:
        use(queue)
    assert (caught.value.queue, caught.value.partition, caught.value.reason) == ("prices", 0, "foreign")
    assert commits(queue) == {0: Commit(offset, text)}


@texts
@offsets
def test_where_it_is_ignored_its_offset_counts(queue: LastValueQueue[str], text: str, offset: int) -> None:
    overwrite(queue, p0=Commit(offset, text))
    assert queue.stats(on_foreign_commits="ignore").depth == 8 - offset
    assert browsed(queue, on_foreign_commits="ignore") == KEYS[offset:]
    with queue.consumer(on_foreign_commits="ignore") as consumer:
        eventually(lambda: consumer.stats.available == 8 - offset)


def test_a_browser_that_need_not_know_shows_all(queue: LastValueQueue[str]) -> None:
    overwrite(queue, p0=Commit(8))
    with pytest.raises(CommitMapRefused) as caught:
        browsed(queue)
    assert any("hide_consumed=False" in note for note in caught.value.__notes__)
    assert browsed(queue, hide_consumed=False) == KEYS


def test_a_browser_fails_when_it_is_not_known_any_more_what_was_consumed(queue: LastValueQueue[str]) -> None:
    with queue.browser(refresh=0.01) as browser:
        events = iter(browser)
        assert [next(events).key for _ in range(4)] == list("aceg")  # type: ignore[union-attr]
        overwrite(queue, p0=Commit(0))
        with pytest.raises((CommitMapRefused, ReaderFailed)):
            for _ in events:
                pass


@texts
@offsets
def test_repair_goes_by_its_offset(queue: LastValueQueue[str], text: str, offset: int) -> None:
    overwrite(queue, p0=Commit(offset, text))
    assert [damage.kind for damage in queue.repair(dry_run=True).found] == ["commit-refused"]
    queue.repair()
    assert queue.repair(dry_run=True).found == ()
    assert drained(queue) == list(KEYS[offset:])


@texts
@pytest.mark.parametrize(("to", "left"), [("earliest", KEYS), ("latest", ""), ({0: 6}, "gh")], ids=str)
def test_reset_goes_on_elsewhere(queue: LastValueQueue[str], text: str, to: Any, left: str) -> None:
    overwrite(queue, p0=Commit(3, text))
    queue.reset(to)
    assert queue.repair(dry_run=True).found == ()
    assert drained(queue) == list(left)


def test_reset_of_other_partitions_does_not_pass_over_it(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, spec=TopicSpec(partitions=2))
    overwrite(queue, p1=Commit(0))
    with pytest.raises(CommitMapRefused):
        queue.reset({0: 0})
    queue.reset({1: 0})
    assert queue.repair(dry_run=True).found == ()


def test_one_beyond_the_end_of_the_log_is_a_loss_of_data_whatever_the_policy(queue: LastValueQueue[str]) -> None:
    overwrite(queue, p0=Commit(9))
    with pytest.raises(DataLoss):
        queue.stats(on_foreign_commits="ignore")
    queue.repair()
    assert queue.stats().depth == 0


def test_commits_of_this_library_have_a_text_from_the_first_one_on(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, spec=TopicSpec(partitions=3))
    put(queue, *(f"{key}={key}" for key in KEYS))
    for change in (
        lambda: None,
        lambda: queue.consumer().close(),
        lambda: queue.reset("earliest"),
        lambda: queue.expire(3600.0),
        lambda: queue.purge(keys=["a"]),
        queue.purge,
        lambda: (memory_cluster.groups.delete("lvq.prices"), queue.repair("earliest")),
    ):
        change()
        assert all(commit.metadata.startswith("lvq1.") for commit in commits(queue).values())
        assert len(commits(queue)) == 3
