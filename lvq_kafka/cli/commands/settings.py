"""Address settings: options for the queues whose topics match a pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import Command, CommandGroup, cluster_options, pair
from lvq_kafka.cli.exit_codes import NOTHING, Complaint, describe, exit_code, print_problem
from lvq_kafka.cli.queue_words import by_name, changes_by_name, changes_in_words, options_in_words
from lvq_kafka.core.queue.settings_by_pattern import DELIMITERS, AddressPattern, AddressSetting, matching
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.errors import Unauthorized
from lvq_kafka.managing.applying_settings import Applied, apply_settings

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation
    from lvq_kafka.cluster import Cluster
    from lvq_kafka.core.queue.definition import QueueDefinition

__all__ = ["settings"]

_apply_option = click.option(
    "--apply", is_flag=True, help="Also alter queues that are declared already; without it, only say what would change."
)


@click.group("settings", cls=CommandGroup)
def settings() -> None:
    """Give options to all queues whose topics match a pattern.

    They hold for queues that are declared later, where the declaration says nothing; 'lvq declare' says which setting
    gave what. Queues that are declared already are altered with --apply, as by 'lvq alter'. Of several patterns that
    match, the most specific one counts, option by option.

    In a pattern, * is any word of a topic's name, and # any number of words, even none: 'stock.#' matches stock,
    stock.us and stock.us.tech. Quote patterns, or the shell replaces them by the names of files.
    """


@settings.command(
    "set",
    cls=Command,
    examples=[
        "lvq settings set 'stock.#' -o default-last-value-key=ticker",
        "lvq settings set 'orders_*' --delimiter _ -o max-expiry-delay=60000 -o default-non-destructive=true",
    ],
)
@click.argument("pattern")
@click.option(
    "-o",
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    required=True,
    callback=pair,
    help="A queue option by its name here or in Qpid, Artemis or Broker-J. Repeatable.",
)
@click.option(
    "--delimiter", type=click.Choice([*DELIMITERS]), default=".", show_default=True, help="It parts the words of names."
)
@_apply_option
@cluster_options
@click.pass_obj
def set_(invocation: Invocation, pattern: str, *, options: list[tuple[str, str]], delimiter: str, apply: bool) -> None:
    """Set the options for a pattern, in place of those that it had."""
    setting = AddressSetting.of(AddressPattern(pattern, delimiter), dict(options))
    cluster = invocation.connect()
    SettingStore(cluster).put(setting)
    said = f"{pattern}: {options_in_words(setting.options)}"
    _print_outcome(
        invocation,
        said,
        _row(setting),
        cluster,
        lambda queue: setting.pattern.matches(queue.topic) or _took_from(queue, pattern),
        apply=apply,
    )


@settings.command("show", cls=Command, examples=["lvq settings show stock.us"])
@click.argument("topic")
@cluster_options
@click.pass_obj
def show(invocation: Invocation, topic: str) -> None:
    """Show the settings for a topic, the most specific first."""
    found = matching(SettingStore(invocation.connect()).all(), topic)
    if not found:
        raise Complaint(f"No setting matches {brief(topic)}.", NOTHING)
    _print(invocation, found)


@settings.command("list", cls=Command, examples=["lvq settings list"])
@cluster_options
@click.pass_obj
def list_(invocation: Invocation) -> None:
    """List all settings."""
    found = SettingStore(invocation.connect()).all()
    if not found:
        invocation.out.note("No setting. Try: lvq settings set 'stock.#' -o default-last-value-key=ticker")
    _print(invocation, found)


@settings.command("delete", cls=Command, examples=["lvq settings delete 'stock.#'"])
@click.argument("pattern")
@_apply_option
@cluster_options
@click.pass_obj
def delete(invocation: Invocation, pattern: str, *, apply: bool) -> None:
    """Delete the setting with a pattern."""
    cluster = invocation.connect()
    if not SettingStore(cluster).delete(pattern):
        raise Complaint(f"No setting has the pattern {brief(pattern)}; see lvq settings list.", NOTHING)
    _print_outcome(
        invocation,
        f"{pattern} was deleted",
        {"deleted": pattern},
        cluster,
        lambda queue: _took_from(queue, pattern),
        apply=apply,
    )


def _took_from(queue: QueueDefinition, pattern: str) -> bool:
    return pattern in (queue.from_settings or {})


def _print_outcome(
    invocation: Invocation,
    said: str,
    row: dict[str, Any],
    cluster: Cluster,
    concerns: Callable[[QueueDefinition], bool],
    *,
    apply: bool,
) -> None:
    """Print what was done, and what comes of it for declared queues.

    Raises:
        Complaint: a queue could not be altered.
    """
    try:
        found = list(apply_settings(cluster, concerns, dry_run=not apply))
    except Unauthorized as error:
        if apply:
            raise
        found = []
        print_problem(f"not checked which queues would be altered: {describe(error, by_name)}", warning=True)
    if invocation.out.person:
        invocation.out.done(said)
        for one in found:
            if one.alteration is not None:
                changes = (
                    f"queue {one.before.name}: {'; '.join(changes_in_words(one.before, one.alteration.definition))}"
                )
                invocation.out.done(changes) if apply else invocation.out.note(f"--apply would alter the {changes}")
    else:
        invocation.out.row({**row, "queues": [_applied_row(one) for one in found]})
    failures = [(one.before.name, one.error) for one in found if one.error is not None]
    for name, why in failures:
        print_problem(f"queue {name}: {describe(why, by_name)}", warning=not apply)
    if failures and apply:
        raise Complaint("Some queues could not be altered, see above; the setting holds.", exit_code(failures[0][1]))


def _applied_row(applied: Applied) -> dict[str, Any]:
    before, alteration = applied.before, applied.alteration
    if alteration is None:
        return {"queue": before.name, "changes": {}, "error": str(applied.error)}
    return {"queue": before.name, "changes": changes_by_name(before, alteration.definition), "error": None}


def _print(invocation: Invocation, found: list[AddressSetting]) -> None:
    if not invocation.out.person:
        for setting in found:
            invocation.out.row(_row(setting))
    elif found:
        from lvq_kafka.cli.table import fitted_table

        rows = [
            {"PATTERN": brief(setting.pattern.text), "OPTIONS": options_in_words(setting.options)} for setting in found
        ]
        table, _ = fitted_table(invocation.out.console.width, rows, gives_way=[])
        invocation.out.say(table)


def _row(setting: AddressSetting) -> dict[str, object]:
    pattern = setting.pattern
    return {"pattern": pattern.text, "delimiter": pattern.delimiter, "options": dict(setting.options)}
