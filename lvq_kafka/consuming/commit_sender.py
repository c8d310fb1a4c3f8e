"""Sending a consumer's commits, and processing the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from threading import Timer

from lvq_kafka.cluster import Commit, GroupMember
from lvq_kafka.consuming.group_monitor import GroupMonitor
from lvq_kafka.consuming.settlement import Durable
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.consumer.commits import Answer, Flight
from lvq_kafka.errors import AuthenticationFailed, BrokerUnavailable, TransportError, Unauthorized

__all__ = ["CommitSender"]

# Seconds. A commit unanswered for this long is given up, and the next one is sent. This is well beyond the client's
# limit, socket.timeout.ms (10 s here): the client may resend an unanswered commit after a newer one.
_ANSWER = 180.0
_SHORTER = 8  # attempts with a text that the broker finds too large; each is half as long as the one before
_AGAIN = 0.1  # seconds until the next commit after a failed one, even if someone waits for it
_LAST_CHANCE = 1.0  # seconds; how long to retry a temporarily refused commit that no later one repeats
_LATE = 3.0  # seconds; after that, a commit that is waited for is trouble
_ANSWER_POLL = 0.005  # seconds between checks for the last answer


class CommitSender:
    """Sends commits through the group member, one at a time. It belongs to the I/O thread.

    Args:
        interval: seconds between commits that no caller waits for.
    """

    def __init__(self, shared: SharedState, monitor: GroupMonitor, interval: float) -> None:
        self.member: GroupMember
        """The group member, of the current membership."""
        self._shared = shared
        self._core = shared.core
        self._monitor = monitor
        self._interval = interval
        self._flight: Flight[Durable] | None = None
        self._send_at = time.monotonic() + interval
        self._not_before = self._answer_by = 0.0
        self._losses = 0  # known losses of the member's connections

    # ---------------------------------------------------------------- commits that a later poll answers

    def send_if_due(self, now: float, *, urgent: bool) -> None:
        """Send a commit if the last is answered, and the interval is over or a caller waits."""
        if self._flight is None and now >= (self._not_before if urgent else self._send_at):
            self.send()

    def send(self) -> None:
        """Send a commit of everything that has changed.

        A later poll returns the answer, and the next commit makes up for a failure.
        """
        self._send_at = time.monotonic() + self._interval
        with self._shared as core:
            flight = core.next_commit(self._shared.clock())
        if flight is None:
            return
        self._flight, self._answer_by = flight, time.monotonic() + _ANSWER
        try:
            self.member.commit_async(self._shared.offsets(flight), lambda outcome: self._on_commit(flight, outcome))
        except TransportError as error:
            self._answered(flight, self._judge(error))

    def _on_commit(self, flight: Flight[Durable], outcome: Mapping[int, TransportError | None]) -> None:
        self.heed_losses()
        answers = {p: Answer.STORED if error is None else self._judge(error) for p, error in outcome.items()}
        self._answered(flight, answers)

    def _answered(self, flight: Flight[Durable], answers: Mapping[int, Answer] | Answer) -> None:
        if flight is self._flight:  # otherwise, the commit was given up before its answer arrived
            self._flight = None
        with self._shared as core:
            core.answered(flight, answers)
        if self._core.commits.doubted:
            self._monitor.doubt()

    def give_up(self, now: float = float("inf")) -> None:
        """Stop waiting for an answer that is overdue; without ``now``, for any answer."""
        if self._flight is not None and now >= self._answer_by:
            self._answered(self._flight, Answer.UNKNOWN)

    def await_answer(self, is_over: Callable[[], bool]) -> None:
        """Wait for the commit in flight before the last one: the client may resend it afterwards."""
        deadline = time.monotonic() + _LAST_CHANCE
        while self._flight is not None and time.monotonic() < deadline and not is_over():
            with suppress(TransportError):
                self.member.poll(_ANSWER_POLL)

    # ---------------------------------------------------------------- commits that cannot wait

    def send_now(self, partitions: Collection[int]) -> bool:
        """Commit these partitions and wait. Return whether all done messages are known as stored.

        Sends a single commit, however fast others keep acking. It is retried only if it is temporarily refused, or if
        its text is too large, which is then shortened.
        """
        deadline = time.monotonic() + _LAST_CHANCE
        for _ in range(_SHORTER):
            if self._core.transaction.excludes_commits:
                return False
            with self._shared as core:
                flight = core.next_commit(self._shared.clock(), partitions)
            if flight is None:
                return True
            passes = False
            try:
                self._commit_now(self._shared.offsets(flight))
            except TransportError as error:
                answer = self._judge(error)
                passes = error.retriable and error.code != "UNKNOWN_MEMBER_ID"
            else:
                answer = Answer.STORED
            with self._shared as core:
                core.answered(flight, answer)
            if passes and time.monotonic() + _AGAIN < deadline:
                time.sleep(_AGAIN)
            elif answer is not Answer.TOO_LARGE:
                return answer is Answer.STORED
        return False

    def _commit_now(self, offsets: Mapping[int, Commit]) -> None:
        """Commit and wait, and report a wait that is long.

        While no broker coordinates the group, the client waits without a limit (150 s seen with librdkafka 2.16.0), and
        admits no other thread. Once one does, it ends within seconds.
        """
        late = Timer(_LATE, self._report_late)
        late.name, late.daemon = "lvq-kafka-late", True
        with suppress(RuntimeError):  # when the process exits, no thread can be started any more
            late.start()
        try:
            self.member.commit(offsets)
        finally:
            late.cancel()
            if late.ident is not None:
                late.join()  # what it reports ends with the answer

    def _report_late(self) -> None:
        late = BrokerUnavailable(
            f"The group has not answered a commit for {_LATE:g} s, and this consumer does nothing else until it does: "
            "its coordinator does not answer.",
            code="_TIMED_OUT",
            retriable=True,
            hint="Check the brokers.",
        )
        self._shared.report("committing", late)

    # ---------------------------------------------------------------- failures

    def _judge(self, error: TransportError) -> Answer:
        """Return the meaning of an error for the stored state.

        Raises:
            AuthenticationFailed, Unauthorized: the error is permanent.
        """
        if isinstance(error, AuthenticationFailed | Unauthorized):
            raise error
        self._shared.report("committing", error)
        self._monitor.hasten()
        too_large = error.code == "OFFSET_METADATA_TOO_LARGE"
        self._send_at = self._not_before = 0.0 if too_large else time.monotonic() + _AGAIN
        return Answer.TOO_LARGE if too_large else Answer.UNKNOWN

    def heed_losses(self) -> None:
        """Doubt the stored commits if the member has lost a connection: a commit may arrive late."""
        if self.member.losses != self._losses:
            self._losses = self.member.losses
            self.doubt()

    def doubt(self) -> None:
        """Check soon, and more than once, whether a late commit has overwritten a newer one."""
        with self._shared as core:
            core.commits.doubt()
        self._monitor.doubt()
