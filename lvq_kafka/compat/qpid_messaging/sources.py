"""The queue of a receiver, which it browses or consumes.

Both can tell an empty queue from one that has not answered yet: that is what a fetch without a message means.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from lvq_kafka.cluster import Cluster
from lvq_kafka.compat.qpid_messaging.exceptions import FetchError
from lvq_kafka.compat.qpid_messaging.message import Message
from lvq_kafka.compat.qpid_messaging.translation import from_record
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition, time_rule
from lvq_kafka.core.timing.ttl import NEVER
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled, LockLost, LVQError
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.entries import Entry

__all__ = ["Browsed", "Consumed", "Consumers", "SharedConsumer", "Source", "Taken"]

logger = logging.getLogger("lvq_kafka.consumer")

_LOOK = 0.02  # seconds between looks at how far a consumer has read
_MOST_HELD = 2**31 - 1  # messages that a program may have fetched, and not acknowledged
_PATIENCE = 10.0  # seconds for a consumer to get a partition, and to read it, or to know that others have all


@dataclass(frozen=True, slots=True)
class Taken:
    """A message, and its delivery unless it was browsed."""

    message: Message
    delivery: Delivery[bytes] | None = None


class Source(Protocol):
    """A queue as one receiver reads it."""

    def fetch(self, timeout: float | None) -> Taken | None:
        """Return the next message.

        None means that nothing was left after ``timeout`` seconds of all that was stored before the call; so a call may
        take a moment longer.

        Raises:
            DecodeError: the content of the message is not what its type says.
            LVQError: the queue cannot be read.
        """

    def read_to_end(self) -> None:
        """Read all that was stored before this call.

        Raises:
            FetchError, LVQError: that is not possible now.
        """

    def waiting(self, most: int) -> int:
        """Return how many messages can be fetched at once, up to this number.

        It is 0 only if there is none.
        """

    def drop_ahead(self) -> None:
        """Return messages that were acquired ahead."""

    def close(self) -> None:
        """Stop reading."""


class Browsed:
    """A queue that a receiver browses."""

    def __init__(self, browser: Browser[bytes], definition: QueueDefinition, now: Callable[[], float]) -> None:
        self._browser = browser.start()
        self._expiry = time_rule(definition).expiry_times()
        self._now = now
        self._ahead: deque[Entry[bytes]] = deque()

    def fetch(self, timeout: float | None) -> Taken | None:
        """See `Source`."""
        if not (self._ahead or self._next(timeout)):
            self.read_to_end()
        return self._taken(self._ahead.popleft()) if self._ahead else None

    def read_to_end(self) -> None:
        """See `Source`."""
        self._ahead += [event for event in self._browser.drain() if isinstance(event, Entry)]

    def waiting(self, most: int) -> int:
        """See `Source`."""
        while len(self._ahead) < most and self._next(0.0):
            pass
        return min(most, len(self._ahead))

    def _next(self, timeout: float | None) -> bool:
        """Wait for the next value, and set it aside. Return False if there was none in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            event = self._browser.poll(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if isinstance(event, Entry):
                self._ahead.append(event)
            if event is None or isinstance(event, Entry):
                return event is not None

    def _taken(self, entry: Entry[bytes]) -> Taken:
        expires = NEVER if self._expiry is None else self._expiry.expiry(round(entry.timestamp * 1000), entry.headers)
        message = from_record(
            entry.value,
            entry.headers,
            expires=None if expires == NEVER else expires / 1000,
            now=self._now(),
            redelivered=False,
        )
        return Taken(message)

    def drop_ahead(self) -> None:
        """See `Source`."""
        self._ahead.clear()

    def close(self) -> None:
        """See `Source`."""
        self._browser.close()


class Consumed:
    """A queue that a receiver consumes, in a session of a consumer that it shares."""

    def __init__(self, consumers: Consumers, shared: SharedConsumer, definition: QueueDefinition) -> None:
        self._consumers = consumers
        self._shared = shared
        self._definition = definition
        self._session = shared.consumer.session()
        self._ahead: deque[Delivery[bytes]] = deque()
        self._unreadable: list[Delivery[bytes]] = []  # held until the end, or they would come again at once

    def fetch(self, timeout: float | None) -> Taken | None:
        """See `Source`."""
        delivery = self._acquire(timeout)
        if delivery is None:
            self.read_to_end()
            delivery = self._acquire(0)
        if delivery is None:
            return None
        try:
            message = from_record(
                delivery.raw,
                delivery.headers,
                expires=delivery.expires,
                now=self._consumers.cluster.now(),
                redelivered=delivery.redelivered,
            )
        except BaseException:
            self._unreadable.append(delivery)
            raise
        return Taken(message, delivery)

    def _acquire(self, timeout: float | None) -> Delivery[bytes] | None:
        while self._ahead:
            delivery = self._ahead.popleft()
            if delivery.state is MessageState.ACQUIRED:
                return delivery
            _release(delivery)  # a newer value has replaced it, or it is lost
        try:
            return self._session.acquire(timeout)
        except LVQError:  # the consumer has stopped, and so the next receiver gets another one
            self._consumers.replace(self._shared)
            raise

    def read_to_end(self) -> None:
        """See `Source`."""
        name, topic = self._definition.name, self._definition.topic
        give_up = time.monotonic() + _PATIENCE
        ends: dict[int, int] | None = None
        while time.monotonic() < give_up:
            stats = self._shared.consumer.stats
            if stats.standby:
                logger.warning(
                    "a receiver of %s gets nothing, since others consume all its partitions. %s", name, stats.trouble
                )
                return
            if stats.partitions and not stats.catching_up and not stats.suspended:
                if ends is None:
                    ends = self._consumers.cluster.logs.end_offsets(topic, stable=True)
                if all(stats.positions.get(partition, 0) >= ends.get(partition, 0) for partition in stats.partitions):
                    return
            time.sleep(_LOOK)
        trouble = self._shared.consumer.stats.trouble
        raise FetchError(text=f"It is not known yet what {name} holds. {trouble}".rstrip(), hint="Fetch again later.")

    def waiting(self, most: int) -> int:
        """See `Source`.

        One message is acquired ahead, since others that wait may do so until an older value is settled (G13).
        """
        delivery = self._acquire(0) if most else None
        if delivery is None:
            return 0
        self._ahead.appendleft(delivery)
        return min(most, 1 + self._shared.consumer.stats.available)

    def drop_ahead(self) -> None:
        """See `Source`."""
        while self._ahead:
            _release(self._ahead.popleft())

    def close(self) -> None:
        """See `Source`."""
        self.drop_ahead()
        for delivery in self._unreadable:
            _release(delivery)
        self._unreadable.clear()
        self._session.close()
        self._consumers.give_back(self._shared)


def _release(delivery: Delivery[bytes]) -> None:
    with suppress(AlreadySettled, LockLost):
        delivery.release()


@dataclass(slots=True, eq=False)
class SharedConsumer:
    """A consumer, and the number of receivers that use it."""

    name: str
    consumer: Consumer[bytes]
    users: int = 0


class Consumers:
    """The consumers of one connection, one for each queue, which its receivers share.

    A partition has one consumer at a time, so a second one would stand by.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._lock = Lock()
        self._open: dict[str, SharedConsumer] = {}

    def source(self, queue: LastValueQueue[bytes], check: Callable[[], None]) -> Consumed:
        """Return a source that consumes a queue, with the open consumer or a new one.

        Args:
            check: raises what opening a consumer would.

        Raises what `LastValueQueue.consumer` raises.
        """
        with self._lock:
            shared = self._open.get(queue.name)
            if shared is None:
                shared = SharedConsumer(queue.name, queue.consumer(max_in_work=_MOST_HELD))
                self._open[queue.name] = shared
            else:
                check()
            shared.users += 1
        return Consumed(self, shared, queue.definition)

    def replace(self, shared: SharedConsumer) -> None:
        """Let receivers after this have another consumer than this one, which has stopped."""
        with self._lock:
            if self._open.get(shared.name) is shared:
                del self._open[shared.name]

    def give_back(self, shared: SharedConsumer) -> None:
        """Close a consumer when its last user gives it back; that commits what was settled."""
        with self._lock:
            shared.users -= 1
            if shared.users:
                return
            if self._open.get(shared.name) is shared:
                del self._open[shared.name]
        shared.consumer.close()
