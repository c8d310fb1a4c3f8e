"""The order in which readers list the contents of a queue at one moment."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain

from lvq_kafka.core.latest.conditions import KeySelection
from lvq_kafka.core.latest.sorted_keys import sorted_parts
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.ranking import Rank, Ranking
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.runtime.header_warnings import HeaderWarnings

__all__ = ["Listing"]

logger = logging.getLogger("lvq_kafka.reader")


class Listing:
    """Lists the messages of a queue in order: by rank, if it has ranks (R20), and by arrival.

    Ranks are computed when a list is made, and not kept.

    Args:
        rules: the rules of the queue.
        by_rank: False to list by arrival alone, which costs less.
    """

    def __init__(self, rules: QueueRules, *, by_rank: bool = True) -> None:
        self.unranked = 0
        """The number of messages in the last list whose rank could not be read."""
        self.rules = rules
        self._order = rules.order
        self._ranks = by_rank
        self._warnings = HeaderWarnings(logger, rules.keys.topic, "unranked")

    def keys(self, table: NewestRecords, among: KeySelection | None = None) -> Sequence[bytes]:
        """Return the keys of a table, or those among some, in order."""
        keys = table.keys(self._order.place)
        if among:
            keys = [key for key in keys if key in among]
        ranking = self._ranking()
        if ranking is None:
            return keys
        rows = _by_rank(list(map(ranking.rank, table.headers(keys))))
        self.unranked = ranking.malformed
        self._warnings.check(ranking)
        return list(map(keys.__getitem__, rows))

    def records(self, table: NewestRecords) -> Iterator[Record]:
        """Yield the records of a table in order."""
        if self._ranking() is None:
            return table.records(self._order.place)
        return filter(None, map(table.record, self.keys(table)))

    def _ranking(self) -> Ranking | None:
        return self._order.ranking() if self._ranks else None


def _by_rank(ranks: Sequence[Rank]) -> list[int]:
    """Return the rows of these ranks in order; of the same rank, the first one first."""
    return list(chain.from_iterable(sorted_parts(range(len(ranks)), ranks.__getitem__)))
