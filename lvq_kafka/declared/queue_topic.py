"""A queue's topic: created if it is missing, checked if it exists."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, TypedDict

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.topic_settings import (
    NO_NEEDS,
    Finding,
    TopicNeeds,
    TopicSpec,
    delete_retention,
    judge,
    judge_size,
    topic_settings,
)
from lvq_kafka.errors import LVQError, TopicMismatch, TopicNotFound, TransportError, Unauthorized

__all__ = [
    "OnMismatch",
    "ask_delete_retention",
    "check_may_create",
    "check_times",
    "check_topic",
    "describe_letter_topic",
    "ensure_topic",
]

OnMismatch = Literal["raise", "warn", "reconcile"]
"""The policy for settings that break a last value queue: raise, only warn, or fix them."""


class _Shape(TypedDict):
    """The arguments for creating a topic."""

    partitions: int
    replication_factor: int | None
    config: Mapping[str, str]


logger = logging.getLogger("lvq_kafka.topics")


def ensure_topic(cluster: Cluster, topic: str, spec: TopicSpec, needs: TopicNeeds = NO_NEEDS) -> bool:
    """Create the topic if it is missing; return whether it was created."""
    try:
        cluster.topics.describe(topic)
    except TopicNotFound:
        created = cluster.topics.create(topic, **_shape(spec, needs))
        if created and spec.replication_factor is None and cluster.topics.describe(topic).replication_factor >= 3:
            with suppress(Unauthorized):  # creating needs no right to alter; `check_topic` warns then
                cluster.topics.alter_config(topic, {"min.insync.replicas": "2"})
        return created
    return False


def check_may_create(cluster: Cluster, topic: str, spec: TopicSpec, needs: TopicNeeds = NO_NEEDS) -> None:
    """Raise what `ensure_topic` would raise, without creating anything."""
    try:
        cluster.topics.describe(topic)
    except TopicNotFound:
        cluster.topics.check_may_create(topic, **_shape(spec, needs))


def check_topic(
    cluster: Cluster, topic: str, spec: TopicSpec, on_mismatch: OnMismatch, needs: TopicNeeds = NO_NEEDS
) -> tuple[list[Finding], list[Finding], list[str]]:
    """Judge the topic; return open findings, fixed findings, and anything left unchecked."""
    described = cluster.topics.describe(topic)
    replicas = described.replication_factor
    findings, unchecked = judge_size(spec, partitions=described.partitions, replication_factor=replicas), []
    reconciled: list[Finding] = []
    try:
        config = cluster.topics.config(topic)
    except Unauthorized:
        unchecked = [f"the settings of {topic}: this user may not read them"]
    else:
        settings = judge(config, spec, replication_factor=replicas, needs=needs)
        if settings and on_mismatch == "reconcile":
            cluster.topics.alter_config(topic, {finding.setting: finding.expected for finding in settings})
            reconciled = settings
        else:
            findings += settings
    _raise_errors(topic, findings, on_mismatch, needs)
    return findings, reconciled, unchecked


def check_times(
    cluster: Cluster, topic: str, on_mismatch: OnMismatch, *, before: TopicNeeds, needs: TopicNeeds
) -> tuple[list[Finding], list[Finding], list[str]]:
    """Judge the settings that a queue needs since it was altered.

    Return what `check_topic` returns.
    """
    described = cluster.topics.describe(topic)
    try:
        config = cluster.topics.config(topic)
    except Unauthorized:
        return [], [], [f"the settings of {topic}: this user may not read them"]
    replicas = described.replication_factor
    known = {(one.setting, one.expected) for one in judge(config, replication_factor=replicas, needs=before)}
    found = judge(config, replication_factor=replicas, needs=needs)
    found = [one for one in found if (one.setting, one.expected) not in known]
    if found and on_mismatch == "reconcile":
        cluster.topics.alter_config(topic, {finding.setting: finding.expected for finding in found})
        return [], found, []
    _raise_errors(topic, found, on_mismatch, needs)
    return found, [], []


def _raise_errors(topic: str, findings: Sequence[Finding], on_mismatch: OnMismatch, needs: TopicNeeds) -> None:
    """Log findings, or raise `TopicMismatch` if they break a queue, as asked for."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and on_mismatch == "raise":
        raise TopicMismatch(
            f"The topic {topic} cannot hold a {'last value' if needs.conflate else 'standard'} queue: "
            f"{'; '.join(finding.fact for finding in errors)}.",
            topic=topic,
            settings={finding.setting: (finding.expected, finding.actual) for finding in errors},
            hint='Fix it with `on_mismatch="reconcile"`, or use another topic.',
        )
    for finding in findings:
        logger.warning("topic %s: %s", topic, finding)


def _shape(spec: TopicSpec, needs: TopicNeeds = NO_NEEDS) -> _Shape:
    return {
        "partitions": spec.new_partitions,
        "replication_factor": spec.replication_factor,
        "config": topic_settings(spec, needs),
    }


def ask_delete_retention(
    cluster: Cluster, topic: str, known: float, *, timeout: float = 10.0, insist: bool = False
) -> float:
    """Return the seconds for which the topic keeps deletes, or ``known`` if it cannot say.

    Callers that may not read the settings go by Kafka's default, unless they know better: nothing else reveals the
    value.

    Raises:
        TransportError: ``insist`` is set, and the cluster is temporarily unavailable.
    """
    try:
        return delete_retention(cluster.topics.config(topic, timeout=timeout))
    except LVQError as error:
        if insist and isinstance(error, TransportError) and error.retriable:
            raise
        logger.debug("delete.retention.ms of %s is assumed to be %g s: %s", topic, known, error)
        return known


def describe_letter_topic(cluster: Cluster, topic: str, what: str) -> None:
    """Check that a topic exists.

    Args:
        what: what it is for, such as ``"dead letter topic"``.

    Raises:
        TopicNotFound: it does not, or this user may not see it.
    """
    try:
        cluster.topics.describe(topic)
    except TopicNotFound:
        raise TopicNotFound(
            f"The {what} {topic} does not exist, or this user may not see it.",
            topic=topic,
            hint="Create it with Kafka's tools, or as a queue that keeps the newest message of each key: "
            f"lvq declare {topic} --record-key",
        ) from None
