"""Log lines on the ranks of messages, for readers and consumers."""

from __future__ import annotations

from logging import Logger

from lvq_kafka.core.queue.ranking import HIGHEST_PRIORITY, Ranking
from lvq_kafka.core.text.quoting import quoted

__all__ = ["RankWarnings"]


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
