"""The exceptions of ``qpid.messaging``, in its tree.

All are errors of this library, too (`LVQError`). The library's own error, which says what is wrong in its terms, is the
cause (``__cause__``) of one that stands for it.
"""

from __future__ import annotations

import queue

from lvq_kafka.errors import LVQError

__all__ = [
    "AddressError",
    "AssertionFailed",
    "AuthenticationFailure",
    "ConnectError",
    "ConnectionClosed",
    "ConnectionError",
    "ContentError",
    "DecodeError",
    "Detached",
    "Empty",
    "EncodeError",
    "FetchError",
    "HeartbeatTimeout",
    "InsufficientCapacity",
    "InternalError",
    "InvalidOption",
    "LinkClosed",
    "LinkError",
    "MalformedAddress",
    "MessagingError",
    "NontransactionalSession",
    "NotFound",
    "ReceiverError",
    "ResolutionError",
    "SendError",
    "SenderError",
    "ServerError",
    "SessionClosed",
    "SessionError",
    "TargetCapacityExceeded",
    "Timeout",
    "TransactionAborted",
    "TransactionError",
    "TransactionUnknown",
    "UnauthorizedAccess",
    "VersionError",
]


class Timeout(LVQError, TimeoutError):
    """A call was not done within its time. It may still happen."""

    def __init__(self, text: str = "", *, hint: str = "") -> None:
        super().__init__(text, hint=hint)


class MessagingError(LVQError):
    """The base of all other exceptions."""

    def __init__(self, code: object = None, text: str = "", *, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.code = code
        """A number of AMQP, which Kafka does not have: None in all that this package raises."""
        self.text = str(self)
        """The message."""


class InternalError(MessagingError):
    """Something that should not happen."""


# ---------------------------------------------------------------- of connections


class ConnectionError(MessagingError):
    """A connection cannot be used, or an option of it is wrong."""


class ConnectError(ConnectionError):
    """The cluster cannot be reached."""


class VersionError(ConnectError):
    """The program asks for a protocol that ``qpid.messaging`` does not have."""


class AuthenticationFailure(ConnectError):
    """The cluster does not accept this user, or not like that."""


class ConnectionClosed(ConnectionError):
    """The connection was closed."""


class HeartbeatTimeout(ConnectionError):
    """Never raised: Kafka's client connects again."""


# ---------------------------------------------------------------- of sessions


class SessionError(MessagingError):
    """A session cannot do that, or a message that it settles is no longer its own."""


class Detached(SessionError):
    """The connection is not open."""


class NontransactionalSession(SessionError):
    """`commit` or `rollback` of a session that is not transactional."""


class TransactionError(SessionError):
    """A session cannot be transactional here."""


class TransactionAborted(TransactionError):
    """Never raised: no session is transactional here."""


class TransactionUnknown(TransactionError):
    """Never raised: no session is transactional here."""


class UnauthorizedAccess(SessionError):
    """This user lacks a right."""


class ServerError(SessionError):
    """The cluster refuses a request."""


class SessionClosed(SessionError):
    """The session was closed."""


# ---------------------------------------------------------------- of senders and receivers


class LinkError(MessagingError):
    """A sender or receiver cannot do that."""


class InsufficientCapacity(LinkError):
    """The capacity of a sender left no room for a message in time."""


class AddressError(LinkError):
    """An address does not lead to a queue."""


class MalformedAddress(AddressError):
    """An address breaks the syntax. The message says where."""


class InvalidOption(AddressError):
    """An address asks for something that no queue has. The message says where."""


class ResolutionError(AddressError):
    """The queue of an address cannot be used."""


class AssertionFailed(ResolutionError):
    """A queue is not as the address asserts."""


class NotFound(ResolutionError):
    """There is no such queue, and the address does not ask to create it."""


class LinkClosed(LinkError):
    """The sender or receiver was closed."""


class SenderError(LinkError):
    """A sender cannot send."""


class SendError(SenderError):
    """A message was not stored, or it is not known whether it was."""


class TargetCapacityExceeded(SendError):
    """The queue's limits leave no room for a message (R12)."""


class ReceiverError(LinkError):
    """A receiver cannot receive."""


class FetchError(ReceiverError):
    """No message can be fetched."""


class Empty(FetchError, queue.Empty):
    """There was no message in time."""


# ---------------------------------------------------------------- of contents


class ContentError(MessagingError):
    """The content or a property of a message is not what it should be.

    Other messages are not affected.
    """


class EncodeError(ContentError):
    """A content or a property has no wire form."""


class DecodeError(ContentError):
    """A content is not of the type that its message names."""
