"""Checks of messages that count for a limited time only: when they are handed out, and their letters.

They expire (R10), and never come back (R8); or are scheduled (R11).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tests.torture.feed import Place, Sent
from tests.torture.history import Hold
from tests.torture.tape import Logged
from tests.torture.tenures import Tenures
from tests.torture.viewing import Sight

__all__ = ["ExpiryLetter", "Lifetimes", "Times"]


@dataclass(frozen=True, slots=True)
class ExpiryLetter:
    """A record of the expiry topic. ``at`` is when it was appended, in ms since the epoch."""

    source: Place
    key: str
    value: str
    reason: str
    at: int
    mortal: bool = False
    """Whether it has a TTL of its own."""

    def __str__(self) -> str:
        return f"expiry letter of {self.source[0]}/{self.source[1]} ({self.key}={self.value}) at {self.at}"


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a run's messages.

    Args:
        log: the records of the input topic, also those that compaction has removed.
        letters: all records of the expiry topic.
        epoch: seconds since the epoch at zero of the journals' clock.
        sights: what a view has shown meanwhile.
    """

    log: Mapping[Place, Logged]
    letters: Sequence[ExpiryLetter]
    epoch: float
    sights: Sequence[Sight] = ()


class Lifetimes:
    """The times of a run's messages, compared with deliveries and letters.

    Args:
        holds: all holds by place, in order of time.
        find: called with each fault.
    """

    def __init__(
        self, times: Times, holds: Mapping[Place, Sequence[Hold]], tenures: Tenures, find: Callable[[str], None]
    ) -> None:
        self._log = times.log
        self._letters = times.letters
        self._epoch = times.epoch
        self._holds = holds
        self._tenures = tenures
        self._find = find
        self._lanes: dict[tuple[int, str], list[int]] = defaultdict(list)  # by partition and key, offsets
        for partition, offset in sorted(times.log):
            self._lanes[partition, times.log[partition, offset].key].append(offset)
        self.lettered = {letter.source for letter in times.letters}
        """The messages that have a letter."""
        self.late = 0
        """Durable acks of messages that had expired while they were held."""
        self.scheduled = 0
        """Deliveries of messages that were scheduled."""
        self.beneath = 0
        """Deliveries of values that counted while a newer one of their key was scheduled."""

    # ---------------------------------------------------------------- deliveries

    def in_time(self) -> None:
        """Check that nothing is handed out before it is due or after its expiry.

        That is by the consumer's own clock, to the millisecond.
        """
        for place, holds in self._holds.items():
            record = self._log.get(place)
            for hold in holds:
                self._in_time(hold)
                if record is not None:
                    self._as_logged(hold, record)
                expired = hold.expires is not None and self._ms(hold.durable) > hold.expires
                self.late += expired and hold.durable < inf
                self.beneath += self._lies_below(hold)

    def _in_time(self, hold: Hold) -> None:
        if hold.clock is None:
            self._find(f"R10: {hold} was handed out without a look at the clock")
        elif hold.expires is not None and hold.clock > hold.expires:
            self._find(f"R10: {hold} expired at {hold.expires}, and was handed out at {hold.clock}")

    def _as_logged(self, hold: Hold, record: Logged) -> None:
        if (hold.appended, hold.expires) != (record.appended, record.expires):
            self._find(f"{hold} says {hold.appended} and {hold.expires}; the log says {record}")
        if hold.clock is not None and hold.clock < record.due:
            self._find(f"R11: {hold} is due at {record.due}, and was handed out at {hold.clock}")
        self.scheduled += record.scheduled

    def _lies_below(self, hold: Hold) -> bool:
        """Return whether a newer value of its key was in the log and not due when it was handed out."""
        return any(
            record.appended < self._ms(hold.asked) and (hold.clock or inf) < record.due
            for _, record in self._newer(hold.partition, hold.key, hold.offset)
        )

    def none_overtaken(self) -> None:
        """Check that nothing is handed out after its consumer has read a newer value of its key, which counts (G12).

        A consumer that has handed out a message has read all that lie before it in its partition.
        """
        highest: dict[tuple[int, float, str], Hold] = {}  # by tenure, of what was handed out
        for hold in sorted((hold for holds in self._holds.values() for hold in holds), key=lambda hold: hold.acquired):
            tenure = self._tenures.of(hold)
            if tenure is None:
                continue
            mine = (hold.partition, tenure[0], hold.life.name)
            by = highest.setdefault(mine, hold)
            for offset, record in self._newer(hold.partition, hold.key, hold.offset):
                if offset < by.offset and by.acquired < hold.asked and record.due <= self._chosen(hold):
                    self._find(f"G12: {hold} was handed out after {offset} ({record}), which lies before {by}")
            if hold.offset > by.offset:
                highest[mine] = hold

    def _chosen(self, hold: Hold) -> float:
        """Return when a message must have been the newest of its key that counts, in ms since the epoch.

        That is when it was handed out, or when it was asked for, since one of several taken ahead may be chosen before
        its turn. With durable counts, it is chosen at any time before.
        """
        if hold.life.counts or hold.clock is None:
            return 0.0
        return self._ms(hold.asked) if hold.ahead else hold.clock

    def none_revived(self) -> None:
        """Check that no older value of a key is handed out after a newer one has a letter (R8).

        One to be counted durably may be chosen at any time since its holder got the partition.
        """
        first: dict[Place, float] = {}
        for letter in self._letters:
            first[letter.source] = min(first.get(letter.source, inf), letter.at / 1000 - self._epoch)
        for hold in (hold for holds in self._holds.values() for hold in holds):
            tenure = self._tenures.of(hold)
            chosen = tenure[0] if tenure is not None and hold.life.counts else hold.asked
            for offset, _ in self._newer(hold.partition, hold.key, hold.offset):
                at = first.get((hold.partition, offset), inf)
                if at >= chosen or tenure is None:
                    continue
                if not self._tenures.doubted(hold.partition, max(at, tenure[0]), hold.life, since=at):
                    self._find(f"R8: {hold} was handed out after {offset} of its key had its letter at {at:.3f}")

    def none_passed_over(self, buried: Collection[Place]) -> None:
        """Check that a value which counts while a newer one is scheduled has its turn (R4, R11).

        A consumer that hands out a message, for the first time, has read those that lie before it and handed them out
        first, unless another message of their key was in work, or set aside.

        Args:
            buried: messages that have a dead letter, or may have been about to get one. They are in work until it is
                stored, which no journal says.
        """
        turns: dict[int, list[Hold]] = defaultdict(list)
        held: dict[tuple[int, str], list[Hold]] = defaultdict(list)
        for (partition, offset), holds in self._holds.items():
            held[partition, holds[0].key] += holds
            if (record := self._log.get((partition, offset))) is not None and not record.scheduled:
                turns[partition] += [hold for hold in holds if hold.count == 1 and not hold.redelivered]
        for (partition, offset), record in self._log.items():
            newer = [other for _, other in self._newer(partition, record.key, offset)]
            if record.scheduled or record.value is None or not any(other.scheduled for other in newer):
                continue
            lane = self._lanes[partition, record.key]
            if (partition, offset) in self._holds or any((partition, one) in buried for one in lane if one <= offset):
                continue
            end = min(record.expires, *(other.due for other in newer))
            for turn in turns[partition]:
                if turn.offset <= offset or (turn.clock or inf) >= end or self._aside(record.key, offset, turn):
                    continue
                if not any(_meet(one, turn) for one in held[partition, record.key]):
                    self._find(f"R11: {partition}/{offset} ({record}) was passed over by {turn}")
                    break

    def _aside(self, key: str, offset: int, turn: Hold) -> bool:
        """Return whether an older value of a key may have been set aside when another key had its turn.

        Messages taken ahead, and those to be counted durably, are in work. If they are replaced before their own turn,
        nobody receives them, and no journal has them.
        """
        if not turn.ahead and not turn.life.counts:
            return False
        lane = self._lanes[turn.partition, key]
        for older in reversed(lane[: bisect_left(lane, offset)]):
            if any(hold.durable <= turn.asked for hold in self._holds.get((turn.partition, older), ())):
                return False  # all below it are done, too
            if self._log[turn.partition, older].value is not None:
                return True
        return False

    def _newer(self, partition: int, key: str, offset: int) -> Iterator[tuple[int, Logged]]:
        """Yield the newer records of a key, with their offsets."""
        lane = self._lanes[partition, key]
        for newer in lane[bisect_right(lane, offset) :]:
            yield newer, self._log[partition, newer]

    # ---------------------------------------------------------------- letters

    def letters(self, stored: Mapping[Place, Sent], output: Collection[Place]) -> None:
        """Check that each letter is of a message that has expired, and was not consumed.

        Only a process that is the only one to believe that it owns the partition can know what was consumed.

        Args:
            output: messages whose results have been committed.
        """
        for letter in self._letters:
            key, value = stored.get(letter.source, (None, None))
            if value != letter.value or key not in (None, letter.key):
                self._find(f"{letter} is not what was sent: {key}={value}")
            if letter.reason != "expired" or letter.mortal:
                self._find(f"{letter} gives the reason {letter.reason!r}{', and has a TTL' if letter.mortal else ''}")
            record = self._log.get(letter.source)
            if record is not None and (letter.at <= record.expires or letter.at < record.due):
                self._find(f"R10: {letter} was written before the message was due and had expired: {record}")
            self._consumed(letter, letter.at if record is None else max(record.expires, record.due))
        for partition, offset in self.lettered & set(output):
            self._find(f"twice: {partition}/{offset} is in the output, and has an expiry letter")

    def _consumed(self, letter: ExpiryLetter, end: int) -> None:
        """Check that neither the message was consumed nor, before its end, a newer value of its key."""
        partition, offset = letter.source
        at = letter.at / 1000 - self._epoch
        consumed = [hold for hold in self._holds.get(letter.source, ()) if hold.durable < inf]
        for newer, _ in self._newer(partition, letter.key, offset):
            consumed += [hold for hold in self._holds.get((partition, newer), ()) if self._ms(hold.durable) <= end]
        for hold in consumed:
            if not self._tenures.doubted(partition, at, hold.life, since=hold.acquired):
                self._find(f"R10: {letter} was written although {hold} was settled, durably at {hold.durable:.3f}")

    def _ms(self, at: float) -> float:
        """Return a time of the journals' clock in ms since the epoch."""
        return (at + self._epoch) * 1000


def _meet(one: Hold, other: Hold) -> bool:
    """Return whether one message may have been in work when the other one was handed out."""
    until = min(one.durable, one.void) if one.rejected else one.let_go  # until its dead letter is stored
    return one.asked < other.acquired and other.asked < until
