"""Options of a queue, for `lvq declare` and `lvq alter`, each described once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast, get_args

import click

from lvq_kafka.cli.common_options import Seconds, SignedNumber, add_options
from lvq_kafka.core.facts import Format
from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.queue.limits import OverflowPolicy
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, NO_GROUP, GroupMode, Placement
from lvq_kafka.core.queue.option_names import KeylessPolicy
from lvq_kafka.core.queue.ranking import QueueOrder

__all__ = ["DEFINITION_OPTIONS", "definition_options"]

F = TypeVar("F", bound=Callable[..., Any])


def _seconds(text: str, usual: str = "") -> dict[str, Any]:
    return {"type": Seconds(), "metavar": "SECONDS", "help": text, "usual": usual}


def _choice(words: object, text: str, usual: str = "") -> dict[str, Any]:
    return {"type": click.Choice(get_args(words)), "help": text, "usual": usual}


def _text(metavar: str, text: str, usual: str = "") -> dict[str, Any]:
    return {"metavar": metavar, "help": text, "usual": usual}


DEFINITION_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "order": _choice(
        QueueOrder, "Where a new value goes, or what is handed out first; in-place lasts until compaction.", "tail"
    ),
    "priorities": {"type": int, **_text("LEVELS", "With --order priority: 2 to 10.", "10")},
    "sort-header": _text("HEADER", "With --order sorted: what to sort by.", "lvq-sort"),
    "keyless": _choice(KeylessPolicy, "What to do with messages without the key header.", "pass"),
    "key-mismatch": _choice(KeyMismatchPolicy, "The winner when header and record key disagree.", "record"),
    "non-destructive": {"is_flag": True, "help": "Allow browsing and viewing, never consuming."},
    "ttl": {"is_flag": True, "help": "Let messages carry a TTL of their own."},
    "default-ttl": _seconds("The TTL of messages without their own."),
    "min-ttl": _seconds("The least TTL that a message may have."),
    "max-ttl": _seconds("The greatest; also for messages without a TTL."),
    "expiry-topic": _text("TOPIC", "Where consumers write what has expired.", "nowhere"),
    "max-delay": _seconds("How far ahead messages may be scheduled.", "not at all"),
    "groups": _choice(
        GroupMode, "Messages of a group are one consumer's: sticky, until it is closed; shared, while any is in work."
    ),
    "group-header": _text("HEADER", "The header that names the group.", GROUP_HEADER),
    "default-group": _text("GROUP", "Of messages without one, in shared groups.", NO_GROUP),
    "place-by": _choice(
        Placement, "Choose the partition of a message by its key, or by its group, which then lies in one.", "key"
    ),
    "max-messages": {"type": SignedNumber(), "help": "The most messages that it may hold.", "usual": "any"},
    "max-bytes": _text("BYTES", "The most bytes: 500000, 10M, 1G.", "any"),
    "overflow": _choice(
        OverflowPolicy,
        "Beyond the limits, report it, evict the lowest waiting messages, have producers refuse or wait, or have "
        "consumers keep values on disk.",
        "none",
    ),
    "resume": {"type": float, **_text("PART", "With block, go on at this part of the limits.", "0.8")},
    "max-deliveries": {
        "type": SignedNumber(),
        "help": "How often a message may be delivered before it is rejected.",
        "usual": "any number",
    },
    "dead-letters": _text("TOPIC", "Where consumers write what they reject.", "nowhere"),
    "format": _choice(Format, "The format of values, for readers that name none."),
    "selector": _text("CONDITION", "Only messages that meet this condition are in the queue."),
    "default-selector": _text("CONDITION", "The condition for browsers that name none."),
    "default-replay-period": _seconds("The replay period for browsers that name none."),
}
"""The options by name, each with the arguments of its `click.option`; ``usual`` is what holds without it."""


def definition_options(*names: str, new: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds options of a queue, passed on as ``said`` if given.

    Args:
        names: the options; all by default.
        new: whether the queue is a new one, so that help tells what holds without an option.
    """

    def decorate(function: F) -> F:
        chosen = names or tuple(DEFINITION_OPTIONS)

        @wraps(function)
        def with_said(*arguments: Any, **options: Any) -> Any:
            given = {name: options.pop(name.replace("-", "_")) for name in chosen}
            said = {name: value for name, value in given.items() if value is not None and value is not False}
            return function(*arguments, said=said, **options)

        return add_options(cast(F, with_said), [_option(name, new=new) for name in chosen])

    return decorate


def _option(name: str, *, new: bool) -> Callable[[F], F]:
    settings = dict(DEFINITION_OPTIONS[name])
    usual = settings.pop("usual", "")
    if usual and new:
        settings["help"] += f"  [default: {usual}]"
    return click.option(f"--{name}", **settings)
