"""Header names that belong to this library (R22)."""

from __future__ import annotations

from collections.abc import Iterable

from lvq_kafka.core.log.records import UNREADABLE_HEADER
from lvq_kafka.core.queue.message_groups import GROUP_HEADER
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER
from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import text
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError

__all__ = [
    "RESERVED",
    "UNKEYED_HEADER",
    "check_group_header",
    "check_key_header",
    "check_sort_header",
    "header_fault",
    "misspelt",
    "reserved_header",
]

UNKEYED_HEADER = "lvq-unkeyed"
"""Marks a message without a key, sent with a unique one so that nothing replaces it (R1)."""

RESERVED = frozenset({TTL_HEADER, NOT_BEFORE_HEADER, PRIORITY_HEADER, SORT_HEADER, GROUP_HEADER})
"""Headers that ask for options that only a queue's definition can enable."""

_REMEDIES = {
    TTL_HEADER: "Declare the queue with `ttl=Ttl()`",
    NOT_BEFORE_HEADER: "Declare the queue with, for example, `max_delay=3600.0`",
    PRIORITY_HEADER: 'Declare the queue with `order="priority"`',
    SORT_HEADER: 'Declare the queue with `order="sorted"`; or set the header by which it is sorted, if that is another',
    GROUP_HEADER: "Declare the queue with `groups=Groups()`",
}
"""By header, how to enable its option. Headers missing from this table belong to no option yet."""

_MARKS = frozenset({UNKEYED_HEADER, UNREADABLE_HEADER})


def reserved_header(name: str, topic: str, option: str | None = None) -> ConfigError:
    """Return the error for a message with a reserved header, or with the option that sets it."""
    what, otherwise = ("it", "omit the header") if option is None else (f"`{option}`", f"leave `{option}` out")
    remedy = _REMEDIES.get(name)
    return ConfigError(
        f"The header {name!r} is reserved, and in a message for {topic!r} {what} would have no effect.",
        options=[name] if option is None else [option, name],
        hint=f"{remedy}; or {otherwise}."
        if remedy is not None
        else "No queue supports it in this version: omit it, or use another name.",
    )


def misspelt(name: str, headers: Iterable[str]) -> str | None:
    """Return the header that this name may be a misspelling of; None if none is similar."""
    near = nearest(name, (header for header in headers if header not in RESERVED), alike=0.75)
    return near[0] if near else None


def header_fault(name: str) -> str | None:
    """Return why a header cannot have this name; None if it can."""
    if "\0" in name:
        return "it has a NUL, at which the Kafka client ends a name"
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            return "UTF-8 cannot encode it"
    return None


def check_key_header(name: str | None) -> None:
    """Check that a key header's name is encodable and not one of this library's own.

    Raises:
        ConfigError: the name cannot be encoded, or is reserved.
    """
    fault = header_fault(name or "")
    if fault is not None:
        raise ConfigError(
            f"{quoted(name)} cannot be the key header: {fault}.", options=["key_header"], hint="Use text."
        )
    if name in RESERVED or name in _MARKS:
        raise ConfigError(
            f"{name!r} cannot be the key header: the name is reserved.", options=["key_header"], hint="Use another one."
        )


def check_group_header(name: str) -> None:
    """Check that this header may name the groups of messages.

    Raises:
        ConfigError: the name cannot be encoded, or is reserved for something else.
    """
    fault = "the name is reserved" if name in (RESERVED - {GROUP_HEADER}) | _MARKS else header_fault(name)
    if fault is not None:
        raise ConfigError(
            f"{quoted(name)} cannot be the header of groups: {fault}.",
            options=["groups", "header"],
            hint=f"Use another one, for example JMSXGroupID; {GROUP_HEADER} unless another is given.",
        )


def check_sort_header(name: object) -> None:
    """Check that messages can be sorted by a header of this name.

    Raises:
        ConfigError: the name is not text, cannot be encoded, or is reserved for something else.
    """
    fault = header_fault(text("sort_header", name))
    if fault is None and name in (RESERVED | _MARKS) - {SORT_HEADER}:
        fault = "the name is reserved"
    if fault is not None:
        raise ConfigError(
            f"{quoted(name)} cannot be the sort header: {fault}.",
            options=["sort_header"],
            hint=f"Use another one, or leave it out for {SORT_HEADER}.",
        )
