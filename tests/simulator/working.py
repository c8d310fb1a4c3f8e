"""A consumer process: what its holders do with messages, by themselves and in transactions."""

from __future__ import annotations

from collections.abc import Iterable

from lvq_kafka.core.commits import Answer, Flight
from lvq_kafka.core.ledger import Item
from lvq_kafka.core.lifecycle import State
from lvq_kafka.errors import LockLost
from tests.simulator.group import Waiter
from tests.simulator.process import Process, Work
from tests.simulator.proof import Violation, says_done

__all__ = ["Working"]

_LEAVING = frozenset({State.LEAVING, State.LEAVING_STALE})


class Working(Process):
    """A process with holders of messages."""

    def hand_out(self, locked_until: float | None) -> bool:
        """Give the next message to a holder; with durable counts, only when that is counted."""
        if self.ledger.in_work >= self._options.max_in_work:
            return False
        item = self.ledger.acquire(locked_until)
        if item is None:
            return False
        self._proof.handed_out(self.lives[item.partition], item, owner=self._owns(item.partition))
        limit = self._options.max_deliveries
        if limit is not None and item.deliveries > limit:
            self.ledger.leave(item)
            self.letters.append(item)
        elif self._options.durable_counts:
            self._counting.append(item)
            self.commits.wait_stored(item.partition, (item, True))
        else:
            self._deliver(item)
        return True

    def work_on(self, item: Item) -> None:
        """The side effect of a message happens."""
        self.worked.add(item)

    def ack(self, item: Item, *, wait: bool = False) -> None:
        self._drop(item)
        if self._is_lost(item, "ack"):
            return
        self.ledger.ack(item)
        self.acks += 1
        self._proof.acked(item)
        self._end_of_lock(item, acked=True)
        if wait:
            self.commits.wait_done(item.partition, item.offset, (item, False))
            self._report()

    def release(self, item: Item, due: float | None) -> None:
        self._drop(item)
        if not self._is_lost(item, "release"):
            self.ledger.release(item, due)
            self._end_of_lock(item, acked=False)

    def extend(self, item: Item, locked_until: float) -> None:
        if not self._is_lost(item, "extend", locked_until):
            self.ledger.extend(item, locked_until)

    def reject(self, item: Item) -> None:
        """Remove it; where there are dead letters, when its own is stored."""
        self._drop(item)
        if self._is_lost(item, "reject"):
            return
        if self._options.dead_letters:
            self.ledger.leave(item)
            self.letters.append(item)
        else:
            self.ledger.reject(item)
            self._proof.acked(item)
            self._end_of_lock(item, acked=True)

    def letter(self, *, stored: bool) -> bool:
        """The write of a dead letter was acknowledged, or has failed, or nobody knows."""
        if not self.letters:
            return False
        item = self.letters.popleft()
        if self._is_lost(item, "bury"):
            return True
        if stored:
            self.ledger.bury(item)
            self._proof.acked(item)
        else:
            self.ledger.give_back(item)
        self._end_of_lock(item, acked=stored)
        return True

    def wake(self, now: float) -> None:
        """Do what is due by the clock. Whoever has held a message for too long holds it no more."""
        held = [item for item in (*self.held, *self._counting) if item.state is not State.LOST]
        self.ledger.wake(now)
        for item in held:
            if item.state is State.LOST:
                self._end_of_lock(item, acked=False)
        self._counting = [item for item in self._counting if item.state is not State.LOST]

    def _drop(self, item: Item) -> None:
        self.held.remove(item)
        self.worked.discard(item)

    def _is_lost(self, item: Item, settle: str, *arguments: float) -> bool:
        """Whether the handle is good no more; if so, that it really is not (I2)."""
        if item.state is not State.LOST:
            return False
        try:
            getattr(self.ledger, settle)(item, *arguments)
        except LockLost:
            return True
        raise Violation("I2", f"{settle} of {item} was taken")

    def _end_of_lock(self, item: Item, *, acked: bool) -> None:
        life = self.lives.get(item.partition)
        if life is not None and life.holding.get(item.lane) == item.offset:
            life.settled(item, acked=acked)

    # ---------------------------------------------------------------- transactions

    def leave(self, item: Item) -> None:
        """Ack in a transaction: it begins with the first one."""
        if self._transacting:
            return
        self._drop(item)
        if self._is_lost(item, "leave"):
            return
        self.ledger.leave(item)
        if self.work is None:
            self.work = Work()
        self.work.items.append(item)

    def begin_commit(self, *, reached: bool, answered: bool) -> bool:
        """Make what was consumed a part of the transaction. Whatever goes wrong, it aborts.

        Not before the last plain commit is answered: on its way it could arrive after the transaction, and undo it.
        """
        work = self.work
        if work is None or work.committing:
            return False
        if self._unanswered is not None:
            if self._flight is None:
                self.commits.renew(self.lives.keys())
            return self.commit()
        if any(item.state not in _LEAVING for item in work.items):
            self.abort()
            return True
        work.committing = True
        leaving = _by_partition(work.items)
        work.flight = flight = self.commits.take(leaving.keys(), work.items)
        if not all(self._says_done(flight, item) for item in work.items):
            self.abort()  # it has no room for them
            return True
        if flight is not None:
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

    def _says_done(self, flight: Flight[Waiter] | None, item: Item) -> bool:
        if flight is not None and item.partition in flight.maps:
            return says_done(flight.maps[item.partition], item.offset)
        return says_done(self.commits.last(item.partition), item.offset)

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
        for item in work.items:
            if not self._is_lost(item, "commit"):
                self.ledger.commit(item)
                self._end_of_lock(item, acked=True)
        if work.flight is not None:
            self.commits.landed(work.flight, Answer.STORED)
        for item in work.items:
            self._proof.reported(item)
        self._report()
        return True

    def abort(self) -> bool:
        """Abort the transaction, unless its commit was asked for: its messages come back."""
        work = self.work
        if work is None:
            return False
        self.work = None
        transaction = work.transaction
        transaction.open = False
        self._group.decided(transaction)
        if work.flight is not None:
            self.commits.landed(work.flight, Answer.UNKNOWN)
        for item in work.items:
            if not self._is_lost(item, "give_back"):
                self.ledger.give_back(item)
                self._end_of_lock(item, acked=False)
        return True


def _by_partition(items: Iterable[Item]) -> dict[int, set[int]]:
    offsets: dict[int, set[int]] = {}
    for item in items:
        offsets.setdefault(item.partition, set()).add(item.offset)
    return offsets
