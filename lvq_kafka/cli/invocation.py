"""The context of an ``lvq`` run: the cluster, the queue and standard output.

The library is imported where it is needed: the help, and the completion of commands, do without.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.cli.output import Output
from lvq_kafka.cli.saved_contexts import SavedContexts
from lvq_kafka.core.text.quoting import listed, shell_word
from lvq_kafka.errors import ConfigError, EmbeddedBrokerError

if TYPE_CHECKING:
    import click
    from rich.console import RenderableType

    from lvq_kafka.cluster import Cluster
    from lvq_kafka.core.facts import Format
    from lvq_kafka.kafka import ClientConfig
    from lvq_kafka.queue import LastValueQueue
    from lvq_kafka.reading.browser import Browser
    from lvq_kafka.reading.entries import Event
    from lvq_kafka.reading.queue_reader import QueueReader
    from lvq_kafka.reading.selection import SelectionOptions
    from lvq_kafka.reading.view import View
    from lvq_kafka.reading.watch import Watch

__all__ = ["Invocation", "QueueChoice", "events_of"]


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The queue of a command, at an address; or with ``bare`` any compacted topic.

    The name of a declared queue is an address, too.
    """

    address: str
    bare: bool = False
    key_header: str | None = None


@dataclass
class Invocation:
    """One run of the command line.

    Args:
        cluster: the cluster; None for the one named by the options, the environment or a running ``lvq broker``.
        out: standard output.
    """

    cluster: Cluster | None = None
    out: Output = field(default_factory=Output)
    bootstrap_servers: str | None = None
    config: str | None = None
    context: str | None = None
    debug: bool = False
    running: click.Context | None = None
    """The command that runs, once its options are known."""
    default_servers: str | None = None
    """The cluster if nothing names one; None for that of a running ``lvq broker``."""
    amend: Callable[[ClientConfig], ClientConfig] | None = field(default=None, repr=False)  # it may hold a secret
    """Adds what the command's own options say about the connection, which overrides all else."""
    _opened: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    def connect(self) -> Cluster:
        """Return the cluster, connected.

        It has answered once, so that someone who named the wrong one sees what the command is waiting for.

        Raises:
            ConfigError: no cluster is named, or its configuration is invalid.
            TransportError: the cluster does not answer, or refuses.
        """
        if self.cluster is None:
            from lvq_kafka.kafka.connecting import connect_within

            config = self._client_config(os.environ)
            self.cluster = connect_within(self._opened, config=config)
            with self.out.waiting(lambda: f"connecting to {config.bootstrap_servers} …"):
                self.cluster.broker_count()
        return self.cluster

    def _client_config(self, environ: Mapping[str, str]) -> ClientConfig:
        """Build the configuration: of options, the environment, and the file or context."""
        from lvq_kafka.kafka import ClientConfig

        chosen = dict(environ)
        if (source := self.named_file(environ)) is not None:
            chosen["LVQ_CONFIG"] = os.fspath(source)
        if self.bootstrap_servers is not None:
            chosen["LVQ_BOOTSTRAP_SERVERS"] = self.bootstrap_servers
            chosen.pop("LVQ_BOOTSTRAP_SERVERS_FILE", None)
        named = ("LVQ_CONFIG", "LVQ_BOOTSTRAP_SERVERS", "LVQ_BOOTSTRAP_SERVERS_FILE")
        if not any(chosen.get(name) for name in named):
            # Only here is the context in use looked for: its password is for its own brokers, and for no others.
            in_use = SavedContexts().path_in_use() if self.default_servers is None else None
            servers = self.default_servers or _daemon_servers()
            if in_use is not None:
                chosen["LVQ_CONFIG"] = os.fspath(in_use)
            elif servers is not None:
                chosen["LVQ_BOOTSTRAP_SERVERS"] = servers
            else:
                raise ConfigError(
                    "No cluster is named.",
                    options=["bootstrap-servers"],
                    hint="Give -b host:port, --config FILE or --context NAME, set LVQ_BOOTSTRAP_SERVERS or LVQ_CONFIG, "
                    "or start one here: lvq broker start.",
                )
        config = ClientConfig.from_env(chosen)
        if chosen.get("LVQ_CONFIG"):
            _warn_of_readers(chosen["LVQ_CONFIG"])
        return config if self.amend is None else self.amend(config)

    def named_file(self, environ: Mapping[str, str]) -> Path | None:
        """Return the properties file that the options or the environment name.

        Raises:
            ConfigError: a file and a context are both named, or there is no such context.
        """
        if self.config is not None or self.context is not None:
            file, context, both = self.config, self.context, ("--config", "--context")
        else:
            both = ("LVQ_CONFIG", "LVQ_CONTEXT")
            file, context = map(environ.get, both)
        if file and context:
            raise ConfigError(
                f"{' and '.join(both)} are both given.",
                options=both,
                hint="A context takes the place of the file: leave one of them out.",
            )
        return SavedContexts().path(context) if context else Path(file) if file else None

    def open(self, choice: QueueChoice, form: Format | None = "bytes", *, create: bool = False) -> LastValueQueue[Any]:
        """Open the queue that a command is about.

        Args:
            form: the format of values; None for the declared one.
            create: whether the command sends or receives, so that it may declare a missing queue (R38). Otherwise it
                manages the queue.

        Raises:
            QueueNotDeclared: there is no such queue.
            ConfigError: the address is malformed, or selects messages of the queue that it manages.
        """
        from lvq_kafka.codecs import CODECS, DECLARED
        from lvq_kafka.declared.addressed import check_managing
        from lvq_kafka.dialects.address_forms import parse_address
        from lvq_kafka.queue import LastValueQueue

        codec = DECLARED if form is None else CODECS[form]
        if choice.bare:
            return LastValueQueue(choice.address, key_header=choice.key_header, value=codec, cluster=self.connect())
        if not create:
            check_managing(parse_address(choice.address))
        return LastValueQueue.at(choice.address, create=create, value=codec, cluster=self.connect())

    @contextmanager
    def view(
        self, queue: LastValueQueue[Any], timeout: float, **selection: Unpack[SelectionOptions[Any]]
    ) -> Iterator[View[Any]]:
        """Open a view that has caught up, and show the progress on the way.

        Values that cannot be decoded are bytes.
        """
        view = queue.view(undecodable="raw", **selection)
        try:
            with self.out.waiting(lambda: _catching_up(queue.name, view)):
                view.start().wait_caught_up(timeout)
            yield view
        finally:
            view.close()

    @contextmanager
    def browser(self, queue: LastValueQueue[Any], **options: Any) -> Iterator[Browser[Any]]:
        """Open a browser with its dump ready, and show the progress on the way.

        Values that cannot be decoded are bytes.
        """
        browser = queue.browser(undecodable="raw", **options)
        try:
            with self.out.waiting(lambda: _catching_up(queue.name, browser)):
                browser.open()
            yield browser
        finally:
            browser.close()

    def close(self) -> None:
        """Close the cluster if this run connected to it."""
        self._opened.close()


def events_of(browser: Browser[Any] | Watch[Any], before_waiting: Callable[[], object]) -> Iterator[Event[Any]]:
    """Yield all events of a browser or watch.

    ``before_waiting`` is called before each wait, to flush the output so far.
    """
    while True:
        event = browser.poll(0)
        if event is None:
            before_waiting()
            event = browser.poll()
        if event is None:
            return
        yield event


def _warn_of_readers(path: str) -> None:
    """Warn if a file holds secrets, and every user of this machine can read it."""
    from lvq_kafka.kafka.client import secrets_in

    if os.stat(path).st_mode & stat.S_IROTH and (secrets := secrets_in(path)):
        print_problem(
            f"{path} holds {listed(secrets)}, and every user of this machine can read it. "
            f"Run: chmod 600 {shell_word(path)}",
            warning=True,
        )


def _daemon_servers() -> str | None:
    """Return the address of the broker that ``lvq broker start`` left running, if any."""
    try:
        from lvq_kafka.embedded import daemon_status

        status = daemon_status()
    except (ImportError, EmbeddedBrokerError):  # unsupported platform, or no home directory for its state
        return None
    return None if status is None else status.bootstrap_servers


def _catching_up(name: str, reader: QueueReader[Any]) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    if reader.state not in ("catching-up", "stale"):
        why = "; ".join(map(str, reader.blocked_by)) or reader.state
        return f"reading {name}: {why}"
    done, total = reader.progress
    if not total:
        return f"reading {name}"
    line = Table.grid(padding=(0, 2))
    line.add_row(f"reading {name}", ProgressBar(total, done, width=40), f"{done:,} of {total:,}")
    return line
