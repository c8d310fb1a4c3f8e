"""The command that shows the metrics of all queues to Prometheus."""

from __future__ import annotations

from contextlib import ExitStack

import click

from lvq_kafka.cli.common_options import Seconds, command, timeout_option
from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.listening_options import ListeningPlace, listening_options
from lvq_kafka.cli.server_sockets import open_listener, url_of
from lvq_kafka.core.text.quoting import printable
from lvq_kafka.runtime.extras import needing
from lvq_kafka.serve import app
from lvq_kafka.telemetry.prometheus_families import need_prometheus
from lvq_kafka.telemetry.queue_survey import QueueSurvey

__all__ = ["exporter"]

_PORT = 9464  # where OpenTelemetry's exporters for Prometheus listen
_SCRAPES = 16  # at once


@command(
    "exporter",
    examples=[
        "lvq exporter",
        "lvq exporter --port 9464 --every 60",
        "lvq exporter --host 0.0.0.0 --allow-host metrics.example.com --token-file tokens",
    ],
)
@listening_options(_PORT, "The readers: in each line a bearer token and the queues that it may see, or *.")
@click.option(
    "--every",
    type=Seconds(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two measurements of a queue.",
)
@timeout_option(60.0, "Time limit for reading a queue.")
def exporter(
    invocation: Invocation,
    *,
    place: ListeningPlace,
    every: float,
    timeout: float,
) -> None:
    """Show Prometheus what waits in all declared queues.

    At /metrics are the depth and the age of each queue, by priority where it has priorities; its message groups, lag,
    consumers and dead letters; and damage. It measures queues from outside, one after the other, and spends at most a
    tenth of the time on reading them. It joins no group and commits nothing.

    Runs until Ctrl-C or SIGTERM.
    """
    need_prometheus("lvq exporter")  # before anything is opened
    with needing("serve", "lvq exporter"):
        from lvq_kafka.cli.http_server import run_server
    if place.is_open:
        print_problem(f"Without --token-file, everybody sees all queues who can reach {place.host}.", warning=True)
    with ExitStack() as opened:
        listens = opened.enter_context(open_listener(place.host, place.port))
        survey = QueueSurvey(invocation.connect(), every=every, timeout=timeout)
        served = app(hosts=place.names, token_file=place.token_file, metrics=survey.metrics)
        opened.enter_context(survey)
        url = f"{url_of(listens)}/metrics"
        if invocation.out.person:
            invocation.out.say(printable(f"the metrics of all queues at {url}"))
        else:
            invocation.out.row({"url": url})
        invocation.out.flush()
        run_server(served, listens, _SCRAPES)
