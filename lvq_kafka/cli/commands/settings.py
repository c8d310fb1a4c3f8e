"""Address settings: options for the queues whose topics match a pattern."""

from __future__ import annotations

import click

from lvq_kafka.cli.common_options import Command, CommandGroup, cluster_options, pair
from lvq_kafka.cli.exit_codes import NOTHING, Complaint
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.queue_words import options_in_words
from lvq_kafka.core.queue.settings_by_pattern import DELIMITERS, AddressPattern, AddressSetting, matching
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.declared.setting_store import SettingStore

__all__ = ["settings"]


@click.group("settings", cls=CommandGroup)
def settings() -> None:
    """Give options to all queues whose topics match a pattern.

    They hold for queues that are declared later, where the declaration says nothing; 'lvq declare' says which setting
    gave what. Of several patterns that match, the most specific one counts, option by option.

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
@cluster_options
@click.pass_obj
def set_(invocation: Invocation, pattern: str, *, options: list[tuple[str, str]], delimiter: str) -> None:
    """Set the options for a pattern, in place of those that it had."""
    setting = AddressSetting.of(AddressPattern(pattern, delimiter), dict(options))
    SettingStore(invocation.connect()).put(setting)
    if invocation.out.person:
        invocation.out.done(f"{pattern}: {options_in_words(setting.options)}")
    else:
        invocation.out.row(_row(setting))


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
@cluster_options
@click.pass_obj
def delete(invocation: Invocation, pattern: str) -> None:
    """Delete the setting with a pattern. Queues that are declared already stay as they are."""
    if not SettingStore(invocation.connect()).delete(pattern):
        raise Complaint(f"No setting has the pattern {brief(pattern)}; see lvq settings list.", NOTHING)
    if invocation.out.person:
        invocation.out.done(f"{pattern} was deleted")
    else:
        invocation.out.row({"deleted": pattern})


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
