"""The coordinator of a consumer group, and the connections that commits take to it.

Partitions move cooperatively: the previous owner gives a partition up in its own time, or is removed from the group.
Every such step is a new epoch (a generation in the classic protocol).

The broker is assumed to behave as follows. A member's commits arrive in order or not at all, and one may be applied
twice in a row. The exception is a commit that is refused with a retriable error: until the client reports its outcome,
the client may send it again, after newer commits. Commits and answers may be lost or late. With fencing off, nothing is
assumed: any commit that was ever sent may arrive again at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer, Flight
from tests.simulator.log import Transaction
from tests.simulator.waiting import Question

__all__ = ["Connection", "Group", "Offsets", "Request", "Standing"]

Offsets = Mapping[int, tuple[int, str]]
"""The committed offset and text of each partition."""


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """A commit in flight."""

    member: int
    epoch: int
    offsets: Offsets
    flight: Flight[Question]


@dataclass(eq=False, slots=True)
class Connection:
    """The ordered traffic between a member and the coordinator. It outlives the member."""

    requests: deque[Request] = field(default_factory=deque)
    refused: deque[Request] = field(default_factory=deque)
    """Commits refused with a retriable error. The client retries them until it reports their outcome."""
    answers: deque[tuple[Flight[Question], Mapping[int, Answer]]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Standing:
    """The answer to a heartbeat."""

    epoch: int
    gone: list[int]
    """Partitions that the member must give up."""
    new: list[int]
    """Partitions that the member now owns."""


class Group:
    """A coordinator.

    Args:
        starts: the commits made by `declare`.
        fenced: whether it refuses commits from anyone but current members.
        lenient: whether it accepts a commit with an older epoch if the sender has owned the partition ever since.
        text_limit: the most characters that it accepts in a text.
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
        self._written = dict.fromkeys(starts, 0)  # position of the visible commit in the coordinator's own log
        self._pending: dict[int, tuple[Transaction, tuple[int, str], int]] = {}
        self._log_end = 0
        self._stored = stored

    # ---------------------------------------------------------------- membership

    @property
    def members(self) -> list[int]:
        """Return the members of the group."""
        return self._members

    def join(self, member: int) -> None:
        self._members.append(member)
        self.rebalance()

    def remove(self, member: int) -> None:
        """Remove a member that has left or timed out."""
        self._members.remove(member)
        for partition, owner in self.owner.items():
            if owner == member:
                self.owner[partition] = None
        self.rebalance()

    def rebalance(self, shift: int = 0) -> None:
        """Reassign partitions. Owners keep a fair share of theirs, unless ``shift`` moves everything."""
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
        """Return a member's standing, or None if it is not a member."""
        if member not in self._members:
            return None
        gone = [p for p, owner in self.owner.items() if owner == member and self._target[p] != member]
        new = [p for p, owner in self.owner.items() if owner is None and self._target[p] == member]
        for partition in new:
            self.owner[partition] = member
            self._since[partition] = self.epoch
        return Standing(self.epoch, gone, new)

    def given_up(self, member: int, partitions: list[int]) -> None:
        """Take back the partitions that a member has given up."""
        for partition in partitions:
            if self.owner[partition] == member:
                self.owner[partition] = None
        self.epoch += 1

    # ---------------------------------------------------------------- offsets

    def commit(self, request: Request) -> dict[int, Answer]:
        """Store a commit. If one text is too large, the others are stored, but all are answered as too large."""
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
        """Add a commit to a transaction. It becomes visible when the transaction commits."""
        if not transaction.open or not self.accepts(member, epoch, offsets):
            return Answer.UNKNOWN
        if any(len(text) > self.text_limit for _, text in offsets.values()):
            return Answer.TOO_LARGE
        for partition, commit in offsets.items():
            self._log_end += 1
            self._pending[partition] = (transaction, commit, self._log_end)
        return Answer.STORED

    def decided(self, transaction: Transaction) -> None:
        """Apply or drop the commits of a decided transaction. A later commit outside it wins over its own."""
        for partition, (pending, commit, written) in list(self._pending.items()):
            if pending is transaction:
                del self._pending[partition]
                if transaction.committed and written > self._written[partition]:
                    self._store(partition, commit, written)

    def offsets(self, partition: int) -> tuple[int, str] | None:
        """Return the committed offset and text, or None while a pending transaction may replace them."""
        return None if partition in self._pending else self._offsets[partition]

    def visible(self, partition: int) -> CommitMap:
        """Return the visible commit, even if a transaction is pending."""
        return self._maps[partition]

    def _store(self, partition: int, commit: tuple[int, str], written: int) -> None:
        self._written[partition] = written
        self._offsets[partition] = commit
        self._maps[partition] = CommitMap.decode(*commit)
        self._stored(partition, self._maps[partition])

    def accepts(self, member: int, epoch: int, offsets: Offsets) -> bool:
        """Return whether a commit passes fencing. A broker does not check that the sender owns the partitions."""
        if not self.fenced:
            return True
        if member not in self._members:
            return False
        return epoch == self.epoch or (
            self._lenient
            and all(self.owner[partition] == member and epoch >= self._since[partition] for partition in offsets)
        )
