"""JVMs of peers that are libraries. Py4J calls them, so nothing has to be compiled."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from lvq_kafka.embedded.java import find_java
from tests.benchmarks.children import anonymous_memory, peak_memory
from tests.benchmarks.workload import VALUE_SIZE

__all__ = ["AT_ONCE", "BYTES_AS_TEXT", "JavaMachine", "java_machine", "key_values", "numbered_key"]

BYTES_AS_TEXT = {f"{what}.encoding": "ISO-8859-1" for what in ("serializer", "deserializer")}

AT_ONCE = 10_000
"""The number of entries that one call returns, as text."""

_ENTRY = re.compile(rf"KeyValue\((k\d{{9}}), (.{{{VALUE_SIZE}}})\)(?:, |\]\Z)", re.DOTALL)


def numbered_key(number: int) -> str:
    """Return a key as `tests.benchmarks.workload.key_of` makes them, in their order."""
    return f"k{number:09d}"


def key_values(text: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a list of `KeyValue`, which both peers print alike."""
    for key, value in _ENTRY.findall(text):
        yield key.encode(), value.encode("latin-1")


class JavaMachine:
    """A JVM that runs."""

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

    @property
    def anonymous(self) -> int:
        """The bytes that it cannot give back, its heap among them."""
        return anonymous_memory(self._process.pid)


@contextmanager
def java_machine(jars: Iterable[Path]) -> Iterator[JavaMachine]:
    """Run a JVM with jars on its class path. It ends with this process, however that ends."""
    class_path = os.pathsep.join(map(str, jars))
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
        yield JavaMachine(gateway, psutil.Process(process.pid))
    finally:
        gateway.shutdown()
        process.kill()  # it would wait for its standard input to end
        process.wait()
