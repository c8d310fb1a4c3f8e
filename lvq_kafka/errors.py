"""Every error this library raises, in one tree.

::

    LVQError
    ├─ ConfigError(ValueError)             an option is unknown, missing, malformed or clashes with another
    ├─ UnencodableKey(TypeError)           a key of a type that has no wire form (R2)
    ├─ MissingKey(ValueError)              no key header on a message, and the queue refuses such messages (R1)
    ├─ KeyMismatch(ValueError)             key header and record key disagree, and the policy is "fail" (R16)
    ├─ CodecError(ValueError)
    │  ├─ EncodeError                      a value that its codec cannot write
    │  └─ DecodeError                      a value that its codec cannot read; carries the position
    ├─ StateError(RuntimeError)
    │  ├─ BoundToProcess(TypeError)        pickled, copied, or used in a child after a fork
    │  ├─ Closed                           used after close()
    │  ├─ AlreadySettled                   a delivery was acked, released or rejected before
    │  └─ LockLost                         the delivery's partition is no longer held by this consumer
    ├─ TopicError
    │  ├─ TopicNotFound(LookupError)
    │  ├─ TopicMismatch                    a topic's settings do not fit a last value queue
    │  └─ TopicRecreated                   the topic was deleted, or deleted and created again, under a reader
    ├─ QueueError
    │  ├─ QueueNotDeclared(LookupError)    no such queue, or it is not known what was consumed (R17)
    │  │  ├─ GroupNotFound                 its consumer group has expired, was deleted, or never was
    │  │  ├─ OffsetsExpired                its group holds no offsets for some partitions any more
    │  │  └─ PartitionsAdded               its topic was given partitions after it was declared
    │  ├─ QueueMismatch                    a second declare differs from the first
    │  └─ CommitMapRefused                 an offset commit's text is not the queue's, newer, or damaged
    ├─ TransportError(ConnectionError)     carries the client's error code and whether a retry makes sense
    │  ├─ BrokerUnavailable
    │  ├─ OffsetsPending                   an open transaction holds a group's offsets
    │  ├─ AuthenticationFailed(PermissionError)
    │  ├─ Unauthorized(PermissionError)    carries the right that is missing
    │  ├─ DeliveryFailed                   a message was not stored; carries the key
    │  │  └─ MessageTooLarge(ValueError)
    │  └─ DeliveryUnknown                  a message may have been stored; carries the key; also an OutcomeUnknown
    ├─ DataLoss                            offsets a reader needs, or deletes it has not read, are gone from the log
    ├─ OutcomeUnknown(TimeoutError)        not decided in time; it may still happen
    ├─ CatchUpTimeout(TimeoutError)        carries what each partition still lacks
    ├─ ReaderFailed(RuntimeError)          a background reader died; carries its cause
    ├─ SpillFailed(OSError)                a task has no room on disk for what it has none for in memory (Spark)
    ├─ MissingExtra(ImportError)           a package that an extra of this library brings is not installed
    └─ EmbeddedBrokerError(RuntimeError)
       ├─ JavaNotFound
       ├─ CorruptDownload
       ├─ DiskFull(OSError)
       └─ BrokerStartFailed                carries the end of the broker's log

A leaf also inherits the builtin a caller would expect, so ``except TimeoutError`` and ``except LookupError`` work.
Attributes carry the facts; the message says what happened and what to do about it. No message holds a secret, steers a
terminal, or is longer than a screen: keys and names in it are shown by their beginnings.
All of them survive `pickle` and `copy`, attributes and causes of this tree included, so that they can be carried
between processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lvq_kafka.core.quoting import bounded

if TYPE_CHECKING:
    from lvq_kafka.core.progress import Shortfall
    from lvq_kafka.core.records import Position
    from lvq_kafka.core.rights import Right

__all__ = [
    "AlreadySettled",
    "AuthenticationFailed",
    "BoundToProcess",
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
    "EmbeddedBrokerError",
    "EncodeError",
    "GroupNotFound",
    "JavaNotFound",
    "KeyMismatch",
    "LVQError",
    "LockLost",
    "MessageTooLarge",
    "MissingExtra",
    "MissingKey",
    "OffsetsExpired",
    "OffsetsPending",
    "OutcomeUnknown",
    "PartitionsAdded",
    "QueueError",
    "QueueMismatch",
    "QueueNotDeclared",
    "ReaderFailed",
    "SpillFailed",
    "StateError",
    "TopicError",
    "TopicMismatch",
    "TopicNotFound",
    "TopicRecreated",
    "TransportError",
    "Unauthorized",
    "UnencodableKey",
]


class LVQError(Exception):
    """Base of every error of this library.

    ``hint`` is the part of the message that says what to do next; it is empty when there is nothing useful to say.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        # Not one of these texts is known to be short, or harmless on a terminal: others' words are in most of them.
        self.hint = bounded(hint)
        super().__init__(f"{bounded(message)} {self.hint}".rstrip())

    def __reduce__(self) -> tuple[Any, ...]:
        # What exceptions do by default is to call the class with `args`, and ours want keywords.
        cause = {"__cause__": self.__cause__} if isinstance(self.__cause__, LVQError) else {}
        return _rebuilt, (type(self), self.args), {**self.__dict__, **cause}


def _rebuilt(kind: type[LVQError], args: tuple[object, ...]) -> LVQError:
    shape: Any = kind
    while shape.__module__ != "builtins":  # only the builtin that it is laid out as can make one without __init__
        shape = shape.__base__
    error: LVQError = shape.__new__(kind)
    error.args = args
    return error


class ConfigError(LVQError, ValueError):
    """An option is unknown, missing, malformed, or clashes with another. ``options`` names the culprits."""

    def __init__(self, message: str, *, options: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.options = tuple(options)


class UnencodableKey(LVQError, TypeError):
    """A key of a type that has no wire form. Keys are text, bytes, integers or booleans (R2)."""


class MissingKey(LVQError, ValueError):
    """A message carries no key header and the queue's policy is ``keyless="refuse"`` (R1)."""


class KeyMismatch(LVQError, ValueError):
    """A record's key header disagrees with its record key, or cannot be read, and the policy is ``"fail"`` (R16)."""

    def __init__(self, message: str, *, position: Position, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.position = position


class CodecError(LVQError, ValueError):
    """A value could not be written or read by its codec."""


class EncodeError(CodecError):
    """A value that its codec cannot write."""


class DecodeError(CodecError):
    """A stored value that its codec cannot read. The next good write of the key cures it.

    ``position`` is where the value lies; ``raw`` its bytes.
    """

    def __init__(self, message: str, *, position: Position | None, raw: bytes, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.position = position
        self.raw = raw


class StateError(LVQError, RuntimeError):
    """The object is not in a state that allows the call."""


class BoundToProcess(StateError, TypeError):
    """The object has connections and threads of its own, and cannot leave the process that opened it.

    It was pickled or copied, or is used in a child process after a fork.
    """


class Closed(StateError):
    """The object was used after it was closed."""


class AlreadySettled(StateError):
    """A delivery was already acked, released or rejected."""


class LockLost(StateError):
    """The message is not this holder's any more, and comes again, here or there, unless a newer value has come.

    Its partition is no longer assigned to this consumer, the time to settle it was over, or the transaction that it was
    settled in was aborted.
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

    ``settings`` maps the setting's name to ``(expected, actual)``.
    """

    def __init__(self, message: str, *, topic: str, settings: Mapping[str, tuple[str, str]], hint: str = "") -> None:
        super().__init__(message, topic=topic, hint=hint)
        self.settings = dict(settings)


class TopicRecreated(TopicError):
    """The topic was deleted, or deleted and created again, while a reader was using it."""


class QueueError(LVQError):
    """Something is wrong with a queue's declaration. ``queue`` is its name."""

    def __init__(self, message: str, *, queue: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.queue = queue


class QueueNotDeclared(QueueError, LookupError):
    """No such queue; or, in its subclasses, it is declared and its group does not say what was consumed (R17).

    For those there is ``lvq repair``, and `LastValueQueue.repair`. Nothing is replayed or skipped before.
    """


class GroupNotFound(QueueNotDeclared):
    """The queue's consumer group holds no offsets: it has expired or was deleted, or the queue was never declared.

    What was consumed is not known any more, so a repair has to be told where to start. ``group`` is its name.
    """

    def __init__(self, message: str, *, queue: str, group: str, hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.group = group


class OffsetsExpired(QueueNotDeclared):
    """The queue's group holds offsets for other partitions, and for ``partitions`` none any more: they expire singly.

    What was consumed there is not known any more, so a repair has to be told where to start in them.
    """

    def __init__(self, message: str, *, queue: str, partitions: Sequence[int], hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.partitions = tuple(partitions)


class PartitionsAdded(QueueNotDeclared):
    """The queue's topic was given ``partitions`` after it was declared. A repair takes them in from their beginning."""

    def __init__(self, message: str, *, queue: str, partitions: Sequence[int], hint: str = "") -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.partitions = tuple(partitions)


class QueueMismatch(QueueError):
    """A queue is declared again with other properties. ``differences`` maps the name to ``(declared, asked)``."""

    def __init__(
        self, message: str, *, queue: str, differences: Mapping[str, tuple[object, object]], hint: str = ""
    ) -> None:
        super().__init__(message, queue=queue, hint=hint)
        self.differences = dict(differences)


class CommitMapRefused(QueueError):
    """The text of an offset commit cannot be taken for what the queue has done (R17).

    ``reason`` is ``"foreign"`` (something else commits with this group, such as a plain client or a tool, which give no
    text), ``"newer"`` (a later version of this library
    wrote it) or ``"corrupt"``; ``partition`` is where it was, None when that is not known. ``queue`` may be empty too.
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

    ``code`` is the client's symbolic name (``"_TRANSPORT"``, ``"TOPIC_AUTHORIZATION_FAILED"``), ``retriable`` whether
    the same call can succeed later without anything being changed.
    """

    def __init__(self, message: str, *, code: str, retriable: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retriable = retriable


class BrokerUnavailable(TransportError):
    """No broker answered in time."""


class OffsetsPending(TransportError):
    """An open transaction holds a group's offsets: what is consumed is known when it ends.

    Or what was committed is not yet on all the replicas that are in sync (code ``NOT_ENOUGH_REPLICAS``).
    """


class AuthenticationFailed(TransportError, PermissionError):
    """The broker refused the TLS handshake or the SASL credentials, or no token came to log in with.

    Or its own certificate was refused, here. The hint names the setting; ACCESS.md has them all.
    """


class Unauthorized(TransportError, PermissionError):
    """The broker knows the user and does not allow the operation.

    ``missing`` is the right that this user lacks (its text: ``Read on Topic prices``); None where that is not known.
    ACCESS.md has the rights that each role needs.
    """

    def __init__(self, message: str, *, code: str, missing: Right | None = None, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
        self.missing = missing


class DeliveryFailed(TransportError):
    """A message was not stored. ``key`` is the record key it would have had; None where that is not known."""

    def __init__(
        self, message: str, *, key: bytes | None = None, code: str, retriable: bool = False, hint: str = ""
    ) -> None:
        super().__init__(message, code=code, retriable=retriable, hint=hint)
        self.key = key


class MessageTooLarge(DeliveryFailed, ValueError):
    """A message exceeds the client's or the topic's size limit, so it was not stored."""


class DataLoss(LVQError):
    """What a reader still needed is gone from the log: retention, DeleteRecords or the cleaning of deletes."""


class OutcomeUnknown(LVQError, TimeoutError):
    """What was asked for is not decided yet, and time is up. It may still happen: ask again, or wait for longer."""


class DeliveryUnknown(TransportError, OutcomeUnknown):
    """A message may have been stored: the producer has given up on it, and does not know what became of it.

    It was handed to a broker, or may have been, and no answer came within ``delivery.timeout.ms`` or before the
    producer was closed. It lies before everything that this producer sends later, or nowhere (G14). To send it once
    more is safe, unless somebody else has written the key since. ``key`` is its record key; None where not known.
    """

    def __init__(
        self, message: str, *, key: bytes | None = None, code: str, retriable: bool = True, hint: str = ""
    ) -> None:
        super().__init__(message, code=code, retriable=retriable, hint=hint)
        self.key = key


class CatchUpTimeout(LVQError, TimeoutError):
    """A reader did not reach its target in time. ``shortfalls`` says what each lagging partition misses, and why."""

    def __init__(self, message: str, *, shortfalls: Sequence[Shortfall] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.shortfalls = tuple(shortfalls)


class ReaderFailed(LVQError, RuntimeError):
    """A background reader has stopped because of an error; what it holds no longer follows the topic.

    The error is the ``__cause__``.
    """

    @property
    def reason(self) -> BaseException:
        """What it has failed of."""
        return self.__cause__ or self


class SpillFailed(LVQError, OSError):
    """What a Spark task has no memory for could not be written to a temporary file, or read back: mostly a full disk.

    ``path`` is the file's directory. The operating system's own error is the ``__cause__``.
    """

    def __init__(self, message: str, *, path: Path, hint: str = "") -> None:
        LVQError.__init__(self, message, hint=hint)
        self.path = path


class MissingExtra(LVQError, ImportError):
    """A package that one of this library's extras brings is not installed. ``extra`` is the extra's name."""

    def __init__(self, message: str, *, extra: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.extra = extra


class EmbeddedBrokerError(LVQError, RuntimeError):
    """The embedded broker could not be provided."""


class JavaNotFound(EmbeddedBrokerError):
    """No Java of the needed version was found."""


class CorruptDownload(EmbeddedBrokerError):
    """A downloaded file is not the one the lock names. ``path`` is the file."""

    def __init__(self, message: str, *, path: Path, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class DiskFull(EmbeddedBrokerError, OSError):
    """There is no room left in the embedded broker's directory. ``path`` is the directory."""

    def __init__(self, message: str, *, path: Path, hint: str = "") -> None:
        EmbeddedBrokerError.__init__(self, message, hint=hint)
        self.path = path


class BrokerStartFailed(EmbeddedBrokerError):
    """The broker process ended, or did not become ready in time. ``log`` is the end of what it wrote."""

    def __init__(self, message: str, *, log: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log
