"""The sessions of a consumer.

Each counts as one consumer where messages are grouped (R36).
"""

from __future__ import annotations

import threading
from weakref import finalize

from lvq_kafka.consuming.shared_state import SharedState

__all__ = ["ImplicitSessions", "OpenSession"]


class OpenSession:
    """A session that ends when it is closed, or when nothing refers to it any longer."""

    def __init__(self, shared: SharedState) -> None:
        self.pins = shared.open_session()
        self._shared = shared
        self._dropped = finalize(self, shared.drop_session, self.pins)
        self._dropped.atexit = False

    def close(self) -> None:
        """End the session."""
        if self._dropped.detach() is not None:
            self._shared.end_session(self.pins)


class _OfThread(threading.local):
    """The session of each thread, until that ends."""

    session: OpenSession | None = None


class ImplicitSessions:
    """The sessions of callers that do not open one.

    Each thread has one until it ends, and all asyncio tasks share one.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._here = _OfThread()
        self._of_tasks: OpenSession | None = None

    def of_thread(self) -> OpenSession:
        """Return the session of the calling thread."""
        session = self._here.session
        if session is None:
            session = self._here.session = OpenSession(self._shared)
        return session

    def of_tasks(self) -> OpenSession:
        """Return the session of asyncio tasks."""
        if self._of_tasks is None:
            self._of_tasks = OpenSession(self._shared)
        return self._of_tasks
