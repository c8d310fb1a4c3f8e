"""Outages of a run's brokers: one node, or three."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lvq_kafka.embedded import EmbeddedBroker
from tests.three_nodes import NODES, ThreeNodes

__all__ = ["Outage", "of_one_node", "of_three_nodes"]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Outage:
    """A card that is dealt to the brokers."""

    name: str
    begin: Callable[[], object]
    lasts: tuple[float, float]
    """Seconds between begin and end, from and to."""
    end: Callable[[], object] = _nothing
    leaderless: bool = False
    """Whether partitions have no leader meanwhile."""


def of_one_node(broker: EmbeddedBroker) -> Sequence[Outage]:
    """Return the outages of a lone node. Without it there is no cluster."""
    return (
        Outage("kill broker", broker.kill, (0, 3), broker.restart, leaderless=True),
        Outage("freeze broker", broker.pause, (0.5, 4), broker.resume),
    )


def of_three_nodes(
    nodes: ThreeNodes, topic: str, group: str, transactional_id: str, chance: random.Random, *, timeouts: float
) -> Sequence[Outage]:
    """Return the outages of three nodes. Two can replace the third; one alone cannot work.

    Args:
        topic: outages hit its leaders.
        group: outages hit its coordinator.
        transactional_id: outages hit its coordinator; empty without transactions.
        timeouts: seconds, longer than every timeout of the cluster's clients.
    """

    def leader() -> int:
        return nodes.leader(topic)

    def coordinator() -> int:
        if transactional_id and chance.random() < 0.5:
            return nodes.transaction_coordinator(transactional_id)
        return nodes.coordinator(group)

    def roll() -> None:
        for node in NODES:
            nodes.restart(node)

    back = nodes.bring_back
    return (
        Outage("kill leader", lambda: nodes.kill(leader()), (0, 6), back),
        Outage("kill coordinator", lambda: nodes.kill(coordinator()), (0, 6), back),
        Outage("freeze leader", lambda: nodes.pause(leader()), (1, 8), back),
        Outage("freeze coordinator", lambda: nodes.pause(coordinator()), (1, 8), back),
        Outage("restart one after the other", roll, (0, 0)),
        Outage(
            "kill two of three",
            lambda: nodes.kill(*chance.sample(NODES, 2)),
            (timeouts, timeouts + 3),
            back,
            leaderless=True,
        ),
    )
