"""R17 with expired offsets: some or all of a group's. They are reported, and never replaced by a guess.

A broker deletes the offsets of a group without members after a time, by default a week after the last one left. The
commits here carry their own retention time, as older clients could set it, so the tests need no week.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.output import Output
from lvq_kafka.cluster import Commit
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import GroupNotFound, OffsetsExpired
from lvq_kafka.kafka import KafkaCluster
from tests.integration.wire import commit_as_others_do
from tests.unit.managing import commits, consume, declare, drained, maps, put
from tests.waiting import eventually

Queue = LastValueQueue[str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Start a broker that checks for expired offsets all the time, not every ten minutes."""
    with EmbeddedBroker(properties={"offsets.retention.check.interval.ms": "200"}) as broker:
        cluster = KafkaCluster(broker.bootstrap_servers)
        yield cluster
        cluster.close()


@pytest.fixture
def queue(cluster: KafkaCluster) -> Queue:
    """Return a queue of two partitions and ten messages. Those with keys below 6 are consumed; there are no members."""
    queue = declare(cluster, f"queue-{uuid4().hex[:8]}", spec=TopicSpec(partitions=2))
    put(queue, *(f"{number}={number}" for number in range(10)))
    consume(queue, *map(str, range(6)))
    assert queue.stats().depth == 4
    return queue


def limit(queue: Queue, told: Mapping[int, Commit], seconds: float) -> None:
    """Repeat what is committed, with a retention of this many seconds."""
    commit_as_others_do(queue.cluster.config.bootstrap_servers, queue.definition.group, queue.topic, told, kept=seconds)


def forget(queue: Queue, *partitions: int, seconds: float = 0.5) -> None:
    """Make the broker forget the commits of these partitions, and wait until it has."""
    before = commits(queue)
    limit(queue, {partition: before[partition] for partition in partitions}, seconds)
    eventually(lambda: commits(queue).keys() == before.keys() - set(partitions), 60)


def run(queue: Queue, *arguments: str) -> tuple[int, str]:
    """Run ``lvq`` as in a terminal, and return its exit code and all output."""
    ran = CliRunner().invoke(lvq, arguments, obj=Invocation(cluster=queue.cluster, out=Output(True)), prog_name="lvq")
    return ran.exit_code, " ".join((ran.stdout + ran.stderr).split())


def test_a_group_that_expired_is_refused_until_somebody_says_where_to_start_and_nothing_comes_twice(
    queue: Queue,
) -> None:
    before = maps(queue)
    forget(queue, 0, 1)
    assert queue.cluster.groups.member_count(queue.definition.group) == 0
    for use in (queue.consumer, queue.stats, queue.purge, lambda: queue.reset("latest")):
        with pytest.raises(GroupNotFound, match="has expired") as caught:
            use()
        assert caught.value.queue == queue.name
        assert f"lvq repair {queue.name} --start earliest --apply" in caught.value.hint
    code, said = run(queue, "stats", queue.name)
    assert code == 4
    assert "has expired" in said
    assert f"lvq repair {queue.name} --start earliest --apply" in said

    assert [damage.kind for damage in queue.repair().left] == ["group-gone"]
    assert commits(queue) == {}, "neither those who were refused nor a repair without a start has restarted it"
    # A user may know what was done. Here it is everything, as if the group had never gone.
    assert queue.repair({partition: one.base for partition, one in before.items()}).left == ()
    waiting = queue.stats().depth
    assert waiting == 10 - sum(one.base for one in before.values())
    put(queue, "new=new")
    values = drained(queue)
    assert len(values) == len(set(values)) == waiting + 1
    assert {"6", "7", "8", "9", "new"} <= set(values)
    code, said = run(queue, "stats", queue.name)
    assert code == 0, said


def test_the_way_that_the_error_names_brings_all_again_and_skips_nothing(queue: Queue) -> None:
    forget(queue, 0, 1)
    with pytest.raises(GroupNotFound) as caught:
        queue.consumer()
    named = caught.value.hint.rpartition("lvq ")[2].split()
    assert run(queue, *named[:-1])[0] == 4, "without --apply it shows only what would be done"
    assert commits(queue) == {}
    code, said = run(queue, *named)
    assert (code, "repaired" in said) == (0, True)
    assert sorted(drained(queue)) == [str(number) for number in range(10)]


def test_offsets_expire_one_by_one_and_the_others_stay_as_they_are(queue: Queue) -> None:
    before = maps(queue)
    forget(queue, 1)
    with pytest.raises(OffsetsExpired, match=r"for partition 1 .*positions expire one by one") as caught:
        queue.consumer()
    assert "lvq repair" in caught.value.hint
    assert "positions expire one by one" in run(queue, "stats", queue.name)[1]
    assert [(damage.kind, damage.partitions) for damage in queue.repair().left] == [("commits-expired", (1,))]
    assert maps(queue) == {0: before[0]}
    assert queue.repair("earliest").left == ()
    with queue.view() as view:
        in_1 = {entry.value for entry in view.entries() if entry.position.partition == 1}
    assert set(drained(queue)) == {"6", "7", "8", "9"} | in_1


def test_a_consumer_at_work_keeps_its_group_though_it_has_nothing_to_do(queue: Queue) -> None:
    """An idle consumer sends no commits. Its membership keeps the existing ones until it leaves."""
    drained(queue)
    before = maps(queue)
    canary = declare(queue.cluster, f"{queue.name}-canary")
    seconds = 8.0  # long enough for the consumer to become a member, even on a busy machine
    limit(queue, commits(queue), seconds)
    with queue.consumer() as consumer:
        eventually(lambda: len(consumer.stats.partitions) == 2, 30)
        forget(canary, 0, seconds=seconds)  # it has no members, so its loss shows that the time is over
        assert maps(queue) == before
        assert consumer.stats.commits == 0
        put(queue, "new=new")
        delivery: Any = consumer.acquire(30)
        delivery.ack(wait=True, timeout=30)
        assert delivery.value == "new"
    assert queue.stats().depth == 0
