"""Whether a log still has what it had when somebody looked: brokers tell by leader epochs (KIP-320)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import TopicPartition

from lvq_kafka.errors import TransportError
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.reader import FETCH_DEFAULTS, READ_RULES, MessagePump

__all__ = ["LogEnd", "check_uncut"]

_GROUP = "lvq-epochs"  # the client wants one, and joins none
_TURN = 0.1  # seconds; what the client reports beside its messages is heard only in between
_LITTLE = {"fetch.wait.max.ms": 10, "fetch.message.max.bytes": 1, "queued.min.messages": 1}


class LogEnd(NamedTuple):
    """How far a partition's log reached, and in which epoch its leader said so; -1 where that is not known."""

    offset: int
    leader_epoch: int


def check_uncut(config: ClientConfig, topic: str, ends: Mapping[int, LogEnd], timeout: float) -> None:
    """See that no log was cut below where it ended, even where it has grown beyond that since.

    Offsets alone do not tell: a leader that was elected although it lacked records, or whose disk has lost some, writes
    others under the same offsets. But it does so in another epoch, and remembers where each one ended. The client asks
    the leader for that before it reads on from an offset with an epoch, so a look at what comes next is the question.

    Raises:
        DataLoss: a log was cut, or begins behind such an end.
        TopicNotFound: there is no such topic.
        TransportError: the cluster cannot be reached, or does not answer in time.
    """
    deadline = time.monotonic() + timeout
    health = Health(config.bootstrap_servers)
    consumer = open_consumer(config, health, {**READ_RULES, **_LITTLE, "group.id": _GROUP}, FETCH_DEFAULTS)
    try:
        consumer.assign(
            [TopicPartition(topic, p, end.offset, leader_epoch=end.leader_epoch) for p, end in ends.items()]
        )
        pump, unseen = MessagePump(consumer, topic, health, groupless=True), set(ends)
        while unseen:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TransportError(
                    f"Cannot see whether topic {topic!r} was cut: no answer about partitions {sorted(unseen)}.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="Check that the leaders of these partitions can be reached, or allow more time.",
                )
            unseen.difference_update(pump.poll(min(left, _TURN)).positions)
    finally:
        consumer.close()
