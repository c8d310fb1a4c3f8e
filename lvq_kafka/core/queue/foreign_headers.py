"""Headers of other systems that schedule a message or name its group (R22).

Programs written for those systems still set them. Where the definition of a queue gives them a meaning, its producers
write this library's header in their place. Elsewhere they are ordinary headers, and a warning says so, once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from operator import itemgetter

from lvq_kafka.core.log.records import RawHeaders
from lvq_kafka.core.queue.message_groups import JMS_GROUP_HEADER
from lvq_kafka.core.text.wording import Remark
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER

__all__ = ["DELAY_HEADERS", "GROUP_HEADERS", "TIME_HEADERS", "ForeignHeaders"]

TIME_HEADERS = frozenset(
    {
        "x-qpid-not-valid-before",
        "_AMQ_SCHED_DELIVERY",
        "_HQ_SCHED_DELIVERY",
        "AMQ_SCHEDULED_TIME",
        "x-opt-delivery-time",
    }
)
"""Headers of Broker-J, Artemis and AMQP 1.0: when a message counts, in milliseconds since the epoch."""

DELAY_HEADERS = frozenset({"x-opt-delivery-delay", "AMQ_SCHEDULED_DELAY"})
"""Headers of AMQP 1.0 and ActiveMQ with that time in milliseconds from the moment of sending."""

GROUP_HEADERS = frozenset({JMS_GROUP_HEADER, "_AMQ_GROUP_ID", "_HQ_GROUP_ID"})
"""Headers of JMS and Artemis that name the group of a message."""

_SCHEDULING = TIME_HEADERS | DELAY_HEADERS
_NAME = itemgetter(0)


class ForeignHeaders:
    """The meaning that headers of other systems have in the messages of one queue.

    Args:
        topic: the queue's topic, for warnings.
        scheduled: whether its messages may be scheduled.
        group_header: the header that names the group of a message; None if its messages belong to no groups.
        taken: headers that mean something else in this queue.
    """

    def __init__(
        self, topic: str, *, scheduled: bool, group_header: str | None, taken: Collection[str | None] = ()
    ) -> None:
        self.names = (_SCHEDULING | GROUP_HEADERS) - {group_header, *taken}
        """Headers of other systems, without those that this queue uses itself."""
        meant = (_SCHEDULING if scheduled else frozenset()) | (GROUP_HEADERS if group_header else frozenset())
        self.stand_for = {
            name: NOT_BEFORE_HEADER if name in _SCHEDULING else str(group_header) for name in self.names & meant
        }
        """By header of another system, the one that producers write in its place."""
        self._topic = topic
        self._group_header = group_header
        self._unreported = self.names
        self._warnings: list[Remark] = []

    def check(self, headers: Sequence[RawHeaders]) -> None:
        """Look for such headers in the records read.

        A producer of this library would have replaced them by the queue's own.
        """
        if self._unreported and any(headers):
            names = set(map(_NAME, chain.from_iterable(filter(None, headers))))
            if not self._unreported.isdisjoint(names):
                for name in sorted(self._unreported & names):
                    self.ignore(name)

    def ignore(self, name: str) -> None:
        """Note that a message has this header, and that it has no effect."""
        if name not in self._unreported:
            return
        if name in GROUP_HEADERS:
            self._unreported -= GROUP_HEADERS
            what, declare = "names the group of a message", f"`group-header='{name}'|groups=Groups(header=\"{name}\")`"
        else:
            self._unreported -= _SCHEDULING
            what = "schedules a message"
            declare = "`max-delay|max_delay=...`, for example `max-delay=3600.0|max_delay=3600.0`"
        remedy = f"declare the queue with {declare}"
        if (own := self.stand_for.get(name)) is not None:
            instead = f"write {own} in its place, as producers of this library do"
            remedy = f"{instead}, or {remedy}" if name in GROUP_HEADERS else instead
        self._warnings.append(
            Remark(f"the header {name} in {self._topic} {what} in other systems, and is ignored here: {remedy}")
        )

    def pop_warnings(self) -> list[Remark]:
        """Return lines for the log: at most one about times, and one about groups."""
        if not self._warnings:
            return self._warnings
        warnings, self._warnings = self._warnings, []
        return warnings
