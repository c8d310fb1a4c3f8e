"""Report what is wrong with the times by which a consumer's messages expire."""

from __future__ import annotations

import logging

from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.quoting import quoted
from lvq_kafka.core.records import Position
from lvq_kafka.core.terms import TTL_HEADER

__all__ = ["ExpiryWarnings"]

logger = logging.getLogger("lvq_kafka.consumer")

_SKEW = 5.0  # seconds by which clocks may differ


class ExpiryWarnings:
    """Logs a slow clock, once while it is slow, and the first TTL that cannot be read."""

    def __init__(self, name: str, shared: SharedState) -> None:
        self._name = name
        self._topic = shared.topic
        self._expiring = shared.core.ledger.expiring
        self._skewed = self._malformed_reported = False

    def check(self) -> None:
        """Look at the clock, and at what was read."""
        expiring = self._expiring
        if expiring is None:
            return
        behind = expiring.time.behind / 1000
        if behind > _SKEW and not self._skewed:
            logger.warning(
                "the newest message of %s is %.0f s ahead of the clock of the consumer of %s; what expires goes by the "
                "message, at most an hour ahead: set the clocks of this machine and the brokers",
                self._topic,
                behind,
                self._name,
            )
        self._skewed = behind > _SKEW
        if expiring.malformed is not None and not self._malformed_reported:
            self._malformed_reported = True
            logger.warning(
                "a header %s of the message at %s is %s, not a number of milliseconds: the message counts as having "
                "none, and so do others like it; stats.malformed counts them",
                TTL_HEADER,
                Position(self._topic, *expiring.malformed),
                quoted(expiring.terms.example),
            )
