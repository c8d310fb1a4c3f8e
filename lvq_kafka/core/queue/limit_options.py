"""The options that limit a queue, by our names and those of Qpid, Artemis and Broker-J."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from lvq_kafka.core.queue.limits import Limits, OverflowPolicy
from lvq_kafka.core.queue.option_values import disagreement, number
from lvq_kafka.errors import ConfigError

__all__ = ["LIMIT_FIELDS", "LIMIT_OPTIONS", "pop_limits"]

_MESSAGES = (
    *("max-messages", "maximumQueueDepthMessages", "qpid.max_count", "max-size-messages"),
    *("ring-size", "qpid.flow_stop_count"),
)
_BYTES = ("max-bytes", "maximumQueueDepthBytes", "qpid.max_size", "max-size-bytes", "qpid.flow_stop_size")
_UNHEARD = "producers would learn nothing of messages that are dropped"
# The policies of each option by name, with ours or the reason to refuse.
_POLICIES: Mapping[str, Mapping[str, str]] = {
    "overflow": {policy: policy for policy in get_args(OverflowPolicy)},
    "overflowPolicy": {
        "NONE": "none",
        "RING": "ring",
        "REJECT": "reject",
        "PRODUCER_FLOW_CONTROL": "block",
        "FLOW_TO_DISK": "disk",
    },
    "qpid.policy_type": {"reject": "reject", "ring": "ring", "ring_strict": "ring", "flow_to_disk": "disk"},
    "address-full-policy": {"FAIL": "reject", "BLOCK": "block", "PAGE": "disk", "DROP": _UNHEARD},
}
# The policy that an option asks for if no other names one: that of the broker that has it, by default or always.
_IMPLIED: Mapping[str, OverflowPolicy] = {
    "max-messages": "none",
    "max-bytes": "none",
    "maximumQueueDepthMessages": "none",
    "maximumQueueDepthBytes": "none",
    "qpid.max_count": "reject",
    "qpid.max_size": "reject",
    "max-size-messages": "disk",
    "max-size-bytes": "disk",
}
_ALWAYS: Mapping[str, OverflowPolicy] = {
    "ring-size": "ring",
    "qpid.flow_stop_count": "block",
    "qpid.flow_stop_size": "block",
}
_RESUME, _RESUME_PERCENT = "resume", "queue.queueFlowResumeLimit"
_RESUME_AT = {"qpid.flow_resume_count": "qpid.flow_stop_count", "qpid.flow_resume_size": "qpid.flow_stop_size"}

LIMIT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "messages": _MESSAGES,
    "bytes": _BYTES,
    "policy": (*_POLICIES, *_ALWAYS),
    "resume": (_RESUME, _RESUME_PERCENT, *_RESUME_AT),
}
"""The options that set each field of `Limits`."""
LIMIT_OPTIONS = (*_MESSAGES, *_BYTES, *_POLICIES, _RESUME, _RESUME_PERCENT, *_RESUME_AT)
"""The names of all these options."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"(-?\d{1,18})\s*([KMG]?)i?B?", re.IGNORECASE)


class _Said(NamedTuple):
    """An option that is given, its value, and the value in terms of `Limits`."""

    option: str
    value: object
    asks: Any


def pop_limits(given: dict[str, object]) -> Limits | None:
    """Remove the options that limit a queue; return the `Limits` they ask for, if any.

    Raises:
        ConfigError: one is malformed, or asks for something that no queue of this library does; or two disagree.
    """
    said = {option: given.pop(option) for option in LIMIT_OPTIONS if option in given}
    messages = _agreed(
        [_Said(option, said[option], _most(option, said[option])) for option in _MESSAGES if option in said]
    )
    size = _agreed([_Said(option, said[option], _most(option, said[option])) for option in _BYTES if option in said])
    policy = _agreed([*_policies(said)])
    resume = _agreed([*_resumes(said)])
    limits = [one for one in (messages, size) if one is not None and one.asks is not None]
    if not limits:
        # Artemis is shipped with PAGE and limits of -1, that is, without limits.
        pointless = ("none",) if messages is None and size is None else ("none", "disk")
        other = policy if policy is not None and policy.asks not in pointless else resume
        if other is None:
            return None
        raise ConfigError(
            f"`{other.option}` needs a limit.",
            options={other.option: other.value, "max-messages": None, "max-bytes": None},
            hint="Give `max-messages`, `max-bytes`, or both.",
        )
    if policy is None:
        policy = _implied(limits[0])
    if resume is not None and policy.asks != "block":
        raise ConfigError(
            f"`{resume.option}` is for producers that are blocked, and `{policy.option}` blocks none.",
            options={resume.option: resume.value, policy.option: policy.value},
            hint=f"Leave `{resume.option}` out, or give `overflow='block'|overflow=block`.",
        )
    return Limits(
        policy=policy.asks,
        messages=None if messages is None else messages.asks,
        bytes=None if size is None else size.asks,
        resume=None if resume is None else resume.asks,
    )


def _agreed(said: list[_Said]) -> _Said | None:
    """Return the first of these options, if there is one; all must ask for the same."""
    for one in said[1:]:
        if one.asks != said[0].asks:
            raise disagreement(said[0][:2], one[:2])
    return said[0] if said else None


def _most(option: str, value: object) -> int | None:
    """Return the number to which an option limits a queue.

    None if it is negative, which stands for no limit.
    """
    found = _NUMBER.fullmatch(str(value).strip())
    if found is None or (found[2] and option not in _BYTES):
        raise ConfigError(
            f"`{option}` is not a number{' of bytes' if option in _BYTES else ''}.", options={option: value}
        )
    most = int(found[1]) * _UNITS[found[2].upper()]
    if most == 0:
        raise ConfigError(
            f"`{option}` leaves no room for any message.",
            options={option: value},
            hint="Give 1 or more; a negative number, or none, for no limit.",
        )
    return None if most < 0 else most


def _policies(said: Mapping[str, object]) -> Iterator[_Said]:
    for option, known in _POLICIES.items():
        if option in said:
            name = str(said[option]).strip()
            asks = {policy.lower(): asks for policy, asks in known.items()}.get(name.lower())
            if asks is None:
                raise ConfigError(
                    f"`{option}` is not a policy.",
                    options={option: said[option]},
                    hint=f"Choose one of {', '.join(known)}.",
                )
            if asks not in get_args(OverflowPolicy):
                raise ConfigError(
                    f"`{option}` has no meaning here: {asks}.",
                    options={option: name},
                    hint=f"Choose one of {', '.join(get_args(OverflowPolicy))} in `overflow`.",
                )
            yield _Said(option, said[option], asks)
    for option, policy in _ALWAYS.items():
        if option in said and _most(option, said[option]) is not None:
            yield _Said(option, said[option], policy)


def _implied(limit: _Said) -> _Said:
    """Return the policy of a limit where no option names one."""
    return _Said(limit.option, limit.value, _IMPLIED[limit.option])


def _resumes(said: Mapping[str, object]) -> Iterator[_Said]:
    for option, whole in ((_RESUME, 1), (_RESUME_PERCENT, 100)):
        if option in said:
            yield _Said(option, said[option], _part(option, said[option], whole))
    for option, stop in _RESUME_AT.items():
        if option not in said:
            continue
        at = _most(stop, said[stop]) if stop in said else None
        if at is None:
            raise ConfigError(
                f"`{option}` needs `{stop}`, at which producers stop.", options={option: said[option], stop: None}
            )
        yield _Said(option, said[option], _part(option, said[option], at))


def _part(option: str, value: object, whole: int) -> float:
    """Return a value as part of a whole."""
    part = number(option, value) / whole
    if not 0 < part <= 1:
        raise ConfigError(f"`{option}` must be above 0, and up to {whole}.", options={option: value})
    return part
