"""The selectors of a queue's definition."""

from __future__ import annotations

from lvq_kafka.core.queue.definition import QueueDefinition, removal
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.errors import ConfigError
from lvq_kafka.selectors.selector import Selector

__all__ = ["check_selectors", "queue_rules", "queue_selector"]


def queue_selector(definition: QueueDefinition) -> Selector | None:
    """Return what a message must meet to be in a declared queue; None if all are.

    Raises:
        ConfigError: the definition's selector cannot be read. Only another program can have stored it.
        MissingExtra: the extra ``selectors`` is not installed.
    """
    if definition.selector is None:
        return None
    try:
        return Selector(definition.selector, definition.topic)
    except ConfigError as error:
        raise ConfigError(
            f"The queue {definition.name} was declared with a selector that cannot be read: {error}",
            options=["selector"],
            hint=f"Remove its definition ({removal(definition.name)}), and declare the queue again.",
        ) from None


def queue_rules(definition: QueueDefinition) -> QueueRules:
    """Return the rules of a declared queue, its selector among them.

    Raises:
        ConfigError, MissingExtra: see `queue_selector`.
    """
    selector = queue_selector(definition)
    return QueueRules.of(definition, None if selector is None else selector.matches)


def check_selectors(definition: QueueDefinition) -> None:
    """Check that all selectors of a definition can be read, before it is stored.

    Raises:
        ConfigError: one of them cannot be read.
        MissingExtra: the extra ``selectors`` is not installed.
    """
    filters = definition.default_filters
    for option, text in (
        ("selector", definition.selector),
        ("default_filters", None if filters is None else filters.selector),
    ):
        if text is not None:
            Selector(text, definition.topic, option=option)
