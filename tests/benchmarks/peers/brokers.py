"""Apache ActiveMQ Artemis and Apache Qpid Broker-J, each with one durable queue, on a local port.

Both run as released: the heap of their start scripts, default journal settings (Artemis: its file journal, synced to
disk, with the JVM's own file access; Broker-J: the Derby store). We configure only the queue, an open AMQP 1.0 port,
and no limits, also none of the disk: by default, Artemis blocks producers without an error on a disk that is 90 % full.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import quoteattr

from lvq_kafka.embedded.java import find_java
from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.embedded.process import SupervisedProcess
from tests.benchmarks.peers import jars

QUEUE = "lvq"
KEY = "key"  # the message property that holds the key
PEERS = ("artemis", "broker-j")
START_SECONDS = 60.0
_STARTS = 3
LAST_VALUE_QUEUE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"artemis": {"last-value-key": KEY}, "broker-j": {"type": "lvq", "lvqKey": KEY}}
)
"""By broker, the attributes of the queue in its own words."""

_READY = {"artemis": "AMQ221007", "broker-j": "BRK-1004"}  # in their logs
_BROKER_XML = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <security-enabled>false</security-enabled>
  <max-disk-usage>-1</max-disk-usage>
  <acceptors>
    <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>
  </acceptors>
  <address-settings><address-setting match="#"><max-size-bytes>-1</max-size-bytes></address-setting></address-settings>
  <addresses>
    <address name="{queue}"><anycast><queue name="{queue}" {attributes}/></anycast></address>
  </addresses>
</core></configuration>
"""
_LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%level %msg%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""  # noqa: E501


@dataclass(frozen=True)
class Access:
    """A user's password, and the certificate for TLS, with which clients have to log in to Broker-J."""

    user: str
    password: str
    certificate: Path
    key: Path


class PeerBroker:
    """A broker in a directory of its own. It keeps its address and its data when it is killed and started again."""

    def __init__(self, name: str, home: Path, attributes: Mapping[str, Any], access: Access | None) -> None:
        [port] = free_ports(1)
        self.name = name
        self.address = f"127.0.0.1:{port}"
        self._log = home / "log"
        self._log.touch()
        self._process = SupervisedProcess(log=self._log, directory=home, remove=True, grace=5.0, promote=None)
        class_path = os.pathsep.join(map(str, jars.ensure(name)))
        words = _artemis(home, port, attributes) if name == "artemis" else _broker_j(home, port, attributes, access)
        self._command = [str(find_java().executable), "-cp", class_path, *words]

    def start(self) -> None:
        """Start it, and wait until it serves its queue.

        Broker-J now and then does not get ready if a client connects while it starts: then it is started again.
        """
        for _ in range(_STARTS):
            begin = self._log.stat().st_size
            self._process.run(self._command)
            deadline = time.monotonic() + START_SECONDS
            while not self._process.ended and time.monotonic() < deadline:
                # The port opens before the queue exists, but then the log says so.
                if _READY[self.name].encode() in self._log.read_bytes()[begin:]:
                    return
                time.sleep(0.1)
            if not self._process.ended:
                self.kill()
        raise RuntimeError(f"the broker does not start:\n{self.said()}")

    def said(self) -> str:
        """Return the end of its log."""
        return self._log.read_text()[-3000:]

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.signal("KILL")
        self._process.wait(START_SECONDS)

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing answers."""
        self._process.signal("STOP")

    def resume(self) -> None:
        """Let it go on."""
        self._process.signal("CONT")

    def close(self) -> None:
        """Kill it, and end its supervisor."""
        self._process.close()


@contextmanager
def running(
    peer: str, attributes: Mapping[str, Any] | None = None, access: Access | None = None
) -> Iterator[PeerBroker]:
    """Run a broker in its own directory. Any exit stops and removes it.

    Args:
        attributes: those of the queue, in the broker's own words; by default, it is a last value queue.
        access: for Broker-J; without it, anyone may connect.
    """
    home = Path(tempfile.mkdtemp(prefix=f"bench-{peer}-"))
    broker = PeerBroker(peer, home, LAST_VALUE_QUEUE[peer] if attributes is None else attributes, access)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
        shutil.rmtree(home, ignore_errors=True)


def _artemis(home: Path, port: int, attributes: Mapping[str, Any]) -> Sequence[str]:
    (home / "etc").mkdir()
    words = " ".join(f"{name}={quoteattr(str(value))}" for name, value in attributes.items())
    (home / "etc/broker.xml").write_text(_BROKER_XML.format(port=port, queue=QUEUE, attributes=words))
    options = ["-XX:+UseParallelGC", "-Xms512m", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    options.append("-Dorg.slf4j.simpleLogger.log.org.apache.activemq.artemis.core.server=info")
    return [*options, "org.apache.activemq.artemis.core.server.embedded.Main", str(home)]


def _broker_j(home: Path, port: int, attributes: Mapping[str, Any], access: Access | None) -> Sequence[str]:
    host = {
        "type": "DERBY",
        "storePath": str(home / "messages"),
        "queues": [{"name": QUEUE, "durable": True, **attributes}],
    }
    node = {
        "name": "default",
        "type": "JSON",
        "storePath": str(home / "node"),
        "defaultVirtualHostNode": True,
        "virtualHostInitialConfiguration": json.dumps(host),
    }
    anyone = {"name": "users", "type": "Anonymous"}
    port_of = {
        "name": "AMQP",
        "type": "AMQP",
        "port": port,
        "bindingAddress": "127.0.0.1",
        "authenticationProvider": "users",
        "protocols": ["AMQP_1_0"],
        "virtualhostaliases": [{"name": name, "type": name} for name in ("nameAlias", "defaultAlias", "hostnameAlias")],
    }
    config = {
        "name": "broker",
        "modelVersion": "9.1",
        "authenticationproviders": [anyone if access is None else _users(access)],
        "ports": [port_of if access is None else port_of | {"transports": ["SSL"], "keyStore": "keys"}],
        "keystores": [] if access is None else [_keys(access)],
        "virtualhostnodes": [node],
    }
    (home / "config.json").write_text(json.dumps(config))
    (home / "logback.xml").write_text(_LOGBACK)
    options = ["-Xmx2g", "-XX:MaxDirectMemorySize=1536m", f"-Dlogback.configurationFile={home / 'logback.xml'}"]
    options += [f"-DQPID_WORK={home}", f"-Dqpid.work_dir={home}"]
    return [*options, "org.apache.qpid.server.Main", "-icp", str(home / "config.json")]


def _users(access: Access) -> dict[str, Any]:
    users = [{"name": access.user, "type": "managed", "password": access.password}]
    return {"name": "users", "type": "Plain", "users": users}


def _keys(access: Access) -> dict[str, Any]:
    files = {"privateKeyUrl": str(access.key), "certificateUrl": str(access.certificate)}
    return {"name": "keys", "type": "NonJavaKeyStore", **files}
