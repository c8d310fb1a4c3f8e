"""Contexts: connections to clusters under names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import Command, CommandGroup, cluster_options, output_options, settings
from lvq_kafka.cli.completing import complete_contexts
from lvq_kafka.cli.exit_codes import NOTHING, Complaint
from lvq_kafka.cli.saved_contexts import SavedContexts

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation
    from lvq_kafka.kafka import ClientConfig

__all__ = ["context"]


@click.group("context", cls=CommandGroup)
def context() -> None:
    """Keep connections to clusters under names.

    A context holds client properties, as a file in --config does. A command uses the one that --context or LVQ_CONTEXT
    names in place of that file. Without that, a command that names no cluster in any way uses the context in use.
    """


name_argument = click.argument("name", shell_complete=complete_contexts)


@context.command("list", cls=Command, examples=["lvq context list", "lvq context list | jq -r .name"])
@output_options
@click.pass_obj
def list_contexts(invocation: Invocation) -> None:
    """List the contexts, and which is in use."""
    saved = SavedContexts()
    current = saved.current
    rows: list[dict[str, Any]] = [
        {"name": name, "current": name == current, "bootstrap_servers": _config(saved, name).bootstrap_servers}
        for name in saved.names
    ]
    if not invocation.out.person:
        for row in rows:
            invocation.out.row(row)
        return
    if not rows:
        invocation.out.note("There is no context. Save one: lvq context set test -b host:port")
        return
    from lvq_kafka.cli.table import fitted_table

    shown = [
        {"CONTEXT": row["name"], "IN USE": "✓" if row["current"] else "", "BROKERS": row["bootstrap_servers"]}
        for row in rows
    ]
    table, left_out = fitted_table(invocation.out.console.width, shown, gives_way=["BROKERS"])
    invocation.out.say(table)
    invocation.out.note_left_out(left_out)


@context.command("show", cls=Command, examples=["lvq context show", "lvq context show production"])
@click.argument("name", required=False, shell_complete=complete_contexts)
@output_options
@click.pass_obj
def show(invocation: Invocation, *, name: str | None) -> None:
    """Show the properties of a context; by default, of the one in use. Secrets appear as ***."""
    from lvq_kafka.cli.table import plain_table
    from lvq_kafka.core.text.quoting import printable
    from lvq_kafka.kafka.properties import is_secret

    saved = SavedContexts()
    chosen = name or os.environ.get("LVQ_CONTEXT") or saved.current
    if chosen is None:
        raise Complaint("No context is in use. Choose one: lvq context use NAME", NOTHING)
    properties = {
        key: "***" if is_secret(key) else str(value) for key, value in _config(saved, chosen).properties.items()
    }
    if not invocation.out.person:
        path = str(saved.path(chosen))
        invocation.out.row({"name": chosen, "current": chosen == saved.current, "path": path, "properties": properties})
        return
    from rich.text import Text

    table = plain_table()
    table.add_column("PROPERTY", style="bold cyan", overflow="fold")
    table.add_column("VALUE", overflow="fold")
    for key, value in properties.items():
        table.add_row(Text(printable(key)), Text(printable(value)))
    invocation.out.say(table)


@context.command("use", cls=Command, examples=["lvq context use production", "lvq context use --none"])
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--none", is_flag=True, help="Use no context any longer.")
@output_options
@click.pass_obj
def use(invocation: Invocation, *, name: str | None, none: bool) -> None:
    """Use a context in commands that name no cluster."""
    if (name is None) is not none:
        raise click.UsageError("Name a context, or give --none.")
    SavedContexts().use(name)
    if invocation.out.person:
        invocation.out.done("no context is in use" if name is None else f"{name} is in use")
    else:
        invocation.out.row({"current": name})


@context.command(
    "set",
    cls=Command,
    examples=[
        "lvq context set test -b localhost:9092",
        "lvq context set production --config client.properties",
        "lvq context set production -b kafka:9093 -o security.protocol=SSL",
    ],
)
@name_argument
@click.option(
    "-o",
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=settings,
    help="A client property that is no secret. Repeatable.",
)
@cluster_options
@click.pass_obj
def set_context(invocation: Invocation, name: str, *, options: list[tuple[str, str]]) -> None:
    """Save a context, in place of one of this name.

    It gets the properties of the file in --config, or of the context in --context, those in -o, and the brokers in -b.
    Secrets come from that file only, so that they are in no list of processes and no history. The environment adds
    nothing. Only this user can read the context.
    """
    from lvq_kafka.kafka import ClientConfig
    from lvq_kafka.kafka.client import properties_text
    from lvq_kafka.kafka.properties import is_secret

    for key, _ in options:
        if is_secret(key):
            raise click.UsageError(
                f"{key} is a secret, which others could read in -o. Write it into a file, and give that in --config."
            )
    saved = SavedContexts()
    source = invocation.named_file({})
    base = {} if source is None else ClientConfig.from_file(source).properties
    properties = {**base, **dict(options)}
    if invocation.bootstrap_servers is not None:
        properties["bootstrap.servers"] = invocation.bootstrap_servers
    servers = str(properties.pop("bootstrap.servers", ""))
    if not servers:
        raise click.UsageError("Name the brokers: -b host:port, or --config FILE with bootstrap.servers.")
    existed = name in saved.names
    path = saved.save(name, properties_text(ClientConfig(servers, properties).properties))
    if invocation.out.person:
        invocation.out.done(f"{name} was {'replaced' if existed else 'saved'}: {servers}")
        if saved.current != name:
            invocation.out.note(f"To use it: lvq context use {name}")
    else:
        invocation.out.row({"name": name, "replaced": existed, "path": str(path), "bootstrap_servers": servers})


@context.command("remove", cls=Command, examples=["lvq context remove test"])
@name_argument
@output_options
@click.pass_obj
def remove(invocation: Invocation, *, name: str) -> None:
    """Delete a context. If it is in use, none is from then on."""
    saved = SavedContexts()
    was_current = saved.current == name
    saved.remove(name)
    if invocation.out.person:
        invocation.out.done(f"{name} was removed{', and no context is in use' if was_current else ''}")
    else:
        invocation.out.row({"removed": name, "was_current": was_current})


def _config(saved: SavedContexts, name: str) -> ClientConfig:
    from lvq_kafka.kafka import ClientConfig

    return ClientConfig.from_file(saved.path(name))
