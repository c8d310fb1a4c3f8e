"""Commands that change what a queue has consumed, and one that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import Seconds, command, key_option, timeout_option, typed
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.confirm import confirm, yes_option
from lvq_kafka.cli.exit_codes import describe, print_problem
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.offset_spec import in_words, offsets_by_partition, point
from lvq_kafka.cli.output import Output, count
from lvq_kafka.errors import LVQError

if TYPE_CHECKING:
    from lvq_kafka.managing.management import Change, Point
    from lvq_kafka.queue import LastValueQueue

__all__ = ["expire", "keep_alive", "move", "purge", "reclaim", "reset"]

_reading = timeout_option(60.0, "Time limit for reading the queue.")


@command("purge", examples=["lvq purge prices", "lvq purge prices --key IBM --key MSFT --yes"])
@click.argument("queue", shell_complete=complete_queues)
@key_option
@yes_option
@_reading
def purge(invocation: Invocation, queue: str, *, keys: tuple[str, ...], yes: bool, timeout: float) -> None:
    """Mark the messages in a queue as consumed.

    The topic is not changed. No consumer may be running.
    """
    opened = invocation.open(QueueChoice(queue))
    queue = opened.name
    if keys:
        confirm(_sure(f"the messages of {count(len(keys), 'key')}", queue), yes=yes, if_not="Nothing was purged.")
        change = _working(invocation, opened, lambda: opened.purge(keys=keys, timeout=timeout))
        messages = change.messages or 0
    else:
        messages = _working(invocation, opened, lambda: opened.stats(timeout=timeout)).depth
        confirm(_sure(count(messages, "message"), queue), yes=yes, if_not="Nothing was purged.")
        change = opened.purge(timeout=timeout)
    _print_change(invocation.out, "purged", queue, change, messages)


@command("expire", examples=["lvq expire prices --older-than 86400 --yes"])
@click.argument("queue", shell_complete=complete_queues)
@click.option(
    "--older-than",
    type=Seconds(min=0),
    required=True,
    metavar="SECONDS",
    help="Only messages older than this.",
)
@yes_option
@_reading
def expire(invocation: Invocation, queue: str, *, older_than: float, yes: bool, timeout: float) -> None:
    """Mark old messages as consumed.

    The topic is not changed. No consumer may be running.
    """
    opened = invocation.open(QueueChoice(queue))
    queue = opened.name
    confirm(_sure(f"messages older than {older_than:,g} s", queue), yes=yes, if_not="Nothing was expired.")
    change = _working(invocation, opened, lambda: opened.expire(older_than, timeout=timeout))
    _print_change(invocation.out, "expired", queue, change, change.messages or 0)


@command(
    "reset",
    examples=[
        "lvq reset prices --to earliest",
        "lvq reset prices --to 2026-08-01T12:30 --yes",
        "lvq reset prices --offset 0=120 --offset 3=77 --yes",
    ],
)
@click.argument("queue", shell_complete=complete_queues)
@click.option("--to", callback=point, metavar="WHERE", help="earliest, latest, or a time.")
@click.option(
    "--offset",
    "offsets",
    metavar="PARTITION=OFFSET",
    multiple=True,
    callback=offsets_by_partition,
    help="Or one partition's offset. Repeatable; other partitions keep their position.",
)
@yes_option
def reset(invocation: Invocation, queue: str, *, to: Point | None, offsets: dict[int, int], yes: bool) -> None:
    """Move a queue's position.

    The queue then holds the messages from there on that are still in the log, and nothing else. A time is in seconds
    since the epoch, or like 2026-08-01T12:30. No consumer may be running.
    """
    if (to is None) == (not offsets):
        raise click.UsageError("Give --to, or --offset for some partitions.")
    opened = invocation.open(QueueChoice(queue))
    queue = opened.name
    confirm(
        f"Continue {queue} {in_words(offsets or to)}? Messages consumed since then are delivered again.",
        yes=yes,
        if_not="Nothing was reset.",
    )
    change = opened.reset(offsets or to or "earliest")
    if invocation.out.person:
        bases = ", ".join(f"{partition}: {one.base:,}" for partition, one in sorted(change.after.items()))
        invocation.out.done(f"{queue} continues at {bases}")
    else:
        invocation.out.row({"reset": queue, "offsets": _bases(change)})


@command("move", examples=["lvq move prices archive", "lvq move orders review --key 4711 --yes"])
@click.argument("queue", shell_complete=complete_queues)
@click.argument("destination", shell_complete=complete_queues)
@key_option
@click.option(
    "--not-atomic", is_flag=True, help="Without transactions: after a failure, a message can be in both queues."
)
@yes_option
@_reading
def move(
    invocation: Invocation,
    queue: str,
    destination: str,
    *,
    keys: tuple[str, ...],
    not_atomic: bool,
    yes: bool,
    timeout: float,
) -> None:
    """Move messages from one queue to another.

    They are new there: each replaces the current value of its key. No consumer of QUEUE may be running.
    """
    opened, target = invocation.open(QueueChoice(queue)), invocation.open(QueueChoice(destination))
    queue, destination = opened.name, target.name
    what = f"the messages of {count(len(keys), 'key')}" if keys else "all messages"
    confirm(f"Move {what} from {queue} to {destination}?", yes=yes, if_not="Nothing was moved.")
    change = _working(
        invocation,
        opened,
        lambda: opened.move(target, keys=keys or None, atomic=not not_atomic, timeout=timeout),
    )
    if invocation.out.person:
        invocation.out.done(f"{count(change.messages or 0, 'message')} moved from {queue} to {destination}")
    else:
        invocation.out.row({"moved": queue, "to": destination, "messages": change.messages, "offsets": _bases(change)})


@command("reclaim", examples=["lvq reclaim prices"])
@click.argument("queue", shell_complete=complete_queues)
@yes_option
def reclaim(invocation: Invocation, queue: str, *, yes: bool) -> None:
    """Delete consumed messages from a queue's topic.

    Deletes what all queues on the topic have consumed. It is then gone for all readers of the topic. The topic needs
    the policy compact,delete, or delete for a standard queue. Consumers may be running, and can do this by themselves:
    lvq consume --auto-reclaim.
    """
    opened = invocation.open(QueueChoice(queue))
    outcome = opened.reclaim(dry_run=True)
    if outcome.offsets:
        queues = ", ".join(outcome.queues)
        confirm(
            f"Delete {count(outcome.offsets, 'offset')} of the topic {opened.topic}, consumed by {queues}, for good?",
            yes=yes,
            if_not="Nothing was deleted.",
        )
        outcome = opened.reclaim()
    if invocation.out.person:
        told = f"{count(outcome.offsets, 'offset')} of {opened.topic} deleted"
        invocation.out.done(told if outcome.offsets else f"nothing to delete from {opened.topic}")
    else:
        starts = {str(partition): start for partition, start in sorted(outcome.after.items())}
        invocation.out.row({"reclaimed": opened.topic, "offsets": outcome.offsets, "starts": starts})


@command("keep-alive", examples=["lvq keep-alive prices", "lvq keep-alive prices orders --timeout 60"])
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@timeout_option(30.0, "Time limit for the group of each queue to admit this member.")
def keep_alive(invocation: Invocation, names: tuple[str, ...], *, timeout: float) -> None:
    """Keep what idle queues have consumed.

    Brokers forget it a while after the last consumer has left (offsets.retention.minutes, a week by default). This
    joins the group of each queue as a consumer does, and leaves it. It reads and commits nothing. Where consumers are
    active, it does nothing: they keep it themselves.

    An error of one queue does not keep the others from their turn.
    """
    failed: list[Exception] = []
    for name in names:
        try:
            _keep(invocation, name, timeout)
        except LVQError as error:
            failed.append(error)
    for other in failed[:-1]:
        print_problem(describe(other, typed(click.get_current_context())))
    if failed:
        raise failed[-1]


def _keep(invocation: Invocation, name: str, timeout: float) -> None:
    queue = invocation.open(QueueChoice(name))
    with invocation.out.waiting(lambda: f"joining the group of {queue.name}"):
        renewed = queue.keep_alive(timeout=timeout)
    if not invocation.out.person:
        invocation.out.row({"kept": queue.name, "renewed": renewed})
    elif renewed:
        invocation.out.done(f"what {queue.name} has consumed is kept as if a consumer had just left")
    else:
        invocation.out.done(f"consumers of {queue.name} are active and keep it: there is nothing to do")


def _working(invocation: Invocation, queue: LastValueQueue[Any], work: Callable[[], Any]) -> Any:
    with invocation.out.waiting(lambda: f"reading {queue.name}"):
        return work()


def _sure(what: str, queue: str) -> str:
    return f"Mark {what} in {queue} as consumed?"


def _bases(change: Change) -> dict[str, int]:
    return {str(partition): one.base for partition, one in sorted(change.after.items())}


def _print_change(out: Output, verb: str, queue: str, change: Change, messages: int) -> None:
    if not out.person:
        row = {verb: queue, "messages": messages, "without_room": change.without_room, "offsets": _bases(change)}
        out.row(row)
        return
    out.done(f"{count(messages, 'message')} of {queue} marked as consumed")
    if change.without_room:
        out.note(
            f"No room for {count(change.without_room, 'message')} more: they lie too far apart. Repeat when more has "
            "been consumed."
        )
