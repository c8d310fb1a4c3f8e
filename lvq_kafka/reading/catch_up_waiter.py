"""Waiting until a follower has read far enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lvq_kafka.core.progress import describe
from lvq_kafka.core.validation import waiting
from lvq_kafka.errors import CatchUpTimeout
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.reading.metadata_thread import MetadataThread

__all__ = ["CatchUpWaiter", "Limit", "Timeout"]

_PATIENCE = 0.5  # seconds between metadata refreshes while someone waits
_MARKERS = 0.4  # seconds for a decided transaction's markers to reach all its partitions
_BRISK = 0.1  # seconds too short for a new record to be superseded, its segment rolled, and compacted away


class CatchUpWaiter:
    """Waits on a `FollowerState`, in threads other than the follower's own.

    See `lvq_kafka.reading.follower.Follower`.
    """

    def __init__(self, shared: FollowerState, metadata: MetadataThread) -> None:
        self._shared = shared
        self._metadata = metadata

    def caught_up(self, timeout: Timeout, *, or_blocked: bool) -> None:
        """See `Follower.wait_caught_up`."""
        shared = self._shared
        goal = _AsFarAsAllowed(shared) if or_blocked else lambda: shared.replay.caught_up
        self._wait(goal, Limit.of(timeout), "catch up", None)

    def barrier(self, timeout: Timeout) -> dict[int, int]:
        """See `Follower.barrier`."""
        self._shared.check()
        limit, following = Limit.of(timeout), self._shared.replay.caught_up
        topic_id, ends = self._metadata.ends(limit.left)
        self._reach(ends, topic_id, limit, following)
        return ends

    def reached(self, targets: Mapping[int, int], timeout: Timeout, topic_id: str | None) -> None:
        """See `Follower.wait_for`."""
        self._reach(targets, topic_id, Limit.of(timeout), self._shared.replay.caught_up)

    def _reach(self, targets: Mapping[int, int], topic_id: str | None, limit: Limit, following: bool) -> None:
        """Wait for a cut through a topic, and for the replacements of records below it.

        With ``topic_id`` None, the topic is the one being read.
        """
        self._wait_for_cut(targets, topic_id, limit)
        if not following or limit.elapsed > _BRISK:
            # As when catching up: a record may have been compacted away, and its replacement not be read yet.
            topic_id, second = self._metadata.ends(limit.left, stable=True)
            self._wait_for_cut(second, topic_id, limit)

    def _wait_for_cut(self, targets: Mapping[int, int], topic_id: str | None, limit: Limit) -> None:
        shared = self._shared

        def reached() -> bool:
            # A recreated topic may be longer or shorter than what was read of its predecessor.
            replay = shared.replay
            return topic_id in (None, replay.described.id) and not shared.starting_over and replay.reached(targets)

        self._wait(reached, limit, "reach the end", targets)

    def _wait(self, goal: Callable[[], bool], limit: Limit, aim: str, targets: Mapping[int, int] | None) -> None:
        shared = self._shared
        next_look = time.monotonic() + _PATIENCE
        with shared.notifier.waiting_for(goal) as changed:
            while True:
                shared.check()
                if goal():
                    return
                left = limit.left()
                if left == 0:
                    break
                until_look = next_look - time.monotonic()
                if until_look <= 0:
                    self._metadata.refresh_now()  # perhaps the topic itself has changed
                    next_look, until_look = time.monotonic() + _PATIENCE, _PATIENCE
                changed.wait(until_look if left is None else min(left, until_look))
            shortfalls = shared.replay.shortfalls(targets)
            trouble = shared.trouble
        reason = str(trouble) if trouble else describe(shortfalls) or "it reads the topic from its start again"
        blocked = any(shortfall.blocked for shortfall in shortfalls)
        raise CatchUpTimeout(
            f"The reader of {shared.topic} did not {aim} within {limit.timeout or 0:g} s: {reason}.",
            shortfalls=shortfalls,
            hint="Commit or abort that transaction, or wait for its timeout."
            if blocked
            else "Allow more time, or look at the cluster.",
        )


class _AsFarAsAllowed:
    """The goal of a wait that stops at open transactions.

    A commit is acknowledged before its markers are in all partitions, so a transaction counts as open only if it still
    is after a moment. Everything committed until then is read, for the reason that `Replay` has two targets.
    """

    def __init__(self, shared: FollowerState) -> None:
        self._shared = shared
        self._replay = shared.replay
        self._blocked_since: float | None = None
        self._allowed: Mapping[int, int] | None = None

    def __call__(self) -> bool:
        shared, replay = self._shared, self._shared.replay
        if shared.rewinding:
            return False
        if replay is not self._replay:  # the topic was recreated or truncated
            self._replay, self._blocked_since, self._allowed = replay, None, None
        if replay.complete:
            return True
        if self._blocked_since is None:
            self._blocked_since = time.monotonic() if shared.state == "blocked" else None
        elif self._allowed is None:
            self._allowed = replay.stable if shared.heard > self._blocked_since + _MARKERS else None
        if self._allowed is not None and replay.reached(self._allowed):
            shared.accept_incomplete()
        return replay.complete


class Limit:
    """A time limit in seconds, starting now; None for no limit. It can be given up early.

    Raises:
        ConfigError: the timeout is not a number.
    """

    def __init__(self, timeout: float | None) -> None:
        self.timeout = waiting(timeout)
        self._begun = time.monotonic()
        self._given_up = False

    @classmethod
    def of(cls, timeout: Timeout) -> Limit:
        """Return the limit itself, or a new one for a timeout."""
        return timeout if isinstance(timeout, Limit) else cls(timeout)

    @property
    def elapsed(self) -> float:
        """Seconds since the limit was created."""
        return time.monotonic() - self._begun

    def left(self) -> float | None:
        """Return the remaining seconds, or None for no limit."""
        if self._given_up:
            return 0.0
        return None if self.timeout is None else max(0.0, self.timeout - self.elapsed)

    def give_up(self) -> None:
        """End the limit early: the result is no longer needed.

        May be called from any thread; the waiter notices within `_PATIENCE`.
        """
        self._given_up = True


Timeout = float | None | Limit
"""Seconds to wait, None for no limit, or a `Limit` that can be given up."""
