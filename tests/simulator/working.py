"""A consumer process: the acts of its holders, outside and inside transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from lvq_kafka.core.consumer.commits import Answer
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.queue.ranking import Rank
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.ready_queue import TRIED_OFTEN
from lvq_kafka.errors import AlreadySettled, LockLost, TransportError
from tests.simulator.process import Process, Work
from tests.simulator.proof import Violation

__all__ = ["Working"]


class Working(Process):
    """A process with holders."""

    def __init__(self, *process: Any) -> None:
        super().__init__(*process)
        self.ahead: deque[Item] = deque()
        """Messages taken ahead by an iteration and not handed over yet."""
        self.rejected: deque[Item] = deque()
        """Messages whose dead letters are in flight."""
        self.expired: deque[Item] = deque()
        """Messages that have expired, on their way to the expiry topic."""
        self._bounded: dict[int, bool] = {}
        """By assignment, whether all that is in work was taken only because its ack has room."""

    def hand_out(self, most: int = 1, which: int = 0) -> bool:
        """Hand the next messages to holders of a session. With durable counts, the deliveries are counted first."""
        if self.closing:
            return False
        self.session = self.sessions[which % len(self.sessions)]
        self._pass_time()
        if self.ahead:
            self._next_turn(self.ahead.popleft())
            return True
        before = len(self.working)
        self._watch_bounds()
        best, overtaken = self._best(), self.ledger.stats.out_of_order
        taken, exhausted = self.core.hand_out.acquire(most, self._clock(), self.session, ahead=self._options.ahead)
        self._goes_by_rank(best, [*taken, *exhausted], overtaken)
        self._observe()
        if self._options.ahead:
            self.ahead.extend(taken)
        else:
            for item in taken:
                self._deliver(item)
        for item in exhausted:
            if self.working[item].delivered(item.offset) < (self._options.limits.max_deliveries or 0):
                raise Violation("I14", f"{item} is given up, and was handed out less often")
            self._reject(item, lambda item: self.dead_letters.reject_exhausted([item]))
        if not (taken or exhausted) and len(self.working) == before:
            self._nothing_starves()
        return bool(taken or exhausted) or len(self.working) > before

    def end_session(self, which: int) -> None:
        """End a session, and open another one. Its holders keep their messages."""
        at = which % len(self.sessions)
        self.core.end_session(self.sessions[at])
        self.grouping.ended(self.sessions[at])
        self.sessions[at] = self.core.open_session()
        self._observe()

    def _best(self) -> tuple[Rank, int] | None:
        """Return the precedence of the best message that may be handed out; None without ranks, or any."""
        if self.ledger.ranking is None or self.core.hand_out.counting or self._options.limits.durable_counts:
            return None
        if self._options.groups is not None:  # it may be another session's
            return None
        free = [
            item
            for part in self.ledger._partitions.values()
            if part.open
            for lane, item in part.waiting.items()
            if lane not in part.held and item.state is MessageState.AVAILABLE
        ]
        if any(item.deliveries >= TRIED_OFTEN for item in free):  # these take turns
            return None
        return min(map(self._precedence, free), default=None)

    def _precedence(self, item: Item) -> tuple[Rank, int]:
        assert self.ledger.ranking is not None
        return self.ledger.ranking.rank(item.headers), item.slot

    def _goes_by_rank(self, best: tuple[Rank, int] | None, taken: list[Item], overtaken: int) -> None:
        """Check I24: the best message came first, or the stats say that it had to wait for room."""
        if best is None or not taken or self.ledger.stats.out_of_order > overtaken:
            return
        first = min(map(self._precedence, taken))
        if first > best and (first[0] > best[0] or not self.ledger.assignment.gated):  # type: ignore[operator]
            raise Violation("I24", f"{taken} came, and one of precedence {best} waited")

    def _nothing_starves(self) -> None:
        """Check I17: if nothing was handed out, nothing was available.

        In transactions, messages may wait for room, and in a queue by rank while some of their partition are in work,
        or have room. But the consumer reports that they do.
        """
        hand_out, ledger = self.core.hand_out, self.ledger
        if self.core.lease.lapsed(self._clock()) or hand_out.is_full or hand_out.counting:
            return
        for number, part in ledger._partitions.items():
            free = [item for lane, item in part.waiting.items() if lane not in part.held and not self._is_grouped(item)]
            if not part.open or all(item.state is not MessageState.AVAILABLE for item in free):
                continue
            # Such as may have room, in groups of other sessions.
            others = any(item not in free and item.state is MessageState.AVAILABLE for item in part.waiting.values())
            if not (ledger.bounded or (self._options.ranked and (part.held or others))):
                raise Violation("I17", f"partition {number} hands out nothing though {free} wait")
            if not self.core.full_text_report:
                raise Violation("I17", f"partition {number} hands out nothing though {free} wait, and nothing says so")

    def _is_grouped(self, item: Item) -> bool:
        """Return whether a message waits for the holder of its group, or for others of its group."""
        name = self.grouping.name(item)
        if name is None:
            return False
        parts = self.ledger._partitions.values()
        if self._options.ranked:  # it may wait for one of better rank which cannot be handed out, or has no room yet
            others = [
                one
                for part in parts
                for lane, one in part.waiting.items()
                if one is not item
                and (
                    lane in part.held
                    or one.state is not MessageState.AVAILABLE
                    or (part.held and self.core.full_text_report)
                )
            ]
        else:
            others = [one for part in parts if part.open for one in part.waiting.values() if one.slot < item.slot]
        return self.grouping.is_elsewhere(name, self.session, self.working) or any(
            self.grouping.name(one) == name for one in others
        )

    def _next_turn(self, item: Item) -> None:
        """Hand over a message that was taken ahead, or release it."""
        if self.core.hand_out.hand_over(item, self._clock()):
            self._deliver(item)
            return
        with suppress(LockLost, AlreadySettled):
            self.ledger.release(item)
        self._observe()

    def _deliver(self, item: Item) -> None:
        if self.in_doubt:  # it may have been taken ahead before
            raise Violation("I15", f"{item} comes to a holder {LEASE} s after the group was last heard of")
        if self.working[item].expires[item.offset] < self.time:
            raise Violation("I18", f"{item} comes to a holder at {self.time}, and has expired")
        self.held[item] = None
        self.grouping.delivered(item)
        self.working[item].given[item.offset] += 1
        counted = self._options.limits.durable_counts and self._owns(item.partition)
        self._proof.delivered(item, counted=counted)

    def work_on(self, item: Item) -> None:
        """Do the side effect of a message."""
        self.worked.add(item)

    def ack(self, item: Item, *, wait: bool = False) -> None:
        """Ack. With ``wait``, also wait until all acks so far are durable, even if their partitions have moved."""
        self._drop(item)
        if not self._settle(item, lambda: self.ledger.ack(item)):
            return
        self.acks += 1
        self._proof.acked(item)
        self._end(item, acked=True)
        self.acked.append(item)
        if wait:
            acked, self.acked = self.acked, []
            for one in acked:
                self.ask(one)

    def release(self, item: Item, delay: float) -> None:
        self._drop(item)
        self._settle(item, lambda: self.ledger.release(item, self._clock() + delay if delay else None))
        self._observe()

    def extend(self, item: Item, seconds: float) -> None:
        self._settle(item, lambda: self.ledger.extend(item, self._clock() + seconds))

    def reject(self, item: Item) -> None:
        """Reject. With dead letters, the message is removed once its dead letter is stored."""
        self._drop(item)
        self._reject(item, lambda item: self.dead_letters.reject(item, "no good"))

    def _reject(self, item: Item, step: Callable[[Item], object]) -> None:
        letters = len(self.letters)
        if item not in self.working:
            self._settle(item, lambda: step(item))
            return
        step(item)
        if len(self.letters) > letters:
            self.rejected.append(item)
        else:
            self._proof.acked(item)
            self._end(item, acked=True)

    def letter(self, *, stored: bool) -> bool:
        """Acknowledge the write of a dead letter, or let it fail with an unknown outcome."""
        if not self.letters:
            return self._letter_of_expired(stored=stored)
        item = self.rejected.popleft()
        alive = item in self.working
        if alive and stored:
            self._proof.acked(item)
        self.letters.decide(stored=stored)
        if alive and stored:
            self._end(item, acked=True)
        self._observe()
        return True

    def _letter_of_expired(self, *, stored: bool) -> bool:
        """Write the next messages that have expired to their topic; or acknowledge a write, or let it fail."""
        if not self.expired:
            self.expired.extend(self.core.pop_expired(2, self._clock()))
            for item in self.expired:
                if self.kept.pop(item, None) is None:
                    raise Violation("I19", f"{item} is written to the expiry topic by one who has lost it")
            return bool(self.expired)
        item = self.expired.popleft()
        if stored:
            self._proof.lettered(item)
            self.ledger.bury_expired(item)
        elif self.ledger.keeps_expired(item):
            self.expired.append(item)
        return True

    def _drop(self, item: Item) -> None:
        self.worked.discard(item)
        del self.held[item]

    def _settle(self, item: Item, step: Callable[[], object]) -> bool:
        """Settle if the handle is still valid. If it is not, the core must raise `LockLost` (I2)."""
        alive = item in self.working
        try:
            step()
        except LockLost:
            if alive:
                raise
            return False
        if not alive:
            raise Violation("I2", f"{item} was settled by one who has lost it")
        return True

    # ---------------------------------------------------------------- transactions

    def leave(self, item: Item) -> None:
        """Ack in a transaction. The first ack begins it."""
        if self.closing or (self.work is not None and (self.work.next or self.work.committing)):
            return
        if self.work is None:
            self.core.open_transaction()
            self.work = Work()
        self._drop(item)
        alive = item in self.working
        self._settle(item, lambda: self.ledger.leave(item))
        if alive:
            self.work.items.append(item)

    def begin_commit(self, *, reached: bool, answered: bool) -> bool:
        """Add the acks to the transaction. Any failure aborts it.

        This waits for the answer to the last plain commit, which may take any number of calls.
        """
        work = self.work
        if work is None or work.committing:
            return False
        waited, work.next = work.next, True
        self.core.queue_transaction()
        if not self.core.is_quiet:
            return not waited
        self._has_room(work.items)
        try:
            work.flight = flight = self.core.prepare_commit(work.items, self._clock())
        except (LockLost, TransportError):
            return self.abort()
        work.committing = True
        work.sent_at = self._clock()
        if flight is not None:
            self._said |= flight.maps
            leaving = _by_partition(work.items)
            offsets = {p: (said.base, said.encode()) for p, said in flight.maps.items()}
            self._proof.sent(offsets, dict(flight.maps), self._options.text_limit, leaving)
            for partition, offsets_left in leaving.items():
                claim = self.ledger.assignment.claim(partition, work.items)
                self._proof.faithful(self.lives[partition], claim, self.commits.last(partition), offsets_left)
            if reached:
                reached = self._group.commit_in(work.transaction, self.number, self.epoch, offsets) is Answer.STORED
            if not (reached and answered):
                self.abort()
        return True

    def _watch_bounds(self) -> None:
        """Note the assignments from whose beginning hand-out waited for room, or since all its acks have fitted."""
        for part in self.ledger._partitions.values():
            if not self.ledger.bounded:
                self._bounded[part._generation] = False
            elif not part.held:
                fits = self._length(part._number, ()) <= self.ledger.capacity.limit
                self._bounded[part._generation] = self._bounded.get(part._generation, False) or fits

    def _has_room(self, items: Collection[Item]) -> None:
        """Check I9: what was taken in a transaction has room in its commit."""
        options = self._options
        # Evictions lie between scheduled messages, and in a queue by rank anywhere.
        evicts_between = options.ring is not None and (options.times.may_schedule or options.ranked)
        if self.ledger.capacity.limit < options.text_limit or options.expiry_topic or evicts_between:
            return  # the limit has sunk, or messages are done that nobody took
        for partition, part in self.ledger._partitions.items():
            mine = {item for item in items if item.partition == partition and item.state is MessageState.LEAVING}
            # Places give way to acks, and are left out of the claim then.
            if mine and self._bounded.get(part._generation) and not part.pending.places:
                length = self._length(partition, mine)
                if length > self.ledger.capacity.limit:
                    raise Violation("I9", f"a transaction took {mine}, whose commit has {length} characters")

    def _length(self, partition: int, leaving: Collection[Item]) -> int:
        return self.ledger.assignment.claim(partition, leaving).longest

    def end_commit(self, *, answered: bool) -> bool:
        """Commit the transaction. Without an answer the outcome is unknown, and the commit must be tried again."""
        work = self.work
        if work is None or not work.committing:
            return False
        transaction = work.transaction
        if transaction.open:
            transaction.open, transaction.committed = False, True
            self._proof.transacted(work.items)
            self._group.decided(transaction)
        if not answered:
            return True
        if not transaction.committed:
            self.abort()
            return True
        self.work = None
        if work.flight is not None:
            self._accepted = max(self._accepted, work.sent_at)
        steps = [(Ledger.commit, item) for item in work.items]
        self.core.end_transaction(steps, work.flight, Answer.STORED, self._clock())
        for item in work.items:
            if item in self.working:
                self._end(item, acked=True)
            self._proof.reported(item)
        self._report()
        return True

    def abort(self) -> bool:
        """Abort the transaction, if there is one. Its messages come back."""
        work = self.work
        if work is None:
            return False
        self.work = None
        work.transaction.open = False
        self._group.decided(work.transaction)
        steps = [(Ledger.give_back, item) for item in work.items]
        self.core.end_transaction(steps, work.flight, Answer.UNKNOWN, self._clock())
        self._observe()
        self._report()
        return True


def _by_partition(items: Iterable[Item]) -> dict[int, set[int]]:
    offsets: dict[int, set[int]] = {}
    for item in items:
        offsets.setdefault(item.partition, set()).add(item.offset)
    return offsets
