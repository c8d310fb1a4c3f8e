"""A client for other brokers' last value queues: AMQP 1.0 by Qpid Proton, whose core is C.

``produce`` sends durable messages as fast as the broker grants credit, and waits for the outcome of each. ``consume``
accepts and settles each delivery by itself. It is done when the broker has answered the close of the connection, and so
has processed everything.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy

from tests.benchmarks.children import say
from tests.benchmarks.peers.brokers import KEY, QUEUE
from tests.benchmarks.workload import WARM_UP, Judge, Workload, value_of

CREDIT = 1000


class Client(MessagingHandler):
    """A connection to the broker that fails loudly."""

    def __init__(self, address: str, prefetch: int = 0) -> None:
        super().__init__(prefetch=prefetch, auto_accept=False)
        self.address = address
        self.connection: Any = None
        self._finished = False

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(
            self.address, allowed_mechs="ANONYMOUS", virtual_host="default", reconnect=False
        )
        self.opened(event.container)

    def opened(self, container: Container) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Close the connection, and wait for the broker to confirm."""
        self._finished = True
        self.connection.close()

    def on_transport_error(self, event: Any) -> None:
        raise RuntimeError(f"{event.transport.condition} {event.connection.remote_condition}")

    def on_disconnected(self, event: Any) -> None:
        if not self._finished:
            self.on_transport_error(event)

    on_link_error = on_connection_error = on_rejected = on_released = on_transport_error


class Sending(Client):
    """A sender of messages, as many at a time as it has credit for."""

    def __init__(self, address: str, work: Workload, *, warm_up: bool) -> None:
        super().__init__(address)
        self._messages = iter([(WARM_UP, value_of(0))]) if warm_up else iter(work)
        self._left = 1 if warm_up else work.messages
        self.began = 0

    def opened(self, container: Container) -> None:
        container.create_sender(self.connection, QUEUE)

    def on_sendable(self, event: Any) -> None:
        self.began = self.began or time.monotonic_ns()
        sender = event.sender
        while sender.credit:
            message = next(self._messages, None)
            if message is None:
                return
            sender.send(Message(body=message[1], durable=True, properties={KEY: message[0]}))

    def on_accepted(self, event: Any) -> None:
        self._left -= 1
        if not self._left:
            self.finish()


class Receiving(Client):
    """A receiver that accepts each delivery until it has the newest value of each key."""

    def __init__(self, address: str, judge: Judge, credit: int) -> None:
        super().__init__(address, prefetch=credit)
        self._judge = judge
        self.began = 0

    def opened(self, container: Container) -> None:
        container.create_receiver(self.connection, QUEUE)

    def on_link_opened(self, event: Any) -> None:
        self.began = time.monotonic_ns()

    def on_message(self, event: Any) -> None:
        judge, message = self._judge, event.message
        if judge.complete:  # prefetched: it stays in the queue
            raise RuntimeError("something came after the newest value of each key")
        key = message.properties[KEY]
        judge.take(key, bytes(message.body))
        self.accept(event.delivery)
        if key == WARM_UP:
            print("ready", flush=True)
        elif judge.complete:
            event.receiver.close()
            self.finish()


class Counting(Client):
    """A browser of the messages left in the queue, a thousand at most."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.left = 0
        self._before = 0

    def opened(self, container: Container) -> None:
        container.create_receiver(self.connection, QUEUE, options=Copy())

    def on_link_opened(self, event: Any) -> None:
        event.receiver.drain(CREDIT)

    def on_message(self, event: Any) -> None:
        self.left += 1
        self.release(event.delivery)
        if self.left == CREDIT:
            self.finish()

    def on_link_flow(self, event: Any) -> None:
        if event.link.draining() or self._finished:
            return
        # The broker has returned the credit. Artemis does so while it is still browsing, so it is asked again.
        if self.left > self._before:
            self._before = self.left
            event.receiver.drain(CREDIT - self.left)
        else:
            self.finish()


def produce(address: str, work: Workload, *, warm_up: bool = False) -> None:
    client = Sending(address, work, warm_up=warm_up)
    Container(client).run()
    say({"began": client.began, "ended": time.monotonic_ns()})


def consume(address: str, work: Workload, credit: int) -> None:
    judge = Judge(work)
    client = Receiving(address, judge, credit)
    used = time.process_time()
    Container(client).run()
    ended = time.monotonic_ns()
    if not judge.complete:
        raise RuntimeError(f"the newest values of {judge.missing} keys did not come")
    cpu = time.process_time() - used
    say({"began": client.began, "ended": ended, "deliveries": judge.deliveries, "cpu": cpu})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["produce", "warm up", "consume", "count"])
    parser.add_argument("address")
    parser.add_argument("messages", type=int)
    parser.add_argument("keys", type=int)
    parser.add_argument("--credit", type=int, default=CREDIT)
    options = parser.parse_args()
    work = Workload(options.messages, options.keys)
    if options.role == "consume":
        consume(options.address, work, options.credit)
    elif options.role == "count":
        counting = Counting(options.address)
        Container(counting).run()
        say({"left": counting.left})
    else:
        produce(options.address, work, warm_up=options.role == "warm up")


if __name__ == "__main__":
    main()
