"""The I/O thread of a consumer, which owns the group member.

It polls regardless of what the holders of messages do, so slow work never costs the membership. It adds what it reads
to the shared state, commits what is done, and handles assignments and revocations.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread, current_thread

from lvq_kafka.aio import in_background
from lvq_kafka.cluster import Commit, GroupListener, GroupMember
from lvq_kafka.consuming.group_monitor import GroupMonitor
from lvq_kafka.consuming.idle_warnings import IdleWarnings
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.consuming.shared_state_base import Durable
from lvq_kafka.consuming.unclosed import Unclosed
from lvq_kafka.core.absence import Lapse
from lvq_kafka.core.commits import Answer, Flight
from lvq_kafka.core.quoting import bounded
from lvq_kafka.errors import AuthenticationFailed, DataLoss, LVQError, TopicNotFound, TransportError, Unauthorized

__all__ = ["ConsumerThread", "Join"]

logger = logging.getLogger("lvq_kafka.consumer")

Join = Callable[[GroupListener], GroupMember]
"""Joins the queue's group."""

_IDLE_POLL = 0.02  # seconds; how long close() waits for the thread to notice. 0.1 would save 0.3 % of a core
_BUSY_POLL = 0.005  # seconds; how long it takes to notice that someone waits for an ack
_STAYS_BUSY = 0.1  # seconds after the last held message is settled, when most consumers are closed
_URGENT_POLL = 0.001  # seconds; how long an answer goes unnoticed while someone waits for it
# Seconds. A commit unanswered for this long is given up, and the next one is sent. This is well beyond the client's
# limit, socket.timeout.ms (10 s here): the client may resend an unanswered commit after a newer one.
_ANSWER = 180.0
_SHORTER = 8  # attempts with a text that the broker finds too large; each is half as long as the one before
_AGAIN = 0.1  # seconds until the next commit after a failed one, even if someone waits for it
_ATTEMPTS = 3  # consecutive reads that were too slow to be sure of seeing all tombstones
_LAST_CHANCE = 1.0  # seconds; how long to retry a temporarily refused commit that no later one makes up for


class ConsumerThread:
    """A consumer's thread, and its member's listener: the group calls it from its own polls."""

    def __init__(
        self,
        name: str,
        join: Join,
        shared: SharedState,
        monitor: GroupMonitor,
        *,
        commit_interval: float,
        revoke_grace: float,
    ) -> None:
        self._name = name
        self._join = join
        self._shared = shared
        self._monitor = monitor
        self._commit_interval = commit_interval
        self._revoke_grace = revoke_grace
        self._unclosed = Unclosed(name, monitor.topic_id)
        self._left_to: Callable[[], object] | None = None
        self._flight: Flight[Durable] | None = None
        self._commit_at = self._not_before = self._answer_by = 0.0
        self._polled_at = self._busy_until = 0.0
        self._losses = 0  # known losses of the member's connections
        self._crowded = False
        self._idle_warnings = IdleWarnings(name, shared, time.monotonic(), self._unclosed)
        self._in_vain = 0
        self._starting_over = False
        self._stop = Event()
        self._thread = shared.thread = Thread(target=self._run, name=f"lvq-consume-{name}", daemon=True)

    # ---------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Start the thread."""
        self._commit_at = time.monotonic() + self._commit_interval
        self._thread.start()

    def close(self, timeout: float | None) -> None:
        """Commit what is done, leave the group, and end the locks of unsettled messages.

        Waits for the thread.
        """
        self._stop.set()
        if current_thread() is self._thread:  # in a settlement's callback: the thread ends after it returns
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning(
                "the consumer of %s did not close within %g s: the cluster does not answer; "
                "what was not committed yet will be delivered again",
                self._name,
                timeout,
            )

    def abandon(self, close: Callable[[], object]) -> None:
        """Have a consumer closed that nobody can use any longer and nobody has closed.

        Python calls this wherever it collects garbage, on any thread and under any lock. So it takes no lock.
        """
        if not self._is_over:
            self._left_to = close
            warnings.warn(f"unclosed consumer of {self._name}: {self._unclosed}", ResourceWarning, stacklevel=2)

    def _heed_abandonment(self) -> None:
        close, self._left_to = self._left_to, None
        if close is not None:
            logger.warning(
                "the consumer of %s is closed, since nobody can use it any more, and nobody has closed it: %s. Use a "
                "with block, or close it",
                self._name,
                self._unclosed,
            )
            in_background(close)

    @property
    def member(self) -> GroupMember:
        """The group member. The thread owns it; others may only ask it what transactions need."""
        return self._member

    def _run(self) -> None:
        try:
            while not self._is_over:
                if self._shared.away:
                    self._heed_abandonment()
                    self._stop.wait(_IDLE_POLL)
                else:
                    self._run_membership()
        except BaseException as error:  # noqa: BLE001
            self._fail(error)
        finally:
            self._unclosed.end()
            self._shared.forget(self._shared.partitions)
            self._shared.end_undecided()

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or self._shared.failed

    def _run_membership(self) -> None:
        """Be a member of the group until the consumer ends, must read everything again, or yields."""
        self._starting_over = False
        self._member = self._join(self)
        try:
            while not (self._is_over or self._starting_over or self._shared.away):
                self._step(self._member)
            self._await_answer(self._member)
        except BaseException as error:  # noqa: BLE001  # a dead consumer must report it, whatever killed it
            self._fail(error)
        finally:
            self._member.close()
            if self._flight is not None:
                self._answered(self._flight, Answer.UNKNOWN)  # no one is left to receive its answer

    def _fail(self, error: BaseException) -> None:
        what = error if isinstance(error, LVQError) else bounded(repr(error))
        if self._stop.is_set():
            logger.warning("while the consumer of %s was closed: %s", self._name, what)
        else:
            logger.error("the consumer of %s has failed: %s", self._name, what)
            self._shared.fail(error)

    # ---------------------------------------------------------------- main loop

    def _step(self, member: GroupMember) -> None:
        shared = self._shared
        self._heed_abandonment()
        if shared.turn():
            self._monitor.hasten()
        pause = _IDLE_POLL
        self._polled_at = shared.clock()
        if shared.urgent or shared.busy:
            self._busy_until = self._polled_at + _STAYS_BUSY
        if self._polled_at < self._busy_until:  # in an outage answers are slow, and looking for them has a cost
            pause = _URGENT_POLL if shared.urgent and not shared.in_trouble else _BUSY_POLL
        try:
            fetch = member.poll(pause)
        except (TransportError, TopicNotFound) as error:
            if isinstance(error, TransportError) and not error.retriable:
                raise
            shared.trouble("reading", error)
            self._monitor.hasten()
            if isinstance(error, TopicNotFound) and self._monitor.is_due(time.monotonic()):
                self._observe(time.monotonic())  # a lagging broker also reports this for a new topic
            self._stop.wait(pause)
            return
        self._heed_losses(member)
        if fetch.positions:
            self._ask_after_absence()
            lapse = shared.came_too_late(fetch)
            if lapse is not None:
                self._start_over(lapse)
                return
            shared.read(fetch)
        now = time.monotonic()
        if self._flight is not None and now >= self._answer_by:
            self._answered(self._flight, Answer.UNKNOWN)
        if shared.undecided:
            self._monitor.reread()
        if self._monitor.is_due(now):
            # before the next commit: overwritten commits cannot be detected while one is in flight
            self._observe(now)
        if self._flight is None and now >= (self._not_before if shared.urgent else self._commit_at):
            self._commit(member)
        self._idle_warnings.check(now)
        crowded, self._crowded = self._crowded, self._shared.is_crowded
        if self._crowded and not crowded:  # the broker may accept longer texts than we assume
            self._monitor.hasten()

    def _ask_after_absence(self) -> None:
        """Refresh the retention after an absence, so that the fetch is judged by it (R18).

        The fetch is kept meanwhile, since it arrives only once.
        """
        while self._shared.outdated and not self._stop.is_set():
            self._heed_abandonment()
            try:
                self._shared.asked(self._monitor.retention())
            except TransportError as error:
                self._shared.trouble("reading", error)
                self._stop.wait(_BUSY_POLL)

    def _start_over(self, lapse: Lapse) -> None:
        """Leave the group and rejoin, to read from the base: waiting values may be deleted (R18).

        Raises:
            DataLoss: reading was repeatedly too slow to be sure of seeing all tombstones.
        """
        self._in_vain = self._in_vain + 1 if lapse.in_vain else 0
        if self._in_vain >= _ATTEMPTS:
            raise DataLoss(
                f"The backlog of queue {self._name} was read {_ATTEMPTS} times, and each time deletes may have gone "
                f"before they were read: {lapse}.",
                hint="Raise delete.retention.ms well above the time that reading the backlog takes.",
            )
        logger.warning("the consumer of %s gives up what it has and reads it again: %s", self._name, lapse)
        self._starting_over = True

    def _await_answer(self, member: GroupMember) -> None:
        """Wait for the commit in flight before the last one: the client may resend it afterwards."""
        self._shared.withhold(self._shared.partitions)
        deadline = time.monotonic() + _LAST_CHANCE
        while self._flight is not None and time.monotonic() < deadline and not self._shared.failed:
            with suppress(TransportError):
                member.poll(_BUSY_POLL)

    def _observe(self, now: float) -> None:
        """Check that topic and group are as expected, periodically and after every trouble."""
        before, then = self._shared.durable, self._shared.clock()
        undecided, of_no_use = self._shared.undecided, self._shared.is_of_no_use
        try:
            observation = self._monitor.observe(now, self._shared.partitions, undecided, count=of_no_use)
        except TransportError as error:
            if not error.retriable:
                raise
            self._shared.trouble("reading", error)
            self._shared.excuse()
            return
        self._shared.recovered()
        self._shared.ended(then, observation.stable, observation.retention)
        self._idle_warnings.saw(now, observation)
        if self._shared.is_crowded and (limit := self._monitor.text_limit()) is not None:
            self._shared.allow(limit)
        stored = observation.stored
        self._shared.decide({p: stored[p] for p in undecided if p in stored})
        for partition in self._shared.found({p: stored[p] for p in before if p in stored}, before):
            logger.warning(
                "another commit was written over that of queue %s, partition %d; it is written again",
                self._name,
                partition,
            )
            self._doubt()
        if of_no_use and observation.members != 1:  # alone, it stays: nobody would get its partitions
            self._shared.yield_partitions()

    # ---------------------------------------------------------------- committing

    def _commit(self, member: GroupMember) -> None:
        """Send a commit of everything that has changed.

        A later poll brings the answer, and the next commit makes up for a failure.
        """
        self._commit_at = time.monotonic() + self._commit_interval
        flight = self._shared.next_commit()
        if flight is None:
            return
        self._flight, self._answer_by = flight, time.monotonic() + _ANSWER
        try:
            member.commit_async(self._shared.commits_of(flight), lambda outcome: self._on_commit(flight, outcome))
        except TransportError as error:
            self._answered(flight, self._judge(error))

    def _heed_losses(self, member: GroupMember) -> None:
        if member.losses != self._losses:
            self._losses = member.losses
            self._doubt()

    def _doubt(self) -> None:
        """Check soon, and more than once, whether a late commit has overwritten a newer one."""
        self._shared.doubt()
        self._monitor.doubt()

    def _on_commit(self, flight: Flight[Durable], outcome: Mapping[int, TransportError | None]) -> None:
        self._heed_losses(self._member)
        answers = {p: Answer.STORED if error is None else self._judge(error) for p, error in outcome.items()}
        self._answered(flight, answers)

    def _answered(self, flight: Flight[Durable], answers: Mapping[int, Answer] | Answer) -> None:
        if flight is self._flight:  # otherwise, the commit was given up before its answer came
            self._flight = None
        self._shared.answered(flight, answers)
        if self._shared.doubted:
            self._monitor.doubt()

    def _commit_now(self, partitions: Collection[int]) -> bool:
        """Commit these partitions and wait. Return whether all that is done is known to be stored.

        Sends a single commit, however fast others go on acking. It is retried only if it is temporarily refused, or if
        its text is too large, which is then shortened.
        """
        deadline = time.monotonic() + _LAST_CHANCE
        for _ in range(_SHORTER):
            if self._shared.committing:
                return False
            flight = self._shared.next_commit(partitions)
            if flight is None:
                return True
            passes = False
            try:
                self._member.commit(self._shared.commits_of(flight))
            except TransportError as error:
                answer = self._judge(error)
                passes = error.retriable and error.code != "UNKNOWN_MEMBER_ID"
            else:
                answer = Answer.STORED
            self._shared.answered(flight, answer)
            if passes and time.monotonic() + _AGAIN < deadline:
                time.sleep(_AGAIN)
            elif answer is not Answer.TOO_LARGE:
                return answer is Answer.STORED
        return False

    def _judge(self, error: TransportError) -> Answer:
        """Return what an error says about the stored state.

        Raises:
            AuthenticationFailed, Unauthorized: the error is permanent.
        """
        if isinstance(error, AuthenticationFailed | Unauthorized):
            raise error
        self._shared.trouble("committing", error)
        self._monitor.hasten()
        too_large = error.code == "OFFSET_METADATA_TOO_LARGE"
        self._commit_at = self._not_before = 0.0 if too_large else time.monotonic() + _AGAIN
        return Answer.TOO_LARGE if too_large else Answer.UNKNOWN

    # ---------------------------------------------------------------- group callbacks, on the thread

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        """See `GroupListener.assigned`.

        Start at the commits, and hand out nothing before reaching the current ends (G12).
        """
        self._shared.check_decided(partitions, self._polled_at)
        start = self._monitor.starting_point(partitions, commits)
        self._shared.assign(
            start.maps, start.starts, start.ends, epochs=start.epochs, tag=start.tag, retention=start.retention
        )
        logger.info("the consumer of %s has got partitions %s", self._name, sorted(start.starts))
        return start.starts

    def revoked(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.revoked`.

        Stop handing out, give holders a moment to finish, end the locks, and commit.
        """
        mine = self._mine(partitions)
        shared = self._shared
        shared.withhold(mine)
        try:
            deadline = time.monotonic() + self._revoke_grace
            while (left := deadline - time.monotonic()) > 0 and not shared.wait_finished(mine, min(left, _BUSY_POLL)):
                shared.turn()
                if shared.urgent and not (shared.committing or self._commit_now(shared.partitions)):
                    break
            shared.end_locks(mine)
            self._commit_now(mine)
        finally:
            if unstored := shared.unstored(mine):
                logger.warning(
                    "the consumer of %s gives up partition %s: what was settled since the last commit may be delivered "
                    "again, since the group is not known to have stored it",
                    self._name,
                    ", ".join(map(str, sorted(unstored))),
                )
            shared.forget(mine)
            logger.info("the consumer of %s has given up partitions %s", self._name, sorted(mine))

    def lost(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.lost`. The locks have ended, and nothing can be committed."""
        mine = self._mine(partitions)
        self._shared.forget(mine)
        self._monitor.hasten()
        logger.warning("the consumer of %s has lost partitions %s", self._name, sorted(mine))

    def _mine(self, partitions: Collection[int]) -> list[int]:
        """Return the partitions that were really assigned.

        After a failed assignment the group may name others.
        """
        return [partition for partition in self._shared.partitions if partition in partitions]
