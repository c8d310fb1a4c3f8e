"""Log lines on headers that cannot be read, and on a slow clock."""

from __future__ import annotations

from logging import Logger

from lvq_kafka.core.facts import Position
from lvq_kafka.core.queue.ranking import HIGHEST_PRIORITY, Ranking
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.core.timing.not_before import NOT_BEFORE_HEADER, NotBefore
from lvq_kafka.core.timing.terms import TTL_HEADER, Terms

__all__ = ["ExpiryWarnings", "RankWarnings"]

_SKEW = 5.0  # seconds between clocks that are worth a warning


class ExpiryWarnings:
    """Logs a slow clock, once while it is slow, and the first TTL and due time that say none.

    Args:
        logger: the logger.
        topic: the topic.
        clock: whose clock it is, such as ``"this machine's clock"``.
    """

    def __init__(self, logger: Logger, topic: str, clock: str) -> None:
        self._logger = logger
        self._topic = topic
        self._clock = clock
        self._skewed = False
        self._reported: set[str] = set()  # headers

    def check(
        self,
        time: LogTime,
        terms: Terms | None,
        first: tuple[int, int] | None = None,
        *,
        not_before: NotBefore | None = None,
    ) -> None:
        """Look at the clock, and at what was read.

        Args:
            time: the time, and how slow the clock is.
            terms: the judge of TTLs, if messages expire.
            first: partition and offset of the first message whose TTL is 0 or cannot be read, if that is known.
            not_before: the judge of due times, if messages may be scheduled.
        """
        behind = time.behind / 1000
        if behind > _SKEW and not self._skewed:
            self._logger.warning(
                "the newest record of %s is %.0f s ahead of %s; what is due or expires goes by the record, at most an "
                "hour ahead: set the clocks of this machine and the brokers",
                self._topic,
                behind,
                self._clock,
            )
        self._skewed = behind > _SKEW
        where = f"in {self._topic}" if first is None else f"of the message at {Position(self._topic, *first)}"
        if terms is not None and terms.malformed:
            self._report(TTL_HEADER, where, terms.example, "a positive number of milliseconds")
        if not_before is not None and not_before.malformed:
            self._report(NOT_BEFORE_HEADER, f"in {self._topic}", not_before.example, "a number of milliseconds")

    def _report(self, header: str, where: str, example: bytes | None, what: str) -> None:
        if header not in self._reported:
            self._reported.add(header)
            self._logger.warning(
                "a header %s %s is %s, not %s: the message counts as having none, and so do "
                "others like it; stats.malformed counts them",
                header,
                where,
                quoted(example),
                what,
            )


class RankWarnings:
    """Logs the first unreadable rank.

    Args:
        logger: the logger.
        topic: the topic.
        counter: the name of what counts them.
    """

    def __init__(self, logger: Logger, topic: str, counter: str) -> None:
        self._logger = logger
        self._topic = topic
        self._counter = counter
        self._reported = False

    def check(self, ranking: Ranking) -> None:
        """Look at what was read."""
        if ranking.malformed and not self._reported:
            self._reported = True
            self._logger.warning(
                "a header %s in %s is %s, not a digit from 0 to %d: the message counts as having none, and so do "
                "others like it; %s counts them",
                *(ranking.header, self._topic, quoted(ranking.example), HIGHEST_PRIORITY, self._counter),
            )
