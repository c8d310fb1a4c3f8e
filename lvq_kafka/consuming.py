"""The engine of a consumer: one thread that owns the group member.

It polls, whatever the holders of messages do, so slow work never costs the membership. It brings what it reads into
the holdings, commits what is done, and answers the group's comings and goings.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from threading import Event, Thread

from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.errors import AuthenticationFailed, DataLoss, TopicRecreated, TransportError, Unauthorized
from lvq_kafka.groups import check_group
from lvq_kafka.holdings import Holdings
from lvq_kafka.ports import Commit, GroupMember, Log
from lvq_kafka.retrying import patiently

__all__ = ["Consuming"]

logger = logging.getLogger("lvq_kafka.consumer")

_IDLE_POLL = 0.1  # seconds; how long close() waits for the thread to notice
_BUSY_POLL = 0.01  # seconds; how long an ack that is waited for can lie before it is committed
_PATIENCE = 30.0  # seconds; how long a partition that just came waits for the cluster to say where it begins and ends


class Consuming:
    """A consumer's thread. It is the member's listener, too: the group calls it from inside its own polls."""

    def __init__(
        self,
        log: Log,
        definition: QueueDefinition,
        holdings: Holdings,
        *,
        commit_interval: float,
        revoke_grace: float,
    ) -> None:
        self._log = log
        self._name = definition.name
        self._topic = definition.topic
        self._group = definition.group
        self._holdings = holdings
        self._commit_interval = commit_interval
        self._revoke_grace = revoke_grace
        self._commit_at = 0.0
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"lvq-consume-{definition.name}", daemon=True)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Look whether the queue can be consumed, and begin.

        Raises:
            QueueNotDeclared: its group holds no position (R17).
            TopicNotFound: there is no such topic.
            TransportError: the cluster cannot be reached or refuses.
        """
        described = self._log.describe_topic(self._topic)
        self._topic_id = described.id
        self._check_commits(range(described.partitions), self._log.committed(self._group, self._topic))
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Commit what is done, leave the group, and end the locks of what is not settled. Waits for the thread."""
        self._stop.set()
        self._holdings.close()
        self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning(
                "the consumer of %s did not close within %g s: the cluster does not answer; "
                "what was not committed yet will be delivered again",
                self._name,
                timeout,
            )

    def _run(self) -> None:
        try:
            self._member = self._log.member(self._group, self._topic, self)
            try:
                while not self._stop.is_set():
                    self._step(self._member)
            except Exception as error:  # noqa: BLE001  # a dead consumer must say so, whatever killed it
                self._fail(error)
            finally:
                self._member.close()
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        finally:
            self._holdings.forget(self._holdings.partitions)

    def _fail(self, error: Exception) -> None:
        if self._stop.is_set():
            logger.warning("while the consumer of %s was closed: %s", self._name, error)
        else:
            logger.error("the consumer of %s has failed: %s", self._name, error)
            self._holdings.fail(error)

    # ---------------------------------------------------------------- reading and committing

    def _step(self, member: GroupMember) -> None:
        holdings = self._holdings
        try:
            fetch = member.poll(_BUSY_POLL if holdings.urgent or holdings.in_work else _IDLE_POLL)
        except TransportError as error:
            if not error.retriable:
                raise
            holdings.trouble(error)
            self._stop.wait(_IDLE_POLL)
            return
        if fetch.positions:
            holdings.take(fetch)
        if holdings.urgent or time.monotonic() >= self._commit_at:
            self._commit(holdings.partitions)

    def _commit(self, partitions: Collection[int]) -> None:
        """Commit for each of these the base of now, where it moved. A failure is made good by the next commit."""
        offsets = self._holdings.to_commit(partitions)
        self._commit_at = time.monotonic() + self._commit_interval
        if not offsets:
            return
        try:
            self._member.commit({partition: Commit(offset) for partition, offset in offsets.items()})
        except (AuthenticationFailed, Unauthorized):
            raise
        except TransportError as error:
            self._holdings.trouble(error)
            self._commit_at = time.monotonic() + min(self._commit_interval, _IDLE_POLL)
        else:
            self._holdings.committed(offsets)

    # ---------------------------------------------------------------- the group's comings and goings, on the thread

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        """See `GroupListener.assigned`: start at the commits, and hand nothing out below the ends of now (G12).

        The end is the last stable offset. What lies above it was not visible to a former holder either, so what is
        newest below it is never older than what the group has consumed; and an open transaction holds nothing up.
        """
        if set(partitions) - commits.keys():
            # Look at the group as a whole: whether it is gone, or only these partitions are new to it.
            commits = patiently(lambda: self._log.committed(self._group, self._topic), _PATIENCE)
            self._check_commits(partitions, commits)
        if patiently(lambda: self._log.describe_topic(self._topic), _PATIENCE).id != self._topic_id:
            raise TopicRecreated(
                f"The topic {self._topic} was created anew while it was consumed.",
                topic=self._topic,
                hint="Declare the queue again and open a new consumer.",
            )
        first = patiently(lambda: self._log.start_offsets(self._topic), _PATIENCE)
        ends = patiently(lambda: self._log.end_offsets(self._topic, stable=True), _PATIENCE)
        committed = {partition: commits[partition].offset for partition in partitions}
        if any(offset > ends[partition] for partition, offset in committed.items()):
            self._check_ends(committed)
        # What lies below the start of the log is gone: consumed or superseded and truncated, or aged out.
        starts = {partition: max(offset, first[partition]) for partition, offset in committed.items()}
        self._holdings.assign(starts, ends, committed)
        logger.info("the consumer of %s has got partitions %s", self._name, sorted(starts))
        return starts

    def _check_ends(self, committed: Mapping[int, int]) -> None:
        """See that the log still holds what was consumed. A commit may lie behind an open transaction all the same."""
        ends = patiently(lambda: self._log.end_offsets(self._topic), _PATIENCE)
        for partition, offset in committed.items():
            if offset > ends[partition]:
                raise DataLoss(
                    f"Queue {self._name} was consumed up to offset {offset} of partition {partition}, "
                    f"but topic {self._topic} ends at {ends[partition]}: records were lost.",
                    hint="Compare with another copy of the data, then declare the queue anew.",
                )

    def revoked(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.revoked`: hand out no more, let holders finish for a moment, commit, end the locks."""
        mine = self._mine(partitions)
        self._holdings.withhold(mine)
        try:
            deadline = time.monotonic() + self._revoke_grace
            while not self._holdings.wait_finished(mine, left := deadline - time.monotonic()) and left > 0:
                self._commit(self._holdings.partitions)
            self._commit(mine)
        finally:
            self._holdings.forget(mine)
            logger.info("the consumer of %s has given up partitions %s", self._name, sorted(mine))

    def lost(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.lost`: the locks are over, and nothing can be committed."""
        mine = self._mine(partitions)
        self._holdings.forget(mine)
        logger.warning("the consumer of %s has lost partitions %s", self._name, sorted(mine))

    def _mine(self, partitions: Collection[int]) -> list[int]:
        """Those that were really assigned: after a failed assignment the group may name others."""
        return [partition for partition in self._holdings.partitions if partition in partitions]

    def _check_commits(self, partitions: Collection[int], commits: Mapping[int, Commit]) -> None:
        check_group(self._group, self._topic, partitions, commits, queue=self._name)
