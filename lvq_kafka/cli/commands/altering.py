"""The command that changes a queue while it lives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

import click

from lvq_kafka.cli.commands.queues import finding_row
from lvq_kafka.cli.common_options import command, pair
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.definition_options import DEFINITION_OPTIONS, definition_options
from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.cli.queue_words import changes_by_name, changes_in_words
from lvq_kafka.core.queue.altering import ALTERABLE, UNSETTABLE, altered, changes_by_option
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.declared.queue_topic import OnMismatch

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lvq_kafka.cli.invocation import Invocation
    from lvq_kafka.queue import Alteration

__all__ = ["alter"]


@command(
    "alter",
    examples=[
        "lvq alter sessions --max-ttl 3600",
        "lvq alter alarms --max-messages 20000 --dry-run",
        "lvq alter rates --unset max-delay",
        "lvq alter prices -o maximumMessageTtl=60000",
    ],
)
@click.argument("name", metavar="QUEUE", shell_complete=complete_queues)
@definition_options(*(name for name in DEFINITION_OPTIONS if name == "keyless" or name in UNSETTABLE))
@click.option(
    "--unset",
    type=click.Choice(UNSETTABLE),
    multiple=True,
    metavar="OPTION",
    help="An option to go without, such as max-ttl, or ttl or limits as a whole. Repeatable.",
)
@click.option(
    "-o",
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pair,
    help="An option by its name here or in Qpid, Artemis or Broker-J. Repeatable.",
)
@click.option(
    "--on-mismatch",
    type=click.Choice(get_args(OnMismatch)),
    default="reconcile",
    show_default=True,
    help="The policy for settings of the topic that do not suit the altered options.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
def alter(
    invocation: Invocation,
    name: str,
    *,
    unset: tuple[str, ...],
    options: list[tuple[str, str]],
    on_mismatch: OnMismatch,
    dry_run: bool,
    said: dict[str, object],
) -> None:
    """Change options of a queue while it lives.

    They hold half a minute later, when all who use the queue know of them. Messages from before keep the TTL and the
    delay that they were written under. All that was consumed stays so.
    """
    twice = sorted(said.keys() & dict(options).keys())
    if twice:
        raise click.UsageError(f"--{twice[0]} and -o {twice[0]} are both given.")
    if not (said or options or unset):
        raise click.UsageError("Name an option to change, or to --unset.")
    from lvq_kafka.queue import Alteration, LastValueQueue

    queue = LastValueQueue.open(name, cluster=invocation.connect())
    before = queue.newest()
    changes = changes_by_option(before, {**said, **dict(options)}, unset)
    after = altered(before, changes)  # also for what it says of options that `alter` does not even have
    if dry_run:
        alteration = Alteration(after, None)
    else:
        changes = {option: value for option, value in changes.items() if option in ALTERABLE}
        alteration = queue.alter(on_mismatch=on_mismatch, **changes)
    for unchecked in alteration.unchecked:
        print_problem(f"not checked: {unchecked}", warning=True)
    if invocation.out.person:
        invocation.out.say(_render(before, alteration, dry_run=dry_run))
    else:
        invocation.out.row(_row(before, alteration, dry_run=dry_run))


def _row(before: QueueDefinition, alteration: Alteration, *, dry_run: bool) -> dict[str, object]:
    return {
        "queue": before.name,
        "since": None if alteration.since is None else _time(alteration.since),
        "changes": changes_by_name(before, alteration.definition),
        "dry_run": dry_run,
        "findings": [finding_row(finding) for finding in alteration.findings],
        "reconciled": [finding_row(finding) for finding in alteration.reconciled],
        "unchecked": list(alteration.unchecked),
    }


def _render(before: QueueDefinition, alteration: Alteration, *, dry_run: bool) -> RenderableType:
    from rich.text import Text

    changes = changes_in_words(before, alteration.definition)
    lines = Text()
    if not changes:
        return lines.append("✓ ", "bold green").append(before.name, "bold cyan").append(" has these options already")
    when = "would be altered" if alteration.since is None else f"is altered from {_time(alteration.since)} on"
    lines.append("" if dry_run else "✓ ", "bold green").append(before.name, "bold cyan").append(f" {when}")
    for change in changes:
        lines.append(f"\n  {change}")
    for finding in alteration.reconciled:
        lines.append("\n✓ ", "bold green").append(
            f"{finding.setting} set to {finding.expected}; it was {finding.actual}"
        )
    return lines


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
