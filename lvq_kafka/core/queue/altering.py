"""The options of a queue that can be altered while it lives, or the reasons why not (R39)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.queue_options import GivenOptions
from lvq_kafka.core.queue.queue_request import QueueRequest
from lvq_kafka.core.queue.settings_by_pattern import given_by
from lvq_kafka.errors import ConfigError

__all__ = ["ALTERABLE", "FIXED", "UNSETTABLE", "altered", "by_settings", "changes_by_option"]

ALTERABLE = (
    "keyless",
    "ttl",
    "expiry_topic",
    "max_delay",
    "limits",
    "default_filters",
    "max_deliveries",
    "dead_letters",
    "format",
)
"""The options that can be altered."""

_ANOTHER = "Declare another queue on its topic, with `start` where it shall begin, and drop this one when it is done."
_COPY = "Declare another queue with a topic of its own, and move the messages there."

FIXED: Mapping[str, tuple[str, str]] = {
    "topic": ("its messages and all that was consumed are there", _COPY),
    "key_header": ("the messages that are there have their keys by it, and compaction has gone by these", _COPY),
    "key_mismatch": ("it decides which key the messages that are there have", _ANOTHER),
    "conflate": ("its topic is compacted, or is not", _COPY),
    "selector": (
        "what it leaves out counts as deleted and consumed, for good, in the commits of the queue's group",
        _ANOTHER,
    ),
    "non_destructive": ("without consumers there is no record of what was consumed", _ANOTHER),
    "order": ("its consumers would hand out in two orders, until the last of them has noticed", _ANOTHER),
    "priorities": ("its consumers would hand out in two orders, until the last of them has noticed", _ANOTHER),
    "sort_header": ("its consumers would hand out in two orders, until the last of them has noticed", _ANOTHER),
    "groups": (
        "sessions hold groups that would no longer be theirs, and messages were placed by the groups so far",
        _ANOTHER,
    ),
}
"""Options that are as they were declared, each with the reason, and the way out."""


_TTL = {"default-ttl": "default", "min-ttl": "minimum", "max-ttl": "maximum", "no-expiry": "never"}
_LIMITS = {"max-messages": "messages", "max-bytes": "bytes", "overflow": "policy", "resume": "resume"}
_FILTERS = {"default-selector": "selector", "default-replay-period": "replay_period"}
_SINGLE = {
    "keyless": "keyless",
    "expiry-topic": "expiry_topic",
    "max-delay": "max_delay",
    "max-deliveries": "max_deliveries",
    "dead-letters": "dead_letters",
    "format": "format",
}
_OWN = {
    **_SINGLE,
    **{option: f"ttl.{part}" for option, part in _TTL.items()},
    **{option: f"limits.{part}" for option, part in _LIMITS.items()},
    **{option: f"default_filters.{part}" for option, part in _FILTERS.items()},
}
"""Options by name, and the field that each sets."""

_WHOLE = {"ttl": (*_TTL, "ttl"), "limits": tuple(_LIMITS)}

_USUAL: Mapping[str, object] = {"keyless": "pass", "overflow": "none"}
"""The values of options that nobody has to give."""

UNSETTABLE = ("ttl", *_TTL, "limits", *_LIMITS, *(option for option in _SINGLE if option != "keyless"), *_FILTERS)
"""The names of options that a queue can go without."""


_DEFAULTS = {one.name: one.default for one in fields(QueueDefinition)} | {"key_header": None}


def changes_by_option(
    definition: QueueDefinition, options: Mapping[str, object], unset: Collection[str] = ()
) -> dict[str, Any]:
    """Return the changes that options by name ask for, as arguments of `altered`.

    Parts of a TTL, of limits and of default filters that are not named stay.

    Args:
        definition: the queue's options so far.
        options: options by name, as `QueueDefinition.from_options` takes them.
        unset: the names of options that the queue shall go without.

    Raises:
        ConfigError: an option is unknown or malformed, or two clash; or one cannot be unset.
    """
    for name in unset:
        if name not in UNSETTABLE:
            raise ConfigError(
                f"`unset={name}` names no option that a queue can go without.",
                options={"unset": name},
                hint=f"Choose from {', '.join(UNSETTABLE)}.",
            )
    given = GivenOptions(options).decided
    for name in unset:
        if name in options or _OWN.get(name) in given:
            raise ConfigError(f"`{name}` is both set and unset.", options=[name, "unset"], hint="Do one of them.")
    replaced = {own for own, field in _OWN.items() if field in given}
    if "ttl.never" in given:
        replaced |= _TTL.keys()
    elif given & {"ttl.default", "ttl.minimum", "ttl.maximum"}:
        replaced.add("no-expiry")
    replaced |= {option for name in unset for option in _WHOLE.get(name, (name,))}
    if "limits.policy" in given or "overflow" in unset:
        replaced.add("resume")
    said = _said({field: getattr(definition, field) for field in ALTERABLE})
    kept = {option: value for option, value in said.items() if option not in replaced}
    if kept.keys().isdisjoint(("max-messages", "max-bytes")) and not given & {"limits.messages", "limits.bytes"}:
        kept = {option: value for option, value in kept.items() if option not in _LIMITS}
    together = GivenOptions({**kept, **options})
    try:
        chosen = together.fields(definition.name, record_key=True)
    except ConfigError as error:
        raise error.of_options(together.setters) from None
    named = {field for field in chosen if field in FIXED and (field in given or chosen[field] != _DEFAULTS.get(field))}
    return {field: chosen.get(field, _DEFAULTS[field]) for field in (*ALTERABLE, *sorted(named))}


def _said(chosen: Mapping[str, Any]) -> dict[str, object]:
    """Return the options that can be altered, by their names here.

    Args:
        chosen: the fields of a definition.
    """
    parts = ((chosen.get("ttl"), _TTL), (chosen.get("limits"), _LIMITS), (chosen.get("default_filters"), _FILTERS))
    said: dict[str, object] = {
        option: value
        for part, names in parts
        for option, field in names.items()
        if (value := getattr(part, field, None)) not in (None, False)
    }
    if (ttl := chosen.get("ttl")) is not None and not ttl.never:
        said["ttl"] = True
    return said | {option: value for option, field in _SINGLE.items() if (value := chosen.get(field)) is not None}


def by_settings(definition: QueueDefinition, settings: Mapping[str, Mapping[str, object]]) -> QueueDefinition:
    """Return what a queue is altered to if settings give it their options of today (R37).

    Those that were its own stay, and so do those that cannot be altered.

    Args:
        definition: the queue, with what settings gave to it.
        settings: options by the pattern that its topic matches, the most specific first.

    Raises:
        ConfigError: a setting does not go with the queue's own options, or with another setting.
    """
    before = definition.from_settings or {}
    given = GivenOptions(dict(ChainMap({}, *map(dict, before.values()))))
    gave = {**_USUAL, **_said(given.fields(definition.name, record_key=True))}
    said = _said({field: getattr(definition, field) for field in ALTERABLE})
    own = {option: value for option, value in said.items() if gave.get(option) != value}
    fixed = {field: getattr(definition, field) for field in FIXED if field != "topic"}
    found = QueueRequest(definition.name, definition.topic, fixed, own).definition(settings)
    lasting, now = given_by(before, ALTERABLE), found.from_settings or {}
    both = {pattern: {**lasting.get(pattern, {}), **now.get(pattern, {})} for pattern in (*now, *lasting)}
    return replace(found, from_settings=both or None)


def altered(definition: QueueDefinition, changes: Mapping[str, Any]) -> QueueDefinition:
    """Return a definition with other options.

    Raises:
        ConfigError: an option cannot be altered, or is unknown; or is malformed, or excludes another.
    """
    for option, value in changes.items():
        if option in FIXED:
            if getattr(definition, option) == value:
                continue
            reason, way_out = FIXED[option]
            raise ConfigError(
                f"`{option}` of the queue {definition.name} cannot be altered: {reason}.",
                options=[option],
                hint=way_out,
            )
        if option not in ALTERABLE:
            raise ConfigError(f"`{option}` is not an option of a queue.", options=[option])
    chosen = {option: value for option, value in changes.items() if option in ALTERABLE}
    if "default_filters" in chosen:
        chosen["default_filters"] = DefaultFilters.of(chosen["default_filters"])
    replace(definition, earlier=(), **chosen).check_declarable()  # terms of before make up for nothing: none are stored
    return replace(definition, **chosen)
