"""Late commits of the current member, over a connection that it has lost."""

from __future__ import annotations

import pytest

from lvq_kafka.testing.memory_member import MemoryMember
from tests.unit.consuming.world import GROUP, TOPIC, World, consuming, take
from tests.waiting import eventually


def member_of(world: World) -> MemoryMember:
    (member,) = eventually(lambda: world.members)
    assert isinstance(member, MemoryMember)
    return member


def test_g11_after_a_lost_connection_it_is_looked_more_than_once_and_written_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer:
        first, second, third = (take(consumer) for _ in range(3))
        first.ack(wait=True, timeout=10)
        late = world.groups.committed(GROUP, TOPIC)
        member = member_of(world)
        member.losses += 1
        second.ack(wait=True, timeout=10)
        durable = world.committed_map()
        for _ in range(2):  # the second one comes after the first look
            with world._state.changed:
                member.group.store(TOPIC, late)
            assert world.committed_offsets() == {0: 1}
            eventually(lambda: world.committed_map().covers(durable), 20)
        third.ack(wait=True, timeout=10)
    assert world.committed_offsets() == {0: 3}
    assert "another commit overwrote" in caplog.text


def test_an_ack_after_a_lost_connection_is_durable_when_the_group_has_been_asked(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        member = member_of(world)
        for _ in range(2):
            delivery = take(consumer)
            member.losses += 1
            delivery.ack(wait=True, timeout=10)
            assert world.committed_map().done(delivery.position.offset)
