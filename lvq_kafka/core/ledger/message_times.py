"""The time of a consumer, by which messages become due and expire (R10, R11)."""

from __future__ import annotations

import math

from lvq_kafka.core.ledger.expiring_items import Expiring
from lvq_kafka.core.ledger.scheduled_items import ScheduledItems
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.waiting.lazy_heap import PrecedenceHeap
from lvq_kafka.core.waiting.pending import Item

__all__ = ["MessageTimes"]


class MessageTimes:
    """The messages of a ledger for which time matters.

    Args:
        time: the time by which messages are due and expire.
        expiry_times: when a message expires; None if none does.
        due_times: when a message is due; None if all count at once.
        keeps_expired: whether messages that have expired must be stored elsewhere.
    """

    def __init__(
        self, time: LogTime, expiry_times: ExpiryTimes | None, due_times: DueTimes | None, *, keeps_expired: bool
    ) -> None:
        self.time = time
        self.expiring = None if expiry_times is None else Expiring(expiry_times, self.time)
        """The messages that will expire; None if none does."""
        self.scheduling = None if due_times is None else ScheduledItems(due_times, self.time)
        """The messages that are not due; None if all count at once."""
        self.keeps_expired = keeps_expired
        self.kept: PrecedenceHeap[Item] = PrecedenceHeap()
        """Messages that have expired, and must be stored elsewhere, by partition and offset."""
        self.alarm = 0.0
        """The time of this machine's clock before which nothing is due or expires.

        It is in seconds since the epoch, and holds until more messages are read, scheduled or returned.
        """
        self.next_due = math.inf
        """The time before which no message is due, likewise."""

    @classmethod
    def of(cls, rule: TimeRule, time: LogTime) -> MessageTimes | None:
        """Return the times of a queue by this time; None if it has no option of time."""
        expiry_times, due_times = rule.expiry_times(), rule.due_times()
        if expiry_times is None and due_times is None:
            return None
        return cls(time, expiry_times, due_times, keeps_expired=rule.keeps_expired)

    @property
    def scheduled(self) -> int:
        """The number of scheduled messages."""
        return 0 if self.scheduling is None else len(self.scheduling)

    @property
    def malformed(self) -> int:
        """The number of messages whose TTL is 0, or whose TTL or due time could not be read."""
        expiring = 0 if self.expiring is None else self.expiring.expiry_times.malformed
        return expiring + (0 if self.scheduling is None else self.scheduling.due_times.malformed)

    def saw(self, timestamps: list[int]) -> None:
        """Note the append times of the records read."""
        self.time.saw(max(timestamps))
        self.alarm = 0.0

    def comes_back(self, item: Item, twin: Item) -> None:
        """Note that a message was returned, under its new handle."""
        if self.expiring is not None:
            self.expiring.schedule_again(item, twin)
            self.alarm = 0.0

    def set_alarm(self) -> None:
        """Set the alarm for the next moment at which something is due or expires."""
        self.next_due = math.inf if self.scheduling is None else self.scheduling.next / 1000
        self.alarm = min(self.next_due, math.inf if self.expiring is None else self.expiring.next / 1000)
