"""The time from which on a row counts (R11), as an expression of Spark's own.

It agrees with `lvq_kafka.core.timing.not_before.NotBefore`, by which everything in Python goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lvq_kafka.core.timing.not_before import NOT_BEFORE_HEADER, delay_to_wire
from lvq_kafka.errors import ConfigError
from lvq_spark.rules.expiry import DIGITS, unreadable

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["MALFORMED_TIME", "SCHEDULED", "Due", "NotDue", "due", "malformed", "scheduled", "scheduled_in_stream"]

SCHEDULED = "scheduled"
"""A column that says whether a record does not count yet at the time of a cut."""

MALFORMED_TIME = "malformed_time"
"""A column that says whether the time of a scheduled record cannot be read."""


class NotDue(NamedTuple):
    """The messages of one partition that do not count yet.

    ``offset`` is that of the first one in the log, and ``due`` the time when the first of them counts, in ms.
    """

    offset: int
    due: int

    def with_more(self, other: NotDue | None) -> NotDue:
        """Return these messages and others together."""
        return self if other is None else NotDue(min(self.offset, other.offset), min(self.due, other.due))


class Due(NamedTuple):
    """The time from which on a row counts.

    ``at`` is the first such moment, in ms since the epoch, and ``malformed`` whether its header cannot be read.
    """

    at: Column
    malformed: Column


def due(max_delay: float) -> Due:
    """Return when a row with the columns ``timestamp`` and ``headers`` counts."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    said = F.filter("headers", lambda header: header["key"] == F.lit(NOT_BEFORE_HEADER))
    there = F.coalesce(F.size(said) > 0, F.lit(False)) & ~unreadable()
    text = F.try_element_at(said, F.lit(-1))["value"].cast("string")  # the last one counts
    own = F.when(there & text.rlike(DIGITS), text.try_cast("bigint"))
    appended = F.unix_millis("timestamp")
    limited = F.greatest(appended, F.least(own, appended + delay_to_wire(max_delay)["ms"]))
    return Due(F.when(own.isNotNull(), limited).otherwise(appended), there & own.isNull())


def scheduled(max_delay: float, as_of: float) -> Column:
    """Return whether a row does not count yet at a time, in seconds since the epoch.

    One that counts from its append time on always does: the clock that the time is from may be behind the broker's.
    """
    from pyspark.sql import functions as F  # noqa: N812

    at = due(max_delay).at
    return (at > F.lit(round(as_of * 1000))) & (at > F.unix_millis("timestamp"))


def malformed(max_delay: float, as_of: float) -> Column:
    """Return whether a row has a time that cannot be read.

    False if it is older than the longest delay, and so due in any case.
    """
    from pyspark.sql import functions as F  # noqa: N812

    young = F.unix_millis("timestamp") > F.lit(round(as_of * 1000) - delay_to_wire(max_delay)["ms"])
    return due(max_delay).malformed & young


def scheduled_in_stream(name: str, options: Sequence[str]) -> ConfigError:
    """Return the error for a stream of a queue whose messages may be scheduled."""
    return ConfigError(
        f"Messages of {name} may be scheduled (max_delay), and a stream has no row for one that becomes due later: "
        "nothing is written at that time.",
        options=options,
        hint="Keep a store up to date with lvq_spark.refresh, or a table with lvq_spark.merge; or load batches; or "
        "stream every record as the log has it, with lvq.dedupe=none.",
    )
