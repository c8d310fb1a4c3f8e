"""Parts of a queue's definition, as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lvq_kafka.core.text.quoting import brief
from lvq_kafka.core.text.wording import BARE, Mention
from lvq_kafka.declared.registry import value_in_words

if TYPE_CHECKING:
    from lvq_kafka.core.queue.definition import QueueDefinition

__all__ = ["by_name", "changes_by_name", "changes_in_words", "key_in_words", "options_in_words"]


def by_name(mention: Mention) -> str:
    """Spell an option as settings and files do: ``max-ttl=60``."""
    return mention.name if mention.value is BARE else f"{mention.name}={mention.value}"


def key_in_words(definition: QueueDefinition) -> str:
    """Say what the key of a queue is."""
    if not definition.conflate:
        named = "" if definition.key_header is None else f"; the header {brief(definition.key_header)} chooses a place"
        return f"a standard queue{named}"
    if definition.key_header is None:
        return "the record key is the key"
    return f"the header {brief(definition.key_header)} is the key"


def options_in_words(options: Mapping[str, object]) -> str:
    """Return options as people read them: ``max-ttl=60, last-value=true``."""
    told = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return ", ".join(f"{brief(name)}={brief(value)}" for name, value in told.items())


def changes_by_name(before: QueueDefinition, after: QueueDefinition) -> dict[str, dict[str, object]]:
    """Return what differs as programs read it: the values before and after, by option."""
    return {option: {"before": was, "after": now} for option, (was, now) in before.differences(after).items()}


def changes_in_words(before: QueueDefinition, after: QueueDefinition) -> list[str]:
    """Return what differs as people read it: ``ttl: none → 60 s at most``."""
    return [
        f"{option}: {value_in_words(getattr(before, option))} → {value_in_words(getattr(after, option))}"
        for option in before.differences(after)
    ]
