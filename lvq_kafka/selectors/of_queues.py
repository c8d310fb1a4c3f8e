"""The selectors of a queue's definition."""

from __future__ import annotations

from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.selectors.selector import Selector

__all__ = ["check_selectors", "queue_selector"]


def queue_selector(definition: QueueDefinition) -> Selector | None:
    """Return what a message must meet to be in a queue; None if all are.

    Raises:
        ConfigError: the definition's selector cannot be read.
        MissingExtra: the extra ``selectors`` is not installed.
    """
    return None if definition.selector is None else Selector(definition.selector, definition.topic)


def check_selectors(definition: QueueDefinition) -> None:
    """Check that all selectors of a definition can be read.

    Raises:
        ConfigError, MissingExtra: as in `queue_selector`; also for the default filters.
    """
    queue_selector(definition)
    filters = definition.default_filters
    if filters is not None and filters.selector is not None:
        Selector(filters.selector, definition.topic, option="default_filters")
