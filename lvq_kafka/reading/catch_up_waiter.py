"""Waiting until a follower has read far enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.latest.catch_up import AsFarAsAllowed, Trouble
from lvq_kafka.core.log.progress import describe
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.errors import CatchUpTimeout, LVQError
from lvq_kafka.reading.follower_state import FollowerState

__all__ = ["CatchUpWaiter", "Limit", "Observer", "Timeout"]

_PATIENCE = 0.5  # seconds between metadata refreshes while someone waits
_BRISK = 0.1  # seconds too short for a new record to be superseded, its segment rolled, and compacted away


class Observer(Protocol):
    """The source of the ends of a log: the `MetadataThread`, or the writer of a store."""

    def refresh_now(self) -> None:
        """Look at once, if possible."""

    def ends(self, left: Callable[[], float | None] = ..., *, stable: bool = False) -> tuple[str, dict[int, int]]:
        """See `MetadataThread.ends`."""


class CatchUpWaiter:
    """Waits on a `FollowerState`, in threads other than the follower's own."""

    def __init__(self, shared: FollowerState, metadata: Observer) -> None:
        self._shared = shared
        self._metadata = metadata

    def caught_up(self, timeout: Timeout = None, *, or_blocked: bool = False) -> None:
        """Wait until everything that the log held at the start has been read.

        With ``or_blocked``, stop at open transactions, and count the read as complete.

        Raises:
            CatchUpTimeout: some partitions lack something; it names each of them, and why.
            Closed, ReaderFailed: as for `CatchUp.check`.
        """
        shared, catch_up = self._shared, self._shared.catch_up
        limit = Limit.of(timeout)
        if not or_blocked:
            self._wait(lambda: catch_up.replay.caught_up and Trouble.WRITER not in catch_up.troubles, limit, "catch up")
            return
        goal = AsFarAsAllowed(catch_up)
        with shared.lock:  # held from the wait to `accept`
            self._wait(lambda: goal.reached(shared.clock()), limit, "catch up")
            if not catch_up.replay.complete:
                shared.accept()

    def barrier(self, timeout: Timeout = None, *, stable: bool = False) -> dict[int, int]:
        """Wait until everything acknowledged before this call is applied (G7). Return that cut.

        With ``stable``, do not wait for records that open transactions hide.

        Raises:
            CatchUpTimeout: some partitions lack something; it names each of them, and why.
            TopicNotFound: the topic does not exist; the reader's state shows whether it is recreated.
            TransportError: the cluster cannot be asked for the end of the log.
            Closed, ReaderFailed: as for `CatchUp.check`.
        """
        self._shared.catch_up.check()
        limit, following = Limit.of(timeout), self._following
        topic_id, ends = self._metadata.ends(limit.left, stable=stable)
        self._reach(ends, topic_id, limit, following)
        return ends

    def reached(self, targets: Mapping[int, int], timeout: Timeout = None, *, topic_id: str | None = None) -> None:
        """Wait until each partition that is read is read up to its offset, replacements included.

        A record below an offset may have been compacted away; then its replacement has been read. ``topic_id`` is the
        id of the topic that the offsets belong to; None for the one being read.

        Raises:
            CatchUpTimeout, TopicNotFound, TransportError, Closed, ReaderFailed: as for `barrier`.
        """
        self._reach(self._shared.those_read(targets), topic_id, Limit.of(timeout), self._following)

    @property
    def _following(self) -> bool:
        return self._shared.catch_up.replay.caught_up

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
        catch_up = self._shared.catch_up

        def reached() -> bool:
            # A recreated topic may be longer or shorter than its predecessor.
            replay = catch_up.replay
            same = topic_id in (None, replay.topic_id) and not (catch_up.starting_over or catch_up.rewinding)
            return same and replay.values.progress.reached(targets)

        self._wait(reached, limit, "reach the end", targets)

    def _wait(self, goal: Callable[[], bool], limit: Limit, aim: str, targets: Mapping[int, int] | None = None) -> None:
        catch_up, notifier = self._shared.catch_up, self._shared.notifier
        next_look = time.monotonic() + _PATIENCE
        with self._shared.lock, notifier.waiting_for(goal):
            while True:
                catch_up.check()
                if goal():
                    return
                left = limit.left()
                if left == 0:
                    break
                until_look = next_look - time.monotonic()
                if until_look <= 0:
                    self._metadata.refresh_now()  # perhaps the topic itself has changed
                    next_look, until_look = time.monotonic() + _PATIENCE, _PATIENCE
                notifier.changed.wait(until_look if left is None else min(left, until_look))
            replay, trouble = catch_up.replay, catch_up.trouble
            shortfalls = replay.shortfalls(replay.targets if targets is None else targets)
        raise self._timed_out(f"did not {aim} within {limit.timeout or 0:g} s", shortfalls, trouble)

    def _timed_out(self, what: str, shortfalls: list[Shortfall], trouble: LVQError | None) -> CatchUpTimeout:
        reason = str(trouble) if trouble else describe(shortfalls) or "it reads the topic from its start again"
        blocked = any(shortfall.blocked for shortfall in shortfalls)
        return CatchUpTimeout(
            f"The reader of {self._shared.topic} {what}: {reason}.",
            shortfalls=shortfalls,
            hint="Commit or abort that transaction, or wait for its timeout."
            if blocked
            else "Allow more time, or check the cluster.",
        )


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

    @property
    def given_up(self) -> bool:
        """True once it was given up."""
        return self._given_up

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
