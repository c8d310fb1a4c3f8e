"""A persistent broker: started by one program, used by many, stopped by another.

There is at most one per user. A file in the cache directory records it, and only the processes recorded there are ever
signaled.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from lvq_kafka.core.text.validation import limit
from lvq_kafka.embedded.broker import EmbeddedBroker
from lvq_kafka.embedded.cache import cache_dir, locked
from lvq_kafka.embedded.jars import ReportProgress, check_progress
from lvq_kafka.embedded.processes import ProcessIdentity
from lvq_kafka.embedded.server_properties import HOST
from lvq_kafka.errors import EmbeddedBrokerError

__all__ = ["BrokerStatus", "daemon_status", "start_daemon", "stop_daemon"]

DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A running broker that was started by :func:`start_daemon`.

    ``pid`` is the JVM's. ``temporary`` means that ``data_dir`` is removed when the broker stops. ``started_at`` is in
    seconds since the epoch.
    """

    pid: int
    port: int
    data_dir: Path
    temporary: bool
    log_path: Path
    started_at: float

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class _DaemonRecord:
    """The content of the record file: the status and the broker's two processes."""

    status: BrokerStatus
    supervisor: ProcessIdentity
    jvm: ProcessIdentity

    @property
    def alive(self) -> bool:
        return self.supervisor.alive or self.jvm.alive

    def write(self) -> None:
        path = _record_path()
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")
        new.rename(path)

    @classmethod
    def read(cls) -> Self | None:
        try:
            fields: dict[str, Any] = json.loads(_record_path().read_text(encoding="utf-8"))
            status = fields["status"]
            status["data_dir"], status["log_path"] = Path(status["data_dir"]), Path(status["log_path"])
            return cls(
                BrokerStatus(**status), ProcessIdentity(**fields["supervisor"]), ProcessIdentity(**fields["jvm"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # no record, or one of another version: nothing that can safely be signaled


def start_daemon(
    *,
    port: int | None = DEFAULT_PORT,
    data_dir: Path | None = None,
    heap: str = "512m",
    startup_timeout: float = 60.0,
    progress: ReportProgress | None = None,
) -> BrokerStatus:
    """Start a broker that outlives this program, and return once it serves clients.

    Without ``data_dir`` its data is temporary: it is removed when the broker stops. Port 0 or None means any free port.
    If the daemon already runs as requested, return its status.

    Raises:
        BrokerStartFailed: the broker did not start, or the port is taken.
        EmbeddedBrokerError: it already runs on another port or directory; also whatever :func:`ensure_jars` raises.
        DiskFull: its directory has no space left.
    """
    check_progress(progress)
    wanted_dir = data_dir.expanduser().absolute() if data_dir is not None else None
    with locked(_lock_path()):
        running = daemon_status()
        if running is not None:
            _require_same(running, port, wanted_dir)
            return running
        log_path = cache_dir() / "daemon.log"
        log_path.unlink(missing_ok=True)
        broker = EmbeddedBroker(
            data_dir=wanted_dir,
            port=port,
            heap=heap,
            startup_timeout=startup_timeout,
            log_path=log_path,
            progress=progress,
        )
        with broker:
            return _detach(broker, temporary=wanted_dir is None)


def daemon_status() -> BrokerStatus | None:
    """Return the status of the running daemon, or None if there is none."""
    record = _DaemonRecord.read()
    return record.status if record is not None and record.jvm.alive else None


def stop_daemon(*, timeout: float = 30.0) -> BrokerStatus | None:
    """Stop the daemon, by force after ``timeout`` seconds.

    Return its last status, or None if there was none.
    """
    timeout = limit(timeout)
    with locked(_lock_path()):
        record = _DaemonRecord.read()
        stopped = record if record is not None and record.alive else None
        if stopped is not None:
            stopped.supervisor.send(signal.SIGTERM)
            if not stopped.supervisor.wait(timeout):
                stopped.jvm.send(signal.SIGKILL)  # its supervisor then cleans up and exits
                stopped.supervisor.wait(timeout)
            # Anything is left to do only if the supervisor itself was killed.
            stopped.jvm.send(signal.SIGKILL)
            if stopped.status.temporary:
                shutil.rmtree(stopped.status.data_dir, ignore_errors=True)
        _record_path().unlink(missing_ok=True)
        return stopped.status if stopped is not None else None


def _detach(broker: EmbeddedBroker, *, temporary: bool) -> BrokerStatus:
    supervisor, jvm = ProcessIdentity.of(broker.supervisor_pid), ProcessIdentity.of(broker.pid)
    if supervisor is None or jvm is None:
        raise broker.failure or EmbeddedBrokerError("The embedded broker ended right after it started.")
    status = BrokerStatus(
        pid=jvm.pid,
        port=broker.port,
        data_dir=broker.data_dir,
        temporary=temporary,
        log_path=broker.log_path,
        started_at=time.time(),
    )
    # Record first, then detach: a program killed in between leaves no unknown broker behind.
    _DaemonRecord(status, supervisor, jvm).write()
    broker.detach()
    return status


def _require_same(running: BrokerStatus, port: int | None, data_dir: Path | None) -> None:
    same_port = port in (None, 0, running.port)
    same_data = running.temporary if data_dir is None else running.data_dir == data_dir
    if not (same_port and same_data):
        raise EmbeddedBrokerError(
            f"A broker is already running on port {running.port} with its data in {running.data_dir}.",
            hint="Use that one, or stop it first (lvq broker stop).",
        )


def _record_path() -> Path:
    return cache_dir() / "daemon.json"


def _lock_path() -> Path:
    return cache_dir() / "daemon.lock"
