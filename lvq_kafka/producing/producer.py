"""The producer: turns messages with a key header into keyed records (R1 to R3, G14)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import reprlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from threading import Lock
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, Self, TypedDict, Unpack

from lvq_kafka.cluster import Cluster, Receipt
from lvq_kafka.codecs import BYTES, Codec, V
from lvq_kafka.core.log.keys import HeaderValue, Key, encode_header, encode_key, key_text
from lvq_kafka.core.producer.message_terms import MessageTerms, OwnTerms
from lvq_kafka.core.queue.headers import UNKEYED_HEADER, header_fault, misspelt
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.quoting import brief, quoted
from lvq_kafka.core.text.validation import text, waiting
from lvq_kafka.errors import (
    BrokerUnavailable,
    Closed,
    ConfigError,
    LVQError,
    MissingKey,
    OutcomeUnknown,
    TransportError,
    UnencodableKey,
)
from lvq_kafka.producing.group_placement import GroupPlacement
from lvq_kafka.producing.unclosed_producers import UnclosedProducer, in_one_line, verdict
from lvq_kafka.runtime.aio import Lines, at_once, in_thread
from lvq_kafka.runtime.exiting import say
from lvq_kafka.runtime.forking import Bound
from lvq_kafka.runtime.keywords import check_known

__all__ = ["Append", "Gate", "Message", "MessageHeaders", "Producer", "ProducerOptions"]

MessageHeaders = Mapping[str, HeaderValue | None] | Sequence[tuple[str, HeaderValue | None]]
"""Headers as a caller passes them. Pairs may repeat a name; the last one counts."""

Append = Callable[[str, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]] | None], Receipt]
"""Appends a record, as `LogWriter.append` does."""

_EncodedHeaders = list[tuple[str, bytes | None]]

logger = logging.getLogger("lvq_kafka.producer")

_BUFFER = "the local buffer"  # the line of tasks that wait for room in it
_FULL = "_QUEUE_FULL"  # the client's code for the want of that
_FULL_POLL = 0.01  # seconds between two looks whether there is room
_EXIT_FLUSH = 5.0  # seconds to flush when `with` exits on an exception; the exception matters more


@dataclass(slots=True, repr=False)  # not frozen: that would double construction time
class Message(Generic[V]):
    """A message to send: a value and headers.

    One of the headers, the queue's key header, names the value that this message replaces.

    Header values are text, bytes, integers, booleans or None; floats are allowed in headers other than the key header.
    Some names are reserved (R22). If you pass no headers, ``headers`` is a fresh dict to fill in. ``key`` is for queues
    without a key header, where the record key itself is the key; on other queues it is optional and must match the key
    header if both are present.
    The other fields are the message's own terms, as in `MessageTerms`.
    The broker sets the message's timestamp when it appends the message.
    """

    value: V
    headers: MessageHeaders = field(default_factory=dict)
    key: Key | None = None
    ttl: float | None = None
    not_before: float | datetime | None = None
    priority: int | None = None
    sort: str | None = None
    group: str | bytes | None = None

    def __repr__(self) -> str:
        parts = [reprlib.repr(self.value)]
        if self.headers:
            parts.append(f"headers={quoted(self.headers)}")
        own = ("key", "ttl", "not_before", "priority", "sort", "group")
        parts += [f"{name}={quoted(said)}" for name in own if (said := getattr(self, name)) is not None]
        return f"Message({', '.join(parts)})"


class Gate(Protocol):
    """Judges what a producer sends to a queue with limits (R12)."""

    def guard(self, append: Append) -> Append:
        """Return an append that first waits for admission, or refuses the record."""

    async def send_async(self, send: Callable[[], Receipt]) -> Receipt:
        """Call ``send``, which uses the guarded append, without blocking the event loop.

        If the task is cancelled while the record waits for admission, it is not appended.
        """

    def close(self) -> None:
        """Stop following the queue. Senders that wait for admission give up."""


class ProducerOptions(TypedDict, total=False):
    """The options of a producer of a queue.

    Attributes:
        transactional_id: makes the producer transactional, see `Producer.transaction`; fences off an earlier producer
            with this id.
        max_block: seconds that a send may wait: for room in the local buffer and, with the policy ``"block"``, for room
            in the queue (R12). None for no limit. If not given, the buffer has no limit, and the queue 60 s.
    """

    transactional_id: str | None
    max_block: float | None


class Producer(Bound, Generic[V]):
    """Sends messages to one last value queue.

    Every send returns immediately with a `Receipt`, a future of the position. The receipt resolves by itself: with the
    position once all in-sync replicas have the record, otherwise with an error. There is no need to poll or flush, but
    close the producer, or use a ``with`` block. A send blocks while the local buffer is full.

    A producer that is still open when its process exits has five seconds, with all others of the process, to get its
    messages acknowledged; the rest is reported on stderr with its number. A signal without a handler, such as SIGTERM,
    gives it none. One that was dropped is closed in the background, with a `ResourceWarning` and a log line; its
    receipts resolve all the same.

    Sends are ordered per key, through retries and timeouts (G14). If a message stays undecided for longer than the
    property ``delivery.timeout.ms`` (120 s), the producer gives up on it and on everything sent after it, to any
    partition; sends made meanwhile wait briefly. `DeliveryFailed` means that a message was not stored.
    `DeliveryUnknown` means that it may have been; if so, it precedes everything that this producer sends later. No such
    order holds between two producers. If a producer is closed, or its process dies, with messages undecided, these may
    still land after messages from the next producer, for as long as the network or a stopped broker can hold them. Only
    a ``transactional_id`` fences them off. It also excludes that a message is stored twice, which may happen while its
    partition gets another leader; its receipt has the later position.

    Failures are never silent: one that was not seen through ``receipt.result()`` or ``receipt.exception()`` is raised
    by the next `flush`, by `close`, or at the end of ``with``. A failure that was seen is not raised again.

    ::

        with queue.producer() as producer:
            producer.send(Message(b"118.50", headers={"ticker": "IBM"}))
            producer.put("IBM", b"119.00")
            producer.delete("IBM")

    In asyncio code, ``await producer.send(...)`` returns the position. Leaving ``async with queue.producer()`` flushes
    without blocking the event loop, as `flush_async` does. A send only ever waits for room in the local buffer, which
    ``max_block`` limits; and, on a queue with the policy ``"reject"`` or ``"block"``, for news of the queue and for
    room in it (R12). Use `send_async`, `put_async` and `delete_async`, which wait without blocking the event loop.

    A queue's limits bind the producers that `LastValueQueue.producer` returns. This constructor knows of none. If
    messages are placed by group, the cluster is asked for the topic's partitions, now and every 30 s of sending.

    Thread-safe, except for transactions, which belong to a single thread. Does not survive a fork: open it in the
    process that uses it.

    Args:
        cluster: the cluster.
        rules: those of the queue, with the topic.
        value: the codec for values.
        transactional_id: makes the producer transactional, see `transaction`; fences off an earlier producer with this
            id.
        max_block: seconds that a send may wait for room in the local buffer; None for no limit.
        gate: judges what is sent to a queue with limits; closed with the producer.

    Raises:
        ConfigError: an option has an unknown value.
        TopicNotFound: messages are placed by group, and the topic does not exist.
        TransportError: there is a transactional id, and the cluster refuses to open it; or messages are placed by
            group, and it does not describe the topic.
    """

    def __init__(
        self,
        cluster: Cluster,
        rules: QueueRules,
        *,
        value: Codec[V] = BYTES,  # type: ignore[assignment]
        transactional_id: str | None = None,
        max_block: float | None = None,
        gate: Gate | None = None,
    ) -> None:
        if transactional_id is not None:
            text("transactional_id", transactional_id)
        keys, groups = rules.keys, rules.groups
        self._now = cluster.now
        self.topic = keys.topic
        self._key_header = keys.header
        self._sole_header: Any = object() if keys.header is None else keys.header  # without one, matches no header
        self._conflates = keys.conflates
        self._codec = value
        self._as_is = value is BYTES
        self._keep_to(rules)
        self._unkeyed = f"{UNKEYED_HEADER}:{uuid.uuid4().hex}"
        self._unkeyed_count = itertools.count()
        self._suspected = False
        self._max_block = waiting(max_block, "max_block")
        self._lines = Lines()
        self.writer = cluster.writer(transactional_id=transactional_id, max_block=self._max_block)
        self._ungated: Append = self.writer.append
        if groups is not None and groups.placement == "group":
            self._ungated = self._by_group(cluster, groups)
        self._gate = gate
        self._gates: list[Gate] = [] if gate is None else [gate]  # those that were replaced, too
        self._observers: list[Callable[[Append], Append]] = []
        self._ended: LVQError | None = None
        self._append: Append = self._guarded()
        self._closing: list[Callable[[], object]] = []
        self._adopting = Lock()
        shut = partial(_shut, self._gates, self._closing)
        self._unclosed = UnclosedProducer(self, self.writer, self.topic, shut)

    def _keep_to(self, rules: QueueRules) -> None:
        self._rules = rules
        self._keyless = rules.keys.keyless
        self._terms = OwnTerms(rules, self._now)
        self._judged = self._terms.judged

    def _adopt(self, rules: QueueRules, gate: Gate | None) -> None:
        """Keep to the rules of the queue after an alteration (R39).

        A gate that is replaced is closed with the producer, since senders may still wait there.
        """
        with self._adopting:
            if self._closed:
                return
            self._keep_to(rules)
            if gate is self._gate:
                return
            self._gate = gate
            self._gates += [] if gate is None else [gate]
            self._append = self._guarded()

    def _turn_away(self, reason: LVQError | None) -> None:
        """Refuse whatever is sent from now on, because of this error; None to send it again."""
        with self._adopting:
            if reason is not self._ended and not self._closed:
                self._ended = reason
                self._append = self._guarded()

    def _guarded(self) -> Append:
        """Return the append of the writer, behind the gate, behind those who observe it."""
        if self._ended is not None:
            return partial(_refuse_ended, self._ended)
        append = self._ungated if self._gate is None else self._gate.guard(self._ungated)
        for observe in self._observers:
            append = observe(append)
        return append

    def _observe(self, observe: Callable[[Append], Append]) -> None:
        """Make each append pass through the function that ``observe`` returns for it.

        It may add headers: limits count what it adds.
        """
        with self._adopting:
            self._observers.append(observe)
            if not self._closed:
                self._append = self._guarded()

    @property
    def _closed(self) -> bool:
        return self._append == self._refuse

    def _on_close(self, call: Callable[[], object]) -> None:
        """Call when the producer is closed, or was dropped."""
        self._closing.append(call)

    # ------------------------------------------------------------ sending

    def send(self, message: Message[V]) -> Receipt:
        """Send a message; its key header, or its ``key``, names the value to replace.

        Raises:
            MissingKey: the message has no key, and ``keyless`` is ``"refuse"``.
            UnencodableKey: its key, or another header, is of a type that has no wire form.
            ConfigError: ``key`` and key header disagree, a header is reserved (R22), ``ttl`` is not a TTL,
                ``not_before`` is not a time or too far ahead, ``priority`` or ``sort`` is not a rank of this queue, or
                ``group`` is blank or clashes with the group's header.
            EncodeError: the codec cannot encode the value.
            MessageTooLarge: the client rejects its size, or it alone is larger than the queue may be.
            QueueFull: the queue's limits leave no room for it (R12).
            TopicNotFound, Unauthorized: the cluster rejected an earlier message for that reason.
            TransportError: the local buffer stayed full for ``max_block`` seconds, or this producer is fenced off.
            StateError: the producer is transactional, and no transaction is open.
            Closed: the producer is closed.
            TypeError: the argument is not a `Message`.
        """
        try:
            headers, value = message.headers, message.value
            said = headers.get(self._sole_header) if type(headers) is dict and len(headers) == 1 else None
            # The common case, without calls.
            if (
                type(said) is str
                and said.isascii()
                and message.group is message.sort is message.key is None
                and message.ttl is message.not_before is message.priority is None
            ):
                key: bytes | None = said.encode()
                pairs: _EncodedHeaders = [(self._sole_header, key)]
            else:
                pairs, key = self._pairs_of(message)
        except AttributeError:
            if isinstance(message, Message):
                raise
            raise TypeError(
                f"send takes a Message, not {reprlib.repr(message)}; put(key, value) is the shorthand."
            ) from None
        data = value if self._as_is and isinstance(value, bytes) else self._codec.encode(value, self.topic, pairs)
        return self._append(self.topic, key, data, pairs)

    def put(self, key: Key, value: V, headers: MessageHeaders | None = None, **terms: Unpack[MessageTerms]) -> Receipt:
        """Set the value of a key, adding the key header. Raises what `send` raises.

        The value may have terms of its own, such as ``ttl``; see `MessageTerms`.

        The key header is not added to a copy of a keyless message, which its headers identify (R1). Such a copy stays
        keyless, and raises `MissingKey` if ``keyless`` is ``"refuse"``. In a standard queue, there is nothing to set.
        """
        if not self._conflates:
            raise self._no_value(key, "set", "Use send() instead: producer.send(Message(value)).")
        name = encode_key(key)
        sole = None if headers else self._key_header
        pairs: _EncodedHeaders = self._headers_for(name, headers) if sole is None else [(sole, name)]
        if terms:
            check_known(Producer.put, terms)
            self._terms.add(pairs, **terms)
        if headers:
            self._terms.translate(pairs)
        data = value if self._as_is and isinstance(value, bytes) else self._codec.encode(value, self.topic, pairs)
        return self._append(self.topic, name, data, pairs)

    async def send_async(self, message: Message[V]) -> Receipt:
        """Like `send`, for asyncio.

        It waits for room, in the local buffer or in a queue with limits, without blocking the event loop. If it is
        cancelled meanwhile, the message is not sent.
        """
        return await self._send_async(partial(self.send, message))

    async def put_async(
        self, key: Key, value: V, headers: MessageHeaders | None = None, **terms: Unpack[MessageTerms]
    ) -> Receipt:
        """Like `put`, for asyncio; see `send_async`."""
        return await self._send_async(partial(self.put, key, value, headers, **terms))

    async def _send_async(self, send: Callable[[], Receipt]) -> Receipt:
        """Send once the local buffer has room.

        Tasks that wait for that send in the order in which they came.
        """
        if self.writer.has_room and not self._lines.has(_BUFFER):
            try:
                return await self._send_at_once(send)
            except TransportError as error:
                if error.code != _FULL:
                    raise
        until = math.inf if self._max_block is None else time.monotonic() + self._max_block
        async with self._lines.stand_in(_BUFFER):
            while True:
                while not self.writer.has_room and time.monotonic() < until:
                    await asyncio.sleep(_FULL_POLL)
                try:
                    return await self._send_at_once(send)
                except TransportError as error:
                    if error.code != _FULL or time.monotonic() >= until:
                        raise
                await asyncio.sleep(_FULL_POLL)

    async def _send_at_once(self, send: Callable[[], Receipt]) -> Receipt:
        """Send once the gate admits it. Raises `TransportError` if the local buffer has no room."""
        attempt, gate = partial(_attempt, send), self._gate
        return attempt() if gate is None else await gate.send_async(attempt)

    def delete(self, key: Key, headers: MessageHeaders | None = None, *, group: str | bytes | None = None) -> Receipt:
        """Delete a key by sending a tombstone. Raises what `send` raises.

        It deletes scheduled values of the key, too (R11); a delete itself cannot be scheduled. If the queue is placed
        by group, the delete has to name the group of the key's value, with ``group`` or in the headers (R36). In a
        standard queue, there is nothing to delete.
        """
        if not self._conflates:
            raise self._no_value(key, "delete", "Consume the messages, or purge the queue.")
        name = encode_key(key)
        pairs = self._headers_for(name, headers)
        if headers:
            self._terms.check_delete(pairs)
        if group is not None:
            self._terms.add(pairs, group=group)
        if headers:
            self._terms.translate(pairs)
        return self._append(self.topic, name, None, pairs)

    async def delete_async(
        self, key: Key, headers: MessageHeaders | None = None, *, group: str | bytes | None = None
    ) -> Receipt:
        """Like `delete`, for asyncio; see `send_async`."""
        return await self._send_async(partial(self.delete, key, headers, group=group))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every message is decided.

        Raises:
            DeliveryFailed, DeliveryUnknown: the first failure that was not seen yet; all of them count as seen from now
                on.
            OutcomeUnknown: some messages are still undecided after ``timeout`` seconds. They may still be stored.
        """
        timeout = waiting(timeout)
        self._report(self.writer.flush(timeout), timeout)

    async def flush_async(self, timeout: float | None = None) -> None:
        """Like `flush`, for asyncio. If it is cancelled, failures stay unseen."""
        timeout = waiting(timeout)
        self._report(await in_thread(partial(self.writer.flush, timeout)), timeout)

    def flush_transaction(self, timeout: float | None = None) -> None:
        """Like `flush`, at the end of a transaction.

        If it fails, the transaction is aborted, so no outcome is left unknown.

        Raises:
            DeliveryFailed: a message was not stored.
            BrokerUnavailable: some messages are still undecided after ``timeout`` seconds.
        """
        try:
            self.flush(timeout)
        except OutcomeUnknown as late:
            message = str(late).removesuffix(late.hint).rstrip()
            raise BrokerUnavailable(message, code="_TIMED_OUT", retriable=True, hint=late.hint) from None

    def close(self, timeout: float | None = None) -> None:
        """Flush and close. Give up on messages still undecided after ``timeout`` seconds.

        Their receipts fail, but they may still be stored, and then land after another producer's messages: see
        `Producer`. Raises what `flush` raises.
        """
        timeout = waiting(timeout)
        undecided = self.writer.close(timeout)
        self._refuse_more()
        _shut(self._gates, self._closing)
        self._unclosed.end()
        self._report(undecided, timeout)

    async def aclose(self, timeout: float | None = None) -> None:
        """Like `close`, for asyncio.

        If it is cancelled, closing continues in the background, and failures go to the log.
        """
        await in_thread(partial(self.close, timeout), unheard=self._unclosed.log)

    @contextlib.contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[Self]:
        """Run a transaction: its messages become visible at the end, all or none.

        An exception inside the block aborts it.

        Args:
            timeout: seconds for the commit.

        Raises:
            StateError: this producer has no transactional id, or a transaction is already open.
            DeliveryFailed: a message was not stored; the transaction is aborted.
            OutcomeUnknown: it is unknown whether the transaction committed.
            TransportError: the transaction could not be committed, and is aborted; ``code`` is ``"_FENCED"`` when a
                newer producer with the same transactional id has taken over.
        """
        timeout = waiting(timeout)
        try:
            self.writer.begin_transaction(timeout)
        except Closed:
            self._refuse()
        try:
            yield self
            self.flush_transaction(timeout)
        except BaseException as error:
            self._abort(error)
            raise
        try:
            self.writer.commit_transaction(timeout)
        except BaseException as error:
            if self._abort(error):
                raise
            raise OutcomeUnknown(
                f"It is not known whether the transaction on {self.topic} committed: {error}",
                hint="It is decided before the next one begins; to find out, check whether its messages show in a "
                "committed read.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(_EXIT_FLUSH)
        except LVQError as another:
            if isinstance(error, Exception):
                error.add_note(f"The producer of {self.topic!r} also reports: {another}")
            else:  # nobody would see the notes of SystemExit and the like
                say(in_one_line(another))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await in_thread(partial(self.__exit__, kind, error, traceback), unheard=self._unclosed.log)

    # ------------------------------------------------------------ internals

    def _by_group(self, cluster: Cluster, groups: Groups) -> Append:
        try:
            return GroupPlacement(self.writer, cluster, self.topic, groups).append_named
        except BaseException:
            self.writer.close(0)
            raise

    def _pairs_of(self, message: Message[V]) -> tuple[_EncodedHeaders, bytes | None]:
        """Return a message's wire headers and its record key."""
        headers, key = self._encode_headers(message.headers)
        said = message.ttl, message.not_before, message.priority, message.sort, message.group
        if said.count(None) != len(said):
            self._terms.add(
                headers,
                ttl=message.ttl,
                not_before=message.not_before,
                priority=message.priority,
                sort=message.sort,
                group=message.group,
            )
        self._terms.translate(headers)
        if message.key is not None:
            return headers, self._agree(encode_key(message.key), key, headers)
        return headers, self._make_key(headers) if key is None else key

    def _encode_headers(self, headers: MessageHeaders) -> tuple[_EncodedHeaders, bytes | None]:
        """Return the wire headers, and the value of the key header among them."""
        pairs: _EncodedHeaders = []
        key = None
        if type(headers) is dict or isinstance(headers, Mapping):  # the first test spares a dict the slow second one
            items: Iterable[tuple[Any, Any]] = headers.items()
        else:
            items = _checked_pairs(headers)
        for name, value in items:
            try:
                data = None if value is None else encode_key(value)
            except UnencodableKey as error:
                data = self._encode_no_key(name, value, error)
            if not isinstance(name, str) or "\0" in name or not name.isascii():
                _check_header_name(name)
            if name == self._key_header:
                key = data
            elif name in self._judged:
                self._terms.check(name, data)
            pairs.append((name, data))
        for warning in self._terms.foreign.pop_warnings():
            logger.warning("%s", warning)
        return pairs, key

    def _encode_no_key(self, name: object, value: object, error: UnencodableKey) -> bytes:
        """Encode a header value that cannot be a key; that is fine unless this is the key header."""
        if name != self._key_header and isinstance(value, float):
            return encode_header(value)
        reason, hint = str(error).removesuffix(error.hint).rstrip(), error.hint
        if name != self._key_header and not isinstance(value, str):
            reason, hint = (
                f"{quoted(value)} is of type {type(value).__name__}.",
                "Use text, bytes, a number or a boolean.",
            )
        raise UnencodableKey(f"The header {quoted(name)} cannot be sent. {reason}", hint=hint) from None

    def _headers_for(self, key: bytes, headers: MessageHeaders | None) -> _EncodedHeaders:
        if not headers:
            return [] if self._key_header is None else [(self._key_header, key)]
        pairs, named = self._encode_headers(headers)
        self._agree(key, named, pairs)
        return pairs

    def _agree(self, key: bytes, named: bytes | None, headers: _EncodedHeaders) -> bytes | None:
        """Reconcile key and key header.

        Adds the header if it is missing, unless the message is a copy of a keyless one.
        """
        if named is None and not key and not self._conflates:
            return None  # so readers give the key of a message without one
        if named is None:
            if _is_unkeyed(headers):
                self._check_keyless(headers)
            elif self._key_header is not None:
                headers.append((self._key_header, key))
        elif named != key:
            raise ConfigError(
                f"The key is {quoted(key_text(key))}, but the key header {quoted(self._key_header)} says "
                f"{quoted(key_text(named))}.",
                options=["key", str(self._key_header)],
                hint="Omit one of them.",
            )
        return key

    def _make_key(self, headers: _EncodedHeaders) -> bytes | None:
        """Return a record key for a message without one; a standard queue needs none (R35)."""
        if not self._suspected and not _is_unkeyed(headers):
            self._warn_of_misspelling(headers)
        if not self._conflates:
            return None
        self._check_keyless(headers)
        if not _is_unkeyed(headers):
            headers.append((UNKEYED_HEADER, b"1"))
        return f"{self._unkeyed}:{next(self._unkeyed_count)}".encode()

    def _warn_of_misspelling(self, headers: _EncodedHeaders) -> None:
        """Warn, once, if a header seems to be meant for the key header."""
        near = self._misspelt_in(headers)
        if near is not None and self._keyless != "refuse":  # which is an error that says so
            self._suspected = True
            logger.warning(
                "a message for %s has no header %s, so it has no key and replaces nothing: is its header %s meant for "
                "it?",
                *(self.topic, brief(str(self._key_header)), brief(near)),
            )

    def _misspelt_in(self, headers: _EncodedHeaders) -> str | None:
        """Return the header that seems to be meant for the key header; None if there is none."""
        return None if self._key_header is None else _meant_for(self._key_header, tuple(name for name, _ in headers))

    def _no_value(self, key: Key, action: str, hint: str) -> ConfigError:
        so = f"so {quoted(key)} has no value to {action}"
        what = f"{self.topic!r} is the topic of a standard queue (`conflate=False`), {so}."
        return ConfigError(what, options=["conflate"], hint=hint)

    def _check_keyless(self, headers: _EncodedHeaders) -> None:
        if self._keyless == "refuse":
            missing = "key" if self._key_header is None else f"header {quoted(self._key_header)}"
            near = self._misspelt_in(headers)
            meant = "" if near is None else f"Is {quoted(near)} meant for it? "
            raise MissingKey(
                f"The message for {self.topic!r} has no {missing}.",
                hint=f"{meant}It names the value to replace. A queue with `keyless='pass'|keyless=\"pass\"` accepts "
                "messages without it.",
            )

    def _refuse_more(self) -> None:
        with self._adopting:
            self._append = self._refuse

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise Closed(f"The producer of {self.topic!r} is closed.", hint="Open another one: queue.producer().") from None

    def _report(self, undecided: int, timeout: float | None) -> None:
        if (error := verdict(self.writer.pop_failures(), undecided, timeout, self.topic)) is not None:
            raise error

    def _abort(self, error: BaseException) -> bool:
        """Abort the transaction because of this error. Return False if that failed."""
        try:
            self.writer.abort_transaction()
        except LVQError as another:
            if getattr(another, "code", "") == "_FENCED":  # the producer that fenced us off has aborted it
                return True
            error.add_note(f"The transaction could not be aborted either: {another}")
            return False
        finally:
            self.writer.pop_failures()  # sends withdrawn by the abort are expected failures
        return True


def _attempt(send: Callable[[], Receipt]) -> Receipt:
    with at_once():
        return send()


def _refuse_ended(reason: LVQError, *_: object, **__: object) -> NoReturn:
    raise reason.with_traceback(None)


def _shut(gates: Sequence[Gate], calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        call()
    for gate in gates:
        gate.close()


def _checked_pairs(headers: object) -> Iterable[tuple[Any, Any]]:
    """Return headers that are not a mapping as a list of pairs.

    Raises:
        ConfigError: they are not pairs either.
    """
    if isinstance(headers, Iterable) and not isinstance(headers, str | bytes):
        pairs = list(headers)
        if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            return pairs
    raise ConfigError(
        f"headers={reprlib.repr(headers)} is neither a mapping nor a sequence of pairs.",
        options=["headers"],
        hint='For example headers={"ticker": "IBM"}.',
    )


@lru_cache(256)  # of the messages of a program, most have the same headers
def _meant_for(key_header: str, names: tuple[str, ...]) -> str | None:
    """Return the header that seems to be meant for the key header, which is not among them."""
    return None if key_header in names else misspelt(key_header, names)


def _is_unkeyed(headers: _EncodedHeaders) -> bool:
    return any(name == UNKEYED_HEADER for name, _ in headers)


def _check_header_name(name: object) -> None:
    fault = header_fault(name) if isinstance(name, str) else "it is not text"
    if fault is not None:
        raise UnencodableKey(f"{quoted(name)} cannot be the name of a header: {fault}.", hint="Use text.")
