"""The scripts with which shells complete ``lvq``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lvq_kafka.cli.common_options import Command

__all__ = ["completion"]


@click.command(
    "completion",
    cls=Command,
    examples=[
        'eval "$(lvq completion bash)"                                    # in ~/.bashrc',
        'eval "$(lvq completion zsh)"                                     # in ~/.zshrc',
        "lvq completion fish > ~/.config/fish/completions/lvq.fish",
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, *, shell: str) -> None:
    """Print what makes a shell complete commands, options, contexts and the names of queues.

    Queues are asked of the cluster that the line names; if it does not answer within two seconds, there are none.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "lvq", "_LVQ_COMPLETE").source())
