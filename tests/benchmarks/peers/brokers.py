"""Apache ActiveMQ Artemis and Apache Qpid Broker-J, each with one durable queue, on a local port.

Both run as released: the heap of their start scripts, default journal settings (Artemis: its file journal, synced to
disk, with the JVM's own file access; Broker-J: the Derby store). We configure only the queue, an open AMQP 1.0 port,
and no limits.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
LAST_VALUE_QUEUE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"artemis": {"last-value-key": KEY}, "broker-j": {"type": "lvq", "lvqKey": KEY}}
)
"""By broker, the attributes of the queue in its own words."""

_READY = {"artemis": "AMQ221007", "broker-j": "BRK-1004"}  # in their logs
_BROKER_XML = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <security-enabled>false</security-enabled>
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


@contextmanager
def running(peer: str, attributes: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Run a broker in its own directory, and yield ``host:port``. Any exit stops and removes it.

    Args:
        attributes: those of the queue, in the broker's own words; by default, it is a last value queue.
    """
    attributes = LAST_VALUE_QUEUE[peer] if attributes is None else attributes
    class_path = os.pathsep.join(map(str, jars.ensure(peer)))
    home = Path(tempfile.mkdtemp(prefix=f"bench-{peer}-"))
    [port] = free_ports(1)
    log = home / "log"
    log.touch()
    process = SupervisedProcess(log=log, directory=home, remove=True, grace=5.0, promote=None)
    try:
        command = _artemis(home, port, attributes) if peer == "artemis" else _broker_j(home, port, attributes)
        process.run([str(find_java().executable), "-cp", class_path, *command])
        _wait(process, log, _READY[peer])
        yield f"127.0.0.1:{port}"
    finally:
        process.close()
        shutil.rmtree(home, ignore_errors=True)


def _artemis(home: Path, port: int, attributes: Mapping[str, Any]) -> Sequence[str]:
    (home / "etc").mkdir()
    words = " ".join(f"{name}={quoteattr(str(value))}" for name, value in attributes.items())
    (home / "etc/broker.xml").write_text(_BROKER_XML.format(port=port, queue=QUEUE, attributes=words))
    options = ["-XX:+UseParallelGC", "-Xms512m", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    options.append("-Dorg.slf4j.simpleLogger.log.org.apache.activemq.artemis.core.server=info")
    return [*options, "org.apache.activemq.artemis.core.server.embedded.Main", str(home)]


def _broker_j(home: Path, port: int, attributes: Mapping[str, Any]) -> Sequence[str]:
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
    config = {
        "name": "broker",
        "modelVersion": "9.1",
        "authenticationproviders": [{"name": "anyone", "type": "Anonymous"}],
        "ports": [
            {
                "name": "AMQP",
                "type": "AMQP",
                "port": port,
                "bindingAddress": "127.0.0.1",
                "authenticationProvider": "anyone",
                "protocols": ["AMQP_1_0"],
                "virtualhostaliases": [
                    {"name": name, "type": name} for name in ("nameAlias", "defaultAlias", "hostnameAlias")
                ],
            }
        ],
        "virtualhostnodes": [node],
    }
    (home / "config.json").write_text(json.dumps(config))
    (home / "logback.xml").write_text(_LOGBACK)
    options = ["-Xmx2g", "-XX:MaxDirectMemorySize=1536m", f"-Dlogback.configurationFile={home / 'logback.xml'}"]
    options += [f"-DQPID_WORK={home}", f"-Dqpid.work_dir={home}"]
    return [*options, "org.apache.qpid.server.Main", "-icp", str(home / "config.json")]


def _wait(process: SupervisedProcess, log: Path, ready: str) -> None:
    """Wait for the log's message, since the port opens before the queue exists."""
    deadline = time.monotonic() + START_SECONDS
    while ready not in log.read_text():
        if process.ended or time.monotonic() > deadline:
            raise RuntimeError(f"the broker does not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)
