"""Messages that do not count yet (R11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lvq_kafka.errors import ConfigError

__all__ = ["NotDue", "scheduled_in_stream"]


class NotDue(NamedTuple):
    """The messages of one partition that do not count yet.

    ``offset`` is that of the first one in the log, and ``due`` the time when the first of them counts, in ms.
    """

    offset: int
    due: int

    def with_more(self, other: NotDue | None) -> NotDue:
        """Return these messages and others together."""
        return self if other is None else NotDue(min(self.offset, other.offset), min(self.due, other.due))


def scheduled_in_stream(name: str, options: Sequence[str]) -> ConfigError:
    """Return the error for a stream of a queue whose messages may be scheduled."""
    return ConfigError(
        f"Messages of {name} may be scheduled (max_delay), and a stream has no row for one that becomes due later: "
        "nothing is written at that time.",
        options=options,
        hint="Keep a store up to date with lvq_spark.refresh, or a table with lvq_spark.merge; or load batches; or "
        "stream every record as the log has it, with lvq.dedupe=none.",
    )
