"""Declaring what the configuration file of a broker describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lvq_kafka.cli.exit_codes import BAD_DATA, WRONG_QUEUE, Complaint, describe, print_problem
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.queue_words import key_in_words, options_in_words
from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.queue_request import QueueRequest
from lvq_kafka.core.queue.settings_by_pattern import AddressSetting, by_pattern, matching
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.core.text.wording import BARE, Mention
from lvq_kafka.declared.registry import Registry
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.dialects.address import Address
from lvq_kafka.dialects.broker_files import BrokerFile, parse_broker_file
from lvq_kafka.errors import ConfigError, QueueMismatch, TopicError
from lvq_kafka.queue import LastValueQueue

__all__ = ["import_file"]

ImportOutcome = Literal["new", "same", "changed", "differs", "left out"]

_DONE: Mapping[ImportOutcome, Mapping[str, str]] = {
    "new": {"setting": "set", "queue": "declared"},
    "same": {"setting": "is there", "queue": "is there"},
    "changed": {"setting": "changed"},
}


@dataclass(frozen=True, slots=True)
class _Imported:
    """A setting or a queue in the file, and the outcome."""

    kind: Literal["setting", "queue"]
    name: str
    outcome: ImportOutcome
    told: str


def import_file(invocation: Invocation, path: Path, *, dry_run: bool, apply: bool) -> None:
    """Set the settings of a file and declare its queues; print the outcome of each.

    Args:
        dry_run: only print what would come of it.
        apply: also change settings that are otherwise.

    Raises:
        ConfigError: the file is not that of a broker.
        Complaint: a part of it could not be had, or is otherwise already.
    """
    file = parse_broker_file(path.read_bytes())
    outcomes = set()
    for step in _steps(invocation.connect(), file, dry_run=dry_run, apply=apply):
        outcomes.add(step.outcome)
        if step.outcome in ("differs", "left out"):
            print_problem(f"{step.kind} {brief(step.name)}: {step.told}")
        if not invocation.out.person:
            invocation.out.row({step.kind: step.name, "outcome": step.outcome, "told": step.told})
        elif step.outcome not in ("differs", "left out"):
            would = "would be " if dry_run and step.outcome != "same" else ""
            invocation.out.done(f"{step.kind} {brief(step.name)} {would}{_DONE[step.outcome][step.kind]}: {step.told}")
    for part in file.left_out:
        print_problem(str(part))
    if file.unread:
        invocation.out.note(f"not read: {listed(file.unread)}, which are about something else than queues")
    if "differs" in outcomes:
        raise Complaint("Queues and settings that exist stay as they are; --apply changes settings.", WRONG_QUEUE)
    if file.left_out or "left out" in outcomes:
        raise Complaint("Some of the file cannot be had here, see above; all the rest is.", BAD_DATA)


def _steps(cluster: Cluster, file: BrokerFile, *, dry_run: bool, apply: bool) -> Iterator[_Imported]:
    store = SettingStore(cluster)
    settings = {setting.pattern.text: setting for setting in store.all()}
    for setting in file.settings:
        yield (step := _setting(settings.get(setting.pattern.text), setting, apply))
        if step.outcome in ("new", "changed"):
            settings[setting.pattern.text] = setting
            if not dry_run:
                store.put(setting)
    expiry_topics = {str(setting.options.get("expiry-address")) for setting in settings.values()}
    for address in sorted(file.queues, key=lambda address: address.request().topic not in expiry_topics):
        found = by_pattern(matching(settings.values(), address.request().topic))
        yield _queue(cluster, address, found, dry_run=dry_run)


def _setting(there: AddressSetting | None, setting: AddressSetting, apply: bool) -> _Imported:
    pattern, told = setting.pattern.text, options_in_words(setting.options)
    if there is None:
        return _Imported("setting", pattern, "new", told)
    if there == setting:
        return _Imported("setting", pattern, "same", told)
    before = options_in_words(there.options)
    if apply:
        return _Imported("setting", pattern, "changed", f"{told}; it was {before}")
    return _Imported("setting", pattern, "differs", f"it is {before}, and the file says {told}. --apply sets that.")


def _queue(
    cluster: Cluster, address: Address, settings: Mapping[str, Mapping[str, object]], *, dry_run: bool
) -> _Imported:
    registry, request = Registry(cluster), address.request()
    topic = request.topic
    try:
        declared = registry.find(address.queue)
        definition = _definition(request, settings if declared is None else declared.from_settings or {})
        if declared is None and not dry_run:
            options = {**address.options, **({} if definition.conflate else {"conflate": False})}
            with LastValueQueue.declare(address.queue, topic=topic, options=options, cluster=cluster) as queue:
                definition = queue.definition
        elif declared is not None or dry_run:
            registry.check(definition)
    except QueueMismatch as error:
        return _Imported("queue", address.queue, "differs", describe(error, _as_in_file))
    except (ConfigError, TopicError) as error:
        return _Imported("queue", address.queue, "left out", describe(error, _as_in_file))
    on = "" if topic == address.queue else f"on the topic {topic}, "
    return _Imported("queue", address.queue, "new" if declared is None else "same", f"{on}{key_in_words(definition)}")


def _as_in_file(mention: Mention) -> str:
    return mention.name if mention.value is BARE else f"{mention.name}={mention.value}"


def _definition(request: QueueRequest, settings: Mapping[str, Mapping[str, object]]) -> QueueDefinition:
    """Return a queue's definition: a standard queue, if nothing makes it another."""
    try:
        return request.definition(settings)
    except ConfigError as error:
        if list(error.options) != ["key-header"]:
            raise
    return QueueRequest(request.name, request.topic, {}, {**(request.options or {}), "conflate": False}).definition(
        settings
    )
