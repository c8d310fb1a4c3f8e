"""The complete command line: commands, their order in the help, and the end of every run."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from lvq_kafka._version import __version__
from lvq_kafka.cli.command_list import SECTIONS, Commands
from lvq_kafka.cli.common_options import Context, cluster_options, typed
from lvq_kafka.cli.exit_codes import (
    EXIT_CODES,
    FAULT,
    INTERRUPTED,
    NO_READER,
    describe,
    exit_code,
    print_notes,
    print_problem,
)
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.logs import logs_shown
from lvq_kafka.cli.signals import ended_by
from lvq_kafka.core.text.quoting import printable

__all__ = ["lvq"]


class Lvq(click.Group):
    """The group of all commands.

    It ends every run with an exit code and, on failure, one line.
    """

    context_class = Context

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = Commands()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what precedes the name of the command."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if any(error.option_name in each.opts for command in self.commands.values() for each in command.params):
                message = f"{error.option_name} goes after the name of the command."
                raise click.UsageError(message, ctx) from None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        invocation = ctx.ensure_object(Invocation)
        if os.environ.get("TERM") in ("dumb", "unknown"):  # these would print escape sequences as text
            ctx.color = False
        try:
            try:
                with logs_shown(invocation):
                    result = super().invoke(ctx)
            finally:
                invocation.close()
            invocation.out.flush()
        except click.exceptions.Exit:
            raise
        except click.ClickException as error:
            error.message = printable(error.message, keep="\n")  # type: ignore[misc]  # may quote the command line
            raise
        except BrokenPipeError as error:
            _leave_pipe()
            print_notes(error)
            ctx.exit(NO_READER)
        except SystemExit as error:
            print_notes(error)
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # any error ends with one line
            _fail(ctx, invocation, error)
        return result

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the help."""
        return [command.name for commands in SECTIONS.values() for command in commands]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands or options that begin with a text; no command is imported."""
        listed = [command for commands in SECTIONS.values() for command in commands]
        found = [CompletionItem(one.name, help=one.help) for one in listed if one.name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name, command.help) for command in commands])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write how a cluster is found, and the exit codes."""
        with formatter.section("Queues"):
            formatter.write_text(
                "QUEUE is a queue's name, or an address as in Qpid, Artemis or Broker-J: 'prices; {mode: browse}', "
                "'orders?last-value-key=code'. Commands that write, read or consume declare a missing queue if its "
                "address says so; the others never do."
            )
        with formatter.section("The cluster"):
            formatter.write_text(
                "Options override the environment, which overrides the file in --config or the context in --context. "
                "Without any of them, lvq uses the context of 'lvq context use', or else the broker of "
                "'lvq broker start'. Secrets come from a file or the environment: "
                "LVQ_SASL_USERNAME, LVQ_SASL_PASSWORD, LVQ_SSL_KEY_PASSWORD, or each with _FILE appended, to name a "
                "file that holds it. Only lvqtest has options for them, as Qpid's has."
            )
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def _fail(ctx: click.Context, invocation: Invocation, error: BaseException) -> NoReturn:
    if invocation.debug:
        sys.stderr.write(printable("".join(traceback.format_exception(error)), keep="\n\t"))
    try:
        invocation.out.flush()  # earlier output still counts
    except OSError:
        _leave_pipe()
    code = exit_code(error)
    if code == FAULT and (signal := ended_by()) is not None:
        code = 128 + signal  # not a fault: the client has masked the interruption
    elif code == INTERRUPTED:
        print_notes(error)
    else:
        print_problem(describe(error, typed(invocation.running)))
    ctx.exit(code)


def _leave_pipe() -> None:
    """Redirect stdout to /dev/null, so that Python does not complain about the rest at exit."""
    with suppress(OSError):  # stdout that is not an operating system file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Lvq, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@cluster_options
@click.version_option(__version__, message="lvq %(version)s")
def lvq() -> None:
    """Last value queues on Apache Kafka: every key keeps only its newest message.

    Piped, every command writes JSON lines; on a terminal, tables and boards.
    """
