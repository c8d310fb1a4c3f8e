"""Errors for senders: whether a message was stored, and if not, why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message

from lvq_kafka.core.facts import Right
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import DeliveryFailed, DeliveryUnknown, LVQError, MessageTooLarge, TransportError
from lvq_kafka.kafka.connect import Health
from lvq_kafka.kafka.error_mapping import NO_TOPIC, UNAUTHORIZED

__all__ = ["ProduceErrors"]

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_LEAVE_OPEN = frozenset(
    {
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
"""Broker errors after which the message may be in the log. All others rule it out, unless it was sent before."""


class ProduceErrors:
    """The library's errors for those of one producer's client.

    Args:
        health: what the client reports about its connections.
        transactional_id: the producer's, if it has one.
        withdrawn: returns why messages were purged; empty if their time was up.
    """

    def __init__(self, health: Health, transactional_id: str | None, withdrawn: Callable[[], str]) -> None:
        self._health = health
        self._transactional_id = transactional_id
        self._withdrawn = withdrawn
        self.fatal: KafkaError | None = None
        """The error that made the client unusable, if any."""

    def explain(self, error: KafkaError, doing: str, topic: str | None = None, needs: Sequence[Right] = ()) -> LVQError:
        """Return the error for one that the client met while ``doing`` something.

        ``needs`` are the rights that it takes beyond writing.
        """
        if error.code() == KafkaError._FATAL:
            error = self.fatal or error
        if error.code() in _FENCED or (error.fatal() and "fenced" in error.str().lower()):
            return TransportError(
                f"Cannot {doing}: a newer writer with the transactional id {self._transactional_id!r} "
                "has fenced this one off.",
                code="_FENCED",
                hint="Use a transactional id in one process at a time; close this producer.",
            )
        explained = self._health.explain(error, doing, topic=topic, needs=[*needs, *self._writing(topic)])
        if error.fatal() and isinstance(explained, TransportError) and not explained.hint:
            return TransportError(
                str(explained),
                code=explained.code,
                hint="Close this producer and open a new one."
                if self._transactional_id is None
                else "The next transaction begins with a new client.",
            )
        return explained

    def _writing(self, topic: str | None) -> list[Right]:
        rights: list[Right] = []
        if topic is not None:
            rights.append(Right("Write", "Topic", topic))
        if self._transactional_id is not None:
            rights.append(Right("Write", "TransactionalId", self._transactional_id))
        return rights

    @property
    def losses(self) -> int:
        """The number of connections that were lost."""
        return self._health.losses

    def of_delivery(self, error: KafkaError, message: Message, *, answered: bool = True) -> TransportError:
        """Return the error for a message that was handed over, but not acknowledged as stored.

        ``answered`` is False if a connection was lost since it was handed over, and with it perhaps an answer to it.
        """
        if self._may_be_stored(error, message, answered=answered):
            return self._unknown(error, message)
        name, topic = _name(message), message.topic() or ""
        doing = f"store the message for key {name} in {topic!r}"
        if error.code() in _PURGED and self.fatal is None and (why := self._withdrawn()):
            # After a transaction with a refused batch, the client fails the next one, too: it finds a gap in its own
            # sequence.
            return DeliveryFailed(
                f"Cannot {doing}: {why}.", key=_key(message), code=error.name(), retriable=True, hint="Send it again."
            )
        cause = self.explain(self._reason(error), doing, topic)
        if isinstance(cause, MessageTooLarge):
            return MessageTooLarge(
                f"The message for key {name} has {len(_key(message) or b'') + len(message.value() or b'')} bytes of "
                f"key and value, more than max.message.bytes of the topic {topic!r}.",
                key=_key(message),
                code=error.name(),
                hint="Raise that setting or store the value elsewhere; if messages of this size pass alone, the "
                "batch was refused: set the client's batch.size below max.message.bytes.",
            )
        code, retriable = _facts(cause, error)
        failure = DeliveryFailed(
            _without_hint(cause), key=_key(message), code=code, retriable=retriable, hint=cause.hint
        )
        failure.__cause__ = cause
        return failure

    def _unknown(self, error: KafkaError, message: Message) -> DeliveryUnknown:
        doing = f"tell whether the message for key {_name(message)} in {message.topic()!r} was stored"
        remedy = "Send the key's current value again."
        if error.code() in _PURGED and self.fatal is None and (why := self._withdrawn()):
            return DeliveryUnknown(f"Cannot {doing}: {why}.", key=_key(message), code=error.name(), hint=remedy)
        cause = self.explain(self._reason(error), doing, message.topic())
        code, retriable = _facts(cause, error)
        hint = f"{cause.hint} {remedy}".lstrip()
        unknown = DeliveryUnknown(_without_hint(cause), key=_key(message), code=code, retriable=retriable, hint=hint)
        unknown.__cause__ = cause
        return unknown

    def _may_be_stored(self, error: KafkaError, message: Message, *, answered: bool) -> bool:
        """Return whether the message may be in the log, or still get there, visible to readers.

        The client does not report whether a message that it returns from its queue, or that a broker refuses, was sent
        before.
        """
        if self._transactional_id is not None or message.partition() is None:  # aborted; never given a partition
            return False
        if self.fatal is not None and self.fatal.code() in UNAUTHORIZED:  # it got no producer id, and sent nothing
            return False
        code = error.code()
        if code > 0 and not answered:
            return True
        return code in _LEAVE_OPEN or (code < 0 and code not in NO_TOPIC)

    def _reason(self, error: KafkaError) -> KafkaError:
        if self.fatal is not None:
            return self.fatal
        if error.code() in _PURGED or error.code() == KafkaError._MSG_TIMED_OUT:  # the connections' errors may say why
            return KafkaError(KafkaError._TIMED_OUT, "No acknowledgement within delivery.timeout.ms")
        return error


def _facts(cause: LVQError, error: KafkaError) -> tuple[str, bool]:
    """Return the error code, and whether a retry is worthwhile."""
    return (cause.code, cause.retriable) if isinstance(cause, TransportError) else (error.name(), False)


def _without_hint(error: LVQError) -> str:
    return str(error).removesuffix(error.hint).rstrip()


def _key(message: Message) -> bytes | None:
    key = message.key()
    return key if isinstance(key, bytes) else None


def _name(message: Message) -> str:
    return quoted(key_text(_key(message) or b""))
