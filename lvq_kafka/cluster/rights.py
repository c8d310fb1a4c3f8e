"""The errors for missing rights, and the rights that consumers need."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.core.facts import Resource, Right
from lvq_kafka.errors import Unauthorized

__all__ = ["consuming", "lacking"]


_CODES: Mapping[Resource, str] = {
    "Topic": "TOPIC_AUTHORIZATION_FAILED",
    "Group": "GROUP_AUTHORIZATION_FAILED",
    "Cluster": "CLUSTER_AUTHORIZATION_FAILED",
    "TransactionalId": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}


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
