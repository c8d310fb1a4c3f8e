"""Letters of expired messages, in the topic that the queue has for them."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from operator import attrgetter
from typing import Any

from lvq_kafka.cluster import Cluster
from lvq_kafka.consuming.letters import LetterWriter
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.consumer.consumer_core import ConsumerCore
from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.declared.queue_topic import describe_letter_topic
from lvq_kafka.errors import TransportError

__all__ = ["EXPIRED", "ExpiryLetters"]

logger = logging.getLogger("lvq_kafka.consumer")

EXPIRED = "expired"
"""The reason that these letters give."""

_MOST = 1000  # letters in flight
_MOMENT = 1.0  # seconds for letters in flight, if the topic is altered
_AGAIN = 1.0  # seconds until a message whose letter could not be stored is tried again
_POSITION = attrgetter("partition", "offset")


class ExpiryLetters:
    """Writes expired messages to the queue's expiry topic, with the headers of dead letters.

    Letters are written in the order of the log, also when they are retried. A letter that the cluster refuses does not
    hold up the others.

    A message is done only when all in-sync replicas have stored its letter. If its partition goes to another consumer
    before that is committed, or the process dies, the next owner writes it again, with the same ``lvq-dlq-source``;
    unless it finds a newer value of the key. The letter has no TTL of its own, and counts at once.

    Args:
        cluster: the cluster.
        topic: the expiry topic; None if the queue has none.
        shared: the consumer's shared state.

    Raises:
        TopicNotFound: the topic does not exist.
    """

    def __init__(self, cluster: Cluster, topic: str | None, shared: SharedState) -> None:
        self._cluster = cluster
        self._topic = topic
        self._shared = shared
        self._letters: LetterWriter | None = None
        self._again: list[Item] = []  # messages whose letters could not be stored
        self._refused: deque[Item] = deque()  # messages whose letters were refused, perhaps for their content
        self._probe: Item | None = None  # one of these, while it is tried again
        self._retry_at = 0.0
        self._under_way = 0
        self._failing = self._closing = False
        if topic is not None:
            describe_letter_topic(cluster, topic, "expiry topic")

    def redirect(self, topic: str | None) -> None:
        """Write to another topic from now on, or to none.

        Only the consumer's own thread calls this, while no partition is assigned. So nobody waits for the letters in
        flight: the next owner writes those that are not stored.
        """
        if topic == self._topic:
            return
        letters, self._letters = self._letters, None
        if letters is not None:
            letters.flush(_MOMENT)
            letters.close()
        self._topic = topic
        with self._shared as core:  # those that could not be stored are read again, too
            self._again.clear()
            self._refused.clear()
            self._probe, self._failing, self._retry_at = None, False, 0.0
            core.obstacles.clear("expiring")

    def post(self) -> None:
        """Write letters of expired messages. Only the consumer's own thread calls this."""
        if self._topic is None or self._closing:
            return
        for number, item in enumerate(self._next(self._shared.clock())):
            if number and self._failing:  # each try may take a second, and the group must not wait for that
                self._put_off(item)
            else:
                self._post(item)

    def _next(self, now: float) -> list[Item]:
        """Return the messages whose letters to write now.

        While no letter can be stored, that is only the first message, as a probe. Of the messages whose letters were
        refused, it is one at a time.
        """
        items: list[Item] = []
        with self._shared as core:
            keeps = core.ledger.keeps_expired
            if now >= self._retry_at and (self._again or self._refused):
                left = sorted(filter(keeps, self._again), key=_POSITION)
                most = 1 if self._failing else len(left)
                items, self._again = left[:most], left[most:]
            if not self._failing:
                items += core.pop_expired(_MOST - self._under_way - len(items), now)
            while now >= self._retry_at and self._probe is None and self._refused:
                item = self._refused.popleft()
                if keeps(item):
                    self._probe = item
                    items.append(item)
            self._under_way += len(items)
            self._clear_trouble(core)
        return items

    def _post(self, item: Item) -> None:
        assert self._topic is not None
        try:
            if self._letters is None:
                self._letters = LetterWriter(self._cluster, self._topic, self._shared.topic, expires=False)
        except Exception as error:  # noqa: BLE001  # whatever the client refuses, the message must not get lost
            self._failed(item, error)
        else:
            self._letters.post(item, EXPIRED, partial(self._decided, item))

    def _decided(self, item: Item, error: Exception | None) -> None:
        if error is not None:
            self._failed(item, error)
            return
        with self._shared as core:
            core.ledger.bury_expired(item)
            self._under_way -= 1
            if self._failing:
                self._failing, self._retry_at = False, 0.0
            if item is self._probe:  # then the others may no longer be refused, either
                self._probe = None
                self._again += self._refused
                self._refused.clear()
            self._clear_trouble(core)

    def _clear_trouble(self, core: ConsumerCore[Any]) -> None:
        """Clear the trouble once no letter is left to be stored."""
        if not (self._again or self._refused or self._under_way):
            self._failing = False
            core.obstacles.clear("expiring")

    def _failed(self, item: Item, error: Exception) -> None:
        said = bounded(
            f"what has expired in {self._shared.topic} cannot be written to {self._topic}; it stays until that "
            f"succeeds: {error}"
        )
        retriable = isinstance(error, TransportError) and error.retriable
        with self._shared as core:
            is_known = self._failing or bool(self._refused) or item is self._probe
            self._failing = self._failing or retriable
            core.obstacles.report("expiring", said)
        self._put_off(item, refused=not retriable)
        if not (is_known or self._closing):
            logger.warning("%s", said)

    def _put_off(self, item: Item, *, refused: bool = False) -> None:
        with self._shared:
            self._under_way -= 1
            self._retry_at = self._shared.clock() + _AGAIN
            if item is self._probe:
                self._probe = None
            if refused:
                self._refused.append(item)
            else:
                self._again.append(item)

    def flush(self, timeout: float | None) -> None:
        """Wait for letters in flight."""
        if self._letters is not None:
            self._letters.flush(timeout)

    def close(self, timeout: float | None) -> None:
        """Wait for letters in flight. The next owner writes those that are not stored in time."""
        self._closing = True
        self.flush(timeout)
        if self._letters is not None:
            self._letters.close()
