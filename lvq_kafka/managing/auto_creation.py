"""Queues that are missing at their address, declared for their first link."""

from __future__ import annotations

import logging
from dataclasses import replace

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.facts import Format
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.topic_settings import TopicSpec
from lvq_kafka.declared.addressed import declared_at
from lvq_kafka.dialects.address import Address, LinkRole
from lvq_kafka.errors import ConfigError, LVQError, QueueNotDeclared
from lvq_kafka.managing import declaring
from lvq_kafka.managing.declaring import Declaration

__all__ = ["asked_at", "declare_for"]

logger = logging.getLogger("lvq_kafka.topics")


def asked_at(
    cluster: Cluster, address: Address, codec_format: Format | None
) -> tuple[QueueDefinition, tuple[str, ...]]:
    """Return a missing queue's definition, with settings (R37), and what was not read.

    Raises:
        ConfigError: nothing names its key, or options clash; says where in the address.
    """
    try:
        return declaring.complete(cluster, replace(address.request(), codec_format=codec_format))
    except ConfigError as error:
        raise address.placed(error) from None


def declare_for(
    role: LinkRole, cluster: Cluster, address: Address, codec_format: Format | None
) -> tuple[QueueDefinition, Declaration | None]:
    """Declare a queue for a link, unless somebody else has declared it meanwhile.

    Args:
        codec_format: the format of the link's codec; None if it says nothing.

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
        definition, unread = asked_at(cluster, address, codec_format)
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
