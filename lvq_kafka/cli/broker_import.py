"""Declaring what the configuration file of a broker describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lvq_kafka.cli.exit_codes import BAD_DATA, WRONG_QUEUE, Complaint, describe, print_problem
from lvq_kafka.cli.queue_words import by_name, changes_in_words, key_in_words, options_in_words
from lvq_kafka.core.queue.altering import altered, by_settings
from lvq_kafka.core.queue.queue_request import QueueRequest
from lvq_kafka.core.queue.settings_by_pattern import AddressSetting, by_pattern, matching
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.declared.registry import Registry, describe_differences
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.dialects.broker_files import BrokerFile, parse_broker_file
from lvq_kafka.errors import ConfigError, QueueMismatch, TopicError
from lvq_kafka.managing.declaring import alter
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.selectors.of_queues import check_selectors

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation
    from lvq_kafka.cluster import Cluster
    from lvq_kafka.core.queue.definition import QueueDefinition
    from lvq_kafka.dialects.address import Address

__all__ = ["import_file"]

_LETTER_TOPICS = ("expiry-address", "dead-letter-address")

ImportOutcome = Literal["new", "same", "changed", "differs", "left out"]

_DONE: Mapping[ImportOutcome, Mapping[str, str]] = {
    "new": {"setting": "set", "queue": "declared"},
    "same": {"setting": "is there", "queue": "is there"},
    "changed": {"setting": "changed", "queue": "altered"},
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
        apply: also change settings, and alter queues, that are otherwise.

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
        raise Complaint(
            "Queues and settings that exist stay as they are; --apply changes what can be changed.", WRONG_QUEUE
        )
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
    planned: dict[str, QueueDefinition] = {}
    letters = {str(each.options.get(name)) for each in settings.values() for name in _LETTER_TOPICS}
    for address in sorted(file.queues, key=lambda address: address.request().topic not in letters):
        found = by_pattern(matching(settings.values(), address.request().topic))
        yield _queue(cluster, address, found, planned, dry_run=dry_run, apply=apply)


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
    cluster: Cluster,
    address: Address,
    settings: Mapping[str, Mapping[str, object]],
    planned: dict[str, QueueDefinition],
    *,
    dry_run: bool,
    apply: bool,
) -> _Imported:
    """Declare a queue, or compare it with the one that is there.

    Args:
        planned: the queues that a dry run would have declared so far, by name; it adds its own.
    """
    registry, request = Registry(cluster), address.request()
    on = "" if request.topic == address.queue else f"on the topic {request.topic}, "
    try:
        declared = registry.find(address.queue) or planned.get(address.queue)
        if declared is not None:
            told = f"{on}{key_in_words(declared)}"
            return _declared(cluster, declared, request, settings, told, dry_run=dry_run, apply=apply)
        definition = _definition(request, settings)
        if dry_run:
            registry.check(definition, planned.values())
            planned[definition.name] = definition
        else:
            options = {**address.options, **({} if definition.conflate else {"conflate": False})}
            with LastValueQueue.declare(address.queue, topic=request.topic, options=options, cluster=cluster) as queue:
                definition = queue.definition
    except QueueMismatch as error:
        return _Imported("queue", address.queue, "differs", describe(error, by_name))
    except (ConfigError, TopicError) as error:
        return _Imported("queue", address.queue, "left out", describe(error, by_name))
    return _Imported("queue", address.queue, "new", f"{on}{key_in_words(definition)}")


def _declared(
    cluster: Cluster,
    declared: QueueDefinition,
    request: QueueRequest,
    settings: Mapping[str, Mapping[str, object]],
    told: str,
    *,
    dry_run: bool,
    apply: bool,
) -> _Imported:
    """Compare a queue that is declared with what the file says, and alter it if asked.

    Until settings are applied, those count that it was declared with.
    """
    name, asked = declared.name, _definition(request, declared.from_settings or {}).with_format_of(declared)
    outcome: ImportOutcome = "same" if asked == declared else "differs"
    by_now = (
        by_settings(declared, settings)
        if asked == declared
        else _definition(request, settings).with_format_of(declared)
    )
    if by_now == declared:
        return _Imported("queue", name, "same", told)

    def change(definition: QueueDefinition) -> QueueDefinition:
        changes = {field: getattr(by_now, field) for field in by_now.differences(definition)}
        found = replace(altered(definition, changes), from_settings=by_now.from_settings)
        check_selectors(found)
        return found

    differences = describe_differences(declared, by_now, declared.differences(by_now))
    try:
        change(declared)
    except ConfigError as error:
        return _Imported("queue", name, outcome, f"it is declared with {differences}. {describe(error, by_name)}")
    if apply and not dry_run:
        alter(cluster, name, change, on_mismatch="reconcile")
    if apply:
        return _Imported("queue", name, "changed", "; ".join(changes_in_words(declared, by_now)))
    return _Imported("queue", name, outcome, f"{told}. It has {differences}; --apply alters that.")


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
