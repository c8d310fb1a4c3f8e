"""A real, single-node Apache Kafka as a child process of this program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lvq_kafka.embedded.jars import Progress
from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.embedded.node import BrokerOptions, Node
from lvq_kafka.embedded.server_properties import CONTROLLER, HOST, PLAIN
from lvq_kafka.errors import ConfigError, EmbeddedBrokerError, StateError

__all__ = ["EmbeddedBroker"]


class EmbeddedBroker:
    """An Apache Kafka for development and tests: one node, on the loopback address, gone when this program is.

    ::

        with EmbeddedBroker() as broker:
            print(broker.bootstrap_servers)

    However this program ends, the broker ends with it and its temporary files are removed. Leaving the ``with`` block
    raises the broker's :attr:`failure` if it died on its own; an error on its way out gets it as a note instead.

    Args:
        data_dir: where its files live and stay. Without it they are temporary and removed by :meth:`stop`.
        port: the port of the plain listener. Without it, or with 0, a free one is taken.
        heap: the largest heap of the JVM, in the JVM's notation.
        properties: broker properties that are added or replaced.
        listeners: further listeners by name (``{"SECURE": Listener.sasl({"alice": password})}``), each on a free port
            that :meth:`address` tells.
        acls: refuse what no ACL allows, to everybody but the clients of the plain listener.
        startup_timeout: seconds until a start is given up.
        java_options: options of the JVM that are added or replaced.
        log_path: what the broker writes to; without it, ``broker.log`` among its other files.
        progress: called while the broker's jars are downloaded, the first time ever.
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
        progress: Progress | None = None,
    ) -> None:
        for name in listeners or ():
            if name.upper() in (PLAIN, CONTROLLER):
                raise ConfigError(
                    f"No listener can be named {name}: the broker has one already.", options=["listeners"]
                )
        if not 0 <= (port or 0) <= 65535:
            raise ConfigError(f"port={port} is no port.", options=["port"], hint="0 to 65535; 0 is any that is free.")
        self._options = BrokerOptions(
            data_dir=data_dir.expanduser().absolute() if data_dir is not None else None,
            port=port or None,
            heap=heap,
            properties=dict(properties or {}),
            listeners=dict(listeners or {}),
            acls=acls,
            startup_timeout=startup_timeout,
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
        """Whether the JVM runs (a paused one does)."""
        return self.pid is not None

    @property
    def data_dir(self) -> Path:
        """The directory that holds the broker's data and configuration."""
        return self._started.home

    @property
    def log_path(self) -> Path:
        """The file that the broker writes its log to."""
        return self._started.log_path

    @property
    def failure(self) -> EmbeddedBrokerError | None:
        """Why the broker does not run although nobody stopped it; None if all is well."""
        if self._node is None or not self._should_run or self.running:
            return None
        return self._node.explain(f"The embedded broker died ({self._node.process.ending}).")

    def start(self) -> None:
        """Start it, and return when it serves clients. Nothing happens if it has been started already.

        Raises:
            BrokerStartFailed: it ended, or did not serve in time, or its port is taken.
            DiskFull: there is no room in its directory.
            JavaNotFound, CorruptDownload, EmbeddedBrokerError: as :func:`ensure_jars` does.
        """
        if self._node is None:
            self._node = Node.start(self._options)
            self._should_run = True

    def stop(self) -> None:
        """Stop it in an orderly way, within 30 seconds, and remove its files if they are temporary."""
        node, self._node, self._should_run = self._node, None, False
        if node is None:
            return
        try:
            node.terminate()
        finally:
            node.discard()

    def kill(self) -> None:
        """End the JVM with SIGKILL and keep its data: :meth:`restart` brings it back."""
        self._should_run = False
        self._started.kill()

    def restart(self) -> None:
        """Start it again on the same ports and data, after :meth:`kill` or else stopping it first.

        Raises:
            BrokerStartFailed, DiskFull: as :meth:`start` does.
        """
        node = self._started
        self._should_run = False
        node.terminate()
        node.launch()
        self._should_run = True

    def pause(self) -> None:
        """Freeze the JVM (SIGSTOP): connections stay open and nothing answers."""
        self._started.process.signal("STOP")

    def resume(self) -> None:
        """Let a paused JVM go on."""
        self._started.process.signal("CONT")

    def detach(self) -> None:
        """Let it live on after this program, until its supervisor receives SIGTERM. This object forgets it."""
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
        error.add_note(str(failure))  # the likely reason for it

    @property
    def _started(self) -> Node:
        if self._node is None:
            raise StateError("The embedded broker has not been started.")
        return self._node
