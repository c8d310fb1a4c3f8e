"""Checks of messages that count for a limited time only: when they are handed out, and their letters.

They expire (R10), and never come back (R8); or are scheduled (R11).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
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
                if record is not None and (hold.appended, hold.expires) != (record.appended, record.expires):
                    self._find(f"{hold} says {hold.appended} and {hold.expires}; the log says {record}")
                if record is not None and hold.clock is not None and hold.clock < record.due:
                    self._find(f"R11: {hold} is due at {record.due}, and was handed out at {hold.clock}")
                self.scheduled += record is not None and record.scheduled
                self.beneath += self._lies_below(hold)
                if hold.clock is None:
                    self._find(f"R10: {hold} was handed out without a look at the clock")
                elif hold.expires is not None and hold.clock > hold.expires:
                    self._find(f"R10: {hold} expired at {hold.expires}, and was handed out at {hold.clock}")
                if hold.expires is not None and self._ms(hold.durable) > hold.expires and hold.durable < inf:
                    self.late += 1

    def _lies_below(self, hold: Hold) -> bool:
        """Return whether a newer value of its key was in the log and not due when it was handed out."""
        newer = (self._log[hold.partition, offset] for offset in self._newer(hold))
        return any(record.appended < self._ms(hold.asked) and (hold.clock or inf) < record.due for record in newer)

    def none_overtaken(self) -> None:
        """Check that nothing is handed out after its consumer has read a newer value of its key, which counts (G12).

        A consumer that has handed out a message has read all that lie before it in its partition.
        """
        reached: dict[
            tuple[int, float, str], tuple[int, Hold]
        ] = {}  # by tenure, one past the highest offset handed out
        for hold in sorted((hold for holds in self._holds.values() for hold in holds), key=lambda hold: hold.acquired):
            tenure = self._tenures.of(hold)
            if tenure is None:
                continue
            mine = (hold.partition, tenure[0], hold.life.name)
            read, by = reached.get(mine, (0, hold))
            for offset in self._newer(hold):
                record = self._log[hold.partition, offset]
                if offset < read and by.acquired < hold.asked and record.due <= self._chosen(hold):
                    self._find(f"G12: {hold} was handed out after {offset} ({record}), which lies before {by}")
            if hold.offset >= read:
                reached[mine] = hold.offset, hold

    def _chosen(self, hold: Hold) -> float:
        """Return when a message was known to be the newest of its key that counts, in ms since the epoch.

        One of several that are taken ahead may be chosen earlier than it is handed out.
        """
        return self._ms(hold.asked) if hold.ahead or hold.clock is None else hold.clock

    def none_revived(self) -> None:
        """Check that no older value of a key is handed out after a newer one has a letter (R8)."""
        first: dict[Place, float] = {}
        for letter in self._letters:
            first[letter.source] = min(first.get(letter.source, inf), letter.at / 1000 - self._epoch)
        for holds in self._holds.values():
            for hold in holds:
                for offset in self._newer(hold):
                    at = first.get((hold.partition, offset), inf)
                    tenure = self._tenures.of(hold)
                    if at < hold.asked and tenure is not None:
                        since = max(at, tenure[0])
                        if not self._tenures.doubted(hold.partition, since, hold.life, since=at):
                            self._find(
                                f"R8: {hold} was handed out after {offset} of its key had its letter at {at:.3f}"
                            )

    def none_passed_over(self, buried: Collection[Place]) -> None:
        """Check that a value which counts while a newer one is scheduled has its turn (R4, R11).

        A consumer that hands out a message, for the first time, has read those that lie before it and handed them out
        first, unless another message of their key was in work.

        Args:
            buried: messages that have a dead letter.
        """
        turns: dict[int, list[Hold]] = defaultdict(list)
        keys: dict[tuple[int, str], list[Hold]] = defaultdict(list)
        for place, holds in self._holds.items():
            record = self._log.get(place)
            keys[place[0], holds[0].key] += holds
            if record is not None and not record.scheduled:
                turns[place[0]] += [hold for hold in holds if hold.count == 1 and not hold.redelivered]
        for place, record in self._log.items():
            if record.scheduled or record.value is None or place in self._holds or place in buried:
                continue
            lane = self._lanes[place[0], record.key]
            newer = lane[bisect_right(lane, place[1]) :]
            end = min((self._log[place[0], offset].due for offset in newer), default=0)
            if not any(self._log[place[0], offset].scheduled for offset in newer):
                continue
            for turn in turns[place[0]]:
                if turn.offset > place[1] and (turn.clock or inf) < min(end, record.expires):
                    held = keys[place[0], record.key]
                    if not any(one.asked < turn.acquired and turn.asked < one.let_go for one in held):
                        self._find(f"R11: {place[0]}/{place[1]} ({record}) was passed over by {turn}")
                        break

    def _newer(self, hold: Hold) -> Sequence[int]:
        """Return the offsets of newer records of a message's key."""
        lane = self._lanes[hold.partition, hold.key]
        return lane[bisect_right(lane, hold.offset) :]

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
            self._consumed(letter)
        for place in self.lettered & set(output):
            self._find(f"twice: {place[0]}/{place[1]} is in the output, and has an expiry letter")

    def _consumed(self, letter: ExpiryLetter) -> None:
        """Check that neither the message nor a newer value of its key was consumed before it expired."""
        partition, offset = letter.source
        at = letter.at / 1000 - self._epoch
        expires = self._log[letter.source].expires if letter.source in self._log else letter.at
        lane = self._lanes[partition, letter.key]
        newer = lane[bisect_right(lane, offset) :]
        for place in (letter.source, *((partition, one) for one in newer)):
            for hold in self._holds.get(place, ()):
                consumed = hold.durable < inf and (place == letter.source or self._ms(hold.durable) <= expires)
                if consumed and not self._tenures.doubted(partition, at, hold.life, since=hold.acquired):
                    self._find(f"R10: {letter} was written although {hold} was settled, durably at {hold.durable:.3f}")

    def _ms(self, at: float) -> float:
        """Return a time of the journals' clock in ms since the epoch."""
        return (at + self._epoch) * 1000
