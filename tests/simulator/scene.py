"""The contents of a world, and the choice of the consumers that actions apply to."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from lvq_kafka.core.commit_map.commit_map import CommitMap
from tests.simulator.browser import Browser
from tests.simulator.group import Connection, Group, Request
from tests.simulator.log import Log, Transaction
from tests.simulator.member import TAG, Member
from tests.simulator.process import Options
from tests.simulator.proof import Proof

__all__ = ["FAR_AHEAD", "Queue", "Scene", "Setting", "Step", "one_of"]

T = TypeVar("T")

FAR_AHEAD = 1_000_000.0
"""Seconds that no history lasts. Messages may be scheduled, or returned, for so long."""


class Step(NamedTuple):
    """An action, with its subject and variant."""

    action: str
    who: int = 0
    how: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """The constants of a world."""

    partitions: int = 2
    keys: int = 3
    queues: int = 1
    existing: int = 0
    """Records per partition before the queues are declared."""
    from_the_end: bool = False
    """Whether the queues start at the end of the topic."""
    fenced: bool = True
    lenient: bool = False
    broker_limits: tuple[int, ...] = (4096,)
    """The text limits, in characters, of the first coordinator and of those that may replace it."""
    gap: int = 0
    """Offsets skipped after every record, as in a compacted log. A large gap makes long texts."""
    sequence: int = 0
    """The sequence number of the first commit. A large one makes long texts."""
    never: frozenset[str] = frozenset()
    """Actions that never happen."""
    options: Options = field(default_factory=Options)


class Queue:
    """A queue on the topic: its group, its proof and its browser."""

    def __init__(self, logs: list[Log], setting: Setting) -> None:
        bases = [log.end if setting.from_the_end else 0 for log in logs]
        self.proof = Proof(
            logs,
            bases,
            counted=min(setting.broker_limits) >= setting.options.text_limit == 4095,
            keeps=setting.options.expiry_topic,
        )
        starts = {}
        for partition, base in enumerate(bases):
            declared = CommitMap(base, (), TAG, setting.options.partition_count, setting.sequence)
            starts[partition] = base, declared.encode()
        self.group = self.proof.group = Group(
            starts,
            self.proof.stored,
            fenced=setting.fenced,
            lenient=setting.lenient,
            text_limit=setting.broker_limits[0],
        )
        self.browser: Browser | None = None


class Scene:
    """The state of a world."""

    def __init__(self, setting: Setting) -> None:
        self.counts: Counter[str] = Counter()
        self.script: list[Step] = []
        """All steps so far."""
        self.members: list[Member] = []
        self._setting = setting
        self._now = 0.0
        number = 0 if setting.options.groups is None else 3
        self._logs = [
            Log(setting.options.times, number, ranked=setting.options.ranked) for _ in range(setting.partitions)
        ]
        for log in self._logs:
            for number in range(setting.existing):
                log.append(b"%d" % (number % setting.keys), b"old")
                log.end += setting.gap
        self._queues = [Queue(self._logs, setting) for _ in range(setting.queues)]
        self._queue_of: dict[int, Queue] = {}
        self._numbers = 0
        self._transactions: list[Transaction] = []  # open, of producers
        self._orphans: list[Transaction] = []  # open, of dead consumers
        self._adrift: list[tuple[Queue, Connection]] = []  # commits in flight whose sender is dead
        self._sent: deque[tuple[Queue, Request]] = deque(maxlen=64)
        self._touched: Member | None = None
        self._settle()
        self._start(self._queues[0])

    def now(self) -> float:
        """Return the world's time, in seconds."""
        return self._now

    def _settle(self) -> None:
        for partition, log in enumerate(self._logs):
            for entry in log.settle():
                for queue in self._queues:
                    queue.proof.readable(partition, entry)

    def _start(self, queue: Queue) -> Member:
        self._numbers += 1
        self._queue_of[self._numbers] = queue
        member = Member(self._numbers, self._logs, queue.group, queue.proof, self._setting.options, self.now)
        self.members.append(member)
        return member

    def _bury(self, member: Member) -> None:
        self.members.remove(member)
        member.connection.refused.clear()
        self._adrift.append((self._queue_of[member.number], member.connection))
        if member.work is not None and member.work.transaction.open:
            self._orphans.append(member.work.transaction)

    # ---------------------------------------------------------------- choosing

    def _first(self, who: int, attempt: Callable[[Member], bool]) -> bool:
        """Let one running consumer make the attempt, beginning with ``who``; return whether one succeeded."""
        running = [member for member in self.members if not member.stopped]
        for turn in range(len(running)):
            member = running[(who + turn) % len(running)]
            if attempt(member):
                self._touched = member
                return True
        return False

    def _member(self, who: int) -> Member | None:
        return self._pick([member for member in self.members if not member.stopped], who)

    def _pick(self, members: Sequence[Member], who: int) -> Member | None:
        self._touched = one_of(members, who)
        return self._touched


def one_of(things: Sequence[T], which: int) -> T | None:
    return things[which % len(things)] if things else None
