"""Dead letters: the fate of messages that cannot be processed."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from lvq_kafka.cluster import Cluster, LogWriter, Receipt
from lvq_kafka.consuming.letters import LetterWriter, letter_headers, letter_key, log_shortened, own_headers, writable
from lvq_kafka.consuming.settlement import Decision, Durability, Durable
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.facts import Position
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.queue.definition import check_letter_topic
from lvq_kafka.core.text.quoting import bounded, printable, quoted
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.declared.queue_topic import describe_letter_topic
from lvq_kafka.errors import (
    AlreadySettled,
    ConfigError,
    DeliveryFailed,
    DeliveryUnknown,
    LockLost,
    MessageTooLarge,
    TransportError,
)

__all__ = ["DeadLetters", "reason_text"]

logger = logging.getLogger("lvq_kafka.consumer")

_MOMENT = 1.0  # seconds for letters in flight, if the topic is altered
_AGAIN = 1.0  # seconds until a message whose dead letter could not be stored is available again


def reason_text(reason: str | BaseException) -> str:
    """Return a reason as text: for an error, its type and message.

    Raises:
        ConfigError: the reason is neither text nor an exception.
    """
    if isinstance(reason, str):
        return str(reason)
    if not isinstance(reason, BaseException):
        raise ConfigError(
            f"reason={quoted(reason)} is neither text nor an exception.",
            options=["reason"],
            hint="Pass the error itself, or text that says what is wrong with the message.",
        )
    try:
        said = str(reason)
    except Exception:  # noqa: BLE001  # an error whose str() fails is still a reason
        said = ""
    return f"{type(reason).__name__}: {said}".removesuffix(": ")


class _Letter:
    """A dead letter in flight, and the `Durability` of its message.

    The message is removed once the letter is stored.
    """

    def __init__(self, shared: SharedState, item: Item, reason: str) -> None:
        self._shared = shared
        self.item = item
        self.reason = reason
        self.decision = Decision()

    @property
    def obstacle(self) -> str:
        """See `Durability`."""
        return self._shared.obstacle

    def check_may_wait(self) -> None:
        """See `Durability`."""
        self._shared.check_may_wait()

    def when_durable(self, item: Item) -> Durable:
        """See `Durability.when_durable`.

        The future fails with `DeliveryFailed` if the letter could not be stored, and with `DeliveryUnknown` if it may
        have been. Either way the message is redelivered.
        """
        outcome = Decision()

        def decided(decision: Durable) -> None:
            if decision.exception() is None:
                self._shared.when_durable(item).add_done_callback(notify)
            else:
                notify(decision)

        def notify(answer: Durable) -> None:
            outcome.make(answer.exception())

        self.decision.add_done_callback(decided)
        return outcome


class DeadLetters:
    """Removes rejected messages from a queue, to a dead letter topic if there is one.

    A message is done only when all in-sync replicas have stored its dead letter. After a crash before that, the message
    is redelivered, and may produce a second dead letter with the same ``lvq-dlq-source``.

    Args:
        cluster: the cluster.
        topic: the consumer's own dead letter topic; None if it has none.
        shared: the consumer's shared state.
        of_queue: the queue's, for consumers that have none. Without either, rejected messages are dropped.

    Raises:
        TopicNotFound: the topic does not exist.
        ConfigError: see `check_letter_topic`.
    """

    def __init__(self, cluster: Cluster, topic: str | None, shared: SharedState, of_queue: str | None = None) -> None:
        self._cluster = cluster
        self._own = topic
        self.topic = topic or of_queue
        self._shared = shared
        self._letters: LetterWriter | None = None
        self._too_large: set[Position] = set()
        if self.topic is None:
            return
        check_letter_topic(self.topic, shared.topic, "dead_letters")
        describe_letter_topic(cluster, self.topic, "dead letter topic")
        self._letters = self._writer()

    def _writer(self) -> LetterWriter | None:
        return None if self.topic is None else LetterWriter(self._cluster, self.topic, self._shared.topic, expires=True)

    def redirect(self, of_queue: str | None) -> None:
        """Write to the queue's other topic from now on, unless the consumer has its own.

        Only the consumer's own thread calls this, while no partition is assigned: messages whose letters are in flight
        come again.
        """
        if (topic := self._own or of_queue) == self.topic:
            return
        letters, self.topic = self._letters, topic
        self._letters = self._writer()
        if letters is not None:
            letters.flush(_MOMENT)
            letters.close()
        with self._shared as core:  # whether the other topic takes letters shows with the next one
            core.obstacles.clear("rejecting")

    def reject(self, item: Item, reason: str) -> Durability:
        """Reject a held message. Return the `Durability` that knows when the rejection is durable.

        Raises:
            AlreadySettled, LockLost: see `lvq_kafka.consuming.delivery.Delivery.reject`.
        """
        if self._letters is None:
            self._shared.apply(Ledger.reject, item)
            self.log_rejection(item, reason)
            return self._shared
        letter = _Letter(self._shared, item, reason)
        try:
            self._shared.apply(Ledger.leave, item)
            self._post(letter)
        except (AlreadySettled, LockLost):
            raise
        except BaseException:  # an interrupt: no callback would ever return the message
            self._give_back(item)
            raise
        return letter

    def reject_exhausted(self, items: list[Item]) -> None:
        """Reject leaving messages that were already delivered as often as allowed."""
        left = items[::-1]
        try:
            while left:
                self._dismiss(left[-1])
                left.pop()
        except BaseException:
            for item in left:
                self._give_back(item)
            raise

    def _dismiss(self, item: Item) -> None:
        reason = f"delivered {item.delivered} times and never acknowledged"
        if self._letters is None:
            with suppress(LockLost):
                self._bury(item, reason)
        else:
            self._post(_Letter(self._shared, item, reason))

    def flush(self, timeout: float | None) -> None:
        """Wait for letters in flight."""
        if self._letters is not None:
            self._letters.flush(timeout)

    def close(self, timeout: float | None) -> None:
        """Wait for letters in flight. Messages whose letters are not stored in time are returned."""
        self.flush(timeout)
        if self._letters is not None:
            self._letters.close()

    def log_rejection(self, item: Item, reason: str) -> None:
        """Log a rejection."""
        where = f"moved to {self.topic}" if self.topic is not None else "removed"
        reason = writable(reason) or "no reason given"
        logger.warning("%s was rejected and %s: %s", self._source(item), where, printable(reason, keep="\n\t"))

    def post_with(self, writer: LogWriter, item: Item, reason: str) -> None:
        """Append a message's dead letter to a transaction; do nothing without a dead letter topic.

        If the broker finds the letter too large, the transaction aborts and the message is redelivered. Its next letter
        is then the message with its original headers.
        """
        if self.topic is None:
            return
        source = self._source(item)
        letter = partial(writer.append, self.topic, letter_key(item, self._shared.topic), item.value)
        if source in self._too_large:
            log_shortened(source)
            receipt = letter(own_headers(item))
        else:
            try:
                receipt = letter(letter_headers(item, self._shared.topic, reason))
            except MessageTooLarge:
                log_shortened(source)
                receipt = letter(own_headers(item))
        receipt.add_done_callback(partial(self._learn_size, source))

    def _learn_size(self, source: Position, receipt: Receipt) -> None:
        error = receipt.exception(0)
        if isinstance(error, MessageTooLarge):
            self._too_large.add(source)
        elif error is None:
            self._too_large.discard(source)

    def _post(self, letter: _Letter) -> None:
        assert self._letters is not None
        self._letters.post(letter.item, letter.reason, partial(self._decided, letter))

    def _decided(self, letter: _Letter, error: Exception | None) -> None:
        if error is not None:
            self._failed(letter, error)
            return
        try:
            self._bury(letter.item, letter.reason)
        except (LockLost, AlreadySettled) as lost:  # its next holder rejects it, too
            letter.decision.make(lost)
        else:
            letter.decision.make(None)
        with self._shared as core:
            core.obstacles.clear("rejecting")

    def _bury(self, item: Item, reason: str) -> None:
        self.log_rejection(item, reason)
        self._shared.apply(Ledger.bury, item)

    def _failed(self, letter: _Letter, error: Exception) -> None:
        item, source = letter.item, self._source(letter.item)
        is_open = isinstance(error, DeliveryUnknown)
        what = f"dead letter of {source} {'may not have been stored' if is_open else 'could not be stored'}: {error}"
        with self._shared as core:
            known = core.obstacles.of("rejecting")
            core.obstacles.report("rejecting", bounded(f"the {what}"))
        if not known:
            logger.warning("the %s", what)
        self._give_back(item, self._shared.clock() + _AGAIN)
        failure = (DeliveryUnknown if is_open else DeliveryFailed)(
            f"The {what}",
            key=item.key,
            code=error.code if isinstance(error, TransportError) else "_FAIL",
            retriable=isinstance(error, TransportError) and error.retriable,
            hint="The message stays in the queue and comes again, unless a newer value replaces it.",
        )
        failure.__cause__ = error
        letter.decision.make(failure)

    def _give_back(self, item: Item, due: float | None = None) -> None:
        with suppress(LockLost, AlreadySettled):
            self._shared.apply(partial(Ledger.give_back, due=due), item)

    def _source(self, item: Item) -> Position:
        return Position(self._shared.topic, item.partition, item.offset)
