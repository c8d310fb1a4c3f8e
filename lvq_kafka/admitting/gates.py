"""Gates between producers and queues with limits, which judge each message (R12)."""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError
from collections.abc import Callable
from functools import partial
from threading import Event, Lock, local
from typing import assert_never

from lvq_kafka.admitting.occupancy import Occupancy
from lvq_kafka.cluster import Cluster, Receipt
from lvq_kafka.codecs import HeaderPairs
from lvq_kafka.core.facts import Depth
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.producer.admission import Send
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import RESUME, Limits, size_of
from lvq_kafka.core.queue.standard import OwnKey
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import Closed, LVQError, MessageTooLarge, QueueFull
from lvq_kafka.producing.producer import Append, Gate
from lvq_kafka.reading.consumed_filter import is_transient
from lvq_kafka.runtime.aio import Lines, in_thread
from lvq_kafka.runtime.notice import Notice

__all__ = ["AdmissionGate", "SizeGate", "gate_of"]

logger = logging.getLogger("lvq_kafka.limits")

_POLL = 0.2  # seconds between two questions to the group while a sender waits


def gate_of(
    cluster: Cluster,
    definition: QueueDefinition,
    *,
    consumed: bool,
    max_block: float | None,
    watch: RegistryWatch | None = None,
) -> Gate | None:
    """Return an open gate for a producer of a queue; None if its limits ask for none.

    Args:
        consumed: whether the queue has a group that consumes it.
        max_block: seconds that a send may wait for room in the queue; None for no limit.
        watch: notices alterations of the queue.

    Raises:
        ConfigError: ``max_block`` is not a time to wait.
        TopicNotFound, QueueNotDeclared, TopicRecreated, CommitMapRefused, CatchUpTimeout, TransportError: see
            `Occupancy.open`.
    """
    limits = definition.limits
    if limits is None or limits.policy == "none" or limits.policy == "disk":
        return None
    max_block = waiting(max_block, "max_block")
    if limits.policy == "ring":
        return None if limits.bytes is None else _ring_gate(cluster, definition, limits)
    if limits.policy == "reject" or limits.policy == "block":
        occupancy = Occupancy(cluster, definition, limits, consumed=consumed, watch=watch)
        occupancy.open()
        return AdmissionGate(definition, limits, occupancy, max_block)
    assert_never(limits.policy)


def _ring_gate(cluster: Cluster, definition: QueueDefinition, limits: Limits) -> Gate:
    share = limits.share(cluster.topics.describe(definition.topic).partitions)
    return SizeGate(f"a partition of the queue {definition.name}", share.bytes or 0)


class SizeGate:
    """Refuses messages that alone are larger than what the queue may hold.

    Args:
        where: what may hold no more, for errors.
        most: how many bytes it may hold.
    """

    def __init__(self, where: str, most: int) -> None:
        self._where = where
        self._most = most

    def guard(self, append: Append) -> Append:
        """Return an append that checks the size first."""

        def checked(topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs | None = None) -> Receipt:
            check_size(self._where, self._most, key, size_of(key, value, headers))
            return append(topic, key, value, headers)

        return checked

    async def send_async(self, send: Callable[[], Receipt]) -> Receipt:
        """See `Gate.send_async`; nothing waits."""
        return send()

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _Task:
    """A task that sends a message."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.may_wait = False
        """Whether the thread that sends may wait for room. That of the event loop may not."""
        self.cancelled = Event()
        self.over = Event()
        """Set when a thread that may wait has sent the message, or will not."""
        self._deciding = Lock()
        self._sends = False

    def cancel(self) -> None:
        """Note that the task was cancelled, unless its message is being appended already."""
        with self._deciding:
            if not self._sends:
                self.cancelled.set()

    def begin(self) -> bool:
        """Begin to append the message. Return False if the task was cancelled before."""
        with self._deciding:
            self._sends = not self.cancelled.is_set()
            return self._sends


class _MustWait(Exception):
    """There is no room for a message of a task now, or others wait for some before it."""

    def __init__(self, line: bytes | None) -> None:
        super().__init__(line)
        self.line = line


class AdmissionGate:
    """Admits messages as long as the queue has room, and refuses others or has them wait.

    Args:
        definition: the queue.
        limits: its limits.
        occupancy: what it holds; closed with the gate.
        max_block: seconds that a send may wait for room; None for no limit.
    """

    def __init__(
        self, definition: QueueDefinition, limits: Limits, occupancy: Occupancy, max_block: float | None
    ) -> None:
        self._queue = definition.name
        self._conflates = definition.conflate
        self._limits: Limits = limits
        self._bounded = True
        self._occupancy = occupancy
        self._max_block = max_block
        self._breached = Notice()
        self._append: Append
        self._task = local()  # what a thread that sends for a task needs to know of it; see `_Task`
        self._lines = Lines()

    def adopt(self, limits: Limits | None) -> None:
        """Admit by other limits from now on; by none, if none bind producers any longer."""
        with self._occupancy.lock:
            self._bounded = limits is not None
            self._limits = limits or self._limits
            self._occupancy.adopt(limits)

    def guard(self, append: Append) -> Append:
        """Return an append that waits for admission first."""
        self._append = append
        return self.append

    async def send_async(self, send: Callable[[], Receipt]) -> Receipt:
        """See `Gate.send_async`."""
        task = _Task()
        try:
            return self._send_for(task, send)
        except _MustWait as full:
            line = full.line
        task.may_wait = True
        async with self._lines.stand_in(line):
            try:
                return await in_thread(partial(self._send_for, task, send), abort=task.cancel)
            except CancelledError:
                if not task.cancelled.is_set():  # the next one of the line must not overtake what is being appended
                    task.over.wait()
                raise

    def _send_for(self, task: _Task, send: Callable[[], Receipt]) -> Receipt:
        self._task.now = task
        try:
            return send()
        finally:
            self._task.now = None
            if task.may_wait:
                task.over.set()

    def close(self) -> None:
        """Stop following the queue. Senders that wait for room raise `Closed`."""
        self._occupancy.close()

    def append(self, topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs | None = None) -> Receipt:
        """Append a message once it is admitted.

        Raises:
            MessageTooLarge: it alone is larger than the limit.
            QueueFull: there is no room for it, or was none within ``max_block`` seconds.
            CatchUpTimeout, ReaderFailed, QueueNotDeclared, CommitMapRefused, TransportError: it is unknown how full
                the queue is.
            CancelledError: the task that sends it was cancelled while it waited.
        """
        if value is None and not self._conflates:  # means nothing
            return self._append(topic, key, value, headers)
        size = None if value is None else size_of(key, value, headers)
        if size is not None and self._limits.bytes is not None and self._bounded:
            check_size(f"the queue {self._queue}", self._limits.bytes, key, size)
        name = key if self._conflates and key is not None else OwnKey(key or b"")
        occupancy, task = self._occupancy, self._sending
        admit = self._admit_now if task is None or task.may_wait else self._admit_at_once
        send = admit(name, size)
        if send is None:
            send = self._admit_later(name, size)
        elif self._breached.stands:
            self._note_calm()
        if task is not None and task.may_wait and not task.begin():
            with occupancy.lock:
                occupancy.failed(send)
            raise CancelledError
        try:
            receipt = self._append(topic, key, value, headers)
        except BaseException:
            with occupancy.lock:
                occupancy.failed(send)
            raise
        receipt.add_done_callback(partial(self._decided, send))
        return receipt

    def _decided(self, send: Send, receipt: Receipt) -> None:
        position, occupancy = receipt.position, self._occupancy
        with occupancy.lock:
            if position is None:
                occupancy.failed(send)
            else:
                occupancy.stored(send, position.partition, position.offset)

    # ---------------------------------------------------------------- a full queue

    @property
    def _sending(self) -> _Task | None:
        """The task that this thread sends for."""
        task: _Task | None = getattr(self._task, "now", None)
        return task

    def _admit_at_once(self, key: bytes, size: int | None) -> Send:
        """Admit a message that would hold up an event loop if it waited.

        Nor does it go before a message of its key that waits; those without a key wait for each other.
        """
        line = None if isinstance(key, OwnKey) else key
        send = None if self._lines.has(line) else self._admit_now(key, size)
        if send is None:
            raise _MustWait(line)
        return send

    def _admit_later(self, key: bytes, size: int | None) -> Send:
        """Admit a message for which there seemed to be no room, once there is, or refuse it."""
        try:
            if self._limits.policy == "reject":
                self._occupancy.read_to_end()
            else:
                self._pass_trouble(self._occupancy.read_to_end)
            send = self._admit_now(key, size) or self._wait(key, size)
        except Closed:
            raise Closed(f"The producer of the queue {self._queue} was closed while a message waited.") from None
        except QueueFull:
            raise
        except LVQError as error:
            error.add_note(f"Without it, nobody knows whether the queue {self._queue} has room.")
            raise
        return send

    @property
    def _cancelled(self) -> bool:
        """True if this thread sends for a task that was cancelled."""
        task = self._sending
        return task is not None and task.cancelled.is_set()

    def _admit_now(self, key: bytes, size: int | None) -> Send | None:
        with self._occupancy.lock:
            return self._occupancy.admit(key, size)

    def _wait(self, key: bytes, size: int | None) -> Send:
        task, occupancy = self._sending, self._occupancy
        begun = time.monotonic() if task is None else task.begun
        self._note_breach()
        if self._limits.policy == "reject":
            raise self._full("")
        trouble: LVQError | None = None
        while (left := self._left(begun)) > 0:
            if self._cancelled:
                raise CancelledError
            with occupancy.lock:
                if (send := occupancy.admit(key, size)) is not None:
                    return send
                occupancy.wait(min(_POLL, left))
            trouble = self._pass_trouble(partial(occupancy.ask, _POLL))
        if trouble is not None:
            raise trouble
        raise self._full(f", and has been for {self._max_block:g} s")

    def _pass_trouble(self, ask: Callable[[], None]) -> LVQError | None:
        """Ask the cluster; return an error that may pass.

        A sender waits for that, until `Occupancy.admit` finds the silence too long.
        """
        try:
            ask()
        except LVQError as error:
            if not is_transient(error):
                raise
            return error
        return None

    def _left(self, begun: float) -> float:
        return _POLL if self._max_block is None else begun + self._max_block - time.monotonic()

    def _full(self, since: str) -> QueueFull:
        with self._occupancy.lock:
            depth = self._occupancy.depth
        return QueueFull(
            f"The queue {self._queue} is full{since}: it holds {held(depth, self._limits)}.",
            queue=self._queue,
            depth=depth,
            hint="Wait until its consumers are done with some, or delete keys. Updates of keys that are there pass.",
        )

    # ---------------------------------------------------------------- breaches, logged once per crossing

    def _note_breach(self) -> None:
        with self._occupancy.lock:
            begins, depth = self._breached.begins(), self._occupancy.depth
        if begins:
            refuses = self._limits.policy == "reject"
            does = "refuses messages" if refuses else "waits"
            logger.warning(
                "the queue %s is full: it holds %s. Its producer %s",
                self._queue,
                held(depth, self._limits),
                does,
                extra={"raised": refuses},
            )

    def _note_calm(self) -> None:
        with self._occupancy.lock:
            ends = self._occupancy.within(RESUME) and self._breached.ends()
        if ends:
            logger.info("the queue %s has room again", self._queue)


def held(depth: Depth, limits: Limits) -> str:
    """Describe a depth beside its limits."""
    pairs = ((depth.messages, limits.messages, "messages"), (depth.bytes, limits.bytes, "bytes"))
    return " and ".join(f"{number:,} of {most:,} {what}" for number, most, what in pairs if most is not None)


def check_size(where: str, most: int, key: bytes | None, size: int) -> None:
    """Check that a message fits into an empty queue.

    Raises:
        MessageTooLarge: it does not.
    """
    if size > most:
        raise MessageTooLarge(
            f"The message for key {quoted(key_text(key or b''))} has {size:,} bytes, and {where} may hold "
            f"{most:,} in all.",
            key=key,
            code="MSG_SIZE_TOO_LARGE",
            hint="Send less, or declare the queue with a higher limit of bytes.",
        )
