"""The commands by section of the help; each is imported when somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import NamedTuple

import click

__all__ = ["SECTIONS", "Commands", "ListedCommand"]


class ListedCommand(NamedTuple):
    """A command, as far as the help and completion show it."""

    name: str
    module: str
    """Its module below `lvq_kafka.cli.commands`, in which it has its name."""
    help: str
    """The first sentence of its own help."""


SECTIONS: Mapping[str, tuple[ListedCommand, ...]] = {
    "Queues": (
        ListedCommand("declare", "queues", "Create a queue, or check that it matches."),
        ListedCommand("alter", "altering", "Change options of a queue while it lives."),
        ListedCommand("options", "options", "List the options of queues, by their names here and in other systems."),
        ListedCommand("settings", "settings", "Give options to all queues whose topics match a pattern."),
        ListedCommand(
            "queues", "queues", "List the declared queues, with how much waits in each, and how old the oldest is."
        ),
        ListedCommand("stats", "stats", "Show what a queue holds and whether it is healthy."),
        ListedCommand("drop", "queues", "Delete a queue."),
    ),
    "Write": (
        ListedCommand("send", "write", "Send messages with headers."),
        ListedCommand("put", "write", "Set the values of keys."),
        ListedCommand("delete", "write", "Remove keys and their values."),
        ListedCommand("feed", "feed", "Feed a queue from the topic SOURCE, each message once."),
    ),
    "Read": (
        ListedCommand("get", "read", "Print the current values of keys."),
        ListedCommand("browse", "read", "Read a queue without consuming."),
        ListedCommand("watch", "watch", "Watch current values change."),
        ListedCommand("sql", "sql", "Answer a query in the SQL of DuckDB."),
        ListedCommand("export", "export", "Write a snapshot of the current values."),
        ListedCommand("hold", "hold", "Keep the current values in a store, for other processes to attach."),
        ListedCommand("serve", "serve", "Serve current values over HTTP: values, pages and events."),
        ListedCommand("mcp", "mcp", "Let agents read current values, by the Model Context Protocol."),
    ),
    "Consume": (ListedCommand("consume", "consume", "Take messages and remove them."),),
    "Bridge": (ListedCommand("bridge", "bridge", "Copy a queue from another broker, or to it, over AMQP 1.0."),),
    "Manage": (
        ListedCommand("purge", "manage", "Mark the messages in a queue as consumed."),
        ListedCommand("expire", "manage", "Mark old messages as consumed."),
        ListedCommand("reset", "manage", "Move a queue's position."),
        ListedCommand("move", "manage", "Move messages from one queue to another."),
        ListedCommand("repair", "repair", "Show what is wrong with a queue's commits, and repair it."),
        ListedCommand("reclaim", "manage", "Delete consumed messages from a queue's topic."),
        ListedCommand("keep-alive", "manage", "Keep what idle queues have consumed."),
        ListedCommand("exporter", "exporter", "Show Prometheus what waits in all declared queues."),
    ),
    "Local broker": (ListedCommand("broker", "broker", "Run a real Kafka on this machine."),),
    "Shell": (
        ListedCommand("context", "context", "Keep connections to clusters under names."),
        ListedCommand(
            "completion",
            "completion",
            "Print what makes a shell complete commands, options, contexts and the names of queues.",
        ),
    ),
    "Qpid's test program": (
        ListedCommand("lvqtest", "lvqtest", "Do what Qpid's program lvqtest does, and write its lines."),
    ),
}


class Commands(MutableMapping[str, click.Command]):
    """Commands by name, in the order of the help; after them, those that others add.

    To look one up imports its module. All of them together take three times as long as most commands run.
    """

    def __init__(self) -> None:
        self._listed = {listed.name: listed for commands in SECTIONS.values() for listed in commands}
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded and name in self._listed:
            module = import_module(f"lvq_kafka.cli.commands.{self._listed[name].module}")
            self._loaded[name] = getattr(module, name.replace("-", "_"))
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._listed or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter({**self._listed, **self._loaded})

    def __len__(self) -> int:
        return len({**self._listed, **self._loaded})
