"""Options that select: readers have them, and a consumer cannot (R27)."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.errors import ConfigError

__all__ = ["SELECTING", "refuse_selecting"]

_BY_TIME = (
    "Read with queue.browser({option}=...), or declare another queue on the topic with start=..., and consume that."
)
_BY_VALUE = (
    "Declare another queue on the topic with selector=..., and consume that, or read with queue.browser({option}=...)."
)
_REMEDIES = {
    **dict.fromkeys(("dump", "replay_period"), _BY_TIME),
    **dict.fromkeys(("headers", "keys", "partitions", "prefix", "selector", "where"), _BY_VALUE),
}


SELECTING = frozenset(_REMEDIES)
"""The options that `refuse_selecting` refuses."""


def refuse_selecting(options: Mapping[str, object]) -> None:
    """Refuse the options that select among a queue's messages.

    Raises:
        ConfigError: there is such an option.
    """
    for option, remedy in _REMEDIES.items():
        if option in options:
            raise ConfigError(
                f"A consumer cannot have {option}: all consumers of a queue share one record of what was consumed, so "
                "messages that one of them leaves out would keep it from advancing, or be lost for the others.",
                options=[option],
                hint=remedy.format(option=option),
            )
