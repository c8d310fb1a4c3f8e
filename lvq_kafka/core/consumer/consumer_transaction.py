"""The phases of a consumer's transaction, and the events that lead from one to another.

`OUTCOMES` lists them all: the consumer follows this table, and docs/protocol.md shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from lvq_kafka.core.consumer.commits import Flight
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.errors import StateError, TransportError

__all__ = [
    "OUTCOMES",
    "ConsumerTransaction",
    "LedgerStep",
    "TransactionEvent",
    "TransactionPhase",
    "Undecided",
]

LedgerStep = Callable[[Ledger, Item], None]
"""A change of a message's state; see `Ledger`."""


class TransactionPhase(StrEnum):
    """The phase of a consumer's transaction."""

    NONE = "none"
    OPEN = "open"
    NEXT = "next"
    """Its commit is next, once the one before it is known to have arrived."""
    COMMITTING = "committing"
    """Its commit is in flight. No other is sent, since that would override it."""
    UNDECIDED = "undecided"
    """Its outcome is unknown. Until the group reports it, no other commit is sent."""


class TransactionEvent(StrEnum):
    """An event in the life of a consumer's transaction."""

    OPEN = "open"
    QUEUE = "queue"
    """Its commit is due. From now on, plain commits only complete those in flight."""
    COMMIT = "commit"
    """Its commit is built, and will be sent to the group as part of the transaction."""
    LOSE = "lose"
    """Its end was not answered."""
    END = "end"
    """It has committed, or aborted."""


_NONE, _OPEN, _NEXT, _COMMITTING, _UNDECIDED = TransactionPhase

OUTCOMES: Mapping[TransactionEvent, Mapping[TransactionPhase, TransactionPhase]] = MappingProxyType(
    {
        TransactionEvent.OPEN: {_NONE: _OPEN},
        TransactionEvent.QUEUE: {_OPEN: _NEXT, _NEXT: _NEXT},
        TransactionEvent.COMMIT: {_NEXT: _COMMITTING},
        TransactionEvent.LOSE: {_COMMITTING: _UNDECIDED},
        TransactionEvent.END: {_OPEN: _NONE, _NEXT: _NONE, _COMMITTING: _NONE, _UNDECIDED: _NONE},
    }
)
"""The next phase, by event and phase. Anything not listed is refused and changes nothing."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A transaction whose outcome is unknown."""

    flight: Flight[Any]
    left: Mapping[Item, LedgerStep]
    """Its messages, and the step each takes if it has committed."""
    notify: Callable[[bool | None], None]
    """For the owner to call with the outcome, or with None if the consumer ends before it is known."""

    @property
    def partitions(self) -> Set[int]:
        """The partitions that it commits for."""
        return self.flight.maps.keys()

    def outcome(self, committed: bool) -> list[tuple[LedgerStep, Item]]:
        """Return its messages, each with the step that settles it."""
        return [(step if committed else Ledger.give_back, item) for item, step in self.left.items()]


class ConsumerTransaction:
    """A consumer's transaction. There is one at a time: a map speaks for its whole partition."""

    def __init__(self) -> None:
        self.phase = TransactionPhase.NONE
        self.undecided: Undecided | None = None
        # By partition, when the last commit of a transaction was decided; infinity while it is not.
        self._decided_at: dict[int, float] = {}

    def advance(self, event: TransactionEvent) -> None:
        """Enter the phase that the event leads to.

        Raises:
            StateError: the event is not possible in this phase.
        """
        after = OUTCOMES[event].get(self.phase)
        if after is None:
            raise StateError(f"A transaction of this consumer is {self.phase}: it cannot {event}.")
        self.phase = after

    @property
    def is_open(self) -> bool:
        """True while opening another one is an error. While this one is undecided, opening waits."""
        return self.phase in (_OPEN, _NEXT, _COMMITTING)

    @property
    def excludes_commits(self) -> bool:
        """True if its commit is or may be in flight, so that no other may be sent."""
        return self.phase in (_COMMITTING, _UNDECIDED)

    def commits(self, partitions: Iterable[int]) -> None:
        """Record that its commit is being sent, for these partitions."""
        self._decided_at |= dict.fromkeys(partitions, math.inf)

    def decided(self, partitions: Iterable[int], now: float) -> None:
        """Record that its commit for these partitions is decided."""
        self._decided_at |= dict.fromkeys(partitions, now)

    def check_decided(self, partitions: Iterable[int], since: float) -> None:
        """Check that no transaction of ours may have changed these partitions' commits since then.

        If a transaction was in flight when the partitions were revoked, the group still accepts it once they are
        assigned again.

        Raises:
            TransportError: one may have. The commits must be read again.
        """
        undecided = sorted(p for p in partitions if self._decided_at.get(p, -math.inf) >= since)
        if undecided:
            raise TransportError(
                f"A transaction of this consumer is still committing for partition {', '.join(map(str, undecided))}, "
                "which was assigned to it again.",
                code="UNSTABLE_OFFSET_COMMIT",
                retriable=True,
                hint="Wait until that is decided.",
            )

    def pop_undecided(self) -> Undecided | None:
        """Return the transaction whose outcome was unknown so far, if there is one."""
        undecided, self.undecided = self.undecided, None
        return undecided
