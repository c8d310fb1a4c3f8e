"""A session of ``qpid.messaging`` as its senders and receivers see it (not one of R36)."""

from __future__ import annotations

from typing import Any, Protocol

from lvq_kafka.compat.qpid_messaging.sources import Taken

__all__ = ["LinkSession"]


class LinkSession(Protocol):
    """The session of a sender or receiver."""

    def _forget(self, link: Any) -> None:
        """Drop a sender or receiver that was closed."""

    def _hold(self, receiver: Any, taken: Taken, *, settle: bool) -> None:
        """Hold a message that a receiver fetched until it is acknowledged.

        Args:
            settle: acknowledge it at once instead.
        """

    def _unsettled(self, receiver: Any) -> int:
        """Return the number of a receiver's acknowledgements that are not durable yet."""
