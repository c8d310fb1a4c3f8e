"""A consumer process: what its holders do with messages, by themselves and in transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.consuming.shared_state_base import LEASE
from lvq_kafka.core.commits import Answer
from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.lifecycle import State
from lvq_kafka.errors import AlreadySettled, LockLost, TransportError
from tests.simulator.process import Process, Work
from tests.simulator.proof import Violation

__all__ = ["Working"]

T = TypeVar("T")


class Working(Process):
    """A process with holders of messages."""

    def __init__(self, *process: Any) -> None:
        super().__init__(*process)
        self.ahead: deque[Item] = deque()
        """What an iteration has taken, and nobody has got yet."""
        self.rejected: deque[Item] = deque()
        """Messages whose dead letters are on their way."""

    def hand_out(self, most: int = 1) -> bool:
        """Give the next messages to holders; with durable counts, only when that is counted."""
        if self.closing:
            return False
        if self.ahead:
            self._next_turn(self.ahead.popleft())
            return True
        before = len(self.working)
        taken, exhausted = self.shared.acquire(most, ahead=self._options.ahead)
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

    def _nothing_starves(self) -> None:
        """I17: nothing was to be had; so nothing could be handed out."""
        counting = self._options.limits.durable_counts and bool(self.shared._reservations)
        if self.shared._is_in_doubt() or self.shared.is_full or self.ledger.bounded or counting:
            return
        for number, part in self.ledger._partitions.items():
            free = [item for lane, item in part.waiting.items() if lane not in part.held]
            if part.open and any(item.state is State.AVAILABLE for item in free):
                raise Violation("I17", f"partition {number} hands out nothing though {free} wait")

    def _next_turn(self, item: Item) -> None:
        """The turn of one that was taken ahead has come: a holder gets it, or it is let go."""
        if self.shared.hand_over(item):
            self._deliver(item)
            return
        with suppress(LockLost, AlreadySettled):
            self.shared.apply(Ledger.release, item)
        self._observe()

    def _deliver(self, item: Item) -> None:
        if self.in_doubt:  # it may have been set aside before
            raise Violation("I15", f"{item} comes to a holder {LEASE} s after the group was last heard of")
        self.held[item] = None
        self.working[item].given[item.offset] += 1
        counted = self._options.limits.durable_counts and self._owns(item.partition)
        self._proof.delivered(item, counted=counted)

    def work_on(self, item: Item) -> None:
        """The side effect of a message happens."""
        self.worked.add(item)

    def ack(self, item: Item, *, wait: bool = False) -> None:
        """With ``wait`` somebody wants to know when it is durable; and when earlier ones are, wherever they went."""
        self._drop(item)
        settlement = self._settle(item, lambda: self.settler.ack(item))
        if settlement is None:
            return
        self.acks += 1
        self._proof.acked(item)
        self._end(item, acked=True)
        self.settlements.append((item, settlement))
        if wait:
            asked, self.settlements = self.settlements, []
            for one in asked:
                self.ask(*one)

    def release(self, item: Item, delay: float) -> None:
        self._drop(item)
        self._settle(item, lambda: self.settler.release(item, delay))
        self._observe()

    def extend(self, item: Item, seconds: float) -> None:
        self._settle(item, lambda: self.settler.extend(item, seconds))

    def reject(self, item: Item) -> None:
        """Remove it; where there are dead letters, when its own is stored."""
        self._drop(item)
        self._reject(item, lambda item: self.settler.reject(item, "no good"))

    def _reject(self, item: Item, step: Callable[[Item], Settlement | None]) -> None:
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
        """The write of a dead letter was acknowledged, or has failed, or nobody knows."""
        if not self.letters:
            return False
        item = self.rejected.popleft()
        alive = item in self.working
        if alive and stored:
            self._proof.acked(item)
        self.letters.decide(stored=stored)
        if alive and stored:
            self._end(item, acked=True)
        self._observe()
        return True

    def _drop(self, item: Item) -> None:
        self.worked.discard(item)
        del self.held[item]

    def _settle(self, item: Item, step: Callable[[], T]) -> T | None:
        """Settle, if the handle is good still; if it is not, that must be told (I2)."""
        alive = item in self.working
        try:
            outcome = step()
        except LockLost:
            if alive:
                raise
            return None
        if not alive:
            raise Violation("I2", f"{item} was settled by one who has lost it")
        return outcome

    # ---------------------------------------------------------------- transactions

    def leave(self, item: Item) -> None:
        """Ack in a transaction: it begins with the first one."""
        if self.closing or (self.work is not None and (self.work.next or self.work.committing)):
            return
        if self.work is None:
            self.shared.open_transaction()
            self.work = Work()
        self._drop(item)
        alive = item in self.working
        self._settle(item, lambda: self.shared.apply(Ledger.leave, item))
        if alive:
            self.work.items.append(item)

    def begin_commit(self, *, reached: bool, answered: bool) -> bool:
        """Make what was consumed a part of the transaction. Whatever goes wrong, it aborts.

        Not before the last plain commit is answered, which takes as many tries as the world likes.
        """
        work = self.work
        if work is None or work.committing:
            return False
        waited, work.next = work.next, True
        try:
            work.flight = flight = self.shared.prepare_commit(work.items, 0.0)
        except LockLost:
            return self.abort()
        except TransportError as error:
            return not waited if error.code == "_TIMED_OUT" else self.abort()
        work.committing = True
        work.sent_at = self._clock()
        if flight is not None:
            self._said |= flight.maps
            leaving = _by_partition(work.items)
            offsets = {p: (said.base, said.encode()) for p, said in flight.maps.items()}
            self._proof.sent(offsets, dict(flight.maps), self._options.text_limit, leaving)
            for partition, offsets_left in leaving.items():
                claim = self.ledger.claim(partition, work.items)
                self._proof.faithful(self.lives[partition], claim, self.commits.last(partition), offsets_left)
            if reached:
                reached = self._group.commit_in(work.transaction, self.number, self.epoch, offsets) is Answer.STORED
            if not (reached and answered):
                self.abort()
        return True

    def end_commit(self, *, answered: bool) -> bool:
        """Commit the transaction. Without an answer it has to be asked again: nothing is known."""
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
        self.shared.end_transaction([(Ledger.commit, item) for item in work.items], work.flight, Answer.STORED)
        for item in work.items:
            if item in self.working:
                self._end(item, acked=True)
            self._proof.reported(item)
        self._report()
        return True

    def abort(self) -> bool:
        """Abort the transaction, unless its commit was asked for: its messages come back."""
        work = self.work
        if work is None:
            return False
        self.work = None
        work.transaction.open = False
        self._group.decided(work.transaction)
        self.shared.end_transaction([(Ledger.give_back, item) for item in work.items], work.flight, Answer.UNKNOWN)
        self._observe()
        self._report()
        return True


def _by_partition(items: Iterable[Item]) -> dict[int, set[int]]:
    offsets: dict[int, set[int]] = {}
    for item in items:
        offsets.setdefault(item.partition, set()).add(item.offset)
    return offsets
