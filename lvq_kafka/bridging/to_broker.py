"""Moving the messages of a queue to another broker.

Each is acked here once the broker has accepted it.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from lvq_kafka.bridging.amqp_link import AmqpLink, Disposition
from lvq_kafka.bridging.amqp_message import encode_message
from lvq_kafka.bridging.broker_address import BrokerAddress
from lvq_kafka.bridging.counterparts import ToAmqp, Unfit
from lvq_kafka.bridging.from_broker import BridgeStats
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled, LockLost, LVQError
from lvq_kafka.queue import LastValueQueue

__all__ = ["ToBroker"]

logger = logging.getLogger("lvq_kafka.bridge")

_MOST = 1000  # messages that are in work
_MOST_BYTES = 64 << 20  # that these have
_LOOK = 0.2  # seconds between two looks at the link while no message comes
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds until a message that was not accepted is sent again
_CLOSING = 5.0  # seconds at the end for messages that were sent
_NAMED = 10  # messages that are not accepted and are named
_STALLS = 2  # links that were lost before anything was settled, after which messages are sent one by one


class ToBroker:
    """Moves the messages of a queue to another broker.

    One thread calls `run`, which acquires and sends. The link's own thread settles.

    Args:
        queue: the source.
        address: the other broker and its queue.
        once: whether to end when all that waits has been accepted, or refused.
        key_property: see `ToAmqp`.
        text: see `ToAmqp`.
        duplicate_ids: whether each message gets an id by which Artemis drops one that comes twice.

    Raises:
        MissingExtra: the extra ``bridge`` is not installed.
        ConfigError: a file for TLS cannot be read, or nothing would name the key.
        TopicNotFound: the queue's topic does not exist.
    """

    def __init__(
        self,
        queue: LastValueQueue[bytes],
        address: BrokerAddress,
        *,
        once: bool = False,
        key_property: str | None = None,
        text: bool = False,
        duplicate_ids: bool = False,
    ) -> None:
        self.stats = BridgeStats()
        self._queue = queue
        self._once = once
        topic_id = queue.cluster.topics.describe(queue.topic).id if duplicate_ids else None
        self._translation = ToAmqp(queue.definition, key_property, text=text, duplicate_ids=topic_id)
        self._link = AmqpLink(address, self, sends=True)
        self._changed = threading.Condition()  # guards all below
        self._attachment: int | None = None
        self._sent: dict[int, tuple[Delivery[bytes], bytes]] = {}
        self._bytes = 0
        self._refusals: dict[str, int] = {}  # by position, of messages that were not accepted
        self._stalls = 0  # links in a row that were lost before anything was settled
        self._probes = False  # sends one message, and no other until it is settled
        self._failure: LVQError | None = None
        self._tag = 0
        self._named = 0

    @property
    def trouble(self) -> str:
        """The side that it waits for, and why; empty if it waits for messages only."""
        return self._link.trouble

    def run(self) -> None:
        """Move messages until none waits, or without an end.

        Raises:
            BrokerRefused: the other broker refuses, and never was connected.
            LVQError: the consumer has stopped; see `Consumer.acquire`.
        """
        with self._queue.consumer(max_in_work=_MOST) as consumer:
            self._link.start()
            try:
                idle = False
                while not self._is_done(consumer, idle=idle):
                    if not self._wait_for_room():
                        idle = False
                    elif not (idle := (delivery := consumer.acquire(_LOOK)) is None):
                        self._send(delivery)
            finally:
                self._finish()

    def _wait_for_room(self) -> bool:
        """Wait a moment for a link with room for a message; return whether there is one."""
        with self._changed:
            if not self._has_room():
                self._changed.wait(_LOOK)
            if self._failure is not None:
                raise self._failure
            return self._has_room()

    def _has_room(self) -> bool:
        has_link = self._attachment is not None and not self._probes
        return has_link and len(self._sent) < _MOST and self._bytes < _MOST_BYTES

    def _is_done(self, consumer: Consumer[bytes], *, idle: bool) -> bool:
        """Return whether all that the queue held has been accepted, or refused at least once.

        Args:
            idle: whether there was no message to take a moment ago; those that were refused wait to be tried again.
        """
        if not self._once or self._attachment is None:
            return False
        stats = consumer.stats
        with self._changed:
            if not stats.partitions or stats.catching_up or stats.suspended or self._sent:
                return False
            return not stats.available or (idle and stats.available <= len(self._refusals))

    def _send(self, delivery: Delivery[bytes]) -> None:
        try:
            amqp = self._translation.message(
                delivery.key,
                delivery.raw,
                delivery.headers,
                expires=delivery.expires,
                position=delivery.position,
                now=self._queue.cluster.now(),
            )
        except Unfit as error:
            self._refuse(delivery, str(error))
            return
        data = encode_message(amqp)
        with self._changed:
            self._tag += 1
            self._sent[self._tag] = delivery, data
            self._bytes += len(data)
            self.stats.in_flight = len(self._sent)
            if self._attachment is not None and not self._probes:
                self._link.send(self._attachment, self._tag, data)

    def _refuse(self, delivery: Delivery[bytes], why: str) -> None:
        """Try a message again after a while; others of its key replace it meanwhile."""
        position = str(delivery.position)
        with self._changed:
            times = self._refusals[position] = self._refusals.pop(position, 0) + 1
            self.stats.left = len(self._refusals)
            self._named += times == 1
            if times == 1 and self._named <= _NAMED:
                what = "further ones are counted only" if self._named == _NAMED else "trying again, now and then"
                logger.warning("%s stays in %s: %s; %s", delivery, self._queue.name, bounded(why), what)
        with suppress(LockLost, AlreadySettled):
            delivery.release(delay=min(_FIRST_PAUSE * 2 ** min(times - 1, 10), _LONGEST_PAUSE))

    def _finish(self) -> None:
        deadline = time.monotonic() + _CLOSING
        with self._changed:
            while self._sent and self._attachment is not None and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        self._link.close()

    # ---------------------------------------------------------------- reports, on the link's thread

    def attached(self, attachment: int, product: str) -> None:
        """See `LinkListener`. Sends again what was not settled; it is still held.

        A broker may end the link because of one of these messages. So if it ends again and again, they are sent one by
        one, to find out which.
        """
        with self._changed:
            self._attachment = attachment
            self._probes = self._stalls >= _STALLS
            for tag, (delivery, _) in list(self._sent.items()):
                if delivery.state is not MessageState.ACQUIRED:
                    # Another consumer has it, or a newer value of its key, which must not come first.
                    self._forget(tag)
                    with suppress(LockLost, AlreadySettled):
                        delivery.release()
            self._send_again()
            self._changed.notify_all()

    def _send_again(self) -> None:
        """Send all that is not settled, or the first of it."""
        assert self._attachment is not None
        for tag in list(self._sent)[: 1 if self._probes else None]:
            self.stats.again += 1
            self._link.send(self._attachment, tag, self._sent[tag][1])

    def _forget(self, tag: int) -> Delivery[bytes]:
        """Return a delivery that is not on its way any longer."""
        delivery, data = self._sent.pop(tag)
        self._bytes -= len(data)
        self.stats.in_flight = len(self._sent)
        return delivery

    def detached(self) -> None:
        """See `LinkListener`."""
        guilty = None
        with self._changed:
            self._attachment = None
            self._stalls = self._stalls + 1 if self._sent else 0
            if self._probes and self._sent:
                guilty = self._forget(next(iter(self._sent)))
        if guilty is not None:
            self._refuse(guilty, f"the other broker ends the link when it comes; {self._link.trouble}")

    def arrived(self, tag: int, data: bytes | None, size: int) -> None:
        """See `LinkListener`."""
        raise AssertionError("nothing is received")

    def drained(self) -> None:
        """See `LinkListener`."""

    def settled(self, tag: int, outcome: Disposition, why: str) -> None:
        """See `LinkListener`."""
        with self._changed:
            delivery = self._forget(tag)
            self._stalls = 0
            if self._probes and self._attachment is not None:
                self._probes = False
                self._send_again()
            if outcome == "accepted":
                self.stats.copied += 1
                self._refusals.pop(str(delivery.position), None)
                self.stats.left = len(self._refusals)
            self._changed.notify_all()
        if outcome != "accepted":
            self._refuse(delivery, ": ".join(filter(None, (f"the other broker answers {outcome}", why))))
            return
        try:
            delivery.ack()
        except (LockLost, AlreadySettled):
            logger.warning("%s was accepted, but its lock had been lost; it may be sent again", delivery)

    def failed(self, error: LVQError) -> None:
        """See `LinkListener`."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()
