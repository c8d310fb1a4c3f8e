"""A member that is cut off from the cluster while others are not: it hands nothing out until the group counts on it.

In the classic protocol the client itself gives its partitions up after a session without an answer. In the new protocol
it never does, and waits for the group.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import LockLost
from tests.cable import Cable
from tests.unit.kafka.mock_cluster import OFFSET_COMMIT
from tests.unit.kafka.mock_queue import SOCIAL, MockQueue, NewQueue, take
from tests.waiting import eventually

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make leases shorter than the sessions in this module, which are 3 s."""
    monkeypatch.setattr("lvq_kafka.core.consumer.lease.LEASE", 2.0)


@pytest.fixture
def queue(new_queue: NewQueue) -> MockQueue:
    queue = new_queue()
    queue.mock.set_session(3000)
    return queue


@pytest.fixture
def cable(queue: MockQueue) -> Iterator[Cable]:
    with Cable(queue.mock.bootstrap_servers) as cable:
        yield cable
        cable.mend()
        queue.close()


@both_protocols
def test_g12_nothing_older_than_what_another_member_has_consumed_comes_out_of_it(
    queue: MockQueue, cable: Cable, protocol: str
) -> None:
    queue.send_value("a", "a1")
    queue.send("held")
    first = queue.open(protocol, SOCIAL[protocol], servers=cable.bootstrap_servers)
    eventually(lambda: first.stats.available == 2, 20)
    cable.cut()
    queue.send_value("a", "a2")
    second = queue.open(protocol, SOCIAL[protocol])
    theirs = [take(second, 30), take(second)]
    assert {one.value for one in theirs} == {"held", "a2"}
    for one in theirs:
        one.ack(wait=True, timeout=20)
    assert first.acquire(1.0) is None
    cable.mend()
    queue.send("b")
    second.close()
    delivery = take(first, 60)
    assert delivery.value == "b"
    delivery.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 4


@both_protocols
def test_held_messages_are_lost_and_acks_count_for_nothing(queue: MockQueue, cable: Cable, protocol: str) -> None:
    queue.send("a", "b")
    first = queue.open(protocol, SOCIAL[protocol], servers=cable.bootstrap_servers)
    acked, held = take(first), take(first)
    cable.cut()
    told = acked.ack().future()
    second = queue.open(protocol, SOCIAL[protocol])
    theirs = [take(second, 30), take(second)]
    assert [one.value for one in theirs] == ["a", "b"]
    # Before the first is back: as long as the follower behind the cable syncs later than the leader, the mock makes a
    # classic group rejoin, and accepts no commit.
    for one in theirs:
        one.ack(wait=True, timeout=20)
    cable.mend()
    assert isinstance(told.exception(30), LockLost)
    with pytest.raises(LockLost):
        held.ack()
    assert queue.stored()[0].base == 2


@both_protocols
def test_a_short_cut_ends_no_lock_and_hand_out_goes_on(queue: MockQueue, cable: Cable, protocol: str) -> None:
    queue.send("a", "b", "c")
    consumer = queue.open(protocol, servers=cable.bootstrap_servers)  # its session outlasts the cut
    held = take(consumer)
    cable.cut()
    eventually(lambda: consumer._shared.core.hand_out.is_suspended(consumer._shared.clock()))
    assert consumer.acquire(0.5) is None
    cable.mend()
    assert take(consumer, 60).value == "b"
    assert held.state is MessageState.ACQUIRED
    held.ack(wait=True, timeout=20)
    assert queue.member().gone == []


@both_protocols
def test_while_nothing_waits_nothing_has_to_be_proven(queue: MockQueue, protocol: str) -> None:
    queue.send("a")
    consumer = queue.open(protocol)
    take(consumer).ack(wait=True, timeout=20)
    before = queue.mock.requests(OFFSET_COMMIT)
    assert consumer.acquire(3.0) is None
    assert queue.mock.requests(OFFSET_COMMIT) == before
    queue.send("b")
    assert take(consumer).value == "b"
    assert queue.mock.requests(OFFSET_COMMIT) > before
