"""Append to Kafka: idempotent, and acknowledged by all in-sync replicas (G14).

Keys are placed as Java places them (G15).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException, Producer

from lvq_kafka.cluster import Commit, GroupMember, LogWriter
from lvq_kafka.cluster.rights import consuming
from lvq_kafka.codecs import HeaderPairs
from lvq_kafka.core.facts import Right
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.measures.measured import ProducerFacts
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import BoundToProcess, Closed, LVQError, MessageTooLarge, StateError, TransportError
from lvq_kafka.kafka.ages import limit_of, without_deadline
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_producer
from lvq_kafka.kafka.deliveries import Deliveries, KafkaReceipt
from lvq_kafka.kafka.error_mapping import kafka_error
from lvq_kafka.kafka.kafka_groups import offsets_of
from lvq_kafka.kafka.offset_fetch import memberless
from lvq_kafka.kafka.produce_errors import ProduceErrors
from lvq_kafka.kafka.size_limits import MESSAGE, message_limit
from lvq_kafka.kafka.transactions import Transactions
from lvq_kafka.runtime.aio import may_wait
from lvq_kafka.runtime.forking import LeftBehind, left_behind, notify_of_forks
from lvq_kafka.runtime.overriding import override

__all__ = ["KafkaWriter"]

OWNED = {
    # G14: retries keep the order, and an acknowledgement means all in-sync replicas. A batch may still be stored twice
    # if its partition gets another leader before it is acknowledged: only transactions exclude that.
    "enable.idempotence": True,
    "acks": "all",
    # G15: like Java's default partitioner. Records without a key, of standard queues, go to any partition.
    "partitioner": "murmur2_random",
    # A missing topic is a mistake to report, not one to paper over with the broker's defaults.
    "allow.auto.create.topics": False,
}
DEFAULTS = {
    # Measured on loopback: an acknowledgement takes 0.4 ms with 0 and 1.5 ms with anything up to 1, because the client
    # counts in milliseconds. Under load, records gather in batches by themselves; 5 would save a fifth of the CPU then.
    "linger.ms": 0,
    "message.max.bytes": MESSAGE,
    # How long an unknown topic may still turn up. A new one is known everywhere within seconds.
    "topic.metadata.propagation.max.ms": 10_000,
    # How long a writer may use an old partition count: what it writes to a key's old home partition loses (R14).
    "topic.metadata.refresh.interval.ms": 30_000,
}
_TRANSACTION_TIMEOUT_MS = 60_000  # the client's default
_BUFFERED = 100_000  # messages, the client's default
_FULL_POLL = 0.01  # seconds between attempts while the local buffer is full
_CLOSE_TIMEOUT = 5.0  # for the abort after the flush
_HOLD = 1.0  # seconds that appends wait before messages are given up; half of it once acknowledgements stop
_WITHDRAWAL = 5.0  # seconds for the client to report everything that was purged


class KafkaWriter(LogWriter, LeftBehind):
    """A writer to Kafka. Not usable in a child process after a fork: open a new one there.

    Args:
        config: how to reach the cluster. ``linger.ms``, ``batch.size``, ``compression.type``, ``delivery.timeout.ms``
            and the like may be set; the properties that durability and placement rest on may not.
            ``delivery.timeout.ms`` (120,000) is how long an append may be undecided: one that takes longer fails, and
            so does everything after it. ``socket.timeout.ms`` is at most half of that.
        transactional_id: write in transactions only. Opening fences off an earlier writer with the same id.
        max_block: seconds that an append may wait for room in the local buffer.

    Raises:
        ConfigError: librdkafka rejects a property.
        TransportError: the cluster does not let us open the transactional id.
    """

    def __init__(
        self, config: ClientConfig, *, transactional_id: str | None = None, max_block: float | None = None
    ) -> None:
        self._health = Health(config.bootstrap_servers, config.properties)
        self._transactional_id = transactional_id
        self._max_block = max_block
        self._limit = message_limit(config.properties)
        self._config = config
        self._gate = threading.Lock()
        self._counts = False
        self._produce: Callable[..., object]
        self._open_client()
        self._most = int(str(config.properties.get("queue.buffering.max.messages", _BUFFERED))) or sys.maxsize
        # As many undecided appends leave no room: fewer than the most while the client has none for their bytes.
        self._full_at = self._most
        self._closed = False
        self._closing = threading.Lock()
        self._cut_short = False
        self._memberless: dict[str, object] = {}  # by group, what it knows of a committer that is no member
        self._transactions: Transactions | None = None
        if transactional_id is not None:
            lasts = int(str(config.properties.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))) / 1000
            self._transactions = Transactions(
                transactional_id,
                self._client,
                self._deliveries,
                self._health,
                self._explain,
                self._replace_client,
                lasts,
            )
            try:
                self._transactions.start()
            except LVQError:
                self.close(0)
                raise
        notify_of_forks(self)

    @override
    def left_behind(self) -> None:
        self._closed, self._closing, self._produce = True, threading.Lock(), _refuse_in_child
        self._deliveries.left_behind()

    @override
    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None = None,
        partition: int = -1,
    ) -> KafkaReceipt:
        deliveries = self._deliveries
        if deliveries.due:  # before handing over: if an interrupt ends the poll, nothing was sent
            deliveries.poll(0)
        receipt = self._receipt()
        receipt.outcome = deliveries.ages.current
        if headers is not None and type(headers) is not list:  # the client takes no other sequence
            headers = list(headers)
        try:
            # Positional, and the callback twice: the client prefers on_delivery even if it is None.
            self._produce(topic, value, key, partition, receipt, receipt, 0, headers)
        except BufferError:
            self._append_when_there_is_room(topic, key, value, headers, partition, receipt)
        except (KafkaException, RuntimeError, TypeError) as error:
            self._refused(error, topic, key, value, headers)
        if deliveries.parked:
            deliveries.wake()
        return receipt

    @property
    @override
    def has_room(self) -> bool:
        produce = self._produce
        if produce is _no_room or self._deliveries.undecided >= self._full_at:
            return produce is _refuse
        self._full_at = self._most
        return True

    @override
    def flush(self, timeout: float | None = None) -> int:
        return 0 if self._closed else self._deliveries.drain(timeout)

    @override
    def pop_failures(self) -> list[TransportError]:
        return self._deliveries.pop_failures()

    @override
    def count_appends(self) -> None:
        self._counts = True
        self._deliveries.count()
        self._receipt = self._deliveries.make_receipt

    @property
    @override
    def facts(self) -> ProducerFacts:
        deliveries = self._deliveries
        return ProducerFacts(deliveries.counted, 0 if self._closed else deliveries.undecided, deliveries.failures)

    @override
    def begin_transaction(self, timeout: float | None = None) -> None:
        self._transactional().begin(timeout)

    @override
    def send_offsets(self, member: GroupMember, offsets: Mapping[int, Commit], timeout: float | None = None) -> None:
        self._transactional().send_offsets(member, offsets, timeout)

    @override
    def send_offsets_of(
        self, group: str, topic: str, offsets: Mapping[int, Commit], timeout: float | None = None
    ) -> None:
        transactions = self._transactional()
        if group not in self._memberless:
            self._memberless[group] = memberless(self._config, group)
        transactions.send_positions(
            offsets_of(topic, offsets), self._memberless[group], consuming(group, topic), timeout
        )

    @override
    def commit_transaction(self, timeout: float | None = None) -> None:
        self._transactional().commit(timeout)

    @override
    def abort_transaction(self, timeout: float | None = None) -> None:
        self._transactional().abort(timeout)

    @property
    @override
    def uncommitted(self) -> int | None:
        transactions = self._transactions
        return transactions.appends if transactions is not None and transactions.is_open else None

    @override
    def close(self, timeout: float | None = None) -> int:
        """Flush, abort an open transaction, and close; return how many appends were undecided.

        Appends that are not decided in time are purged: their receipts fail.
        """
        with self._closing:
            return 0 if self._closed else self._close(timeout)

    # ------------------------------------------------------------ inside

    def _open_client(self) -> None:
        limit, owned = None, {**OWNED, "transactional.id": self._transactional_id}
        if self._transactional_id is None:
            limit = limit_of(self._config.properties)
            owned = {**OWNED, **without_deadline(limit, self._config.properties)}
        self._client = open_producer(self._config, self._health, owned, DEFAULTS)
        self._errors = ProduceErrors(self._health, self._transactional_id, self._why_withdrawn)
        self._deliveries = Deliveries(self._client, limit, self._errors, self._give_up)
        if self._counts:
            self._deliveries.count()
        self._receipt = self._deliveries.make_receipt
        self._client_produce: Callable[..., object] = self._client.produce
        if self._transactional_id is not None:
            self._client_produce = partial(self._produce_in_transaction, self._client.produce)
        self._produce = self._client_produce

    def _produce_in_transaction(self, produce: Callable[..., object], *record: object) -> None:
        produce(*record)
        if self._transactions is not None:
            self._transactions.appends += 1

    def _replace_client(self) -> tuple[Producer, Deliveries]:
        """Drop the client with everything that it has not sent, and open another one."""
        before = self._deliveries
        self._client.purge()
        before.drain(_WITHDRAWAL)
        self._open_client()
        before.stop()
        return self._client, self._deliveries

    def _give_up(self) -> None:
        """Fail an overdue message and all after it, so that no newer one overtakes it.

        Its partition may be the only one in trouble. So appends are held back first, until the others are decided.
        """
        deliveries, ages = self._deliveries, self._deliveries.ages
        self._switch(self._client_produce, _no_room)
        try:
            if not deliveries.wait_decided(_HOLD, quiet=_HOLD / 2) and ages.overdue():
                self._client.purge(blocking=False)
                deliveries.wait_decided(_WITHDRAWAL)
            if not len(self._client):
                ages.forget()
        finally:
            self._switch(_no_room, self._client_produce)

    def _switch(self, before: Callable[..., object], after: Callable[..., object]) -> None:
        with self._gate:
            if self._produce is before:  # not closed meanwhile
                self._produce = after

    def _close(self, timeout: float | None) -> int:
        with self._gate:
            self._produce = _refuse
        undecided = self._deliveries.drain(timeout)
        if undecided:
            self._cut_short = True
            self._client.purge()
            self._deliveries.drain(_WITHDRAWAL)
        if self._transactions is not None and self._transactions.is_open:
            with contextlib.suppress(LVQError):  # otherwise the broker does it after the transaction's timeout
                self._transactions.abort(_CLOSE_TIMEOUT)
        self._transactions = None
        self._closed = True
        self._deliveries.stop()
        # Drop the client instead of closing it: its close waits without limit to abort what we could not.
        del self._client, self._client_produce
        return undecided

    def _append_when_there_is_room(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
        partition: int,
        receipt: KafkaReceipt,
    ) -> None:
        deadline = float("inf") if self._max_block is None else time.monotonic() + self._max_block
        waits = may_wait()
        while True:
            self._deliveries.poll(_FULL_POLL if waits else 0)
            receipt.outcome = self._deliveries.ages.current  # its time starts when the client accepts it
            try:
                self._produce(topic, value, key, partition, receipt, receipt, 0, headers)
            except BufferError:
                if waits and time.monotonic() < deadline:
                    continue
                self._full_at = min(self._most, max(1, self._deliveries.undecided))
                is_full = f"has been full for {self._max_block:g} s" if waits else "is full"
                raise TransportError(
                    f"The local buffer {is_full}: the cluster acknowledges too slowly, or not at all; "
                    f"{len(self._client)} messages are waiting.",
                    code="_QUEUE_FULL",
                    retriable=True,
                    hint="Send more slowly, raise max_block, or check whether the brokers can be reached.",
                ) from None
            except (KafkaException, RuntimeError, TypeError) as error:
                self._refused(error, topic, key, value, headers)
            return

    def _refused(
        self, exception: Exception, topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs | None
    ) -> NoReturn:
        """Raise the error for a record that the client does not accept."""
        if isinstance(exception, BoundToProcess):
            raise exception
        if isinstance(exception, TypeError) and all(map(_is_header, headers or ())):
            # A Python signal handler runs wherever the client reads a string, and the client (2.16.0) turns whatever it
            # raises into this. Most often it is Ctrl-C.
            raise KeyboardInterrupt from exception
        error = kafka_error(exception)
        if error is None:
            if self._closed and not isinstance(exception, StateError):
                raise Closed("This writer is closed.") from None
            raise exception
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            size = (
                len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers or ())
            )
            raise MessageTooLarge(
                f"The message for key {quoted(key_text(key or b''))} has {size} bytes; the client accepts "
                f"{self._limit}.",
                key=key,
                code=error.name(),
                hint="Raise message.max.bytes here and max.message.bytes on the topic, or store the value elsewhere.",
            ) from None
        if error.code() == KafkaError._STATE and self._transactional_id is not None and not error.fatal():
            raise StateError("No transaction is open.", hint="Begin one before sending.") from None
        raise self._errors.explain(error, f"send to {topic!r}", topic) from None

    def _explain(self, error: KafkaError, doing: str, needs: Sequence[Right]) -> LVQError:
        return self._errors.explain(error, doing, needs=needs)

    def _why_withdrawn(self) -> str:
        if self._transactions is not None and not self._cut_short:
            return self._transactions.withdrawn
        return "the producer was closed before the cluster had acknowledged it" if self._cut_short else ""

    def _transactional(self) -> Transactions:
        if self._closed:
            raise Closed("This writer is closed.")
        if self._transactions is None:
            raise StateError("This writer has no transactional id.", hint="Open it with transactional_id=...")
        return self._transactions


def _no_room(*_: object) -> NoReturn:
    raise BufferError


def _refuse(*_: object) -> NoReturn:
    raise Closed("This writer is closed.")


def _refuse_in_child(*_: object) -> NoReturn:
    raise left_behind("This writer")


def _is_header(pair: tuple[object, object]) -> bool:
    name, value = pair
    return isinstance(name, str) and (value is None or isinstance(value, bytes))
