"""The options of commands that serve HTTP: where they listen, and whom they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import click

from lvq_kafka.cli.common_options import WholeNumber, add_options
from lvq_kafka.cli.server_sockets import is_loopback, names_of

__all__ = ["ListeningPlace", "listening_options"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ListeningPlace:
    """An address to listen on, and those who are answered there."""

    host: str
    port: int
    allowed: Sequence[str]
    """The names of this server that were given."""
    token_file: str | None

    @property
    def names(self) -> list[str]:
        """The names that clients use for this server."""
        return [*self.allowed, *names_of(self.host)]

    @property
    def is_open(self) -> bool:
        """True if everybody is answered who reaches this machine."""
        return self.token_file is None and not is_loopback(self.host)


def listening_options(port: int, tokens: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of a server, passed on as ``place``.

    Args:
        port: the port, unless another is given.
        tokens: the help of ``--token-file``.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def with_place(
            *arguments: Any, host: str, port: int, hosts: tuple[str, ...], token_file: str | None, **options: Any
        ) -> Any:
            return function(*arguments, place=ListeningPlace(host, port, hosts, token_file), **options)

        return add_options(cast(F, with_place), choices)

    choices = [
        click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
        click.option(
            "--port",
            type=WholeNumber(min=0, max=65_535),
            default=port,
            show_default=True,
            help="The port to listen on; 0 for any free one.",
        ),
        click.option(
            "--allow-host",
            "hosts",
            metavar="NAME",
            multiple=True,
            help="A name that clients use for this server. Repeatable. Addresses and localhost are always allowed.",
        ),
        click.option("--token-file", metavar="FILE", help=tokens),
    ]
    return decorate
