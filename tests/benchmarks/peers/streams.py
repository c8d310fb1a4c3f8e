"""Kafka Streams' `GlobalKTable`, in memory, in a JVM of its own; Py4J calls it, so nothing has to be compiled."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from lvq_kafka.embedded.jars import ensure_jars
from lvq_kafka.embedded.java import find_java
from tests.benchmarks.children import peak_memory
from tests.benchmarks.peers import jars
from tests.benchmarks.workload import VALUE_SIZE

__all__ = ["GlobalTable", "StreamsMachine", "global_table", "streams_machine"]

BYTES_AS_TEXT = {f"{what}.encoding": "ISO-8859-1" for what in ("serializer", "deserializer")}
AT_ONCE = 10_000
"""The number of entries that one call returns, as text."""

ENTRY = re.compile(rf"KeyValue\((k\d{{9}}), (.{{{VALUE_SIZE}}})\)(?:, |\]\Z)", re.DOTALL)


class StreamsMachine:
    """A JVM with Kafka Streams on its class path."""

    def __init__(self, gateway: JavaGateway, process: psutil.Process) -> None:
        self.java: Any = gateway.jvm
        self._process = process

    @property
    def cpu(self) -> float:
        """The processor seconds that it has used, the compiler's and the garbage collector's included."""
        used = self._process.cpu_times()
        return float(used.user + used.system)

    @property
    def peak(self) -> int:
        """The most bytes that were resident."""
        return peak_memory(self._process.pid)

    def memory_in_use(self) -> int:
        """Return the bytes of live objects. The heap itself does not shrink, so resident bytes mean nothing."""
        self.java.java.lang.System.gc()
        return int(self.java.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


class GlobalTable:
    """A `GlobalKTable` of one topic. It starts on construction; then `wait`."""

    def __init__(self, machine: StreamsMachine, servers: str, topic: str, directory: str) -> None:
        java = machine.java
        streams = java.org.apache.kafka.streams
        text = java.org.apache.kafka.common.serialization.Serdes.String()
        text.configure(BYTES_AS_TEXT, False)
        properties = java.java.util.Properties()
        for name, value in {
            "application.id": "bench",
            "bootstrap.servers": servers,
            "state.dir": directory,
            "isolation.level": "read_committed",
        }.items():
            properties.put(name, value)
        builder = streams.StreamsBuilder()
        kept = getattr(streams.kstream.Materialized, "as")(streams.state.Stores.inMemoryKeyValueStore("values"))
        read = getattr(streams.kstream.Consumed, "with")(text, text)
        builder.globalTable(topic, read, kept.withKeySerde(text).withValueSerde(text))
        self._java = java
        self._streams = streams.KafkaStreams(builder.build(), properties)
        self._streams.start()

    def wait(self) -> None:
        """Wait until it has read all that the topic held when it started."""
        while (state := self._streams.state().toString()) != "RUNNING":
            if state not in ("CREATED", "REBALANCING"):
                raise RuntimeError(f"the GlobalKTable is {state}")
            time.sleep(0.001)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield its entries, for keys as `tests.benchmarks.workload.key_of` makes them."""
        streams = self._java.org.apache.kafka.streams
        kind = streams.state.QueryableStoreTypes.keyValueStore()
        store = self._streams.store(streams.StoreQueryParameters.fromNameAndType("values", kind))
        to_list = self._java.org.apache.kafka.common.utils.Utils.toList
        keys = store.approximateNumEntries()  # exact in memory
        for first in range(0, keys, AT_ONCE):
            found = to_list(store.range(_key(first), _key(first + AT_ONCE - 1))).toString()
            for key, value in ENTRY.findall(found):
                yield key.encode(), value.encode("latin-1")

    def close(self) -> None:
        """Stop its threads."""
        self._streams.close()


def _key(number: int) -> str:
    return f"k{number:09d}"


@contextmanager
def streams_machine() -> Iterator[StreamsMachine]:
    """Run a JVM. It ends with this process, however that ends."""
    class_path = os.pathsep.join(map(str, [*ensure_jars(), *jars.ensure("kafka-streams")]))
    port, token, process = launch_gateway(
        classpath=class_path,
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        redirect_stderr=sys.stderr,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield StreamsMachine(gateway, psutil.Process(process.pid))
    finally:
        gateway.shutdown()
        process.kill()  # it would wait for its standard input to end
        process.wait()


@contextmanager
def global_table(machine: StreamsMachine, servers: str, topic: str) -> Iterator[GlobalTable]:
    """Start a `GlobalKTable`, and remove what it leaves."""
    with tempfile.TemporaryDirectory(prefix="bench-streams-") as directory:
        table = GlobalTable(machine, servers, topic, directory)
        try:
            yield table
        finally:
            table.close()
