"""Diagnosis and repair of a queue's commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import command
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.exit_codes import WRONG_QUEUE, Complaint
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.offset_spec import point
from lvq_kafka.cli.output import Output, count
from lvq_kafka.core.text.quoting import printable

if TYPE_CHECKING:
    from lvq_kafka.declared.damage import Damage
    from lvq_kafka.managing.management import Point

__all__ = ["damage_row", "repair"]


@command(
    "repair",
    examples=["lvq repair prices", "lvq repair prices --apply", "lvq repair prices --start earliest --apply"],
)
@click.argument("queue", shell_complete=complete_queues)
@click.option(
    "--start", callback=point, metavar="WHERE", help="Where to start if the record of what was consumed is lost."
)
@click.option("--apply", is_flag=True, help="Make the repairs instead of only showing them.")
def repair(invocation: Invocation, queue: str, *, start: Point | None, apply: bool) -> None:
    """Show what is wrong with a queue's commits, and repair it.

    If the record of what was consumed is lost, --start says where to begin: earliest, latest, or a time. For a commit
    by another program, everything below its offset counts as consumed, unless --start is given. All other repairs may
    redeliver messages but lose none. No consumer may be running during a repair.

    Exits with 4 while something is wrong.
    """
    opened = invocation.open(QueueChoice(queue))
    queue = opened.name
    outcome = opened.repair(start, dry_run=not apply)
    offsets = {str(partition): one.base for partition, one in sorted(outcome.after.items())}
    if invocation.out.person:
        _show_repair(invocation.out, queue, outcome.found, outcome.left, offsets, applied=apply)
    else:
        invocation.out.row(
            {
                "repair": queue,
                "found": [damage_row(damage) for damage in outcome.found],
                "left": [damage_row(damage) for damage in outcome.left],
                "offsets": offsets,
                "applied": apply and bool(offsets),
            }
        )
    wrong = len(outcome.left if apply else outcome.found)
    if wrong:
        hint = "give --start" if outcome.left else "--apply repairs it"
        raise Complaint(f"{count(wrong, 'problem')} with {queue}; {hint}.", WRONG_QUEUE)


def damage_row(damage: Damage) -> dict[str, Any]:
    """Return a damage as a row for programs."""
    return {
        "kind": damage.kind,
        "partitions": list(damage.partitions),
        "what": str(damage),
        "needs_start": damage.needs_start,
    }


def _show_repair(
    out: Output, queue: str, found: Sequence[Damage], left: Sequence[Damage], offsets: dict[str, int], *, applied: bool
) -> None:
    from rich.text import Text

    if not found:
        out.done(f"nothing is wrong with {queue}")
        return
    lines = Text()
    open_kinds = {damage.kind for damage in left}
    for damage in found:
        mended = applied and damage.kind not in open_kinds
        lines.append("✓ repaired: " if mended else "✗ ", "bold green" if mended else "bold red")
        lines.append(f"{printable(str(damage))}\n")
    if offsets:
        bases = ", ".join(f"{partition}: {base}" for partition, base in offsets.items())
        lines.append(f"{'continues at' if applied else 'with --apply it would continue at'} {bases}\n", "dim")
    lines.rstrip()
    out.say(lines)
