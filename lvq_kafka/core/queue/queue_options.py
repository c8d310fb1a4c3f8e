"""The options of a declaration by name, including those of Qpid, Artemis and Broker-J."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.queue.group_options import GROUP_OPTIONS, pop_groups
from lvq_kafka.core.queue.limit_options import LIMIT_FIELDS, LIMIT_OPTIONS, pop_limits
from lvq_kafka.core.queue.option_values import boolean, disagreement, number, pop_one, whole_number
from lvq_kafka.core.queue.ranking import QueueOrder
from lvq_kafka.core.text.quoting import brief, quoted
from lvq_kafka.core.text.validation import mapping
from lvq_kafka.core.timing.due_times import check_max_delay
from lvq_kafka.core.timing.ttl import Ttl, check_ttl
from lvq_kafka.errors import ConfigError

__all__ = ["CHOICES", "SYSTEM_OPTIONS", "KeylessPolicy", "fields_of", "fields_with_options", "given_options"]

KeylessPolicy = Literal["pass", "refuse"]

CHOICES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "keyless": ("keyless", get_args(KeylessPolicy)),
    "order": ("order", get_args(QueueOrder)),
    "key-mismatch": ("key_mismatch", get_args(KeyMismatchPolicy)),
}
"""Options that are one of several words, with the field that each sets."""

# Options, by their names in this library and in other brokers, and the field that each sets. Where a name of this
# library has a hyphen, the argument of `declare` is understood, too.
_KEY_HEADER_OPTIONS = ("key-header", "last-value-key", "qpid.last_value_queue_key", "lvqKey")
_NO_BROWSE_OPTION = "qpid.last_value_queue_no_browse"
_SWITCH_OPTIONS = ("last-value", "qpid.last_value_queue", _NO_BROWSE_OPTION)
_NON_DESTRUCTIVE_OPTIONS = ("non-destructive", "ensureNondestructiveConsumers")
# The same for the parts of `Ttl`, with the milliseconds of one unit, and the values that stand for no limit.
_TTL_OPTIONS: dict[str, tuple[str, float, tuple[float, ...]]] = {
    "default-ttl": ("default", 1000, ()),
    "min-ttl": ("minimum", 1000, ()),
    "max-ttl": ("maximum", 1000, ()),
    "expiry-delay": ("default", 1, (-1,)),
    "min-expiry-delay": ("minimum", 1, (-1,)),
    "max-expiry-delay": ("maximum", 1, (-1,)),
    "minimumMessageTtl": ("minimum", 1, (0, -1)),
    "maximumMessageTtl": ("maximum", 1, (0, -1)),
}
_TTL_SWITCHES = ("ttl", "no-expiry")
_EXPIRY_TOPIC_OPTIONS = ("expiry-topic", "expiry-address")
_EXPIRY_POLICIES = {"DELETE": False, "ROUTE_TO_ALTERNATE": True}  # whether expired messages go to another topic
_MAX_DELAY_OPTION, _HOLD_OPTION = "max-delay", "holdOnPublishEnabled"
_CONFLATE_OPTION, _TYPE_OPTION, _ORDER_OPTION = "conflate", "type", "order"
_TYPES = {"lvq": True, "standard": False, "priority": False, "sorted": False}  # of Broker-J: whether they conflate
_RANKED = ("priority", "sorted")  # types that are orders in this library
_PRIORITIES_OPTIONS = ("priorities", "qpid.priorities", "x-qpid-priorities")
_SORT_HEADER_OPTIONS = ("sort-header", "sortKey", "qpid.queue_sort_key")
_FILTER_OPTIONS = ("default-selector", "default-replay-period")
_SELECTING_OPTIONS = ("selector", *_FILTER_OPTIONS)
# Arguments of `declare` that are objects, and the options that set the same.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "ttl": (*_TTL_OPTIONS, *_TTL_SWITCHES),
    "default_filters": _FILTER_OPTIONS,
    "groups": GROUP_OPTIONS,
    "limits": LIMIT_OPTIONS,
}
_OPTIONS_WANTED = 'For example {"key-header": "ticker"}.'
# Options of other brokers that a last value queue cannot have, and the feature they ask for.
_CLASHING_OPTIONS = {
    "qpid.paging": "paging",
    "qpid.last_value_queue_sorted": "sorting",
}


_BY_FIELD: Mapping[str, Sequence[str]] = {
    "key_header": _KEY_HEADER_OPTIONS,
    "conflate": (_CONFLATE_OPTION, _TYPE_OPTION, *_SWITCH_OPTIONS, *_PRIORITIES_OPTIONS, *_SORT_HEADER_OPTIONS),
    "order": (_ORDER_OPTION, _TYPE_OPTION, *_PRIORITIES_OPTIONS, *_SORT_HEADER_OPTIONS),
    "priorities": _PRIORITIES_OPTIONS,
    "sort_header": _SORT_HEADER_OPTIONS,
    "key_mismatch": ("key-mismatch",),
    "non_destructive": _NON_DESTRUCTIVE_OPTIONS,
    **{
        part: [option for option, (limit, _, _) in _TTL_OPTIONS.items() if limit == part]
        for part in ("default", "minimum", "maximum")
    },
    "never": ("no-expiry",),
    "expiry_topic": _EXPIRY_TOPIC_OPTIONS,
    "max_delay": (_MAX_DELAY_OPTION,),
    "default_filters": ("default-selector", "default-replay-period"),
    "replay_period": ("default-replay-period",),
    **LIMIT_FIELDS,
}
"""The options that set each field of a definition, `Ttl`, `DefaultFilters` and `Limits`."""


def fields_with_options(name: str, arguments: Mapping[str, Any], options: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of a definition that arguments of `declare` and options set.

    Args:
        name: the queue's name.
        arguments: the arguments given, by field. ``key_header`` None stands for the record key.
        options: options by name, as for `fields_of`.

    Raises:
        ConfigError: an option is unknown or malformed, or two clash; each is named as it was given.
    """
    given = dict(mapping("options", options, _OPTIONS_WANTED))
    plain = {field: value for field, value in arguments.items() if field not in _PARTS}
    for field, value in plain.items():
        if field in given and str(given[field]) != str(value):
            raise _disagree(field, value, field, given[field])
    record_key = plain.get("key_header", "") is None
    named = next((option for option in ("key_header", *_KEY_HEADER_OPTIONS) if option in given), None)
    if record_key and named is not None:
        raise _disagree("key_header", None, named, given[named])
    said = {field: value for field, value in plain.items() if value is not None}
    chosen = fields_of(name, {**said, **given}, record_key=record_key)
    for field, value in arguments.items():
        option = next((option for option in _PARTS.get(field, ()) if option in given), None)
        if option is not None and chosen[field] != value:
            raise _disagree(field, value, option, given[option])
        chosen[field] = value
    return chosen


def _disagree(field: str, value: object, option: str, said: object) -> ConfigError:
    return ConfigError(
        f"{field}={quoted(value)} and {option}={quoted(said)} in options disagree.",
        options=[field, option],
        hint="Give one.",
    )


def fields_of(name: str, options: Mapping[str, object], *, record_key: bool = False) -> dict[str, Any]:
    """Return the fields of a definition that these options set.

    See `QueueDefinition.from_options`. With ``record_key``, the record key is the key, and no header has to be named.
    """
    given = dict(mapping("options", options, _OPTIONS_WANTED))
    key_header = pop_one(given, ("key_header", *_KEY_HEADER_OPTIONS))
    kind = str(given.get(_TYPE_OPTION, "")).strip().lower()
    switches = _pop_switches(given, key_header, kind)
    if switches.get(_NO_BROWSE_OPTION):
        warnings.warn(
            f"{_NO_BROWSE_OPTION} of the queue {name} is ignored: a browser never keeps a value from being replaced.",
            stacklevel=3,
        )
    clashing = [option for option in given if option in _CLASHING_OPTIONS]
    if clashing:
        other = key_header[0] if key_header else next(iter(switches), "key-header")
        raise ConfigError(
            f"`{clashing[0]}` ({_CLASHING_OPTIONS[clashing[0]]}) and `{other}` cannot be combined in this version.",
            options=[clashing[0], other],
            hint=f"Leave out `{clashing[0]}`.",
        )
    asking = [*([key_header[0]] if key_header else ()), *switches]
    chosen = _pop_order(given, kind, asking[0] if asking and all(switches.values()) else None)
    non_destructive = pop_one(given, ("non_destructive", *_NON_DESTRUCTIVE_OPTIONS))
    if non_destructive is not None:
        chosen["non_destructive"] = boolean(*non_destructive)
    for option, (field, _) in CHOICES.items():
        if option != _ORDER_OPTION and (said := pop_one(given, (option, field))) is not None:
            chosen[field] = said[1]
    chosen["ttl"] = _pop_ttl(given)
    chosen["expiry_topic"] = _pop_expiry_topic(given)
    chosen["selector"] = given.pop("selector", None)
    chosen["default_filters"] = _pop_default_filters(given)
    chosen["max_delay"] = _pop_max_delay(given)
    chosen["groups"] = pop_groups(given)
    chosen["limits"] = pop_limits(given)
    if given:
        raise _unknown_option(next(iter(given)))
    chosen["conflate"] = all(switches.values()) and chosen.get("conflate", True)
    named = None if key_header is None or key_header[1] is None else str(key_header[1])
    if named is None and chosen["conflate"] and not record_key:
        raise ConfigError(
            f"The queue {name} needs the name of its key header.",
            options=["key-header"],
            hint="Give `key-header` (or last-value-key, qpid.last_value_queue_key, lvqKey); or "
            "`conflate=False|conflate=false` for a standard queue, which needs none.",
        )
    return {"key_header": named, **chosen}


def _pop_switches(given: dict[str, object], key_header: tuple[str, object] | None, kind: str) -> dict[str, bool]:
    """Remove the options that ask for conflation or for none; return what each asks for.

    Options of other brokers ask for conflation by the key header, so an option that is off contradicts a key header.
    """
    switches: dict[str, bool] = {}
    for option in (*_SWITCH_OPTIONS, _CONFLATE_OPTION):
        if option in given:
            switches[option] = boolean(option, given.pop(option))
    if _TYPE_OPTION in given:
        switches[_TYPE_OPTION] = _type(given.pop(_TYPE_OPTION))
    off = [option for option, asks in switches.items() if not asks]
    clashing = next((option for option, asks in switches.items() if asks), None) if off else None
    if clashing is not None:
        raise ConfigError(
            f"`{off[0]}` asks for a standard queue, and `{clashing}` for a last value queue.",
            options=[off[0], clashing],
            hint="Give one of them.",
        )
    legacy = next((option for option in off if option != _CONFLATE_OPTION), None)
    if legacy is not None and key_header is not None:
        value = kind if legacy == _TYPE_OPTION else "false"
        way_out = f"Say {_order(kind)} instead" if kind in _RANKED else f"Leave `{legacy}` out"
        raise ConfigError(
            f"`{legacy}={value!r}|{legacy}={value}` asks for a queue that is not a last value queue, but "
            f"`{key_header[0]}` names a key header.",
            options=[legacy, key_header[0]],
            hint=f"{way_out}; or say `conflate=False|conflate=false` for a standard queue whose messages may have a "
            "key.",
        )
    return switches


def _pop_order(given: dict[str, object], kind: str, lasting: str | None) -> dict[str, Any]:
    """Remove the options of the order, and return the fields that they set.

    Queues of other brokers that have an order by rank do not conflate, and neither do queues declared by the options of
    those brokers.

    Args:
        kind: the type of queue that is asked for, or "".
        lasting: an option that asks for a last value queue, if one does.
    """
    levels, sort = pop_one(given, _PRIORITIES_OPTIONS), pop_one(given, ("sort_header", *_SORT_HEADER_OPTIONS))
    asking = [
        (order, option)
        for order, option in (
            (given.get(_ORDER_OPTION), _ORDER_OPTION if _ORDER_OPTION in given else None),
            (kind, _TYPE_OPTION if kind in _RANKED else None),
            ("priority", levels and levels[0]),
            ("sorted", sort and sort[0]),
        )
        if option is not None
    ]
    if not asking:
        return {}
    order, option = asking[0]
    other = next(((another, name) for another, name in asking if another != order), None)
    if other is not None:
        raise ConfigError(
            f"{_asking(option, order)} and {_asking(*reversed(other))} exclude each other.",
            options=[option, other[1]],
            hint="Leave one of them out.",
        )
    chosen: dict[str, Any] = {_ORDER_OPTION: given.pop(_ORDER_OPTION, order)}
    if option != _ORDER_OPTION:
        if kind == "standard":
            lasting = _TYPE_OPTION
        if lasting is not None:
            what = "a standard queue in order of arrival" if kind == "standard" else "a last value queue"
            raise ConfigError(
                f"`{option}` asks for a {order} queue, and `{lasting}` for {what}; elsewhere, a queue is one or the "
                "other.",
                options=[option, lasting],
                hint=f"Say {_order(order)} to have both here, or leave out `{option}`.",
            )
        chosen["conflate"] = False
    if levels is not None:
        chosen["priorities"] = whole_number(*levels)
    if sort is not None:
        chosen["sort_header"] = str(sort[1])
    return chosen


def _order(order: object) -> str:
    """Return the mention of an order."""
    return f"`{_ORDER_OPTION}={str(order)!r}|{_ORDER_OPTION}={order}`"


def _asking(option: object, order: object) -> str:
    """Return the mention of an option that asks for an order."""
    return _order(brief(str(order))) if option == _ORDER_OPTION else f"`{option}` (for {_order(order)})"


def _type(value: object) -> bool:
    """Return whether queues of a type conflate."""
    kind = str(value).strip().lower()
    if kind not in _TYPES:
        raise ConfigError(
            f"`{_TYPE_OPTION}` is not a type of queue in this version.",
            options={_TYPE_OPTION: value},
            hint=f"Choose one of {', '.join(_TYPES)}.",
        )
    return _TYPES[kind]


def _pop_ttl(given: dict[str, object]) -> Ttl | None:
    """Remove the options of time, and return the `Ttl` that they ask for, if any."""
    named: dict[str, tuple[str, object]] = {}  # by limit, the option and its value
    seconds: dict[str, float | None] = {}  # None for no limit
    for option, (limit, unit, off) in _TTL_OPTIONS.items():
        if option not in given:
            continue
        value = given.pop(option)
        said = number(option, value)
        limited = None if said in off else said * unit / 1000
        if limited is not None:
            check_ttl(option, said, milliseconds=unit == 1)
        if seconds.setdefault(limit, limited) != limited:
            raise disagreement(named[limit], (option, value))
        named[limit] = option, value
    limits: dict[str, Any] = {limit: limited for limit, limited in seconds.items() if limited is not None}
    switches = {option: boolean(option, given.pop(option)) for option in _TTL_SWITCHES if option in given}
    if switches.get("no-expiry"):
        limits["never"] = True
    if switches.get("ttl") is False and limits:
        other = next((named[limit][0] for limit in limits if limit in named), "no-expiry")
        raise ConfigError(
            f"`ttl=False|ttl=false` says that messages carry no TTL, but `{other}` limits it.",
            options=["ttl", other],
            hint="Leave one of them out.",
        )
    return Ttl(**limits) if limits or switches.get("ttl") else None


def _pop_expiry_topic(given: dict[str, object]) -> str | None:
    """Remove the options for the destination of expired messages."""
    named = pop_one(given, ("expiry_topic", *_EXPIRY_TOPIC_OPTIONS))
    topic = None if named is None else str(named[1])
    if "expiryPolicy" in given:
        policy = given.pop("expiryPolicy")
        if policy not in _EXPIRY_POLICIES:
            raise ConfigError(
                "`expiryPolicy` is not a policy.",
                options={"expiryPolicy": policy},
                hint=f"Choose one of {', '.join(_EXPIRY_POLICIES)}.",
            )
        if _EXPIRY_POLICIES[str(policy)] != (topic is not None):
            raise ConfigError(
                "`expiryPolicy` needs the name of a topic in `expiry-topic`."
                if named is None
                else f"`expiryPolicy` and `{named[0]}` contradict each other.",
                options={"expiryPolicy": policy, "expiry-topic" if named is None else named[0]: topic},
                hint="DELETE needs none.",
            )
    return topic


def _pop_default_filters(given: dict[str, object]) -> DefaultFilters | None:
    filters: dict[str, object] = {}
    if "default-replay-period" in given:
        filters["replay_period"] = number("default-replay-period", given.pop("default-replay-period"))
    if "default-selector" in given:
        filters["selector"] = given.pop("default-selector")
    return DefaultFilters.of(filters)


def _pop_max_delay(given: dict[str, object]) -> float | None:
    """Remove the options of scheduled messages, and return the longest delay, if any."""
    longest, name = None, _MAX_DELAY_OPTION
    if (named := pop_one(given, (_MAX_DELAY_OPTION, "max_delay"))) is not None:
        name, longest = named[0], number(*named)
        check_max_delay(name, longest)
    if _HOLD_OPTION in given and (hold := boolean(_HOLD_OPTION, given.pop(_HOLD_OPTION))) != (longest is not None):
        raise ConfigError(
            f"`{_HOLD_OPTION}='true'|{_HOLD_OPTION}=true` needs `{name}`: the topic is not compacted for as long."
            if hold
            else f"`{_HOLD_OPTION}='false'|{_HOLD_OPTION}=false` and `{name}` contradict each other.",
            options=[_HOLD_OPTION, name],
            hint=f"For messages that may be scheduled, give both, `{name}` in seconds; otherwise, neither.",
        )
    return longest


SYSTEM_OPTIONS = (
    *_KEY_HEADER_OPTIONS,
    *_SWITCH_OPTIONS,
    *_NON_DESTRUCTIVE_OPTIONS,
    *CHOICES,
    *_PRIORITIES_OPTIONS,
    *_SORT_HEADER_OPTIONS,
    *_TTL_OPTIONS,
    *_TTL_SWITCHES,
    *_EXPIRY_TOPIC_OPTIONS,
    "expiryPolicy",
    *_SELECTING_OPTIONS,
    _MAX_DELAY_OPTION,
    _HOLD_OPTION,
    _CONFLATE_OPTION,
    _TYPE_OPTION,
    *GROUP_OPTIONS,
    *LIMIT_OPTIONS,
)
"""The names of all options, in this library and in other brokers."""


def _unknown_option(option: object) -> ConfigError:
    name = str(option)
    nearest = difflib.get_close_matches(name, SYSTEM_OPTIONS, n=1)
    meant = f"Did you mean {nearest[0]}? " if nearest else ""
    return ConfigError(
        f"{brief(name)} is not a queue option.",
        options=[name],
        hint=f"{meant}`lvq declare --help` lists those of this library, and the pages in docs/options those of others.",
    )


def given_options(options: object) -> dict[str, tuple[str, object]]:
    """Return the option that sets each field of a definition or of its parts, and its value."""
    found: dict[str, tuple[str, object]] = {}
    if not isinstance(options, Mapping):
        return found
    for field, names in _BY_FIELD.items():
        option = next((name for name in names if name in options), None)
        if option is not None:
            found[field] = option, options[option]
    return found
