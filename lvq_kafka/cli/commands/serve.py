"""The command that serves queues over HTTP."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import click

from lvq_kafka.cli.common_options import WholeNumber, command, format_option
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.listening_options import ListeningPlace, listening_options
from lvq_kafka.cli.output import Output
from lvq_kafka.cli.server_sockets import open_listener, url_of
from lvq_kafka.core.facts import Format
from lvq_kafka.core.text.quoting import printable
from lvq_kafka.runtime.extras import needing
from lvq_kafka.serve import app

__all__ = ["serve"]


@command(
    "serve",
    examples=[
        "lvq serve prices --format text",
        "lvq serve prices orders --port 8080 --store /var/lib/lvq",
        "lvq serve prices --host 0.0.0.0 --allow-host prices.example.com --token-file tokens",
        "lvq serve prices --writable --token-file tokens --user-header Remote-User",
    ],
)
@click.argument("queues", metavar="QUEUE…", nargs=-1, required=True, shell_complete=complete_queues)
@listening_options(8080, "The clients: in each line a bearer token and its rights: a queue to read, or *; QUEUE:write.")
@click.option(
    "--store",
    metavar="DIRECTORY",
    help="Keep the values in stores in this directory, one for each queue, and go on from there after a restart.",
)
@click.option(
    "--writable", is_flag=True, help="Let clients write and delete values; needs --token-file beyond loopback."
)
@click.option(
    "--user-header",
    metavar="NAME",
    help="The header in which a proxy names the user; his rights are in the token file, in a line user:NAME.",
)
@click.option(
    "--proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="An address or network from which that header counts, instead of this machine. Repeatable.",
)
@click.option(
    "--max-streams",
    type=WholeNumber(min=1, max=1_000_000),
    default=1000,
    show_default=True,
    help="The most clients that wait or read a stream at once.",
)
@click.option(
    "--board/--no-board", default=True, show_default=True, help="Show the queues as they change, on a page at /."
)
@format_option
def serve(
    invocation: Invocation,
    queues: tuple[str, ...],
    *,
    place: ListeningPlace,
    store: str | None,
    writable: bool,
    user_header: str | None,
    proxies: tuple[str, ...],
    max_streams: int,
    board: bool,
    form: Format | None,
) -> None:
    """Serve current values over HTTP: values, pages and events.

    It writes its address once it listens, and answers reads once a queue is complete; /ready says when. It writes
    nothing to queues without --writable. It has no TLS: put a proxy in front of it for clients elsewhere.

    Runs until Ctrl-C or SIGTERM.
    """
    with needing("serve", "lvq serve"):  # before anything is opened
        from lvq_kafka.cli.http_server import allow_open_files, run_server
    if (files := allow_open_files(max_streams)) is not None:
        print_problem(
            f"This process may have {files:,} open files, too few for --max-streams {max_streams}. Raise the limit "
            "(ulimit -Hn, or LimitNOFILE of systemd), or serve fewer streams.",
            warning=True,
        )
    if writable and place.is_open:
        raise click.UsageError(f"Without --token-file, everybody could write who can reach {place.host}.")
    with ExitStack() as opened:
        listening = opened.enter_context(open_listener(place.host, place.port))
        if place.is_open:
            print_problem(f"Without --token-file, everybody may read who can reach {place.host}.", warning=True)
        views, written = [], []
        for name in queues:
            queue = invocation.open(QueueChoice(name), form, create=True)
            written += [queue] if writable else []
            directory = None if store is None else Path(store) / queue.name
            views.append(opened.enter_context(closing(queue.view(store=directory, undecodable="raw"))).start())
        served = app(
            *views,
            hosts=place.names,
            writable=written,
            token_file=place.token_file,
            user_header=user_header,
            proxies=proxies,
            max_streams=max_streams,
            board=board,
        )
        _report(invocation.out, url_of(listening), [view.queue for view in views])
        run_server(served, listening, max_streams)


def _report(out: Output, url: str, queues: list[str]) -> None:
    if out.person:
        out.say(printable(f"{', '.join(queues)} at {url}"))
    else:
        out.row({"url": url, "queues": queues})
    out.flush()
