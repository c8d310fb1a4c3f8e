"""Declaring and deleting queues: their topic, group and definition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.history import QueueHistory
from lvq_kafka.core.queue.idle_queues import judge_retention
from lvq_kafka.core.queue.queue_request import QueueRequest
from lvq_kafka.core.queue.settings_by_pattern import by_pattern, matching
from lvq_kafka.core.queue.topic_settings import (
    Finding,
    TopicNeeds,
    TopicSpec,
    check_policy,
    check_spec,
    judge_definition,
)
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.declared.group_checks import Start, at_work, declare_group, means_at_work
from lvq_kafka.declared.queue_topic import (
    OnMismatch,
    check_may_create,
    check_times,
    check_topic,
    describe_letter_topic,
    ensure_topic,
)
from lvq_kafka.declared.registry import Registry, describe_differences
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.errors import ConfigError, QueueError, QueueNotDeclared, TopicNotFound, TransportError, Unauthorized
from lvq_kafka.runtime.retrying import patiently
from lvq_kafka.selectors.of_queues import check_selectors

__all__ = ["Alteration", "Declaration", "alter", "complete", "declare", "drop"]

_LOOK = 3.0  # seconds for a setting that is only good to know
_PATIENCE = 30.0  # seconds until a coordinator answers; a new cluster first creates the offsets topic

logger = logging.getLogger("lvq_kafka.topics")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The outcome of `LastValueQueue.declare`."""

    created_topic: bool
    created_queue: bool
    findings: tuple[Finding, ...] = ()
    """Settings that still differ from what the queue or the caller's ``spec`` requires.

    Also an order that will not last, a TTL without a maximum, groups in several partitions, and limits that bind only
    some clients; and brokers that soon forget what was consumed, where this user may see that.
    """
    reconciled: tuple[Finding, ...] = ()
    """Settings that differed and have been corrected."""
    unchecked: tuple[str, ...] = ()
    """Descriptions of what this user's rights did not allow to check."""


def complete(cluster: Cluster, request: QueueRequest) -> tuple[QueueDefinition, tuple[str, ...]]:
    """Return a queue's definition, completed by settings (R37), and what could not be read.

    A queue that is declared keeps what settings gave it then, or when they were applied, whatever they say by now. A
    new one that nothing else gives a format has that of its program's codec (R53).

    Raises:
        ConfigError: nothing names its key, options clash, or a selector cannot be read.
    """
    unread: tuple[str, ...] = ()
    try:
        definition = _declared_as(request, Registry(cluster).history(request.name))
    except QueueNotDeclared:
        given: Mapping[str, Mapping[str, object]] = {}
        try:
            given = by_pattern(matching(SettingStore(cluster).all(), request.topic))
        except Unauthorized as error:
            unread = (f"the settings of queues on {request.topic}: {error}",)
        definition = request.definition(given)
        if definition.format is None:
            definition = replace(definition, format=request.codec_format)
    check_selectors(definition)
    return definition, unread


def _declared_as(request: QueueRequest, history: QueueHistory) -> QueueDefinition:
    """Return the definition that a request asks for of a queue that is declared.

    Options of before an alteration are right, too, and count with what settings gave then: with what they gave later,
    that may be a mixture which the queue never had.

    Raises:
        ConfigError: as for `complete`.
    """
    for revision in reversed(history.revisions):
        with suppress(ConfigError):
            asked = request.definition(revision.definition.from_settings or {})
            if (same := asked.with_format_of(revision.definition)) == revision.definition:
                return same
    return request.definition(history.newest.from_settings or {})


def declare(
    cluster: Cluster, definition: QueueDefinition, *, start: Start, spec: TopicSpec, on_mismatch: OnMismatch
) -> Declaration:
    """Create a queue, or check that it matches. See `lvq_kafka.LastValueQueue.declare`."""
    definition.check_declarable()
    check_policy(spec, conflate=definition.conflate)
    if definition.limits is not None:
        definition.limits.check_partitions(_partitions(cluster, definition.topic, spec))
    registry = Registry(cluster)
    declared, everything = registry.check(definition), registry.all()
    if declared:
        definition = _as_altered(definition, everything)
    _check_letter_topics(cluster, definition)
    needs = TopicNeeds.of(definition, everything, cluster.now())
    if on_mismatch == "raise":
        check_spec(spec, needs)
    if not declared:
        _check_rights(cluster, registry, definition, spec, needs)
    created_topic = ensure_topic(cluster, definition.topic, spec, needs)
    findings, reconciled, unchecked = check_topic(cluster, definition.topic, spec, on_mismatch, needs)
    for finding in judge_definition(definition, needs, lambda: cluster.topics.describe(definition.topic).partitions):
        logger.warning("queue %s: %s", definition.name, finding)
        findings.append(finding)
    if not definition.non_destructive:
        for finding in _judge_retention(cluster):
            logger.warning("queue %s: %s", definition.name, finding)
            findings.append(finding)
    if not (declared or definition.non_destructive):
        declare_group(cluster, definition.group, definition.topic, start, queue=definition.name)
    created_queue = registry.declare(definition)  # last, so that a declared queue has everything it needs
    return Declaration(created_topic, created_queue, tuple(findings), tuple(reconciled), tuple(unchecked))


def _judge_retention(cluster: Cluster) -> list[Finding]:
    """Return a finding if brokers keep commits too briefly, as far as that can be seen.

    Few users may read the settings of brokers.
    """
    with suppress(TransportError):
        return judge_retention(cluster.groups.retention(timeout=_LOOK))
    return []


@dataclass(frozen=True, slots=True)
class Alteration:
    """The outcome of `LastValueQueue.alter`."""

    definition: QueueDefinition
    """The options that the queue has from then on."""
    since: float | None
    """The time from which they hold, in seconds since the epoch; None if they were the queue's already."""
    findings: tuple[Finding, ...] = ()
    """Settings of the topic, and options, that do not suit the queue."""
    reconciled: tuple[Finding, ...] = ()
    """Settings of the topic that were corrected for the altered options."""
    unchecked: tuple[str, ...] = ()
    """Descriptions of what this user's rights did not allow to check."""


def alter(
    cluster: Cluster, name: str, change: Callable[[QueueDefinition], QueueDefinition], *, on_mismatch: OnMismatch
) -> Alteration:
    """Alter a queue; see `lvq_kafka.LastValueQueue.alter`.

    The topic's settings come first, so that they suit a message of either kind when the first one comes.
    """
    registry = Registry(cluster)
    before = registry.get(name)
    after = change(before)
    if after == before:
        return Alteration(before, None)
    topic = after.topic
    if after.limits is not None:
        after.limits.check_partitions(_partitions(cluster, topic, _AS_IT_IS))
    _check_letter_topics(cluster, after)
    registry.check_may_write(name)
    registry.check_times()
    others = [other for other in registry.all() if other.name != name]
    needed = TopicNeeds.of(before, others, cluster.now())
    needs = TopicNeeds.of(_both(before, after, cluster.now()), others, cluster.now())
    findings, reconciled, unchecked = check_times(cluster, topic, on_mismatch, before=needed, needs=needs)
    for finding in judge_definition(after, needs, lambda: cluster.topics.describe(topic).partitions):
        logger.warning("queue %s: %s", name, finding)
        findings.append(finding)
    history = registry.alter(name, change)
    return Alteration(
        history.newest,
        history.revisions[-1].since / 1000,
        tuple(findings),
        tuple(reconciled),
        tuple(unchecked),
    )


_AS_IT_IS = TopicSpec()


def _as_altered(definition: QueueDefinition, everything: Iterable[QueueDefinition]) -> QueueDefinition:
    """Return the definition that a declared queue has by now.

    A logged warning says what was altered.
    """
    now = next((one for one in everything if one.name == definition.name), definition)
    definition = definition.with_format_of(now)
    if differences := now.differences(definition):
        told = describe_differences(now, definition, differences)
        logger.warning("queue %s: it was altered since it was declared like this; it has %s", definition.name, told)
    return now


def _both(before: QueueDefinition, after: QueueDefinition, now: float) -> QueueDefinition:
    """Return the altered queue, whose messages so far count by the terms so far."""
    until = max(round(now * 1000), *(terms.until + 1 for terms in before.earlier), 0)
    terms = EarlierTerms(until=until, ttl=before.ttl, max_delay=before.max_delay)
    return replace(after, earlier=(*before.earlier, terms))


def _check_letter_topics(cluster: Cluster, definition: QueueDefinition) -> None:
    """Check that the topics of what leaves a queue exist.

    Raises:
        TopicNotFound: one does not.
    """
    if definition.expiry_topic is not None:
        describe_letter_topic(cluster, definition.expiry_topic, "expiry topic")
    if definition.dead_letters is not None:
        describe_letter_topic(cluster, definition.dead_letters, "dead letter topic")


def _partitions(cluster: Cluster, topic: str, spec: TopicSpec) -> int:
    """Return the number of partitions that a topic has, or will have once it is created."""
    try:
        return cluster.topics.describe(topic).partitions
    except TopicNotFound:
        return spec.new_partitions


def _check_rights(
    cluster: Cluster, registry: Registry, definition: QueueDefinition, spec: TopicSpec, needs: TopicNeeds
) -> None:
    """Check all of this user's rights before creating anything that would be left behind.

    The registry's own topic is the exception: whether this user may write to it shows only once it exists.
    """
    check_may_create(cluster, definition.topic, spec, needs)
    if not definition.non_destructive:
        patiently(lambda: cluster.groups.check_may_commit(definition.group, definition.topic), _PATIENCE)
    registry.check_may_declare(definition)


def drop(cluster: Cluster, definition: QueueDefinition, *, delete_topic: bool) -> None:
    """Delete a queue's definition and group, and its topic if requested.

    See `lvq_kafka.LastValueQueue.drop`.
    """
    name, topic = definition.name, definition.topic
    registry = Registry(cluster)
    if delete_topic:
        others = [other.name for other in registry.on_topic(topic) if other.name != name]
        if others:
            raise QueueError(
                f"The topic {topic} also serves {', '.join(others)}.",
                queue=name,
                hint="Drop those first, or keep the topic.",
            )
    registry.get(name)
    registry.check_may_write(name)  # before deleting the group, which cannot be restored
    if delete_topic:
        with suppress(TopicNotFound):
            cluster.topics.check_may("Delete", topic)
    try:
        cluster.groups.delete(definition.group)
    except TransportError as error:
        if not means_at_work(error):
            raise
        raise at_work(name) from None
    registry.remove(name)
    if delete_topic:
        cluster.topics.delete(topic)
