"""Other brokers in the role of this library's queue, also seen by a Python client."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lvq_kafka.embedded.cache import cache_dir, locked
from tests.benchmarks.children import result, start, wait_ready
from tests.benchmarks.peers.brokers import PEERS, running
from tests.benchmarks.workload import Workload, outcome

REQUIREMENTS = Path(__file__).with_name("requirements.lock")


@dataclass(frozen=True)
class Peer:
    """A running broker, and the directory of its client."""

    name: str
    address: str
    client: Path

    def measure(self, work: Workload, *, live: bool) -> dict[str, Any]:
        """Let one consumer take a whole workload, sent before it starts or while it runs."""
        if live:
            consuming = self._start("consume", work)
            result(self._start("warm up", work))
            wait_ready(consuming)
            began = result(self._start("produce", work))["began"]
            measured = result(consuming)
        else:
            result(self._start("produce", work))
            measured = result(self._start("consume", work))
            began = measured["began"]
        left = result(self._start("count", work))["left"]
        if left:
            raise RuntimeError(f"{left} messages are left in the queue of {self.name}")
        return outcome(work, began, measured)

    def _start(self, role: str, work: Workload) -> subprocess.Popen[str]:
        return start("peers.amqp", role, self.address, work.messages, work.keys, packages=self.client)


@contextmanager
def peers() -> Iterator[dict[str, Peer]]:
    """Run all peers, and yield them by name."""
    client = install_client()
    with ExitStack() as stack:
        yield {name: Peer(name, stack.enter_context(running(name)).address, client) for name in PEERS}


def install_client() -> Path:
    """Return the directory of the client, built from source once; this takes a C compiler.

    Nothing else depends on the client, so it is not in this project's environment.
    """
    identity = REQUIREMENTS.read_text() + sys.version
    home = cache_dir() / f"peer-client-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    with locked(cache_dir() / "peer-client.lock"):
        if not home.exists():
            with tempfile.TemporaryDirectory(prefix=".client-", dir=cache_dir()) as work:
                target = Path(work, "packages")
                pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
                subprocess.run([*pip, "--require-hashes", "--target", target, "-r", REQUIREMENTS], check=True)
                target.rename(home)
    return home
