"""A client of another broker: ``python -m tests.integration.amqp_client ROLE HOST:PORT``.

``send`` sends messages that it reads as JSON, ``drain`` takes all that are there, and ``alone`` waits until Artemis
counts no consumer of the queue: then it has noticed that they are gone, and has their messages again.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from proton import Message, Timeout, decimal128
from proton.utils import BlockingConnection

from tests.benchmarks.peers.brokers import QUEUE

_NONE_COMES = 1.0  # seconds after which no message is expected any more


def main() -> None:
    role, address = sys.argv[1:]
    connection = BlockingConnection(f"amqp://{address}", timeout=60, allowed_mechs="ANONYMOUS")
    if role == "send":
        sender = connection.create_sender(QUEUE)
        for given in json.load(sys.stdin):
            sender.send(_message(given))
    elif role == "alone":
        while _consumers(connection):
            time.sleep(0.05)
    else:
        _drain(connection)
    connection.close()


def _consumers(connection: BlockingConnection) -> int:
    answers = connection.create_receiver(None, dynamic=True)
    properties = {"_AMQ_ResourceName": f"queue.{QUEUE}", "_AMQ_Attribute": "consumerCount"}
    asking = connection.create_sender("activemq.management")
    asking.send(Message(reply_to=answers.link.remote_source.address, properties=properties))
    [number] = json.loads(answers.receive(30).body)
    answers.accept()
    answers.close()
    asking.close()
    return int(number)


def _drain(connection: BlockingConnection) -> None:
    receiver = connection.create_receiver(QUEUE, credit=100)
    while True:
        try:
            receiver.receive(_NONE_COMES)
        except Timeout:
            return
        receiver.accept()


def _message(given: dict[str, Any]) -> Message:
    """Return a message of these fields.

    A body or property ``{"decimal": …}`` has a type that JSON lacks, and ``{"size": …}`` is as many bytes.
    """
    properties = {name: _value(value) for name, value in given.pop("properties", {}).items()}
    return Message(body=_value(given.pop("body", None)), properties=properties, durable=True, **given)


def _value(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"decimal"}:
        return decimal128(bytes(16))
    if isinstance(value, dict) and value.keys() == {"size"}:
        return bytes(value["size"])
    return value


if __name__ == "__main__":
    main()
