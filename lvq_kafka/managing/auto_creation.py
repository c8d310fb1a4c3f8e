"""Queues at addresses: used as they are, or declared for their first link."""

from __future__ import annotations

import logging

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.topic_settings import TopicSpec
from lvq_kafka.declared.registry import Registry, describe_differences
from lvq_kafka.dialects.address import Address, LinkRole
from lvq_kafka.errors import ConfigError, LVQError, QueueMismatch, QueueNotDeclared
from lvq_kafka.managing import declaring
from lvq_kafka.managing.declaring import Declaration

__all__ = ["asked_at", "check_asserted", "check_managing", "declare_for", "declared_at"]

logger = logging.getLogger("lvq_kafka.topics")


def declared_at(cluster: Cluster, address: Address) -> QueueDefinition:
    """Return the definition of the queue that an address names.

    Where the queue is not as the address says, that is a warning in the log, or an error if the address asserts it.

    Raises:
        QueueNotDeclared: there is no such queue.
        QueueMismatch: it is not as the address says, which asserts it for every link.
    """
    declared = Registry(cluster).get(address.queue)
    mismatch = _mismatch(declared, address)
    if mismatch is not None:
        if address.check == "always":
            raise mismatch
        logger.warning("%s It is used as it is.", mismatch)
    return declared


def check_asserted(declared: QueueDefinition, address: Address, role: LinkRole) -> None:
    """Check that a queue is as its address says, if the address asserts that for such a link.

    Raises:
        QueueMismatch: it is not.
    """
    if address.checks(role) and (mismatch := _mismatch(declared, address)) is not None:
        raise mismatch


def check_managing(address: Address) -> None:
    """Check that an address means all of its queue, as management does.

    Raises:
        ConfigError: it selects messages; says where.
    """
    if address.selection:
        error = ConfigError(
            "The address selects messages, which is for receivers: management is about the whole queue.",
            options=list(address.selection),
            hint="Name the queue alone.",
        )
        raise address.placed(error)


def asked_at(cluster: Cluster, address: Address) -> tuple[QueueDefinition, tuple[str, ...]]:
    """Return a missing queue's definition, with settings (R37), and what was not read.

    Raises:
        ConfigError: nothing names its key, or options clash; says where in the address.
    """
    try:
        return declaring.complete(cluster, address.request())
    except ConfigError as error:
        raise address.placed(error) from None


def declare_for(role: LinkRole, cluster: Cluster, address: Address) -> tuple[QueueDefinition, Declaration | None]:
    """Declare a queue for a link, unless somebody else has declared it meanwhile.

    Raises:
        QueueNotDeclared: there is none, and the address declares none for such a link.
        As `declaring.declare` and `declared_at`.
    """
    try:
        return declared_at(cluster, address), None
    except QueueNotDeclared as missing:
        if not address.creates(role):
            raise QueueNotDeclared(
                f"No queue {address.queue} is declared, and its address declares one for the first "
                f"{address.create}, not for a {role}.",
                queue=address.queue,
                hint=missing.hint,
            ) from None
    try:
        definition, unread = asked_at(cluster, address)
        declaration = declaring.declare(cluster, definition, start="earliest", spec=TopicSpec(), on_mismatch="raise")
    except LVQError:  # perhaps since another client was faster
        try:
            return declared_at(cluster, address), None
        except QueueNotDeclared:
            pass
        raise
    for unchecked in (*declaration.unchecked, *unread):
        logger.warning("queue %s: not checked: %s", definition.name, unchecked)
    return definition, declaration


def _mismatch(declared: QueueDefinition, address: Address) -> QueueMismatch | None:
    """Return the error for a queue that is not as its address says; None if it is."""
    differences = address.differences(declared)
    if not differences:
        return None
    told = describe_differences(declared, address.definition(complete=False), differences)
    return QueueMismatch(
        f"The queue {declared.name} is not as its address says: it is declared with {told}.",
        queue=declared.name,
        differences=differences,
    )
