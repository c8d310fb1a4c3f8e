"""The options of message groups by name, including those of Qpid, Artemis and Broker-J."""

from __future__ import annotations

from typing import Any, get_args

from lvq_kafka.core.queue.message_groups import GROUP_HEADER, GroupMode, Groups, Placement
from lvq_kafka.core.queue.option_values import boolean, number, pop_one
from lvq_kafka.core.text.validation import choice, text
from lvq_kafka.errors import ConfigError

__all__ = ["GROUP_OPTIONS", "JMS_GROUP_HEADER", "pop_groups"]

JMS_GROUP_HEADER = "JMSXGroupID"
"""The header of groups in JMS, and in Broker-J unless another is named."""

_GROUPS, _PLACE_BY = "groups", "place-by"
_TYPE = "messageGroupType"
_TYPES: dict[str, GroupMode | None] = {"NONE": None, "STANDARD": "sticky", "SHARED_GROUPS": "shared"}  # of Broker-J
_SHARED_OPTIONS = ("qpid.shared_msg_group", "messageGroupSharedGroups")
_HEADER_OPTIONS = ("group-header", "messageGroupKeyOverride", "qpid.group_header_key")
_DEFAULT_OPTIONS = ("default-group", "messageGroupDefaultGroup", "qpid.default-message-group")
# Options of Artemis that a queue cannot have, and why. Those that are off ask for nothing.
_REBALANCE, _BUCKETS, _FIRST_KEY = "group-rebalance", "group-buckets", "group-first-key"
_REFUSED = {
    _REBALANCE: "a group leaves its consumer only when that one is closed, or in shared groups when nothing of it is "
    "in work",
    _BUCKETS: "each group has a consumer of its own choice, and none shares one with others by its hash",
    _FIRST_KEY: "consumers do not mark the first message of a group",
}

GROUP_OPTIONS = (
    *(_GROUPS, _PLACE_BY, _TYPE),
    *(*_SHARED_OPTIONS, *_HEADER_OPTIONS, *_DEFAULT_OPTIONS),
    *(_REBALANCE, _BUCKETS, _FIRST_KEY),
)
"""All options of groups."""


def pop_groups(given: dict[str, object]) -> Groups | None:
    """Remove the options of groups, and return the `Groups` that they ask for, if any.

    Raises:
        ConfigError: a value is malformed, two options contradict each other, or a queue cannot have one.
    """
    modes = _pop_modes(given)
    header, default = pop_one(given, _HEADER_OPTIONS), pop_one(given, _DEFAULT_OPTIONS)
    placement = pop_one(given, (_PLACE_BY,))
    _check_artemis(given)
    parts = [part for part in (header, default, placement) if part is not None]
    mode = _mode(modes)
    if mode is None and (modes or not parts):
        if parts:
            raise _clash(next(iter(modes)), parts[0][0], "asks for no groups, and", "says what they are like")
        return None
    if default is not None and mode != "shared":
        sharing = next(iter(modes), _GROUPS)
        raise _clash(default[0], sharing, "is for shared groups: a message without one is for anyone in sticky ones")
    fields: dict[str, Any] = {"header": JMS_GROUP_HEADER if _TYPE in modes else GROUP_HEADER}
    for field, part in (("header", header), ("default", default)):
        if part is not None:
            fields[field] = text(*part)
    if placement is not None:
        choice(*placement, get_args(Placement))
        fields["placement"] = placement[1]
    return Groups(mode=mode or "sticky", **fields)


def _pop_modes(given: dict[str, object]) -> dict[str, GroupMode | None]:
    """Remove the options that ask for groups, or for none; return the mode of each."""
    modes: dict[str, GroupMode | None] = {}
    if _GROUPS in given:
        said = given.pop(_GROUPS)
        choice(_GROUPS, said, get_args(GroupMode))
        modes[_GROUPS] = said  # type: ignore[assignment]  # it is one of them
    if _TYPE in given:
        kind = str(given.pop(_TYPE)).strip().upper()
        choice(_TYPE, kind, _TYPES)
        modes[_TYPE] = _TYPES[kind]
    for option in _SHARED_OPTIONS:
        if option in given:
            modes[option] = "shared" if boolean(option, given.pop(option)) else "sticky"
    return modes


def _mode(modes: dict[str, GroupMode | None]) -> GroupMode | None:
    """Return the mode that these options agree on."""
    for option, mode in modes.items():
        first, asked = next(iter(modes.items()))
        if mode != asked:
            raise _clash(first, option, f"asks for {asked or 'no'} groups, and", f"for {mode or 'no'} groups")
    return next(iter(modes.values()), None)


def _check_artemis(given: dict[str, object]) -> None:
    """Remove options of Artemis that are off, and refuse those that are not."""
    off = {
        _REBALANCE: lambda value: not boolean(_REBALANCE, value),
        _BUCKETS: lambda value: number(_BUCKETS, value) == -1,
        _FIRST_KEY: lambda value: value is None,
    }
    for option, reason in _REFUSED.items():
        if option in given and not off[option](value := given.pop(option)):
            raise ConfigError(
                f"`{option}` is not possible: {reason}.",
                options={option: value},
                hint=f"Leave `{option}` out.",
            )


def _clash(one: str, other: str, what: str, more: str = "") -> ConfigError:
    said = f"`{one}` {what} `{other}` {more}" if more else f"`{one}` {what} (`{other}`)"
    return ConfigError(f"{said}.", options=[one, other], hint="Leave one of them out.")
