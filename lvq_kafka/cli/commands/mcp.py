"""The command that lets agents read queues."""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import click

from lvq_kafka.cli.common_options import Seconds, WholeNumber, command
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.signals import heed_signals
from lvq_kafka.runtime.extras import needing

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation

__all__ = ["mcp"]


@command(
    "mcp",
    examples=[
        "lvq mcp",
        "lvq mcp prices orders --context production",
        "lvq mcp prices --max-value-bytes 500 -b localhost:9092",
    ],
)
@click.argument("queues", metavar="[QUEUE…]", nargs=-1, shell_complete=complete_queues)
@click.option(
    "--timeout",
    type=Seconds(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for an answer that waits until a queue is complete.",
)
@click.option(
    "--max-value-bytes",
    type=WholeNumber(min=1, max=1_000_000),
    default=4096,
    show_default=True,
    help="The most bytes of a value that an answer has; longer ones are cut off, and marked.",
)
def mcp(invocation: Invocation, queues: tuple[str, ...], *, timeout: float, max_value_bytes: int) -> None:
    """Let agents read current values, by the Model Context Protocol.

    An agent starts it, and talks to it on stdin and stdout. It has tools that list and describe queues, get the values
    of keys, and find values by a selector; none of them writes. Each answer says how current it is. Without QUEUE, it
    reads all that are declared, and that its user may read.

    A queue is read into memory once a tool asks for it. Runs until stdin ends, or
    Ctrl-C or SIGTERM.
    """
    with needing("mcp", "lvq mcp"):  # before anything is opened
        from lvq_kafka.cli.agent_tools import AgentTools
        from lvq_kafka.cli.tool_server import serve_tools
    tools = AgentTools(invocation.connect(), queues, timeout=timeout, most_bytes=max_value_bytes)
    with closing(tools):
        ended_by = asyncio.run(serve_tools(tools))
    if ended_by is not None:
        heed_signals()  # the event loop had its own handlers
        signal.raise_signal(ended_by)  # ends the command as any other
