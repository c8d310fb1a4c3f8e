"""The declaration of a group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.errors import PartitionsAdded, TransportError
from tests.unit.consuming.world import (
    TOPIC,
    World,
    consuming,
    drain,
    make_world,
)


def test_declare_group_starts_at_the_existing_values_or_at_those_to_come() -> None:
    world = make_world(partitions=2, declared=False)
    world.send(("a", "a"), partition=1)
    assert declare_group(world, "early", TOPIC)
    assert declare_group(world, "late", TOPIC, "latest")
    offsets: Callable[[str], dict[int, int]] = lambda group: {  # noqa: E731
        partition: commit.offset for partition, commit in world.groups.committed(group, TOPIC).items()
    }
    assert (offsets("early"), offsets("late")) == ({0: 0, 1: 0}, {0: 0, 1: 1})


def test_declare_group_does_not_move_what_is_there(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        drain(consumer, 1)
    assert declare_group(world, "lvq.q", TOPIC) is False
    assert world.committed_offsets() == {0: 1}


def test_declare_group_refuses_to_guess_where_only_some_partitions_have_a_position(world: World) -> None:
    world.topics.add_partitions(TOPIC, 3)
    with pytest.raises(PartitionsAdded, match="partitions 1, 2"):
        declare_group(world, "lvq.q", TOPIC, queue="q")


def test_declare_group_tries_again_while_the_coordinator_is_loading() -> None:
    world = make_world(declared=False)
    loading = TransportError("loading", code="COORDINATOR_LOAD_IN_PROGRESS", retriable=True)
    world.fail_next("groups.committed", loading)
    world.fail_next("commit", loading)
    assert declare_group(world, "lvq.q", TOPIC)
    assert world.committed_offsets() == {0: 0}
    world.fail_next("groups.committed", loading, times=1000)
    with pytest.raises(TransportError, match="loading"):
        declare_group(world, "lvq.q", TOPIC, timeout=0.15)
