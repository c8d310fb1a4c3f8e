"""Shared parts of the commands: a class with examples, cluster options, queue selection."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from itertools import pairwise
from typing import Any, TypeVar, cast

import click

from lvq_kafka.cli.completing import complete_contexts, complete_queues
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.codecs import CODECS
from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import shell_word
from lvq_kafka.core.text.wording import BARE, Mention, Spelling

__all__ = [
    "Command",
    "CommandGroup",
    "Context",
    "Seconds",
    "SignedNumber",
    "WholeNumber",
    "add_options",
    "cluster_options",
    "command",
    "format_option",
    "key_option",
    "output_options",
    "pair",
    "queue_argument",
    "selection_options",
    "settings",
    "stream_options",
    "timeout_option",
    "typed",
]

_WIDE, _NARROW, _LEAST = 80, 60, 24  # columns
_LONGEST = 200  # characters of a value in an error
_WITH_UNIT = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?:[eE]\d)?)\s*([A-Za-z]*)")
_SECONDS = {
    "": 1,
    **dict.fromkeys(("ms", "millis", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
_MULTIPLES = {"": 1, "k": 1000, "m": 1_000_000}
_NEGATIVE = re.compile(r"-\.?\d[\d.,_]*(?:[eE][-+]?\d+)?")

_COMMON = ("bootstrap_servers", "config", "context", "json", "debug", "help")

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A number of seconds, which NaN is not."""

    name = "number of seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        seconds = _converted(partial(super().convert, param=param, ctx=ctx), value, _SECONDS)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return seconds

    def _describe_range(self) -> str:
        """Return nothing where there is no range, of which click's help would say ``x<=None``."""
        return "" if self.min is None and self.max is None else super()._describe_range()


class SignedNumber(click.types.IntParamType):
    """A whole number, which may be negative."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        return _converted(partial(super().convert, param=param, ctx=ctx), value, _MULTIPLES)


class WholeNumber(click.IntRange):
    """A whole number in a range."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        return _converted(partial(super().convert, param=param, ctx=ctx), value, _MULTIPLES)


def _converted(convert: Callable[[Any], Any], value: object, units: Mapping[str, float]) -> Any:
    """Return a number; an error shows it without unit and commas."""
    try:
        return convert(value)
    except click.BadParameter as error:
        written = _written(str(value), units)
        if written is None:
            raise
        try:
            convert(written)
        except click.BadParameter:
            raise error from None
        raise click.BadParameter(f"{error.message} Write {written}.", error.ctx, error.param) from None


def _written(text: str, units: Mapping[str, float]) -> str | None:
    """Return the number that a text means, in plain digits; None if it means none."""
    found = _WITH_UNIT.fullmatch(text)
    unit = None if found is None else units.get(found[2].lower())
    if found is None or unit is None:
        return None
    number = float(found[1].replace(",", "")) * unit
    return str(int(number) if number.is_integer() else number)


class HelpFormatter(click.HelpFormatter):
    """Writes help that fits a narrow terminal: an explanation goes below its word."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        if width is None:  # click's own width is at least 50, however narrow the terminal is
            columns = shutil.get_terminal_size().columns
            width = max(min(columns, max_width or _WIDE) - 2, _LEAST)
        super().__init__(indent_increment, width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write pairs of a word and its explanation."""
        super().write_dl(rows, col_max if self.width >= _NARROW else self.width // 5, col_spacing)


class Context(click.Context):
    """The context of a command of ``lvq``."""

    formatter_class = HelpFormatter


class CommandGroup(click.Group):
    """A group of commands."""

    context_class = Context

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with its whole first line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(80)) for name, command in self.commands.items()])


class Command(click.Command):
    """A command whose help ends with examples.

    Args:
        elsewhere: options that it cannot have, each with what to do instead.
    """

    context_class = Context

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        elsewhere: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)
        self._elsewhere = elsewhere or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; a value such as -5 is not an option."""
        ctx.ignore_unknown_options = any(map(_NEGATIVE.fullmatch, args))
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            raise click.UsageError(self._unknown(error.option_name), ctx) from None
        except click.UsageError as error:
            for flag, value in pairwise(args):
                if flag in self._flags and "extra argument" in error.message and f"({value}" in error.message:
                    raise click.UsageError(self._valued(flag, value), ctx) from None
            raise

    @property
    def _options(self) -> list[click.Option]:
        return [param for param in self.params if isinstance(param, click.Option)]

    @property
    def _words(self) -> list[str]:
        return [word for option in self._options for word in option.opts]

    @property
    def _flags(self) -> set[str]:
        return {word for option in self._options if option.is_flag for word in option.opts}

    def _unknown(self, name: str) -> str:
        if name in self._elsewhere:
            return f"{self.name} has no option {name}. {self._elsewhere[name]}"
        inside = [word for word in self._words if set(_words_of(name)) & set(_words_of(word))]
        near = nearest(name, self._words, alike=0.8) or inside[:3]
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"No such option {name}.{meant}"

    def _valued(self, flag: str, value: str) -> str:
        others = [word for word in self._words if word.endswith(flag.lstrip("-")) and word not in self._flags]
        return f"{flag} takes no value, but {value} follows it." + (f" {others[0]} does." if others else "")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors and warnings name the options that it has."""
        ctx.ensure_object(Invocation).running = ctx
        return super().invoke(ctx)

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


def _words_of(option: str) -> list[str]:
    return option.strip("-").split("-")


_OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "bytes": ("max_bytes",),
    "catch_up_timeout": ("timeout",),
    "conflate": ("standard",),
    "default_filters": ("default_selector",),
    "delete_topic": ("with_topic",),
    "dump": ("updates_only",),
    "limits": ("max_messages",),
    "messages": ("max_messages",),
    "not_before": ("delay",),
    "placement": ("place_by",),
    "policy": ("overflow",),
    "proxies": ("proxy",),
    "replay_period": ("replay", "default_replay_period"),
}
"""Options of the library that have other names here."""


def typed(ctx: click.Context | None) -> Spelling:
    """Return a function that spells options as they are typed.

    They are those of the command that runs; or else those of declare.
    """

    def spell(mention: Mention) -> str:
        if ctx is None:
            return mention.python
        by_name = dict(ctx.params.get("options", ()))  # of declare -o
        if mention.name in by_name:
            given = by_name[mention.name]
            same = str(mention.value).lower() == given.lower()
            return _typed("-o", mention.name, given if same else mention.value, equals=True)
        option = _option_of(ctx, mention.name.replace("-", "_"))
        if option is not None:
            word = max(option.opts, key=len)
            return word if option.is_flag else _typed(word, "", mention.value)
        if "options" in ctx.params:
            return _typed("-o", mention.name, mention.value, equals=True)
        return mention.python

    return spell


def _option_of(ctx: click.Context, name: str) -> click.Option | None:
    """Return the option that sets an option of the library.

    Of several, it is the one that was given.
    """
    root = ctx.find_root()
    declare = root.command.get_command(root, "declare") if isinstance(root.command, click.Group) else None
    for command in filter(None, (ctx.command, declare)):
        found = {option.name: option for option in command.params if isinstance(option, click.Option)}
        names = [one for one in (name, *_OTHER_NAMES.get(name, ())) if one in found]
        if names:
            return found[next((one for one in names if ctx.params.get(one) not in (None, (), False)), names[0])]
    return None


def _typed(option: str, name: str, value: object, *, equals: bool = False) -> str:
    if value is BARE or value is None:
        return f"{option} {name}".rstrip()
    said = f"{value:.15g}" if isinstance(value, float) else str(value)
    word = shell_word(said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…")
    return f"{option} {name}{'=' if equals else ''}{word}"


def command(
    name: str, *, examples: Sequence[str], elsewhere: Mapping[str, str] | None = None
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command that talks to a cluster; its first argument is the `Invocation`.

    For its options, see `Command`.
    """

    def make(function: Callable[..., Any]) -> Command:
        of_name = click.command(name, cls=Command, examples=examples, elsewhere=elsewhere)
        made: Command = of_name(cluster_options(click.pass_obj(function)))
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
        click.option(
            "--context",
            metavar="NAME",
            help="Such a file by its name: see 'lvq context'. [env: LVQ_CONTEXT]",
            expose_value=False,
            callback=_remember,
            shell_complete=complete_contexts,
        ),
    ]
    return add_options(output_options(function), options)


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
    return add_options(function, options)


def add_options(function: F, options: Sequence[Callable[[F], F]]) -> F:
    """Return a command's function with options, in the order of its help."""
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
    """Add the argument QUEUE, a name or an address, passed on as ``choice``.

    ``--bare`` and ``--key-header`` are for topics that are not declared queues.
    """

    @wraps(function)
    def with_choice(*arguments: Any, queue: str, bare: bool, key_header: str | None, **options: Any) -> Any:
        if key_header is not None and not bare:
            raise click.UsageError("--key-header goes with --bare; a declared queue knows its own.")
        return function(*arguments, choice=QueueChoice(queue, bare, key_header), **options)

    options = [
        click.argument("queue", shell_complete=complete_queues),
        click.option("--bare", is_flag=True, help="QUEUE is any compacted topic, not the name of a declared queue."),
        click.option("--key-header", metavar="NAME", help="With --bare: the header that holds the key."),
    ]
    return add_options(cast(F, with_choice), options)


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
            type=WholeNumber(min=0),
            multiple=True,
            help="Read only this partition. Repeatable.",
        ),
    ]
    return add_options(cast(F, with_selection), options)


def stream_options(function: F) -> F:
    """Add the options of a stream of changes, passed on as ``stream``: those of a browser."""

    @wraps(function)
    def with_stream(*arguments: Any, **options: Any) -> Any:
        stream = {name: options.pop(name) for name in ("every", "previous", "changed")}
        return function(*arguments, stream={name: value for name, value in stream.items() if value}, **options)

    options = [
        click.option(
            "--every",
            type=Seconds(min=0, min_open=True),
            metavar="SECONDS",
            help="Write changes at most every SECONDS: the newest values of the keys that have changed.",
        ),
        click.option("--previous", is_flag=True, help="Write each value with the one that it replaces."),
        click.option("--changed", is_flag=True, help="Leave out a value that equals the one written last for its key."),
    ]
    return add_options(cast(F, with_stream), options)


format_option = click.option(
    "--format",
    "form",
    type=click.Choice(list(CODECS)),
    help="Format of values. Bytes are shown as text if they are UTF-8.  [default: the queue's, or bytes]",
)


def timeout_option(default: float, help_text: str) -> Callable[[F], F]:
    """Return the option --timeout, in seconds."""
    return click.option(
        "--timeout", type=Seconds(min=0), default=default, show_default=True, metavar="SECONDS", help=help_text
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


def settings(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> list[tuple[str, str]]:
    """Parse options of the form NAME=VALUE, each given once."""
    pairs = pair(ctx, param, given)
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is given twice.", ctx, param)
    return pairs
