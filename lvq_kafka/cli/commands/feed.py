"""The command that feeds a queue from a topic."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, get_args

import click

from lvq_kafka.cli.common_options import command
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.output import Output, count
from lvq_kafka.declared.group_checks import Start

if TYPE_CHECKING:
    from lvq_kafka.managing.feeding import FeedStats

__all__ = ["feed"]


@command(
    "feed",
    examples=[
        "lvq feed trades ticker",
        "lvq feed trades ticker --until-end",
        "lvq feed trades ticker --start latest",
    ],
)
@click.argument("source")
@click.argument("queue", shell_complete=complete_queues)
@click.option(
    "--start",
    type=click.Choice(get_args(Start)),
    help="Where to begin if it is not known how far the queue was fed: feed what SOURCE still has, or only what comes.",
)
@click.option("--until-end", is_flag=True, help="Stop when everything is fed that SOURCE holds now.")
def feed(invocation: Invocation, source: str, queue: str, *, start: Start | None, until_end: bool) -> None:
    """Feed a queue from the topic SOURCE, each message once.

    The key, and what the queue's selector reads, may be fields of a JSON body: they become headers. The selector acts
    before a value replaces another one. Messages that the queue cannot have are counted, and the first of each kind is
    reported.

    Runs until Ctrl-C. If it is killed, or another lvq feed takes over, the next one goes on where it ended.
    """
    opened = invocation.open(QueueChoice(queue), create=True)
    with opened.feed(source, start=start) as feeding:
        try:
            with invocation.out.waiting(lambda: f"feeding {opened.name} from {source}: {_in_words(feeding.stats)}"):
                feeding.run(until_end=until_end)
        except (KeyboardInterrupt, SystemExit):
            _report(invocation.out, source, opened.name, feeding.stats)
            raise
        _report(invocation.out, source, opened.name, feeding.stats)


def _report(out: Output, source: str, queue: str, stats: FeedStats) -> None:
    if out.person:
        out.done(f"{queue} was fed from {source}: {_in_words(stats)}")
    else:
        out.row({"queue": queue, "source": source, **asdict(stats)})


def _in_words(stats: FeedStats) -> str:
    left_out = {name: number for name, number in asdict(stats).items() if name not in ("read", "fed") and number}
    told = "".join(f", {number:,} {name}" for name, number in left_out.items())
    return f"{count(stats.fed, 'message')}{told}"
