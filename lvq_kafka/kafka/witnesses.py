"""Questions to leaders that another broker names.

A leader does not notice that it no longer is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lvq_kafka.errors import BrokerUnavailable, TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.threads import in_thread

__all__ = ["Witnesses"]

T = TypeVar("T")

_MOST = 2  # no partition has two leaders, so two brokers can tell of all
_PATIENCE = 2.0  # seconds for a broker to say who leads
_PAUSES = (0.05, 1.0)  # seconds before others are asked: each time twice as long, since that takes new connections
_ALONE = 60.0  # seconds until a topic with one replica is looked at again: it may have got more


@dataclass(frozen=True)
class _Testimony:
    """The leaders of a topic's partitions, as one broker knows them."""

    witness: int
    """The broker; -1 if the client has only its bootstrap server so far, whose number it does not know."""
    leaders: Mapping[int, int]
    """By partition; -1 if it has none."""
    contested: bool
    """True if a partition can get another leader."""


class Witnesses:
    """Brokers that name the leaders before these are asked for anything. Thread-safe.

    A leader holds no lease. One that is cut off from the other brokers, or was stopped for a while, takes no more
    messages, but answers clients as before, even when they ask who leads. So a leader counts if another broker names
    it. The client chooses whom it asks that: the broker that it used last. So there are clients that ask for nothing
    else, and one is replaced when both happen to ask the leader.

    Args:
        config: how to reach the cluster.
        requests: asks the leaders.
    """

    def __init__(self, config: ClientConfig, requests: AdminRequests) -> None:
        self._config = config
        self._requests = requests
        self._witnesses: list[AdminRequests] = []
        self._uncontested: dict[str, float] = {}  # by topic: until when that is trusted

    def close(self) -> None:
        """Let go of the connections."""
        for witness in self._witnesses:
            witness.close()

    def ask(
        self,
        topic: str,
        partitions: Collection[int],
        question: Callable[[AdminRequests, Sequence[int]], Mapping[int, T]],
        deadline: float,
    ) -> dict[int, T]:
        """Ask the leaders of these partitions, and return their answers by partition.

        ``question`` asks them for some of the partitions, by a client that knows these leaders.

        Raises:
            BrokerUnavailable: no broker but a partition's leader says who leads it. Retriable.
        """
        known = None
        if time.monotonic() >= self._uncontested.get(topic, 0.0):
            known = self._ask_who_leads(self._requests, topic, deadline)
        if known is None or not known.contested:
            return dict(question(self._requests, sorted(partitions)))
        left, found, (pause, longest) = set(partitions), dict[int, T](), _PAUSES
        while True:
            for number in range(_MOST):
                if left:
                    found.update(self._ask_by(self._witness(number), known, topic, left, question, deadline))
                    left.difference_update(found)
            if not left:
                return found
            if time.monotonic() + pause > deadline:
                raise BrokerUnavailable(
                    f"Cannot tell who leads topic {topic!r}, partition {min(left)}: no broker but the leader says so.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="A leader that is cut off from the others does not know it. Check that these can be reached.",
                )
            self._witness(_MOST - 1).reconnect()  # perhaps to a broker that leads none of those
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _ask_by(
        self,
        witness: AdminRequests,
        known: _Testimony,
        topic: str,
        partitions: Collection[int],
        question: Callable[[AdminRequests, Sequence[int]], Mapping[int, T]],
        deadline: float,
    ) -> dict[int, T]:
        """Ask those leaders that a witness names, unless it is one of them itself."""
        end = min(deadline, time.monotonic() + _PATIENCE)
        try:
            seen = self._ask_who_leads(witness, topic, end)
            while seen is not None and seen.witness == -1 and time.monotonic() < end:
                seen = self._ask_who_leads(witness, topic, end)
        except TransportError as error:
            if not error.retriable:
                raise
            seen = None
        if seen is None:
            witness.reconnect()
            return {}
        sure = {p for p in partitions if seen.witness not in (-1, seen.leaders.get(p, -1))}
        agreed = {p for p in sure if seen.leaders.get(p) == known.leaders.get(p)}
        found: dict[int, T] = {}
        if agreed:
            found.update(question(self._requests, sorted(agreed)))
        if sure > agreed:  # only the witness has heard of these leaders
            found.update(question(witness, sorted(sure - agreed)))
        return found

    def _witness(self, number: int) -> AdminRequests:
        while len(self._witnesses) <= number:
            properties = self._config.properties
            del properties["bootstrap.servers"]
            # Shared in this process, like all connections, with those who have the same properties.
            name = f"{properties.pop('client.id', 'lvq-kafka')}-witness-{len(self._witnesses) + 1}"
            config = ClientConfig(self._config.bootstrap_servers, {**properties, "client.id": name})
            self._witnesses.append(AdminRequests(config))
        return self._witnesses[number]

    def _ask_who_leads(self, requests: AdminRequests, topic: str, deadline: float) -> _Testimony | None:
        """Ask who leads a topic; return None if it is not known."""
        [cluster] = requests.ask(
            lambda client, left: [in_thread(lambda: client.list_topics(topic, timeout=left))],
            f"ask who leads topic {topic!r}",
            deadline,
            topic=topic,
            harmless=True,
            answered=lambda answer: bool(answer.brokers),
        )
        found = cluster.topics.get(topic)
        if found is None or not found.partitions:
            return None
        several = any(len(partition.replicas) > 1 for partition in found.partitions.values())
        contested = several and len(cluster.brokers) > 1
        if not several:
            self._uncontested[topic] = time.monotonic() + _ALONE
        leaders = {number: partition.leader for number, partition in found.partitions.items()}
        return _Testimony(cluster.orig_broker_id, leaders, contested)
