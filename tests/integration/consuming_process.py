"""A consumer process to be killed: it acks every other message durably, holds the rest, and prints both."""

from __future__ import annotations

import sys

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.kafka import ClientConfig, KafkaCluster


def main(servers: str, queue: str, topic: str) -> None:
    cluster = KafkaCluster(ClientConfig(servers, {"session.timeout.ms": 6000}))
    consumer = Consumer(cluster, QueueDefinition(name=queue, topic=topic, key_header=None), TEXT, revoke_grace=0)
    for count, delivery in enumerate(consumer):
        if count < 10:
            delivery.ack(wait=True)
            print("acked", delivery.position, flush=True)
        else:
            print("held", delivery.position, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
