"""The rights of each role in docs/how-to/access.md, and how to grant and revoke them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import get_args

from confluent_kafka.admin import AclOperation, ResourceType

from lvq_kafka.core.facts import Operation, Resource, Right
from lvq_kafka.errors import LVQError, Unauthorized
from tests.integration.secure import SecureBroker
from tests.pages import page
from tests.waiting import eventually

__all__ = ["ROLES", "grant", "lacked", "names", "needs_each"]

_PAGE = page("docs/how-to/access.md")
_COLUMNS: tuple[tuple[Resource, str], ...] = (("Topic", "prices"), ("Group", "lvq.prices"), ("Topic", "_lvq_queues"))
_TYPES = {"Topic": ResourceType.TOPIC, "Group": ResourceType.GROUP, "TransactionalId": ResourceType.TRANSACTIONAL_ID}
_IN_TIME = 30.0  # seconds until a broker applies an ACL, and the work is done or refused


def _roles() -> dict[str, list[Right]]:
    lines = _PAGE[_PAGE.index("| who |") :].split("\n\n")[0].splitlines()[2:]
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return {role: _rights(cells) for role, *cells in rows}


def _rights(cells: list[str]) -> list[Right]:
    *named, more = cells
    rights = [
        Right(_operation(operation), resource, name)
        for cell, (resource, name) in zip(named, _COLUMNS, strict=True)
        for operation in filter(None, cell.split(", "))
    ]
    found = re.findall(r"(\w+) on (Topic|Group|TransactionalId) `([\w.:-]+)`", more)
    assert len(found) == len(list(filter(None, more.split(", ")))), more
    return rights + [Right(_operation(operation), resource, name) for operation, resource, name in found]


def _operation(text: str) -> Operation:
    assert text in get_args(Operation), text
    return text  # type: ignore[return-value]


ROLES = _roles()
"""The rights that each role needs."""


def grant(broker: SecureBroker, user: str, right: Right) -> None:
    """Grant a user a right. The broker applies it a moment later."""
    broker.allow(user, *_acl(right))


def _acl(right: Right) -> tuple[ResourceType, str, AclOperation]:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", right.operation).upper()
    return _TYPES[right.resource], right.name, AclOperation[name]


def lacked(error: BaseException | None) -> tuple[Right, str] | None:
    """Return the missing right that an error or its cause names, and the error's text."""
    while error is not None:
        if isinstance(error, Unauthorized) and error.missing is not None:
            return error.missing, str(error)
        error = error.__cause__
    return None


def needs_each(broker: SecureBroker, user: str, rights: list[Right], work: Callable[[], object]) -> None:
    """Check that the work succeeds with these rights, and that its error names each right that is revoked alone."""

    def outcome() -> LVQError | None:
        try:
            work()
        except LVQError as error:
            return error
        return None

    for right in rights:
        grant(broker, user, right)
    eventually(lambda: _done(outcome()), _IN_TIME)
    for right in rights:
        broker.forbid(user, *_acl(right))
        eventually(lambda right=right: names(outcome(), right), _IN_TIME)
        grant(broker, user, right)


def _done(error: LVQError | None) -> bool:
    assert error is None, repr(error)
    return True


def names(error: LVQError | None, right: Right) -> bool:
    """Return whether the error names the right, or Describe as included in that right."""
    found = lacked(error)
    assert found is not None, f"{right} is not missed: {error!r}"
    missing, text = found
    included = missing == right._replace(operation="Describe") and re.search(rf"included in.* {right.operation}", text)
    assert missing == right or included, f"{right} is missing, and {error!r} names {missing}"
    return True
