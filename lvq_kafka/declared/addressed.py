"""Queues at addresses: their declared definitions, compared with what the address says."""

from __future__ import annotations

import logging

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.declared.registry import Registry, describe_differences
from lvq_kafka.dialects.address import Address, LinkRole
from lvq_kafka.errors import ConfigError, QueueMismatch

__all__ = ["check_asserted", "check_managing", "declared_at"]

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
