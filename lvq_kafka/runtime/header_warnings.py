"""Log lines on headers that cannot be read, and on a slow clock."""

from __future__ import annotations

from logging import Logger
from typing import Protocol

from lvq_kafka.core.facts import Position
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.runtime.notice import Notice

__all__ = ["ClockWarnings", "HeaderJudge", "HeaderWarnings"]

_SKEW = 5.0  # seconds between clocks that are worth a warning


class HeaderJudge(Protocol):
    """Reads one header of each message, and counts the values that it cannot read."""

    @property
    def header(self) -> str:
        """The header's name."""

    @property
    def expected(self) -> str:
        """The content of a value that can be read, as a noun."""

    @property
    def malformed(self) -> int:
        """The number of values that could not be read."""

    @property
    def example(self) -> bytes | None:
        """The first of them."""


class HeaderWarnings:
    """Logs the first value of each header that cannot be read.

    Args:
        logger: the logger.
        topic: the topic.
        counter: the name of what counts them all.
    """

    def __init__(self, logger: Logger, topic: str, counter: str = "stats.malformed") -> None:
        self._logger = logger
        self._topic = topic
        self._counter = counter
        self._reported: set[str] = set()  # headers

    def check(self, judge: HeaderJudge | None, first: tuple[int, int] | None = None) -> None:
        """Look at what was read.

        Args:
            judge: the judge of a header; None if the queue does not use it.
            first: partition and offset of the first message with such a value, if known.
        """
        if judge is None or not judge.malformed or judge.header in self._reported:
            return
        self._reported.add(judge.header)
        self._logger.warning(
            "a header %s %s is %s, not %s: the message counts as having none, and so do others like it; %s counts them",
            judge.header,
            f"in {self._topic}" if first is None else f"of the message at {Position(self._topic, *first)}",
            quoted(judge.example),
            judge.expected,
            self._counter,
        )


class ClockWarnings:
    """Logs a slow clock, once while it is slow.

    Args:
        logger: the logger.
        topic: the topic.
        clock: whose clock it is, such as ``"this machine's clock"``.
    """

    def __init__(self, logger: Logger, topic: str, clock: str) -> None:
        self._logger = logger
        self._topic = topic
        self._clock = clock
        self._slow = Notice()

    def check(self, time: LogTime) -> None:
        """Look at the time by which messages are due and expire."""
        behind = time.behind / 1000
        if behind <= _SKEW:
            self._slow.ends()
        elif self._slow.begins():
            self._logger.warning(
                "the newest record of %s is %.0f s ahead of %s; what is due or expires goes by the record, at most an "
                "hour ahead: set the clocks of this machine and the brokers",
                self._topic,
                behind,
                self._clock,
            )
