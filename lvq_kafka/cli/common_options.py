"""Shared parts of the commands: a class with examples, cluster options, queue selection."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import click

from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.json_lines import CODECS

__all__ = [
    "Command",
    "cluster_options",
    "command",
    "format_option",
    "key_option",
    "output_options",
    "pair",
    "queue_argument",
    "selection_options",
    "stream_options",
    "timeout_option",
]

_NEGATIVE = re.compile(r"-\.?\d[\d.,_]*(?:[eE][-+]?\d+)?")

_COMMON = ("bootstrap_servers", "config", "json", "debug", "help")

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; a value such as -5 is not an option."""
        ctx.ignore_unknown_options = any(map(_NEGATIVE.fullmatch, args))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of this command first, then the common ones."""
        for title, common in (("Options", False), ("Options of every command", True)):
            options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
            shown = [option for option in options if (option.name in _COMMON) is common]
            records = [record for option in shown if (record := option.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples verbatim, one per line."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], Command]:
    """Make a command that talks to a cluster; its first argument is the `Invocation`."""

    def make(function: Callable[..., Any]) -> Command:
        made: Command = click.command(name, cls=Command, examples=examples)(cluster_options(click.pass_obj(function)))
        return made

    return make


def cluster_options(function: F) -> F:
    """Add the options that every command takes, before or after its name.

    Their values go to the `Invocation`.
    """
    options = [
        click.option(
            "-b",
            "--bootstrap-servers",
            metavar="HOST:PORT,…",
            help="Brokers of the cluster. [env: LVQ_BOOTSTRAP_SERVERS]",
            expose_value=False,
            callback=_remember,
        ),
        click.option(
            "--config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="Client properties, name=value per line; the place for passwords. [env: LVQ_CONFIG]",
            expose_value=False,
            callback=_remember,
        ),
    ]
    return _decorated(output_options(function), options)


def output_options(function: F) -> F:
    """Add the options for output; their values go to the `Invocation`."""
    options = [
        click.option(
            "--json",
            is_flag=True,
            default=None,
            help="Write JSON lines even to a terminal.",
            expose_value=False,
            callback=_remember,
        ),
        click.option(
            "--debug",
            is_flag=True,
            default=None,
            help="Show the library's log, and the traceback of an error.",
            expose_value=False,
            callback=_remember,
        ),
    ]
    return _decorated(function, options)


def _decorated(function: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    invocation = ctx.ensure_object(Invocation)
    if value is None or param.name is None:
        return
    if param.name == "json":
        invocation.out.json = True
    else:
        setattr(invocation, param.name, value)


def queue_argument(function: F) -> F:
    """Add the argument QUEUE, passed on as ``choice``.

    ``--bare`` and ``--key-header`` are for topics that are not declared queues.
    """

    @wraps(function)
    def with_choice(*arguments: Any, queue: str, bare: bool, key_header: str | None, **options: Any) -> Any:
        if key_header is not None and not bare:
            raise click.UsageError("--key-header goes with --bare; a declared queue knows its own.")
        return function(*arguments, choice=QueueChoice(queue, bare, key_header), **options)

    options = [
        click.argument("queue"),
        click.option("--bare", is_flag=True, help="QUEUE is any compacted topic, not the name of a declared queue."),
        click.option("--key-header", metavar="NAME", help="With --bare: the header that holds the key."),
    ]
    return _decorated(cast(F, with_choice), options)


key_option = click.option("-k", "--key", "keys", metavar="KEY", multiple=True, help="Only this key. Repeatable.")


def _header_filters(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str | None]:
    pairs = [text.partition("=") for text in given]
    if any(not name for name, _, _ in pairs):
        raise click.BadParameter("A header needs a name.", ctx, param)
    return {name: value if equals else None for name, equals, value in pairs}


def selection_options(function: F) -> F:
    """Add the options that select keys and values, passed on as ``selection``.

    It holds those of `SelectionOptions` that were given.
    """

    @wraps(function)
    def with_selection(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in ("keys", "prefix", "headers", "selector", "partitions")}
        return function(
            *arguments,
            selection={name: value for name, value in given.items() if value not in (None, (), {})},
            **options,
        )

    options = [
        key_option,
        click.option("--prefix", metavar="TEXT", multiple=True, help="Only keys that begin with this. Repeatable."),
        click.option(
            "-H",
            "--header",
            "headers",
            metavar="NAME[=VALUE]",
            multiple=True,
            callback=_header_filters,
            help="Only messages with this header. Repeatable; all must match.",
        ),
        click.option(
            "--selector",
            metavar="CONDITION",
            help="Only messages that meet this condition, as in JMS: \"price > 100 AND exchange = 'NYSE'\".",
        ),
        click.option(
            "--partition",
            "partitions",
            metavar="NUMBER",
            type=click.IntRange(min=0),
            multiple=True,
            help="Read only this partition. Repeatable.",
        ),
    ]
    return _decorated(cast(F, with_selection), options)


def stream_options(function: F) -> F:
    """Add the options of a stream of changes, passed on as ``stream``: those of a browser."""

    @wraps(function)
    def with_stream(*arguments: Any, **options: Any) -> Any:
        stream = {name: options.pop(name) for name in ("every", "previous")}
        return function(*arguments, stream={name: value for name, value in stream.items() if value}, **options)

    options = [
        click.option(
            "--every",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Write changes at most every SECONDS: the newest values of the keys that have changed.",
        ),
        click.option("--previous", is_flag=True, help="Write each value with the one that it replaces."),
    ]
    return _decorated(cast(F, with_stream), options)


format_option = click.option(
    "--format",
    "form",
    type=click.Choice(list(CODECS)),
    default="bytes",
    show_default=True,
    help="Format of values. Bytes are shown as text if they are UTF-8.",
)


def timeout_option(default: float, help_text: str) -> Callable[[F], F]:
    """Return the option --timeout, in seconds."""
    return click.option(
        "--timeout", type=click.FloatRange(min=0), default=default, show_default=True, metavar="SECONDS", help=help_text
    )


def pair(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> list[tuple[str, str]]:
    """Parse options of the form NAME=VALUE."""
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.", ctx, param)
        pairs.append((name, value))
    return pairs
