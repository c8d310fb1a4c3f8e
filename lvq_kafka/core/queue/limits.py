"""Limits on the contents of a queue, and the policies beyond them (R12).

The depth counts after conflation. An update of a key that has a value does not lengthen the queue, so it is never
refused, and never costs another key its value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from lvq_kafka.core.facts import Depth
from lvq_kafka.core.log.records import RawHeaders
from lvq_kafka.core.text.quoting import abridged, quoted
from lvq_kafka.core.text.validation import as_float, at_least_one, choice, known_fields
from lvq_kafka.errors import ConfigError

__all__ = ["RESUME", "Limits", "OverflowPolicy", "size_of"]

OverflowPolicy = Literal["none", "ring", "reject", "block", "disk"]

_FIELDS = ("messages", "bytes", "policy", "resume")
RESUME = 0.8
"""The part of the limits down to which a full queue must shrink to have room again, as in Broker-J."""


def size_of(key: bytes | None, value: bytes | None, headers: RawHeaders) -> int:
    """Return the bytes of a message: key, value, and names and values of headers."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers or ():
        size += len(name.encode()) + len(content or b"")
    return size


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Limits:
    """The most that a queue may hold, and the policy for the rest.

    At least one of ``messages`` and ``bytes`` is given. A negative number is no limit.

    Args:
        messages: the most messages that wait or are in work, after conflation.
        bytes: the most bytes of their keys, values and headers.
        policy: ``"none"`` reports a breach and does nothing else; ``"ring"`` drops the lowest waiting messages;
            ``"reject"`` makes producers refuse messages that would add to a full queue; ``"block"`` makes them wait
            until there is room; ``"disk"`` makes consumers keep values in memory up to the limits, and on disk beyond
            them.
        resume: with ``"block"``, the part of the limits down to which a full queue must shrink before producers
            continue; 0.8 unless another is given. With 1.0 they continue as soon as there is room.

    Raises:
        ConfigError: a value is malformed, or two contradict each other.
    """

    policy: OverflowPolicy
    messages: int | None = None
    bytes: int | None = None
    resume: float | None = None

    __repr__ = abridged

    def __post_init__(self) -> None:
        choice("policy", self.policy, get_args(OverflowPolicy))
        given = {name: value for name in ("messages", "bytes") if (value := getattr(self, name)) is not None}
        if not given:
            raise ConfigError(
                f"`policy={self.policy!r}` needs a limit: `messages`, `bytes`, or both.",
                options=["messages", "bytes"],
                hint="Give one.",
            )
        for name, most in given.items():
            if isinstance(most, int) and most < 0:
                object.__setattr__(self, name, None)
            else:
                at_least_one(**{name: most})
        if self.resume is None:
            if self.policy == "block":
                object.__setattr__(self, "resume", RESUME)
            return
        if self.policy != "block":
            raise ConfigError(
                f"`resume` is for `policy='block'`, and has no meaning with `policy={self.policy!r}`.",
                options={"resume": self.resume, "policy": self.policy},
                hint="Leave `resume` out.",
            )
        if not 0 < as_float(self.resume) <= 1:
            raise ConfigError(
                "`resume` is not a part of the limits, above 0 and up to 1.", options={"resume": self.resume}
            )

    @property
    def limiting(self) -> bool:
        """True if there is any limit."""
        return self.messages is not None or self.bytes is not None

    @property
    def described(self) -> str:
        """The limits in words, such as "1,000 messages and 5,000 bytes"."""
        pairs = ((self.messages, "messages"), (self.bytes, "bytes"))
        return " and ".join(f"{most:,} {what}" for most, what in pairs if most is not None)

    def exceeded_by(self, depth: Depth) -> bool:
        """Return whether a queue exceeds these limits."""
        messages, size = self.messages, self.bytes
        return (messages is not None and depth.messages > messages) or (size is not None and depth.bytes > size)

    def breach(self, depth: Depth) -> str:
        """Describe by how much a queue exceeds these limits; empty if it does not, or if it may."""
        if self.policy == "disk":
            return ""
        pairs = ((depth.messages, self.messages, "messages"), (depth.bytes, self.bytes, "bytes"))
        return " and ".join(
            f"{held:,} {what} where {most:,} {'is' if most == 1 else 'are'} allowed"
            for held, most, what in pairs
            if most is not None and held > most
        )

    def share(self, partitions: int) -> Limits:
        """Return the limits of one of a queue's partitions: an even share, at least 1."""
        return replace(
            self,
            messages=None if self.messages is None else max(1, self.messages // partitions),
            bytes=None if self.bytes is None else max(1, self.bytes // partitions),
        )

    def check_partitions(self, partitions: int) -> None:
        """Check that each partition of a ring has a share.

        Raises:
            ConfigError: a limit is lower than the number of partitions.
        """
        for option, most in (("messages", self.messages), ("bytes", self.bytes)):
            if self.policy == "ring" and most is not None and most < partitions:
                raise ConfigError(
                    f"A ring of `{option}={most}` cannot be shared by {partitions} partitions: each has at least 1.",
                    options=[option, "partitions"],
                    hint=f"Raise `{option}`, or declare the queue on fewer partitions.",
                )

    def to_wire(self) -> dict[str, object]:
        """Return the part of a definition's JSON."""
        return {field: value for field in _FIELDS if (value := getattr(self, field)) is not None}

    @classmethod
    def from_wire(cls, part: object) -> Limits:
        """Parse the result of `to_wire`.

        Raises:
            ConfigError: it is something else.
        """
        fields = known_fields("limits", part, _FIELDS)
        if "policy" not in fields:
            raise ConfigError(f"limits has {quoted(part)}, and no policy.", options=["limits"])
        return cls(**fields)
