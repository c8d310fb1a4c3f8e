"""The lease: how long a consumer may assume that it is still a member of its group."""

from __future__ import annotations

import math

__all__ = ["LEASE", "Lease"]

LEASE = 5.0
"""Seconds after sending an accepted commit during which messages may be handed out.

When the session of a silent member times out, the group removes it, and others then work on its messages. The member
cannot know this while it is cut off or suspended. Brokers allow no session timeout below 6 s unless configured to.
"""


class Lease:
    """Judge by the clock whether the messages may belong to others by now.

    Only a commit that the group has judged proves that we were a member, and only from when it was sent.
    """

    def __init__(self) -> None:
        self.counted_on = -math.inf
        """When the last commit was sent that proves our membership."""
        self._last: object = None  # the last commit, plain or of a transaction
        self._sent_at = -math.inf

    def sent(self, commit: object, now: float) -> None:
        """Record that a commit is being sent."""
        self._last, self._sent_at = commit, now

    def renew(self, commit: object) -> bool:
        """Renew the lease if this, which the group has judged, is the last commit."""
        proves = commit is self._last
        if proves:
            self.counted_on = self._sent_at
        return proves

    def lapsed(self, now: float) -> bool:
        """Return whether others may have the messages by now."""
        return now - self.counted_on > LEASE

    def silence(self, now: float) -> float:
        """Return the seconds since the last commit was sent."""
        return now - self._sent_at
