"""Names that the shell may complete with: queues of the cluster, and contexts.

Pressing a key must neither fail nor wait for long: without an answer there is nothing to complete with.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click

from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.saved_contexts import SavedContexts

__all__ = ["complete_contexts", "complete_queues"]

_PATIENCE = 2.0  # seconds
_MOST = 200  # names


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the queues whose names begin with a text; none if the cluster is late."""
    invocation = ctx.ensure_object(Invocation)

    def names() -> list[str]:
        from lvq_kafka.declared.registry import Registry

        return [definition.name for definition in Registry(invocation.connect()).all()]

    return _beginning(incomplete, names)


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of contexts that begin with a text."""
    return _beginning(incomplete, lambda: SavedContexts().names)


def _beginning(incomplete: str, names: Callable[[], list[str]]) -> list[str]:
    found: list[str] = []

    def find_names() -> None:
        with suppress(Exception):
            found.extend(names())

    with _silence():
        thread = threading.Thread(target=find_names, daemon=True, name="lvq-completion")
        thread.start()
        thread.join(_PATIENCE)
    # A name with other characters would be a word of the shell's own.
    return [name for name in list(found) if name.startswith(incomplete) and name.isprintable()][:_MOST]


@contextmanager
def _silence() -> Iterator[None]:
    """Redirect stderr, to which the client writes, too; a line is being typed."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
