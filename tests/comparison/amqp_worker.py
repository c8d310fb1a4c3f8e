"""Carries out a script on another broker, by AMQP 1.0.

``python -m tests.comparison.amqp_worker HOST:PORT`` reads the script from standard input, as JSON.
"""

from __future__ import annotations

import json
import sys

from proton import Delivery, Message, Timeout
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from tests.benchmarks.peers.brokers import KEY, QUEUE
from tests.comparison.steps import SentMessage, play

_NONE_COMES = 1.0  # seconds after which no message is expected any more


class AmqpWorker:
    """One sender, and a session and receiver for each consumer, which asks for one message at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection = self._connect()
        self._sender = self._connection.create_sender(QUEUE)
        self._receivers: dict[str, tuple[BlockingConnection, BlockingReceiver]] = {}

    def _connect(self) -> BlockingConnection:
        return BlockingConnection(
            f"amqp://{self._address}", timeout=30, allowed_mechs="ANONYMOUS", virtual_host="default"
        )

    def send(self, message: SentMessage) -> bool:
        properties = {KEY: message.get("key"), "sort": message.get("sort"), "JMSXGroupID": message.get("group")}
        sent = Message(
            body=message["body"],
            durable=True,
            properties={name: value for name, value in properties.items() if value is not None},
        )
        if "priority" in message:
            sent.priority = message["priority"]
        if "group" in message:
            sent.group_id = message["group"]
        try:
            self._sender.send(sent)
        except SendException:
            return False
        except LinkDetached:  # as Broker-J does where a queue is full
            self._sender = self._connection.create_sender(QUEUE)
            return False
        return True

    def open(self, consumer: str) -> None:
        connection = self._connect()
        self._receivers[consumer] = connection, connection.create_receiver(QUEUE, credit=0)

    def close(self, consumer: str) -> None:
        connection, _ = self._receivers.pop(consumer)
        connection.close()

    def take(self, consumer: str) -> str | None:
        _, receiver = self._receivers[consumer]
        try:
            return str(receiver.receive(timeout=_NONE_COMES).body)
        except Timeout:
            return None

    def ack(self, consumer: str) -> None:
        self._settle(consumer, Delivery.ACCEPTED)

    def release(self, consumer: str) -> None:
        self._settle(consumer, Delivery.RELEASED)

    def _settle(self, consumer: str, outcome: str) -> None:
        connection, receiver = self._receivers[consumer]
        receiver.settle(outcome)
        connection.create_sender(QUEUE).close()  # when that is answered, the broker has processed what came before


if __name__ == "__main__":
    print(json.dumps(play(json.load(sys.stdin), AmqpWorker(sys.argv[1]))))
