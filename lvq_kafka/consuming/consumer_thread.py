"""The I/O thread of a consumer, which owns the group member.

It polls whatever the holders of messages do, so slow work never costs the membership. It adds the records that it reads
to the shared state, commits done messages, and handles assignments and revocations.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Event, Thread, current_thread

from lvq_kafka.cluster import Assigned, Commit, GroupListener, GroupMember
from lvq_kafka.consuming.commit_sender import CommitSender
from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.expiry_letters import ExpiryLetters
from lvq_kafka.consuming.group_monitor import GroupMonitor
from lvq_kafka.consuming.idle_warnings import IdleWarnings
from lvq_kafka.consuming.limit_warnings import PagingWarnings, RingWarnings
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.agreement import Agreement
from lvq_kafka.core.ledger.message_times import MessageTimes
from lvq_kafka.core.log.absence import Lapse
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.core.text.wording import Remark
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import DataLoss, LVQError, TopicNotFound, TransportError
from lvq_kafka.runtime.aio import in_background
from lvq_kafka.runtime.exiting import ended, finish_at_exit
from lvq_kafka.runtime.header_warnings import ClockWarnings, HeaderWarnings
from lvq_kafka.runtime.notice import Notice
from lvq_kafka.runtime.unclosed import Unclosed

__all__ = ["ConsumerThread", "Join"]

logger = logging.getLogger("lvq_kafka.consumer")

Join = Callable[[GroupListener], GroupMember]
"""Joins the queue's group."""

_IDLE_POLL = 0.02  # seconds; how long close() waits for the thread to notice. 0.1 would save 0.3 % of a core
_BUSY_POLL = 0.005  # seconds; how long it takes to notice that someone waits for an ack
_STAYS_BUSY = 0.1  # seconds after the last held message is settled, when most consumers are closed
_URGENT_POLL = 0.001  # seconds; how long an answer goes unnoticed while someone waits for it
_FOR_HOLDERS = 10.0  # seconds for holders of messages when altered rules come: less than the notice of an alteration
_ATTEMPTS = 3  # consecutive reads that were too slow to be sure of seeing all tombstones


class ConsumerThread:
    """A consumer's thread, and its member's listener: the group calls it from its own polls."""

    def __init__(
        self,
        name: str,
        join: Join,
        shared: SharedState,
        monitor: GroupMonitor,
        dead_letters: DeadLetters,
        expiry_letters: ExpiryLetters,
        *,
        commit_interval: float,
        revoke_grace: float,
        watch: RegistryWatch | None = None,
    ) -> None:
        self._name = name
        self._join = join
        self._shared = shared
        self._core = shared.core
        self._monitor = monitor
        self._commits = CommitSender(shared, monitor, commit_interval)
        self._revoke_grace = revoke_grace
        self._unclosed = Unclosed(name, monitor.topic_id)
        self._left_to: Callable[[], object] | None = None
        self._polled_at = self._busy_until = 0.0
        self._urgent = False  # whether a caller waits for a commit
        self._needed_room = False
        self._idle_warnings = IdleWarnings(name, shared, time.monotonic(), self._unclosed)
        self._ring_warnings = RingWarnings(name, shared.core.ledger.ring)
        self._paging_warnings = PagingWarnings(name, shared)
        self._dead_letters = dead_letters
        self._displaced = Notice()
        self._expiry_letters = expiry_letters
        self._header_warnings = HeaderWarnings(logger, shared.topic)
        self._clock_warnings = ClockWarnings(logger, shared.topic, f"the clock of the consumer of {name}")
        self._fruitless = 0
        self._agreement = Agreement()
        self._starting_over = False
        self._watch = watch
        self._altered = False
        self._lapses = 0  # of the watch, when the membership began
        self._moves_at: float | None = None  # when to start over after an alteration, at the latest
        self._stop = Event()
        self._thread = shared.thread = Thread(target=self._run, name=f"lvq-consume-{name}", daemon=True)

    # ---------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Start the thread."""
        if self._watch is not None:
            self._watch.follow(self)
        finish_at_exit(self)  # first, since it may end at once
        self._thread.start()

    def close(self, timeout: float | None) -> None:
        """Commit done messages, leave the group, and end the locks of unsettled messages.

        Waits for the thread.
        """
        self._stop.set()
        if current_thread() is self._thread:  # in a settlement's callback: the thread ends after it returns
            return
        self._thread.join(timeout)
        ended(self)
        if self._thread.is_alive():
            logger.warning(
                "the consumer of %s did not close within %.3g s: the cluster does not answer; uncommitted messages "
                "will be delivered again",
                self._name,
                timeout,
            )

    def refuse_more(self) -> None:
        """See `Unfinished`."""
        with self._shared as core:
            core.pause(True)

    def finish(self, timeout: float) -> list[str]:
        """See `Unfinished`.

        Unlike `Consumer.close`, it does not end the calls that wait for messages: they are calls of daemon threads,
        which would only report their end. Nothing is lost, since all messages that are not durably settled are
        redelivered; the log reports that.
        """
        deadline = time.monotonic() + timeout
        self._dead_letters.flush(timeout / 2)
        self._expiry_letters.flush((deadline - time.monotonic()) / 2)
        self._revoke_grace = 0.0
        self.close(max(0.0, deadline - time.monotonic()))
        return []

    def abandon(self, close: Callable[[], object]) -> None:
        """Close a consumer that was abandoned without being closed.

        Python calls this wherever it collects garbage, on any thread and under any lock. So it takes no lock.
        """
        if not self._is_over:
            self._left_to = close
            warnings.warn(f"unclosed consumer of {self._name}: {self._unclosed}", ResourceWarning, stacklevel=2)

    def _heed_abandonment(self) -> None:
        close, self._left_to = self._left_to, None
        if close is not None:
            logger.warning(
                "closing the consumer of %s, which was dropped without being closed: %s. Use a with block, or close it",
                self._name,
                self._unclosed,
            )
            in_background(close)

    @property
    def member(self) -> GroupMember:
        """The group member. The thread owns it; others may use it only for transactions."""
        return self._commits.member

    def _run(self) -> None:
        try:
            while not self._is_over:
                if self._core.yielding.away or not self._knows_alterations():
                    self._heed_abandonment()
                    self._stop.wait(_IDLE_POLL)
                else:
                    self._run_membership()
        except BaseException as error:  # noqa: BLE001  # raised in the callers' threads
            self._fail(error)
        finally:
            if self._watch is not None:
                self._watch.leave(self)
            self._unclosed.end()
            ended(self)
            with self._shared as core:
                core.forget(core.partitions)
                undecided = core.transaction.pop_undecided()
            if self._shared.pages is not None:
                self._shared.pages.close()
            if undecided is not None:
                undecided.notify(None)

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or self._shared.failed

    def _run_membership(self) -> None:
        """Be a member of the group until the consumer ends, must read everything again, or yields."""
        self._starting_over = False
        self._adopt()
        self._agreement = Agreement()
        member = self._commits.member = self._join(self)
        try:
            while not (self._is_over or self._starting_over or self._core.yielding.away):
                self._step(member)
            with self._shared as core:
                core.withhold(core.partitions)
            self._commits.await_answer(lambda: self._shared.failed)
        except BaseException as error:  # noqa: BLE001  # a dead consumer must report it, whatever killed it
            self._fail(error)
        finally:
            member.close()
            self._commits.give_up()

    def _fail(self, error: BaseException) -> None:
        what = error if isinstance(error, LVQError) else bounded(repr(error))
        if self._stop.is_set():
            logger.warning("while closing the consumer of %s: %s", self._name, what)
        else:
            logger.error("the consumer of %s has failed: %s", self._name, what)
            self._shared.fail(error)

    # ---------------------------------------------------------------- alterations of the queue (R39)

    def altered(self) -> None:
        """See `Follows.altered`."""
        self._altered = True

    def _knows_alterations(self) -> bool:
        """Return whether all alterations are known that may hold by now.

        A consumer that cannot know leaves its group, so that it neither judges messages nor hands them out.
        """
        if self._watch is None:
            return True
        if not self._watch.is_sure:
            self._shared.report("watching", self._watch.trouble)
            return False
        if self._core.obstacles.of("watching"):
            with self._shared as core:
                core.obstacles.clear("watching")
        return True

    def _adopt(self) -> None:
        """Keep to the options that the queue has by now."""
        self._altered, self._moves_at = False, None
        if self._watch is None:
            return
        self._lapses = self._watch.lapses
        if self._shared.adopt(definition := self._watch.known):
            self._ring_warnings = RingWarnings(self._name, self._core.ledger.ring)
            self._expiry_letters.redirect(definition.expiry_topic)
            self._dead_letters.redirect(definition.dead_letters)
            logger.info("the consumer of %s keeps to the queue's altered options", self._name)

    @property
    def _has_lapsed(self) -> bool:
        """True if an alteration may hold that this membership does not keep to.

        It stays true once that is known: after a freeze of the process or the machine, the watch may wake up first.
        """
        watch = self._watch
        return watch is not None and (watch.lapses != self._lapses or self._shared.clock() >= watch.sure_until)

    def _heed_alteration(self, now: float) -> None:
        """Leave the group and rejoin, by the altered options.

        That is once holders are done, or have had their time.
        """
        if self._altered:
            self._altered = False
            if self._watch is not None and self._moves_at is None and self._shared.differs(self._watch.known):
                self._moves_at = now + _FOR_HOLDERS
                logger.info("the queue %s was altered; its consumer waits for holders, and rejoins", self._name)
        if self._moves_at is None:
            return
        with self._shared as core:
            core.withhold(core.partitions)
        if now >= self._moves_at or not self._core.ledger.in_work:
            self._starting_over = True

    # ---------------------------------------------------------------- main loop

    def _step(self, member: GroupMember) -> None:
        """Take one turn: read, check on the cluster, commit."""
        self._heed_abandonment()
        if self._has_lapsed:
            self._starting_over = True
            return
        if self._altered or self._moves_at is not None:
            self._heed_alteration(time.monotonic())
        if self._shared.turn():
            self._monitor.hasten()
        self._polled_at = self._shared.clock()
        fetch = self._poll(member)
        if fetch is None:
            return
        self._commits.heed_losses()
        if fetch.positions and not self._read(fetch):
            return
        now = time.monotonic()
        self._commits.give_up(now)
        if self._core.transaction.undecided is not None:
            self._monitor.reread()
        if self._agreement.doubts(member.unheard, now):
            self._monitor.hasten()
        if self._monitor.is_due(now):
            # before the next commit: overwritten commits cannot be detected while one is in flight
            self._observe(now)
        self._urgent = self._core.is_urgent(self._shared.clock())
        self._commits.send_if_due(now, urgent=self._urgent)
        self._idle_warnings.check(now)
        self._ring_warnings.check()
        self._paging_warnings.check()
        if (displaced := self._core.ledger.stats.displaced) and self._displaced.begins():
            logger.warning(
                "the commit text of %s has no room for the places of %d keys (%s): this consumer still "
                "has them, but the next one and browsers find these keys where their newest values are; "
                "stats.displaced counts them",
                *(self._shared.topic, displaced, Remark("`order='in-place'`")),
            )
        if (times := self._core.ledger.times) is not None:
            self._report_times(times)
        self._header_warnings.check(self._core.ledger.ranking)
        self._expiry_letters.post()
        needed, self._needed_room = self._needed_room, self._core.needs_room
        if self._needed_room and not needed:  # the broker may accept longer texts than we assume
            self._monitor.hasten()

    def _report_times(self, times: MessageTimes) -> None:
        self._clock_warnings.check(times.time)
        if (expiring := times.expiring) is not None:
            self._header_warnings.check(expiring.expiry_times, expiring.malformed)
        if (scheduling := times.scheduling) is not None:
            self._header_warnings.check(scheduling.due_times)

    def _poll(self, member: GroupMember) -> Fetch | None:
        """Poll for the next records, for a moment; return None if that fails."""
        pause = self._pause()
        try:
            return member.poll(pause)
        except (TransportError, TopicNotFound) as error:
            if isinstance(error, TransportError) and not error.retriable:
                raise
            self._note_outage(error)
            self._monitor.hasten()
            if isinstance(error, TopicNotFound) and self._monitor.is_due(time.monotonic()):
                self._observe(time.monotonic())  # a lagging broker also reports this for a new topic
            self._stop.wait(pause)
            self._urgent = self._core.is_urgent(self._shared.clock())
            return None

    def _pause(self) -> float:
        """Return how long a poll may wait: until a message is due at most.

        It is less while a commit is, or may become, urgent.
        """
        return min(self._patience(), max(self._shared.until_due, _URGENT_POLL))

    def _patience(self) -> float:
        if self._urgent or self._core.is_busy:
            self._busy_until = self._polled_at + _STAYS_BUSY
        if self._polled_at >= self._busy_until:
            return _IDLE_POLL
        # In an outage answers are slow, and polling for them has a cost.
        return _URGENT_POLL if self._urgent and not self._core.obstacles.in_trouble else _BUSY_POLL

    def _read(self, fetch: Fetch) -> bool:
        """Add the records read. Return False if everything must be read again (R18, R39)."""
        if self._has_lapsed:  # while they were awaited
            self._starting_over = True
            return False
        self._ask_after_absence()
        with self._shared as core:
            lapse = core.absence.read(self._shared.clock(), fetch)
        if lapse is not None:
            self._start_over(lapse)
            return False
        self._shared.read(fetch)
        return True

    def _ask_after_absence(self) -> None:
        """Refresh the retention after an absence, so that the fetch is judged by it (R18).

        Meanwhile the fetch is kept, since it arrives only once.
        """
        while self._core.absence.outdated(self._shared.clock()) and not self._stop.is_set():
            self._heed_abandonment()
            try:
                retention = self._monitor.retention()
                with self._shared as core:
                    core.absence.asked(self._shared.clock(), retention)
            except TransportError as error:
                self._shared.report("reading", error)
                self._stop.wait(_BUSY_POLL)

    def _start_over(self, lapse: Lapse) -> None:
        """Leave the group and rejoin, to read from the base: waiting values may be deleted (R18).

        Raises:
            DataLoss: reading was repeatedly too slow to be sure of seeing all tombstones.
        """
        self._fruitless = self._fruitless + 1 if lapse.fruitless else 0
        if self._fruitless >= _ATTEMPTS:
            raise DataLoss(
                f"The backlog of queue {self._name} was read {_ATTEMPTS} times, and each time deletes may have been "
                f"removed before they were read: {lapse}.",
                hint="Raise delete.retention.ms well above the time it takes to read the backlog.",
            )
        logger.warning("the consumer of %s drops its backlog and reads it again: %s", self._name, lapse)
        self._starting_over = True

    def _observe(self, now: float) -> None:
        """Check that topic and group are as expected, periodically and after every trouble."""
        shared, then = self._shared, self._shared.clock()
        with shared as core:
            before, mine = core.durable, core.partitions
            undecided = () if core.transaction.undecided is None else core.transaction.undecided.partitions
        of_no_use = shared.is_of_no_use
        heard = self.member.membership if self._agreement.is_due(now) else None
        try:
            observation = self._monitor.observe(
                now,
                mine,
                undecided,
                count=of_no_use,
                member="" if heard is None else heard.member,
            )
        except TransportError as error:
            if not error.retriable:
                raise
            self._note_outage(error)
            return
        stored = observation.stored
        with shared as core:
            core.obstacles.clear("reading")
            core.absence.keeps(observation.retention)
            core.absence.ended(then, observation.stable)
        self._idle_warnings.saw(now, observation)
        self._learn_limit()
        self._decide({p: stored[p] for p in undecided if p in stored})
        if heard is not None:
            self._compare(heard.partitions, observation.assigned)
        with shared as core:
            overwritten = core.found({p: stored[p] for p in before if p in stored}, before)
        for partition in overwritten:
            logger.warning(
                "another commit overwrote that of queue %s, partition %d; writing it again",
                self._name,
                partition,
            )
            self._commits.doubt()
        if of_no_use and observation.members != 1:  # alone, it stays: no other consumer would get its partitions
            self._yield_partitions()

    def _note_outage(self, error: TransportError | TopicNotFound) -> None:
        """Note that nothing can be read, and that no other consumer could do more."""
        self._shared.report("reading", error)
        with self._shared as core:
            core.yielding.excused(self._shared.clock())

    def _compare(self, heard: frozenset[int], answer: Assigned | None) -> None:
        """Leave the group and rejoin if it has long said something else than the member has heard."""
        said = answer or Assigned(heard, heard)  # without an answer, nothing is known to differ
        if self._agreement.differs_for_long(heard, said.partitions, said.target, time.monotonic()):
            logger.warning(
                "the consumer of %s leaves its group and joins it again: the group has assigned it partitions %s, of "
                "which it shall have %s, and the consumer has heard of %s: an answer of the group was lost",
                self._name,
                sorted(said.partitions),
                sorted(said.target),
                sorted(heard),
            )
            self._starting_over = True

    def _yield_partitions(self) -> None:
        """Leave the partitions to others, if the consumer is still useless."""
        shared = self._shared
        with shared as core:
            reason = core.yield_partitions(shared.clock()) if shared.is_of_no_use else ""
        if reason:
            logger.warning("the consumer of %s leaves the group: %s", self._name, reason)

    def _learn_limit(self) -> None:
        """Ask for the broker's limit once texts are half full: it may accept longer ones."""
        if self._core.needs_room and (limit := self._monitor.text_limit()) is not None:
            with self._shared as core:
                core.commits.allow(limit)

    def _decide(self, stored: Mapping[int, CommitMap]) -> None:
        """Continue after a transaction whose outcome was unknown, if these commits show it."""
        with self._shared as core:
            decided = core.decide(stored, self._shared.clock())
        if decided is None:
            return
        undecided, committed = decided
        logger.warning(
            "the consumer of %s continues: the transaction in doubt %s committed",
            self._name,
            "has" if committed else "has not",
        )
        undecided.notify(committed)

    # ---------------------------------------------------------------- group callbacks, on the thread

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        """See `GroupListener.assigned`.

        Start at the commits, and hand out nothing before reaching the current ends (G12).
        """
        shared = self._shared
        with shared as core:
            core.transaction.check_decided(partitions, self._polled_at)
        taken_back = shared.taken_back(commits)
        start = self._monitor.starting_point(partitions, {**commits, **taken_back})
        now = shared.clock()
        with shared as core:
            core.assign(
                start.maps,
                start.starts,
                start.ends,
                now,
                epochs=start.epochs,
                tag=start.tag,
                retention=start.retention,
                taken_back=taken_back,
            )
        for partition in sorted(taken_back):
            logger.warning(
                "the group of queue %s holds less of partition %d than it had confirmed; writing it again",
                self._name,
                partition,
            )
        logger.info("the consumer of %s was assigned partitions %s", self._name, sorted(start.starts))
        return start.starts

    def revoked(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.revoked`.

        Stop handing out, give holders a moment to finish, end the locks, and commit.
        """
        mine, shared, stored = self._mine(partitions), self._shared, False
        with shared as core:
            core.withhold(mine)
        try:
            self._await_holders(mine)
            with shared as core:
                core.end_locks(mine)
            stored = self._commits.send_now(mine)
        finally:
            self._report_unstored(mine, stored=stored)
            with shared as core:
                core.forget(mine)
            logger.info("the consumer of %s has given up partitions %s", self._name, sorted(mine))

    def _report_unstored(self, partitions: Collection[int], *, stored: bool) -> None:
        """Say of which of these partitions done messages may come again.

        Args:
            stored: whether the last commit is known to be stored. Then its text had no room for the rest.
        """
        with self._shared as core:
            unstored = core.unstored(partitions)
        numbers = ", ".join(map(str, sorted(unstored)))
        if unstored and stored:
            logger.warning(
                "the consumer of %s gives up partition %s: the commit text had no room for all acks; messages "
                "whose acks it lacks are delivered again",
                self._name,
                numbers,
            )
        elif unstored:
            logger.warning(
                "the consumer of %s gives up partition %s: it is not known whether its last commit was stored, so "
                "messages settled since the one before may be delivered again",
                self._name,
                numbers,
            )

    def _await_holders(self, partitions: Collection[int]) -> None:
        """Give holders a moment to finish, and send the commits that they wait for."""
        shared, core = self._shared, self._core
        deadline = time.monotonic() + self._revoke_grace
        while (left := deadline - time.monotonic()) > 0:
            if shared.wait_finished(partitions, min(left, _BUSY_POLL)):
                return
            shared.turn()
            if not core.is_urgent(shared.clock()) or core.transaction.excludes_commits:
                continue
            if not self._commits.send_now(core.partitions):
                return

    def lost(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.lost`. The locks have ended, and nothing can be committed."""
        mine = self._mine(partitions)
        with self._shared as core:
            core.forget(mine)
        self._monitor.hasten()
        logger.warning("the consumer of %s has lost partitions %s", self._name, sorted(mine))

    def _mine(self, partitions: Collection[int]) -> list[int]:
        """Return the partitions that were really assigned.

        After a failed assignment the group may name others.
        """
        return [partition for partition in self._core.partitions if partition in partitions]
