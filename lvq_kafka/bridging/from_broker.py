"""Copying the queue of another broker into a queue.

Each message is settled there once Kafka has it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Literal

from lvq_kafka.bridging.amqp_link import AmqpLink, Disposition
from lvq_kafka.bridging.amqp_message import AmqpMessage, decode_message
from lvq_kafka.bridging.amqp_values import Malformed
from lvq_kafka.bridging.broker_address import BrokerAddress
from lvq_kafka.bridging.copied_values import CopiedValues
from lvq_kafka.bridging.counterparts import FromAmqp, Unfit
from lvq_kafka.bridging.window import Arrival, Window
from lvq_kafka.cluster import Receipt
from lvq_kafka.core.text.quoting import bounded, quoted
from lvq_kafka.errors import (
    ConfigError,
    DeliveryUnknown,
    EncodeError,
    LVQError,
    MessageTooLarge,
    MissingKey,
    QueueFull,
    TransportError,
    UnencodableKey,
)
from lvq_kafka.producing.producer import Message, Producer
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.runtime.notice import Notice

__all__ = ["BridgeStats", "FromBroker", "Mode"]

logger = logging.getLogger("lvq_kafka.bridge")

Mode = Literal["browse", "consume"]

_MOST = 1000  # messages that are not settled
_MOST_BYTES = 64 << 20  # that these have
_ROOM = 100  # messages for which there is room before more are asked for
_PAUSE = 0.5  # seconds until a message that Kafka or the queue did not take is tried again
_MOST_BLOCK = 1.0  # seconds that a send may wait for room; meanwhile nothing is settled
_CLOSING = 5.0  # seconds at the end for messages that were sent
_MOST_LEFT = 10_000  # messages that stay in the source while others are consumed
_NAMED = 10  # messages that stay in the source and are named
_IDLE = 0.5  # seconds without a message after which the other broker is asked whether there are more
_LOOK = 10.0  # seconds between two looks at a queue that does not tell a browser what comes
_FOLLOWED = "qpid"  # in the name of products whose browsers see what comes

_REFUSED = (ConfigError, MessageTooLarge, MissingKey, UnencodableKey)
"""Errors of a message that every other attempt would meet, too."""


@dataclass
class BridgeStats:
    """The work of a bridge so far."""

    copied: int = 0
    """Messages that the destination has stored, repeated ones included."""
    unchanged: int = 0
    """Messages that came again while browsing, on the next look or after an outage, and were not sent again."""
    left: int = 0
    """Messages that stay in the source, as the destination cannot take them; counted again from each connection on."""
    again: int = 0
    """Messages that had been sent when the link was lost, before they were settled: they may be there twice."""
    in_flight: int = 0
    """Messages that are on their way."""
    not_carried: Mapping[str, int] = field(default_factory=dict)
    """By name, the number of messages that were copied without something that has no place here, such as a TTL."""


class FromBroker:
    """Copies the queue of another broker into a queue.

    One thread calls `run`. The reports of the link and of the producer arrive there in one line, so all state belongs
    to that thread.

    Args:
        address: the other broker and its queue.
        queue: the destination.
        mode: ``"browse"`` leaves the messages in the source, ``"consume"`` removes them.
        once: whether to end when the source has no more.
        dry_run: whether to store nothing, and only count what would be copied; for ``"browse"`` and ``once``.
        key_property: the application property that holds the key, see `FromAmqp`.

    Raises:
        MissingExtra: the extra ``bridge`` is not installed.
        ConfigError: a file for TLS cannot be read.
    """

    def __init__(
        self,
        address: BrokerAddress,
        queue: LastValueQueue[bytes],
        *,
        mode: Mode = "browse",
        once: bool = False,
        dry_run: bool = False,
        key_property: str | None = None,
    ) -> None:
        self._queue = queue
        self._dry_run = dry_run
        self._browses = mode == "browse"
        self._once = once
        self._translation = FromAmqp(queue.definition, key_property)
        self.stats = BridgeStats(not_carried=self._translation.not_carried)
        self._window = Window(_MOST, _MOST_BYTES)
        self._reports: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._link = AmqpLink(address, _Reporter(self, self._reports), browses=self._browses, most_bytes=_MOST_BYTES)
        self._known = CopiedValues(queue.definition.conflate) if self._browses else None
        self._attachment: int | None = None
        self._granted = 0
        self._draining = False
        self._brought = False  # since the drain
        self._follows = False
        self._exhausted = False
        self._idle_at = inf
        self._look_at = inf
        self._failure: BaseException | None = None
        self._pause_until = 0.0
        self._notice = Notice()
        self._trouble = ""
        self._named: set[str] = set()

    @property
    def trouble(self) -> str:
        """The side that it waits for, and why; empty if it waits for messages only."""
        return self._link.trouble or self._trouble

    def run(self) -> None:
        """Copy until the source has no more, or without an end.

        Raises:
            BrokerRefused: the other broker refuses, and never was connected.
            LVQError: the cluster or the queue refuses; see `LastValueQueue.producer` and `Producer.send`.
        """
        with self._queue.producer(max_block=_MOST_BLOCK) as producer:
            try:
                self._link.start()
                while not (self._once and self._exhausted and not len(self._window)):
                    self._handle_reports(self._patience())
                    self._send(producer)
                    self._conclude()
                    self._grant()
                    self._drain()
                    self._renew_look()
                    if self._failure is not None:
                        raise self._failure
            finally:
                self._finish()

    # ---------------------------------------------------------------- reports

    def _patience(self) -> float | None:
        """Return how long the next report may take, in seconds; None if nothing else is to do."""
        waits = self._window.next is not None or self._window.must_retry
        until = min(self._pause_until if waits else inf, self._idle_at if self._asks_for_end else inf, self._look_at)
        return None if until == inf else max(0.0, until - time.monotonic())

    def _handle_reports(self, timeout: float | None) -> None:
        """Wait for a report, and handle all that are there."""
        try:
            report = self._reports.get_nowait() if timeout == 0 else self._reports.get(timeout=timeout)
            while True:
                report()
                report = self._reports.get_nowait()
        except Empty:
            pass

    def attached(self, attachment: int, product: str) -> None:
        """See `LinkListener`."""
        self._attachment, self._granted, self._draining, self._exhausted = attachment, 0, False, False
        self._follows = not self._browses or _FOLLOWED in product.lower()
        self.stats.left = 0  # they all come again
        if self._known is not None:
            self._known.start_over()

    def detached(self) -> None:
        """See `LinkListener`. Browsed messages are still copied; others will come again."""
        self._attachment, self._granted, self._exhausted, self._look_at = None, 0, False, inf
        if not self._browses:
            self.stats.again += self._window.in_flight
            self._window.forget()

    def arrived(self, tag: int, data: bytes | None, size: int) -> None:
        """See `LinkListener`."""
        self._granted = max(0, self._granted - 1)
        self._brought = True
        self._idle_at = time.monotonic() + _IDLE
        amqp = AmqpMessage()
        arrival = Arrival(tag, size, None)
        try:
            if data is None:
                raise Unfit(f"it has {size:,} bytes of at most {_MOST_BYTES:,}")
            amqp = decode_message(data)
            message = self._translation.message(amqp, self._queue.cluster.now())
            if self._known is not None and self._known.has(self._translation.key_of(message), data[amqp.bare_at :]):
                self.stats.unchanged += 1
            elif self._dry_run:
                self.stats.copied += 1
            else:
                arrival.message = message
        except Malformed as error:
            self._leave(arrival, amqp, f"it is malformed: {error}")
        except Unfit as error:
            self._leave(arrival, amqp, str(error))
        self._window.add(arrival)
        for warning in self._translation.pop_warnings():
            logger.warning("%s", warning)

    def drained(self) -> None:
        """See `LinkListener`.

        Artemis gives credit back while it is still browsing, so only a drain that brings nothing is the end. It may
        also answer for an earlier drain whose credit was used up, so there is none while messages come.
        """
        self._exhausted = self._granted > 0 and not self._brought
        self._draining, self._granted = False, 0
        if self._exhausted and self._known is not None:
            self._known.end_look()
        if self._exhausted and not self._follows:
            self._look_at = time.monotonic() + _LOOK

    def decided(self, arrival: Arrival, receipt: Receipt) -> None:
        """Note what became of a message that was sent."""
        message, error = arrival.message, receipt.exception()
        if error is None:
            self.stats.copied += 1
            if self._notice.ends():
                logger.warning("%s takes messages again", self._queue.name)
            self._trouble = ""
            self._window.decide(arrival, stored=True)
        elif isinstance(error, _REFUSED):
            self._window.decide(arrival, stored=False)
            self._leave(arrival, message, str(error))
        elif isinstance(error, DeliveryUnknown) or (isinstance(error, TransportError) and error.retriable):
            self._window.decide(arrival, stored=False, retry=True)
            self._hold(error)
        else:
            self._window.decide(arrival, stored=False, retry=True)
            self._failure = error

    def failed(self, error: LVQError) -> None:
        """See `LinkListener`."""
        self._failure = error

    # ---------------------------------------------------------------- work

    def _send(self, producer: Producer[bytes]) -> None:
        if time.monotonic() < self._pause_until:
            return
        if self._window.must_retry:
            self._window.retry()
        while (arrival := self._window.next) is not None:
            assert arrival.message is not None
            try:
                receipt = producer.send(arrival.message)
            except _REFUSED as error:
                self._leave(arrival, arrival.message, str(error))
                self._window.leave_out()
            except (QueueFull, TransportError) as error:
                if isinstance(error, TransportError) and not error.retriable:
                    raise
                self._hold(error)
                break
            else:
                self._window.send()
                receipt.add_done_callback(partial(self._report_decided, arrival))

    def _report_decided(self, arrival: Arrival, receipt: Receipt) -> None:
        self._reports.put(partial(self.decided, arrival, receipt))

    def _hold(self, error: LVQError) -> None:
        """Try again after a pause."""
        self._pause_until = time.monotonic() + _PAUSE
        self._trouble = f"waiting for {self._queue.name}: {error}"
        if self._notice.begins():
            logger.warning("%s takes no messages: %s Trying again until it does", self._queue.name, error)

    def _leave(self, arrival: Arrival, message: AmqpMessage | Message[bytes] | None, reason: str) -> None:
        """Note that a message stays in the source.

        The other broker has to remember each while others are consumed, so there may not be too many.
        """
        self.stats.left += 1
        if not self._browses and self.stats.left > _MOST_LEFT:
            self._failure = EncodeError(
                f"More than {_MOST_LEFT:,} messages of {self._link.address} cannot be copied.",
                hint="They stay there. Copy with `browse` to see how many there are.",
            )
        if isinstance(message, Message) and self._known is not None:
            self._known.forget(self._translation.key_of(message))
        said = f"{_id_of(message)} stays in {self._link.address}: {bounded(reason)}"
        if said not in self._named and len(self._named) < _NAMED:
            self._named.add(said)
            logger.warning("message %d%s", arrival.tag + 1, said)
            if len(self._named) == _NAMED:
                logger.warning("further messages that stay in %s are counted only", self._link.address)

    def _conclude(self) -> None:
        settled = self._window.pop_decided()
        if settled and self._attachment is not None:
            self._link.conclude(self._attachment, [(arrival.tag, arrival.stored) for arrival in settled])
        self.stats.in_flight = len(self._window)

    def _grant(self) -> None:
        if self._attachment is None or (self._exhausted and (self._once or not self._follows)):
            return
        if self._draining:
            return
        room = self._window.room(self._granted)
        if room >= _ROOM or (room and not self._granted):
            self._granted += room
            self._idle_at = time.monotonic() + _IDLE
            self._link.grant(self._attachment, room)

    @property
    def _asks_for_end(self) -> bool:
        """True if it has to know whether the source has more, and does not yet."""
        return bool(self._granted) and not self._draining and not self._exhausted and (self._once or self._browses)

    def _drain(self) -> None:
        """Ask whether the source has more, if nothing has come for a while."""
        if self._attachment is not None and self._asks_for_end and time.monotonic() >= self._idle_at:
            self._draining, self._brought = True, False
            self._link.grant(self._attachment, 0, drain=True)

    def _renew_look(self) -> None:
        """Browse from the beginning again if it is time, and all that was there has been copied."""
        if self._attachment is not None and not len(self._window) and time.monotonic() >= self._look_at:
            self._look_at = inf
            self._link.renew(self._attachment)

    def _finish(self) -> None:
        """Settle what is stored within a few seconds; the rest stays in the source."""
        deadline = time.monotonic() + _CLOSING
        while self._window.in_flight and (left := deadline - time.monotonic()) > 0:
            self._handle_reports(left)
        self._handle_reports(0)
        self._conclude()
        self._link.close()


class _Reporter:
    """The listener of a link that puts its reports into the line of a bridge."""

    def __init__(self, bridge: FromBroker, reports: SimpleQueue[Callable[[], object]]) -> None:
        self._bridge = bridge
        self._put = reports.put

    def attached(self, attachment: int, product: str) -> None:
        self._put(partial(self._bridge.attached, attachment, product))

    def detached(self) -> None:
        self._put(self._bridge.detached)

    def arrived(self, tag: int, data: bytes | None, size: int) -> None:
        self._put(partial(self._bridge.arrived, tag, data, size))

    def drained(self) -> None:
        self._put(self._bridge.drained)

    def settled(self, tag: int, outcome: Disposition, why: str) -> None:
        raise AssertionError("nothing is sent")

    def failed(self, error: LVQError) -> None:
        self._put(partial(self._bridge.failed, error))


def _id_of(message: AmqpMessage | Message[bytes] | None) -> str:
    said = None
    if isinstance(message, AmqpMessage):
        said = message.properties.get("message-id")
    elif message is not None:
        said = dict(message.headers).get("amqp-message-id")
    return "" if said is None else f" with the id {quoted(said)}"
