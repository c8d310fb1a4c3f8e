"""Altering the queues that are declared to what address settings give today (R37, R39)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.altering import by_settings
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.settings_by_pattern import AddressSetting, by_pattern, matching
from lvq_kafka.declared.registry import Registry
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.errors import LVQError
from lvq_kafka.managing.declaring import Alteration, alter
from lvq_kafka.selectors.of_queues import check_selectors

__all__ = ["Applied", "apply_settings"]


@dataclass(frozen=True, slots=True)
class Applied:
    """A queue whose settings give it other options by now, and what came of it."""

    before: QueueDefinition
    alteration: Alteration | None
    """Its alteration; with ``since`` None, only what it would be."""
    error: LVQError | None = None
    """Why there is none."""


def apply_settings(
    cluster: Cluster, concerns: Callable[[QueueDefinition], bool] = lambda _: True, *, dry_run: bool
) -> Iterator[Applied]:
    """Alter each queue that settings give other options than it has; yield these, by name.

    Args:
        concerns: returns whether a queue may be altered; by default, each may.
        dry_run: only yield what would be altered.

    Raises:
        TransportError: the cluster cannot be reached, or refuses to show settings or queues.
    """
    settings = SettingStore(cluster).all()
    for before in Registry(cluster).all():
        if concerns(before):
            yield from _applied(cluster, before, settings, dry_run=dry_run)


def _applied(
    cluster: Cluster, before: QueueDefinition, settings: Collection[AddressSetting], *, dry_run: bool
) -> Iterator[Applied]:
    given = by_pattern(matching(settings, before.topic))

    def change(definition: QueueDefinition) -> QueueDefinition:
        found = by_settings(definition, given)
        check_selectors(found)
        return found

    try:
        after = change(before)
        if after != before:
            alteration = Alteration(after, None)
            yield Applied(
                before, alteration if dry_run else alter(cluster, before.name, change, on_mismatch="reconcile")
            )
    except LVQError as error:
        yield Applied(before, None, error)
