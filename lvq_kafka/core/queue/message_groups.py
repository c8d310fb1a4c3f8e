"""Message groups: messages that belong together are for one consumer at a time (R36)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from lvq_kafka.core.log.records import RawHeaders, header_value
from lvq_kafka.core.text.quoting import abridged, quoted
from lvq_kafka.core.text.validation import choice, known_fields, text
from lvq_kafka.errors import ConfigError

__all__ = ["GROUP_HEADER", "JMS_GROUP_HEADER", "NO_GROUP", "GroupMode", "Groups", "Placement", "encode_group"]

GROUP_HEADER = "lvq-group"
"""The header that names the group of a message, unless the queue's definition names another."""

JMS_GROUP_HEADER = "JMSXGroupID"
"""The header of groups in JMS, and in Broker-J unless another is named."""

NO_GROUP = "qpid.no-group"
"""The group of messages without one, where groups are shared; its name is that of Qpid and Broker-J."""

GroupMode = Literal["sticky", "shared"]
Placement = Literal["key", "group"]

_FIELDS = ("header", "mode", "default", "placement")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Groups:
    """The grouping of a queue's messages.

    Args:
        header: the header that names the group of a message.
        mode: a *sticky* group stays with the consumer that got its first message until that consumer is closed. A
            *shared* group is free again as soon as none of its messages is in work.
        default: the group of messages without one, where groups are shared; `NO_GROUP` unless another is given. Where
            they are sticky, such messages are for anyone.
        placement: the property by which a producer chooses the partition of a message. With ``"key"``, messages of a
            group may lie in several partitions, and in each the group has a consumer of its own. With ``"group"`` they
            lie in one; a key whose messages change their group is then in several.

    Raises:
        ConfigError: a value is malformed, or two contradict each other.
    """

    header: str = GROUP_HEADER
    mode: GroupMode = "sticky"
    default: str | None = None
    placement: Placement = "key"

    __repr__ = abridged

    def __post_init__(self) -> None:
        text("header", self.header)
        choice("mode", self.mode, get_args(GroupMode))
        choice("placement", self.placement, get_args(Placement))
        if self.default is not None:
            text("default", self.default)
            if self.mode == "sticky":
                raise ConfigError(
                    "`default` and `mode='sticky'` contradict each other: a message without a group is for anyone.",
                    options={"default": self.default, "mode": self.mode},
                    hint="Leave `default` out, or share groups.",
                )
        elif self.mode == "shared":
            object.__setattr__(self, "default", NO_GROUP)

    def group(self, headers: RawHeaders) -> bytes | None:
        """Return the group of a message with these headers; None if it is for anyone.

        Of several headers of the name, the last one counts.
        """
        return header_value(headers or (), self.header) or self._default

    @property
    def _default(self) -> bytes | None:
        return None if self.default is None else self.default.encode()

    @property
    def described(self) -> str:
        """The groups in words, such as "sticky, by header 'customer', placed by group"."""
        placed = ", placed by group" if self.placement == "group" else ""
        shared = f", {quoted(self.default)} for messages without one" if self.default not in (None, NO_GROUP) else ""
        return f"{self.mode}, by header {quoted(self.header)}{shared}{placed}"

    def to_wire(self) -> dict[str, object]:
        """Return the part of a definition's JSON."""
        return {field: value for field in _FIELDS if (value := getattr(self, field)) is not None}

    @classmethod
    def from_wire(cls, part: object) -> Groups:
        """Parse the result of `to_wire`.

        Raises:
            ConfigError: it is something else.
        """
        return cls(**known_fields("groups", part, _FIELDS))


def encode_group(option: str, group: object) -> bytes:
    """Encode the name of a group for the wire.

    Raises:
        ConfigError: it is neither text nor bytes, or it is blank, or UTF-8 cannot encode it.
    """
    if isinstance(group, bytes) and group.strip():
        return group
    return text(option, group).encode()
