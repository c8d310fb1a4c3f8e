"""The rights that users need, in the terms of Kafka's ACLs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Literal, NamedTuple

from lvq_kafka.errors import Unauthorized

__all__ = ["Operation", "Resource", "Right", "consuming", "lacking"]

Operation = Literal["Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"]
Resource = Literal["Topic", "Group", "Cluster", "TransactionalId"]

_LACKING = re.compile(r"this user lacks (\w+) on (Topic|Group|Cluster|TransactionalId) (\S+)\. ")
_OPTIONS: Mapping[Resource, str] = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id"}
_CODES: Mapping[Resource, str] = {
    "Topic": "TOPIC_AUTHORIZATION_FAILED",
    "Group": "GROUP_AUTHORIZATION_FAILED",
    "Cluster": "CLUSTER_AUTHORIZATION_FAILED",
    "TransactionalId": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
_DESCRIBE: Mapping[Resource, str] = {
    "Topic": "It is included in Read, which readers need, in Write, which writers need, and in Delete.",
    "Group": "It is included in Read, which consumers need, and in Delete.",
}
"""Rights that include Describe: users who need it may as well ask for one of these."""


class Right(NamedTuple):
    """One operation on one resource.

    ``str(Right("Read", "Topic", "prices"))`` is ``Read on Topic prices``.
    """

    operation: Operation
    resource: Resource
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"

    @classmethod
    def named_in(cls, text: str) -> Right | None:
        """Return the right named in the text of an error of `lacking`, or None."""
        found = _LACKING.search(text)
        return cls(found[1], found[2], found[3]) if found else None  # type: ignore[arg-type]

    @property
    def hint(self) -> str:
        """Instructions to obtain the right."""
        where = f"{_OPTIONS[self.resource]} {shlex.quote(self.name)}" if self.resource in _OPTIONS else "--cluster"
        acl = f"kafka-acls.sh --add --allow-principal User:NAME --operation {self.operation} {where}"
        also = _DESCRIBE.get(self.resource, "") if self.operation == "Describe" else ""
        return f"Ask for an ACL that allows it: {acl}. {also}".rstrip()


def lacking(right: Right, doing: str, *, code: str = "", more: str = "") -> Unauthorized:
    """Return the error for a missing right.

    Args:
        doing: what the right is needed for; completes "Cannot …".
        code: the broker's answer, if it was not the usual one.
        more: text to append to the hint.
    """
    return Unauthorized(
        f"Cannot {doing}: this user lacks {right}.",
        code=code or _CODES[right.resource],
        missing=right,
        hint=f"{right.hint} {more}".rstrip(),
    )


def consuming(group: str, topic: str) -> tuple[Right, Right]:
    """Return the rights needed by a member of a group, or by anyone who commits for it."""
    return Right("Read", "Group", group), Right("Read", "Topic", topic)
