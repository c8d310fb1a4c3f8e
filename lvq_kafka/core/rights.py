"""What a user has to be allowed to do, in the words of Kafka's ACLs."""

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
"""In which rights Describe is included: who has to ask for one may as well ask for that."""


class Right(NamedTuple):
    """One operation on one resource: ``str(Right("Read", "Topic", "prices"))`` is ``Read on Topic prices``."""

    operation: Operation
    resource: Resource
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"

    @classmethod
    def named_in(cls, text: str) -> Right | None:
        """The right that the text of an error of `lacking` names; None if it names none."""
        found = _LACKING.search(text)
        return cls(found[1], found[2], found[3]) if found else None  # type: ignore[arg-type]

    @property
    def hint(self) -> str:
        """How to come by it."""
        where = f"{_OPTIONS[self.resource]} {shlex.quote(self.name)}" if self.resource in _OPTIONS else "--cluster"
        acl = f"kafka-acls.sh --add --allow-principal User:NAME --operation {self.operation} {where}"
        also = _DESCRIBE.get(self.resource, "") if self.operation == "Describe" else ""
        return f"Ask for an ACL that allows it: {acl}. {also}".rstrip()


def lacking(right: Right, doing: str, *, code: str = "", more: str = "") -> Unauthorized:
    """The error of who lacks a right, and needs it for what completes "Cannot …". ``more`` goes to the hint.

    ``code`` is what a broker has answered, where it was not the usual one.
    """
    return Unauthorized(
        f"Cannot {doing}: this user lacks {right}.",
        code=code or _CODES[right.resource],
        missing=right,
        hint=f"{right.hint} {more}".rstrip(),
    )


def consuming(group: str, topic: str) -> tuple[Right, Right]:
    """What a member of a group needs, and who commits for it."""
    return Right("Read", "Group", group), Right("Read", "Topic", topic)
