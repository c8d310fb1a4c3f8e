"""A real, single-node Apache Kafka as a child process of this program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import limit
from lvq_kafka.embedded.jars import ReportProgress, check_progress
from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.embedded.node import BrokerOptions, Node
from lvq_kafka.embedded.server_properties import CONTROLLER, HOST, PLAIN
from lvq_kafka.errors import ConfigError, EmbeddedBrokerError, StateError

__all__ = ["EmbeddedBroker"]


class EmbeddedBroker:
    """A single-node Apache Kafka for development and tests, on the loopback address.

    ::

        with EmbeddedBroker() as broker:
            print(broker.bootstrap_servers)

    However this program ends, the broker ends with it and its temporary files are removed. Leaving the ``with`` block
    raises the broker's :attr:`failure` if it died on its own; if another error is being raised, the failure is added to
    that as a note.

    Args:
        data_dir: the directory for its files, which are kept. Without it, they are temporary and :meth:`stop` removes
            them.
        port: the port of the plain listener. Without it, or with 0, a free one is chosen.
        heap: the maximum heap of the JVM, in the JVM's notation.
        properties: broker properties to add or replace.
        listeners: further listeners by name (``{"SECURE": Listener.sasl({"alice": password})}``), each on a free port
            that :meth:`address` returns.
        acls: refuse everything that no ACL allows, except to clients of the plain listener.
        startup_timeout: the limit for a start, in seconds.
        java_options: options of the JVM to add or replace.
        log_path: the broker's log file; by default ``broker.log`` among its other files.
        progress: called while the broker's jars are downloaded, on the very first start. The default shows a bar if it
            takes long and stderr is a terminal.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int | None = None,
        heap: str = "512m",
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, Listener] | None = None,
        acls: bool = False,
        startup_timeout: float = 60.0,
        java_options: Sequence[str] = (),
        log_path: Path | None = None,
        progress: ReportProgress | None = None,
    ) -> None:
        for name in listeners or ():
            if name.upper() in (PLAIN, CONTROLLER):
                raise ConfigError(f"The broker already has a listener named {name}.", options=["listeners"])
        if port is not None and not (type(port) is int and 0 <= port <= 65535):
            raise ConfigError(
                f"port={quoted(port)} is not a port.", options=["port"], hint="Give 0 to 65535; 0 picks a free one."
            )
        check_progress(progress)
        self._options = BrokerOptions(
            data_dir=data_dir.expanduser().absolute() if data_dir is not None else None,
            port=port or None,
            heap=heap,
            properties=dict(properties or {}),
            listeners=dict(listeners or {}),
            acls=acls,
            startup_timeout=limit(startup_timeout, "startup_timeout"),
            java_options=tuple(java_options),
            log_path=log_path.expanduser().absolute() if log_path is not None else None,
            progress=progress,
        )
        self._node: Node | None = None
        self._should_run = False

    @property
    def bootstrap_servers(self) -> str:
        """The address of the plain listener."""
        return self.address(PLAIN)

    @property
    def port(self) -> int:
        """The port of the plain listener."""
        return self._started.ports[PLAIN]

    def address(self, listener: str) -> str:
        """Return ``host:port`` of a listener."""
        ports = self._started.ports
        if listener not in ports:
            raise ConfigError(f"The embedded broker has no listener {listener}; it has {', '.join(ports)}.")
        return f"{HOST}:{ports[listener]}"

    @property
    def pid(self) -> int | None:
        """The process id of the JVM while it runs."""
        return self._node.process.pid if self._node is not None else None

    @property
    def supervisor_pid(self) -> int:
        """The process id of the small process that ends the JVM when this program ends."""
        return self._started.process.supervisor_pid

    @property
    def running(self) -> bool:
        """True while the JVM runs, even if it is paused."""
        return self.pid is not None

    @property
    def data_dir(self) -> Path:
        """The directory that holds the broker's data and configuration."""
        return self._started.home

    @property
    def log_path(self) -> Path:
        """The broker's log file."""
        return self._started.log_path

    @property
    def failure(self) -> EmbeddedBrokerError | None:
        """The reason why the broker died on its own; None if it did not."""
        if self._node is None or not self._should_run or self.running:
            return None
        return self._node.explain(f"The embedded broker died ({self._node.process.ending}).")

    def start(self) -> None:
        """Start the broker, and return once it serves clients. Do nothing if already started.

        Raises:
            BrokerStartFailed: the broker exited, was not ready in time, or its port is taken.
            DiskFull: its directory has no space left.
            JavaNotFound: as :func:`find_java` does.
            CorruptDownload, MissingExtra, EmbeddedBrokerError: as :func:`ensure_jars` does.
        """
        if self._node is None:
            self._node = Node.start(self._options)
            self._should_run = True

    def stop(self) -> None:
        """Stop the broker cleanly, within 30 seconds; remove its files if they are temporary."""
        node, self._node, self._should_run = self._node, None, False
        if node is None:
            return
        try:
            node.terminate()
        finally:
            node.discard()

    def kill(self) -> None:
        """Kill the JVM with SIGKILL but keep its data, for :meth:`restart`."""
        self._should_run = False
        self._started.kill()

    def restart(self) -> None:
        """Start the broker again on the same ports and data, stopping it first if it runs.

        Raises:
            BrokerStartFailed, DiskFull: as :meth:`start` does.
        """
        node = self._started
        self._should_run = False
        node.terminate()
        node.launch()
        self._should_run = True

    def pause(self) -> None:
        """Freeze the JVM (SIGSTOP): connections stay open, but nothing answers."""
        self._started.process.signal("STOP")

    def resume(self) -> None:
        """Resume a paused JVM."""
        self._started.process.signal("CONT")

    def detach(self) -> None:
        """Let the broker outlive this program, until its supervisor receives SIGTERM.

        This object no longer refers to it.
        """
        node, self._node, self._should_run = self._started, None, False
        node.process.detach()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failure = self.failure
        self.stop()
        if failure is None:
            return
        if error is None:
            raise failure
        error.add_note(str(failure))  # the likely cause of the error

    @property
    def _started(self) -> Node:
        if self._node is None:
            raise StateError("The embedded broker has not been started.")
        return self._node
