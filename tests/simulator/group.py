"""The coordinator of a consumer group, and the way of a commit to it.

Partitions move cooperatively: one that has another owner first has to be given up by it, in its own time, or by its
being put out of the group. Every such step is a new epoch (a generation, in the older protocol).

The broker's assumed behaviour: commits of one member arrive in the order in which they were sent, or not at all,
and one may be taken twice in a row. One that is refused for now is an exception: until the client has answered for it,
it may send it again, behind newer ones. The rest may happen: they are lost, late, and so are their answers.
With fencing off nothing is taken for granted: every commit that was ever sent may arrive again, at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.commits import Answer, Flight
from tests.simulator.log import Transaction
from tests.simulator.waiting import Question

__all__ = ["Connection", "Group", "Offsets", "Request", "Standing"]

Offsets = Mapping[int, tuple[int, str]]
"""By partition, what is committed: an offset and a text."""


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """A commit on its way."""

    member: int
    epoch: int
    offsets: Offsets
    flight: Flight[Question]


@dataclass(eq=False, slots=True)
class Connection:
    """From a member to the coordinator and back, in order. It outlives the member."""

    requests: deque[Request] = field(default_factory=deque)
    refused: deque[Request] = field(default_factory=deque)
    """Refused for now: the client sends them again by itself, as long as it has not answered for them."""
    answers: deque[tuple[Flight[Question], Mapping[int, Answer]]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Standing:
    """A member's answer when it asks."""

    epoch: int
    gone: list[int]
    """Partitions that it has to give up."""
    new: list[int]
    """Partitions that it owns from now on."""


class Group:
    """A coordinator.

    Args:
        starts: what `declare` has committed.
        fenced: whether it refuses the commits of those who are not, or no longer, members.
        lenient: whether it takes a commit of an older epoch for a partition that its sender has owned ever since.
        text_limit: characters that it takes for a text.
        stored: called with every commit that becomes visible.
    """

    def __init__(
        self,
        starts: Offsets,
        stored: Callable[[int, CommitMap], None],
        *,
        fenced: bool,
        lenient: bool,
        text_limit: int,
    ) -> None:
        self.fenced = fenced
        self.epoch = 1
        self.owner: dict[int, int | None] = dict.fromkeys(starts)
        self.text_limit = text_limit
        self._lenient = lenient
        self._members: list[int] = []
        self._target: dict[int, int | None] = dict.fromkeys(starts)
        self._since = dict.fromkeys(starts, 0)
        self._offsets = dict(starts)
        self._maps = {partition: CommitMap.decode(*start) for partition, start in starts.items()}
        self._written = dict.fromkeys(starts, 0)  # where in the coordinator's own log the visible commit lies
        self._pending: dict[int, tuple[Transaction, tuple[int, str], int]] = {}
        self._log_end = 0
        self._stored = stored

    # ---------------------------------------------------------------- membership

    @property
    def members(self) -> list[int]:
        """The members of the group."""
        return self._members

    def join(self, member: int) -> None:
        self._members.append(member)
        self.rebalance()

    def remove(self, member: int) -> None:
        """A member has left, or was not heard of for too long."""
        self._members.remove(member)
        for partition, owner in self.owner.items():
            if owner == member:
                self.owner[partition] = None
        self.rebalance()

    def rebalance(self, shift: int = 0) -> None:
        """Reassign partitions: owners keep theirs as far as that is fair, unless all is shifted."""
        self.epoch += 1
        members = self._members
        if not members:
            self._target = dict.fromkeys(self.owner)
            return
        fair = -(-len(self.owner) // len(members))
        room = dict.fromkeys(members, fair)
        for partition, owner in self.owner.items():
            self._target[partition] = None
            if owner is not None and room[owner] and not shift:
                self._target[partition] = owner
                room[owner] -= 1
        for partition, target in self._target.items():
            if target is None:
                chosen = max(members, key=lambda member: (room[member], (member * 7 + shift + partition) % 5))
                self._target[partition] = chosen
                room[chosen] -= 1

    def heartbeat(self, member: int) -> Standing | None:
        """Return what a member has to do; None when it is none."""
        if member not in self._members:
            return None
        gone = [p for p, owner in self.owner.items() if owner == member and self._target[p] != member]
        new = [p for p, owner in self.owner.items() if owner is None and self._target[p] == member]
        for partition in new:
            self.owner[partition] = member
            self._since[partition] = self.epoch
        return Standing(self.epoch, gone, new)

    def given_up(self, member: int, partitions: list[int]) -> None:
        """A member has given up partitions."""
        for partition in partitions:
            if self.owner[partition] == member:
                self.owner[partition] = None
        self.epoch += 1

    # ---------------------------------------------------------------- offsets

    def commit(self, request: Request) -> dict[int, Answer]:
        """Take a commit. Of one with a text that is too long, others are stored, but all are said to be too large."""
        offsets = request.offsets
        if not self.accepts(request.member, request.epoch, offsets):
            return dict.fromkeys(offsets, Answer.UNKNOWN)
        fits = {partition: len(text) <= self.text_limit for partition, (_, text) in offsets.items()}
        for partition, commit in offsets.items():
            if fits[partition]:
                self._log_end += 1
                self._store(partition, commit, self._log_end)
        return dict.fromkeys(offsets, Answer.STORED if all(fits.values()) else Answer.TOO_LARGE)

    def commit_in(self, transaction: Transaction, member: int, epoch: int, offsets: Offsets) -> Answer:
        """Take a commit as a part of a transaction: visible when that commits."""
        if not transaction.open or not self.accepts(member, epoch, offsets):
            return Answer.UNKNOWN
        if any(len(text) > self.text_limit for _, text in offsets.values()):
            return Answer.TOO_LARGE
        for partition, commit in offsets.items():
            self._log_end += 1
            self._pending[partition] = (transaction, commit, self._log_end)
        return Answer.STORED

    def decided(self, transaction: Transaction) -> None:
        """A transaction was decided. A commit outside of it that came after its own wins over that."""
        for partition, (pending, commit, written) in list(self._pending.items()):
            if pending is transaction:
                del self._pending[partition]
                if transaction.committed and written > self._written[partition]:
                    self._store(partition, commit, written)

    def offsets(self, partition: int) -> tuple[int, str] | None:
        """Return what is committed; None while a transaction has still to decide that."""
        return None if partition in self._pending else self._offsets[partition]

    def visible(self, partition: int) -> CommitMap:
        """Return what is committed by now, whatever is still to be decided."""
        return self._maps[partition]

    def _store(self, partition: int, commit: tuple[int, str], written: int) -> None:
        self._written[partition] = written
        self._offsets[partition] = commit
        self._maps[partition] = CommitMap.decode(*commit)
        self._stored(partition, self._maps[partition])

    def accepts(self, member: int, epoch: int, offsets: Offsets) -> bool:
        """Return whether a commit counts. A broker does not ask whether its sender owns the partitions."""
        if not self.fenced:
            return True
        if member not in self._members:
            return False
        return epoch == self.epoch or (
            self._lenient
            and all(self.owner[partition] == member and epoch >= self._since[partition] for partition in offsets)
        )
