"""Whether a log still has what it had: brokers compare leader epochs (KIP-320)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import TopicPartition

from lvq_kafka.errors import TransportError
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.reader import FETCH_DEFAULTS, READ_RULES, MessagePump
from lvq_kafka.ports import LogEnd

__all__ = ["check_uncut"]

_GROUP = "lvq-epochs"  # the client wants one, and joins none
_TURN = 0.1  # seconds; what the client reports beside its messages is heard only in between
_LITTLE = {"fetch.wait.max.ms": 10, "fetch.message.max.bytes": 1, "queued.min.messages": 1}


def check_uncut(config: ClientConfig, topic: str, ends: Mapping[int, LogEnd], timeout: float) -> None:
    """See `lvq_kafka.ports.Log.check_uncut`.

    The client asks the leader where an epoch ended before it reads on from an offset of that epoch. So a look at what
    comes next, be it the end, is the question.
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
