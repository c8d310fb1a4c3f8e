"""The command line reference in Markdown, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.command_list import SECTIONS
from lvq_kafka.cli.common_options import Command
from lvq_kafka.cli.exit_codes import EXIT_CODES

__all__ = ["reference"]


def reference() -> str:
    """Return the page's sections: each command with its options, and the exit codes."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    root = click.Context(lvq, info_name="lvq")
    yield from ("## Options of every command", "", *_options(lvq, root))
    for title, commands in SECTIONS.items():
        yield from (f"## {title}", "")
        for command in commands:
            yield from _command(lvq.commands[command.name], root)
    yield from ("## Exit codes", "", "| code | meaning |", "| ---: | --- |")
    yield from (f"| {code} | {_cell(meaning)} |" for code, meaning in EXIT_CODES.items())


def _command(command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=command.name, parent=parent)
    yield from (f"### {context.command_path}", "", "```text")
    yield f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield from ("```", "", *_help(command), *_options(command, context, common=_names(parent)))
    yield from _examples(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _command(below, context)


def _help(command: click.Command) -> Iterator[str]:
    """Return a command's help. Click marks a paragraph to keep as it is with a backspace."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        else:
            yield from (_text(paragraph), "")


def _options(command: click.Command, context: click.Context, common: frozenset[str | None] = frozenset()) -> Iterator[str]:
    """Return a table of the options that the command does not share with all others."""
    options = [option for option in command.get_params(context) if option.name not in common]
    records = [record for option in options if (record := option.get_help_record(context)) and record[1]]
    if records:
        yield from ("| option | |", "| --- | --- |")
        yield from (f"| `{names}` | {_cell(text)} |" for names, text in records)
        yield ""


def _names(context: click.Context) -> frozenset[str | None]:
    return frozenset(option.name for option in context.find_root().command.get_params(context.find_root()))


def _examples(command: click.Command) -> Iterator[str]:
    if isinstance(command, Command):
        yield from ("```text", *command.examples, "```", "")


def _cell(text: str) -> str:
    return _text(" ".join(text.split())).replace("|", "\\|")


def _text(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
