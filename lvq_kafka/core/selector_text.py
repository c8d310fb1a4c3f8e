"""Checks of a selector's text that need no parser: what a definition may hold."""

from __future__ import annotations

from lvq_kafka.errors import ConfigError

__all__ = ["LONGEST_SELECTOR", "check_selector"]

LONGEST_SELECTOR = 65_536
"""Characters of a selector."""


def check_selector(text: object, option: str = "selector") -> str:
    """Check that this may be a selector.

    Only `lvq_kafka.selectors.selector.Selector` knows whether it is one.

    Raises:
        ConfigError: it is not text, it is empty, or it is too long.
    """
    if not isinstance(text, str):
        raise ConfigError(f"`{option}` is not text.", options={option: text}, hint="For example \"exchange = 'NYSE'\".")
    if not text.strip():
        raise ConfigError(f"`{option}` is empty.", options={option: text}, hint="Omit it to select all messages.")
    if len(text) > LONGEST_SELECTOR:
        raise ConfigError(
            f"The text of `{option}` has {len(text):,} characters; {LONGEST_SELECTOR:,} are allowed.",
            options=[option],
            hint="Select by a header that says in fewer words which messages are meant.",
        )
    return text
