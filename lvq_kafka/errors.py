"""Every error this library raises, in one tree.

::

    LVQError
    ├─ ConfigError(ValueError)             an option is unknown, missing, malformed or clashes with another
    │  ├─ NoKeyTest                        a subscriber's content matcher asks for no value of the key field
    │  └─ NotAString(TypeError)            a content matcher tests a field for something that is no string
    ├─ UnencodableKey(TypeError)           a key of a type with no wire form (R2)
    ├─ MissingKey(ValueError)              a message has no key header, and the queue refuses such messages (R1)
    ├─ KeyMismatch(ValueError)             key header and record key disagree, and the policy is "fail" (R16)
    ├─ PredicateFailed(ValueError)         a selection's where= cannot judge a value (R31)
    ├─ MixedIndex(TypeError)               an index has values that have no order; names keys of two kinds (R45)
    ├─ SqlError(ValueError)                a query of SQL is malformed, names what is not there, or does not only read
    ├─ CodecError(ValueError)
    │  ├─ EncodeError                      a codec cannot encode a value
    │  └─ DecodeError                      a codec cannot decode a value; carries the position
    ├─ StateError(RuntimeError)
    │  ├─ BoundToProcess(TypeError)        pickled, copied, or used in a child after a fork
    │  ├─ Closed                           used after close()
    │  ├─ AlreadySettled                   the delivery was already acked, released or rejected
    │  └─ LockLost                         the delivery's partition is no longer held by this consumer
    ├─ TopicError
    │  ├─ TopicNotFound(LookupError)
    │  ├─ TopicMismatch                    a topic's settings do not fit a last value queue
    │  └─ TopicRecreated                   the topic was deleted, or deleted and recreated, under a reader
    ├─ QueueError
    │  ├─ QueueNotDeclared(LookupError)    no such queue, or it is unknown what was consumed (R17)
    │  │  ├─ GroupNotFound                 its consumer group has expired, was deleted, or never existed
    │  │  ├─ OffsetsExpired                its group no longer holds offsets for some partitions
    │  │  ├─ PartitionsAdded               partitions were added to its topic after it was declared
    │  │  └─ DynamicDurablesDisabled       no such durable, and subscribers may not create one (R21)
    │  ├─ QueueMismatch                    a second declare differs from the first
    │  ├─ IncompatibleMatcher              a durable has other messages than its subscriber asks for (R21)
    │  ├─ FeedPositionLost                 it is unknown up to where a queue was fed from a topic (R29)
    │  └─ CommitMapRefused                 an offset commit's text is foreign, newer or corrupt
    ├─ TransportError(ConnectionError)     carries the client's error code and whether a retry makes sense
    │  ├─ BrokerUnavailable
    │  ├─ OffsetsPending                   an open transaction holds a group's offsets
    │  ├─ AuthenticationFailed(PermissionError)
    │  ├─ Unauthorized(PermissionError)    carries the missing right
    │  ├─ DeliveryFailed                   a message was not stored; carries the key
    │  │  └─ MessageTooLarge(ValueError)
    │  └─ DeliveryUnknown                  a message may have been stored; carries the key; also an OutcomeUnknown
    ├─ BrokerRefused(ConnectionError)      another broker refuses a bridge; carries its condition
    ├─ DataLoss                            offsets, or tombstones, that a reader needs are no longer in the log
    ├─ QueueFull(queue.Full)               a queue's limit leaves no room for a message; carries what it holds (R12)
    ├─ OutcomeUnknown(TimeoutError)        not decided in time; it may still happen
    ├─ CatchUpTimeout(TimeoutError)        carries what each partition lacks
    ├─ ReaderFailed(RuntimeError)          a background reader died; carries its cause
    ├─ PageUnreadable(OSError)             a value that a consumer paged to disk cannot be read back (R12)
    ├─ SpillFailed(OSError)                a Spark task could not spill to disk
    ├─ TaskOutOfMemory(MemoryError)        a Spark task needs more memory than its Python has
    ├─ StoreFailed(OSError)                a store's files cannot be read or written
    │  ├─ StoreFull                        its file system has no room
    │  ├─ StoreInUse                       another view writes it; names the holder
    │  └─ StoreNotFound                    there is no store, or none yet
    ├─ MissingExtra(ImportError)           a package from one of this library's extras is not installed
    └─ EmbeddedBrokerError(RuntimeError)
       ├─ JavaNotFound
       ├─ CorruptDownload
       ├─ DiskFull(OSError)
       └─ BrokerStartFailed                carries the end of the broker's log

Leaf classes also inherit the builtin that a caller would expect, so ``except TimeoutError`` and ``except LookupError``
work. Attributes carry the facts; the message says what happened and what to do about it. No message contains a secret,
sends control sequences to a terminal, or is longer than a screen: long keys and names are abbreviated.
All errors survive `pickle` and `copy`, including their attributes and any causes from this tree, so they can be passed
between processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Full
from typing import Literal

from lvq_kafka.core.facts import Depth, Position, Right, Shortfall
from lvq_kafka.core.text.base_errors import ConfigError, LVQError

__all__ = [
    "AlreadySettled",
    "AuthenticationFailed",
    "BoundToProcess",
    "BrokerRefused",
    "BrokerStartFailed",
    "BrokerUnavailable",
    "CatchUpTimeout",
    "Closed",
    "CodecError",
    "CommitMapRefused",
    "ConfigError",
    "CorruptDownload",
    "DataLoss",
    "DecodeError",
    "DeliveryFailed",
    "DeliveryUnknown",
    "DiskFull",
    "DynamicDurablesDisabled",
    "EmbeddedBrokerError",
    "EncodeError",
    "FeedPositionLost",
    "GroupNotFound",
    "IncompatibleMatcher",
    "JavaNotFound",
    "KeyMismatch",
    "LVQError",
    "LockLost",
    "MessageTooLarge",
    "MissingExtra",
    "MissingKey",
    "MixedIndex",
    "NoKeyTest",
    "NotAString",
    "OffsetsExpired",
    "OffsetsPending",
    "OutcomeUnknown",
    "PageUnreadable",
    "PartitionsAdded",
    "PredicateFailed",
    "QueueError",
    "QueueFull",
    "QueueMismatch",
    "QueueNotDeclared",
    "ReaderFailed",
    "SpillFailed",
    "SqlError",
    "StateError",
    "StoreFailed",
    "StoreFull",
    "StoreInUse",
    "StoreNotFound",
    "TaskOutOfMemory",
    "TopicError",
    "TopicMismatch",
    "TopicNotFound",
    "TopicRecreated",
    "TransportError",
    "Unauthorized",
    "UnencodableKey",
]


class NoKeyTest(ConfigError):
    """A subscriber's content matcher asks for no value of the key field, ``key_field`` (R21)."""

    def __init__(self, message: str, *, key_field: str, hint: str = "") -> None:
        super().__init__(message, options=["matcher"], hint=hint)
        self.key_field = key_field


class NotAString(ConfigError, TypeError):
    """A content matcher tests ``field`` for something that is neither a string nor ``true``."""

    def __init__(self, message: str, *, field: str, hint: str = "") -> None:
        super().__init__(message, options=["matcher"], hint=hint)
        self.field = field


class UnencodableKey(LVQError, TypeError):
    """A key has a type with no wire form. Keys are text, bytes, integers or booleans (R2)."""


class MissingKey(LVQError, ValueError):
    """A message has no key header, and the queue's policy is ``keyless="refuse"`` (R1)."""


class KeyMismatch(LVQError, ValueError):
    """A record's key header disagrees with its record key, or cannot be read (R16).

    Raised if the policy is ``"fail"``.
    """

    def __init__(self, message: str, *, position: Position, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.position = position


class PredicateFailed(LVQError, ValueError):
    """A predicate (``where=``) could not judge a value, which therefore is not selected (R31).

    ``position`` is the value's position; ``__cause__`` is the error of the predicate or of the codec. It is not raised:
    readers and watches have it as ``selection_failure``.
    """

    def __init__(self, message: str, *, position: Position, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.position = position


class MixedIndex(LVQError, TypeError):
    """An index has values of several kinds, which have no order (R45).

    For example, some are numbers and others text. ``index`` is its name; ``keys`` maps two of the kinds to a key with
    such a value.
    """

    def __init__(self, message: str, *, index: str, keys: Mapping[str, str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.index = index
        self.keys = dict(keys)


class SqlError(LVQError, ValueError):
    """A query of SQL cannot be answered (R49).

    It is malformed, names something that is not there, does more than read, or fails on the values.
    """


class CodecError(LVQError, ValueError):
    """A codec could not encode or decode a value."""


class EncodeError(CodecError):
    """A codec cannot encode a value."""


class DecodeError(CodecError):
    """A codec cannot decode a stored value. The next good write of the key fixes it.

    ``position`` is the value's position; ``raw`` is its bytes.
    """

    def __init__(self, message: str, *, position: Position | None, raw: bytes, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.position = position
        self.raw = raw


class StateError(LVQError, RuntimeError):
    """The object is not in a state that allows the call."""


class BoundToProcess(StateError, TypeError):
    """The object cannot leave the process that opened it.

    It has its own connections and threads, and was pickled or copied, or used in a child process after a fork.
    """


class Closed(StateError):
    """The object was used after it was closed."""


class AlreadySettled(StateError):
    """The delivery was already acked, released or rejected."""


class LockLost(StateError):
    """The message is no longer this holder's.

    It is delivered again, to this consumer or another, unless a newer value has replaced it. Its partition is no longer
    assigned to this consumer, the time to settle it ran out, or the transaction that it was settled in was aborted.
    """


class TopicError(LVQError):
    """Something is wrong with a topic. ``topic`` is its name."""

    def __init__(self, message: str, *, topic: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic


class TopicNotFound(TopicError, LookupError):
    """The topic does not exist, or this user may not see it."""


class TopicMismatch(TopicError):
    """A topic's settings do not fit a last value queue.

    ``settings`` maps each setting's name to ``(expected, actual)``.
    """

    def __init__(self, message: str, *, topic: str, settings: Mapping[str, tuple[str, str]], hint: str = "") -> None:
        super().__init__(message, topic=topic, hint=hint)
        self.settings = dict(settings)


class TopicRecreated(TopicError):
    """The topic was deleted, or deleted and recreated, while a reader was using it."""


class QueueError(LVQError):
    """Something is wrong with a queue's declaration. ``queue`` is its name."""

    def __init__(self, message: str, *, queue: str, hint: str = "", options: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint, options=options)
        self.queue = queue


class QueueNotDeclared(QueueError, LookupError):
    """There is no such queue.

    Or, in the subclasses, the queue is declared, but its group does not say what was consumed (R17). For these, there
    is ``lvq repair``, and `LastValueQueue.repair`. Until then, nothing is replayed or skipped.
    """


class GroupNotFound(QueueNotDeclared):
    """The queue's consumer group holds no offsets.

    It has expired or was deleted, or the queue was never declared. It is no longer known what was consumed, so a repair
    needs a starting point. ``group`` is the group's name.
    """

    def __init__(self, message: str, *, queue: str, group: str, hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.group = group


class OffsetsExpired(QueueNotDeclared):
    """The queue's group no longer holds offsets for ``partitions``, only for others.

    Offsets expire individually. It is no longer known what was consumed there, so a repair needs a starting point for
    these partitions.
    """

    def __init__(self, message: str, *, queue: str, partitions: Sequence[int], hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.partitions = tuple(partitions)


class PartitionsAdded(QueueNotDeclared):
    """The partitions in ``partitions`` were added to the queue's topic after it was declared.

    A repair includes them from their beginning.
    """

    def __init__(self, message: str, *, queue: str, partitions: Sequence[int], hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.partitions = tuple(partitions)


class FeedPositionLost(QueueError):
    """It is unknown how far a queue was fed from a topic, or what follows there is gone (R29).

    ``topic`` and ``partitions`` say where. Nothing is fed twice, or left out, before somebody says where to start.
    """

    def __init__(self, message: str, *, queue: str, topic: str, partitions: Sequence[int], hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.topic = topic
        self.partitions = tuple(partitions)


class DynamicDurablesDisabled(QueueNotDeclared):
    """There is no such durable, and a subscriber of its ``endpoint`` may not create one (R21)."""

    def __init__(self, message: str, *, queue: str, endpoint: str, hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.endpoint = endpoint


class IncompatibleMatcher(QueueError):
    """A durable has other messages than a subscriber asks for (R21).

    ``declared`` is its content matcher as JSON, or its selector if that is none; ``asked`` is that of the subscriber,
    for any value of the key field.
    """

    def __init__(self, message: str, *, queue: str, declared: str, asked: str, hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.declared = declared
        self.asked = asked


class QueueMismatch(QueueError):
    """A queue is declared again with other properties.

    ``differences`` maps each property's name to ``(declared, asked)``.
    """

    def __init__(
        self, message: str, *, queue: str, differences: Mapping[str, tuple[object, object]], hint: str = ""
    ) -> None:
        super().__init__(message, queue=queue, hint=hint, options=tuple(differences))
        self.differences = dict(differences)


class CommitMapRefused(QueueError):
    """An offset commit's text cannot be trusted to say what the queue has consumed (R17).

    ``reason`` is ``"foreign"`` (something else commits with this group, such as a plain client or a tool, which set no
    text), ``"newer"`` (written by a later version of this library) or ``"corrupt"``. ``partition`` is the commit's
    partition, or None if unknown. ``queue`` may be empty, too.
    """

    def __init__(
        self,
        message: str,
        *,
        queue: str,
        partition: int | None = None,
        reason: Literal["foreign", "newer", "corrupt"],
        hint: str = "",
    ) -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.partition = partition
        self.reason = reason


class TransportError(LVQError, ConnectionError):
    """The Kafka client reported an error.

    ``code`` is the client's symbolic name (``"_TRANSPORT"``, ``"TOPIC_AUTHORIZATION_FAILED"``). ``retriable`` is True
    if the same call can succeed later with nothing changed.
    """

    def __init__(self, message: str, *, code: str, retriable: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retriable = retriable


class BrokerUnavailable(TransportError):
    """No broker answered in time."""


class OffsetsPending(TransportError):
    """An open transaction holds a group's offsets: consumption is unknown until it ends.

    Or what was committed is not yet on all in-sync replicas (code ``NOT_ENOUGH_REPLICAS``).
    """


class AuthenticationFailed(TransportError, PermissionError):
    """Authentication between client and broker failed.

    The broker refused the TLS handshake or the SASL credentials, no token arrived to log in with, or the client
    rejected the broker's certificate. The hint names the setting; docs/how-to/access.md lists them all.
    """


class Unauthorized(TransportError, PermissionError):
    """The broker knows the user and does not allow the operation.

    ``missing`` is the right that this user lacks (as text: ``Read on Topic prices``), or None if unknown.
    docs/how-to/access.md lists the rights that each role needs.
    """

    def __init__(self, message: str, *, code: str, missing: Right | None = None, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
        self.missing = missing


class DeliveryFailed(TransportError):
    """A message was not stored.

    ``key`` is the record key it would have had, or None if unknown.
    """

    def __init__(
        self, message: str, *, key: bytes | None = None, code: str, retriable: bool = False, hint: str = ""
    ) -> None:
        super().__init__(message, code=code, retriable=retriable, hint=hint)
        self.key = key


class MessageTooLarge(DeliveryFailed, ValueError):
    """A message exceeds the client's or the topic's size limit, so it was not stored."""


class BrokerRefused(LVQError, ConnectionError):
    """A broker of another kind refuses a bridge.

    It refuses the credentials, knows no such queue, or there is no TLS with it. ``condition`` is AMQP's name for the
    reason, such as ``amqp:not-found``; it may be empty.
    """

    def __init__(self, message: str, *, condition: str, hint: str = "", options: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint, options=options)
        self.condition = condition


class DataLoss(LVQError):
    """Data that a reader still needed is no longer in the log.

    It was removed by retention, by DeleteRecords or by the cleaning of tombstones.
    """


class QueueFull(LVQError, Full):
    """A queue's limits leave no room for a message, which was not sent (R12).

    ``queue`` is its name, ``depth`` what it holds.
    """

    def __init__(self, message: str, *, queue: str, depth: Depth, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.queue = queue
        self.depth = depth


class OutcomeUnknown(LVQError, TimeoutError):
    """The operation was not decided in time. It may still happen: ask again, or wait longer."""


class DeliveryUnknown(TransportError, OutcomeUnknown):
    """A message may have been stored: the producer gave up on it with its fate unknown.

    It was, or may have been, handed to a broker, and no answer arrived within ``delivery.timeout.ms`` or before the
    producer was closed. If stored, perhaps twice, it precedes everything that this producer sends later (G14). Sending
    it again is safe, unless someone else has written the key since. ``key`` is its record key, or None if unknown.
    """

    def __init__(
        self, message: str, *, key: bytes | None = None, code: str, retriable: bool = True, hint: str = ""
    ) -> None:
        super().__init__(message, code=code, retriable=retriable, hint=hint)
        self.key = key


class CatchUpTimeout(LVQError, TimeoutError):
    """A reader did not reach its target in time.

    ``shortfalls`` says what each lagging partition lacks, and why.
    """

    def __init__(self, message: str, *, shortfalls: Sequence[Shortfall] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.shortfalls = tuple(shortfalls)


class ReaderFailed(LVQError, RuntimeError):
    """A background reader has stopped because of an error, and no longer follows the topic.

    The error is the ``__cause__``.
    """

    @property
    def reason(self) -> BaseException:
        """The error that stopped the reader."""
        return self.__cause__ or self


class PageUnreadable(LVQError, OSError):
    """A value that a consumer paged to disk cannot be read back, so it has stopped (R12).

    ``path`` is the directory. The operating system's own error, if there was one, is the ``__cause__``.
    """

    def __init__(self, message: str, *, path: Path, hint: str = "") -> None:
        LVQError.__init__(self, message, hint=hint)
        self.path = path


class SpillFailed(LVQError, OSError):
    """A Spark task could not spill to a temporary file, or read it back; often a full disk.

    ``path`` is the file's directory. The operating system's own error is the ``__cause__``.
    """

    def __init__(self, message: str, *, path: Path, hint: str = "") -> None:
        LVQError.__init__(self, message, hint=hint)
        self.path = path


class TaskOutOfMemory(LVQError, MemoryError):
    """The keys or values that a Spark task holds do not fit into the memory of its Python.

    Also raised if the task's Python worker died, as it does when the system or Kafka's client runs out of memory.
    """


class StoreFailed(LVQError, OSError):
    """A store's files cannot be read or written: often a full disk, or a missing right.

    ``path`` is the store's directory; that of a store of `lvq_spark` is a URL. The file system's own error is the
    ``__cause__``.
    """

    def __init__(self, message: str, *, path: str, hint: str = "") -> None:
        LVQError.__init__(self, message, hint=hint)
        self.path = path


class StoreFull(StoreFailed):
    """A store cannot be written, since its file system has no room for it.

    It holds what it held before.
    """


class StoreInUse(StoreFailed):
    """Another view, of this process or another, writes this store.

    ``holder`` says who: ``pid``, ``host`` and ``since``, a time in seconds since the epoch; it is empty if unknown.
    """

    def __init__(self, message: str, *, path: str, holder: Mapping[str, str], hint: str = "") -> None:
        super().__init__(message, path=path, hint=hint)
        self.holder = dict(holder)


class StoreNotFound(StoreFailed):
    """There is no store in a directory, or none yet: its writer has not begun."""


class MissingExtra(LVQError, ImportError):
    """A package from one of this library's extras is not installed.

    ``extra`` is the extra's name.
    """

    def __init__(self, message: str, *, extra: str, hint: str = "", options: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint, options=options)
        self.extra = extra


class EmbeddedBrokerError(LVQError, RuntimeError):
    """The embedded broker could not be provided."""


class JavaNotFound(EmbeddedBrokerError):
    """No Java of the required version was found."""


class CorruptDownload(EmbeddedBrokerError):
    """A downloaded file does not match the lock. ``path`` is the file."""

    def __init__(self, message: str, *, path: Path, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class DiskFull(EmbeddedBrokerError, OSError):
    """The embedded broker's directory has no space left. ``path`` is the directory."""

    def __init__(self, message: str, *, path: Path, hint: str = "") -> None:
        EmbeddedBrokerError.__init__(self, message, hint=hint)
        self.path = path


class BrokerStartFailed(EmbeddedBrokerError):
    """The broker process ended, or did not become ready in time.

    ``log`` is the end of its output.
    """

    def __init__(self, message: str, *, log: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log
