"""The life of one node: its directory, its ports, its process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lvq_kafka.embedded.data_directory import META
from lvq_kafka.embedded.failure_reports import address_in_use, check_space, explain, keep_log
from lvq_kafka.embedded.jars import ReportProgress, ensure_jars
from lvq_kafka.embedded.java import find_java
from lvq_kafka.embedded.jvm import Jvm
from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.embedded.ports import free_ports, is_free
from lvq_kafka.embedded.process import SupervisedProcess
from lvq_kafka.embedded.readiness import wait_until_ready
from lvq_kafka.embedded.server_properties import HOST, PLAIN, render, server_properties
from lvq_kafka.errors import BrokerStartFailed, EmbeddedBrokerError

__all__ = ["BrokerOptions", "Node"]

_STOP_SECONDS = 30.0  # the very first broker needs a few, to write the class archive
_PORT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of a broker; see :class:`EmbeddedBroker`."""

    data_dir: Path | None
    port: int | None
    heap: str
    properties: Mapping[str, str] = field(repr=False)  # may hold secrets
    listeners: Mapping[str, Listener]
    acls: bool
    startup_timeout: float
    java_options: Sequence[str]
    log_path: Path | None
    progress: ReportProgress | None


class Node:
    """A node whose process has been started at least once.

    It is created by :meth:`start`, and unusable after :meth:`discard`.
    """

    def __init__(self, options: BrokerOptions, jvm: Jvm, home: Path) -> None:
        self.options = options
        self.home = home
        self.log_path = options.log_path or home / "broker.log"
        self.ports: dict[str, int] = {}
        self._controller_port = 0
        self._jvm = jvm
        self._log_start = 0
        new_archive = jvm.new_archive
        self.process = SupervisedProcess(
            log=self.log_path,
            directory=home,
            remove=self._is_temporary,
            grace=_STOP_SECONDS,
            promote=(new_archive, jvm.archive) if new_archive else None,
        )

    @classmethod
    def start(cls, options: BrokerOptions) -> Node:
        """Start a node, and return once it serves clients."""
        jvm = Jvm(find_java(), ensure_jars(options.progress), options.heap, options.java_options)
        if options.port is not None and not is_free(options.port):
            raise BrokerStartFailed(
                f"Port {options.port} of {HOST} is taken by another process.",
                hint="Choose another with the option port: lvq broker start --port 9093; 0 picks a free one.",
            )
        home = _make_home(options.data_dir)
        try:
            check_space(home)
            node = cls(options, jvm, home)
        except BaseException:
            if options.data_dir is None:
                shutil.rmtree(home, ignore_errors=True)
            raise
        try:
            node._launch_on_free_ports()
        except BaseException:
            node.discard()
            raise
        return node

    def launch(self) -> None:
        """Run the JVM on the chosen ports, and return once it serves clients."""
        config, data = self.home / "server.properties", self.home / "data"
        self._write(config, data)
        self._log_start = self.log_path.stat().st_size
        if not (data / META).exists():
            self._prepare(config, data)
        self.process.run(self._jvm.broker(config))
        timeout = self.options.startup_timeout
        if wait_until_ready(self.ports[PLAIN], alive=lambda: not self.process.ended, timeout=timeout):
            return
        if self.process.ended:
            raise self.explain(f"The embedded broker ended while starting ({self.process.ending}).")
        self.kill()
        raise self.explain(f"The embedded broker was not ready within {timeout:g} seconds.")

    def terminate(self) -> None:
        """End the JVM cleanly, or by force after half a minute."""
        self.process.signal("TERM")
        if not self.process.wait(_STOP_SECONDS):
            self.kill()

    def kill(self) -> None:
        """End the JVM by force."""
        self.process.signal("KILL")
        self.process.wait(_STOP_SECONDS)

    def discard(self) -> None:
        """End the process if it still runs, and remove temporary files."""
        self.process.close()

    def explain(self, summary: str) -> EmbeddedBrokerError:
        """Return the error that explains the node's death.

        ``summary`` describes it as seen from outside.
        """
        with self.log_path.open("rb") as file:
            file.seek(self._log_start)
            log = file.read().decode("utf-8", "replace")
        doomed = self._is_temporary and self.log_path.is_relative_to(self.home)
        return explain(
            summary, log_path=keep_log(self.log_path) if doomed else self.log_path, log=log, directory=self.home
        )

    @property
    def _is_temporary(self) -> bool:
        return self.options.data_dir is None

    def _prepare(self, config: Path, data: Path) -> None:
        """Format ``data`` for a new cluster; copy the prepared storage if no property differs."""
        as_usual = not self.options.properties
        if as_usual and self._jvm.storage.copy_to(data):
            return
        if self._jvm.format(config, self.log_path) != 0:
            raise self.explain("The embedded broker's storage could not be prepared.")
        if as_usual:
            self._jvm.storage.keep(data)

    def _launch_on_free_ports(self) -> None:
        names = [PLAIN, *self.options.listeners]
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._controller_port, *ports = free_ports(1 + len(names))
            self.ports = dict(zip(names, ports, strict=True))
            if self.options.port is not None:
                self.ports[PLAIN] = self.options.port
            try:
                self.launch()
            except BrokerStartFailed as error:
                # Another process was quicker to use a port. That is bad luck; another choice may work.
                if not address_in_use(error.log) or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def _write(self, config: Path, data: Path) -> None:
        properties = server_properties(
            data=data,
            ports=self.ports,
            controller_port=self._controller_port,
            listeners=self.options.listeners,
            acls=self.options.acls,
            overrides=self.options.properties,
        )
        config.touch(mode=0o600)  # it may hold passwords
        config.write_text(render(properties), encoding="ascii")


def _make_home(data_dir: Path | None) -> Path:
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="lvq-kafka-"))
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedBrokerError(
            f"The directory {data_dir} cannot be created: {error.strerror}.", hint="Choose another with data_dir."
        ) from None
    return data_dir
