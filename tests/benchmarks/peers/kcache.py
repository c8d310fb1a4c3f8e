"""KCache, a map of the latest values of a topic in a JVM, with its default cache, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from xml.sax.saxutils import escape

from tests.benchmarks.peers import jars
from tests.benchmarks.peers.java import AT_ONCE, BYTES_AS_TEXT, JavaMachine, java_machine, key_values, numbered_key

__all__ = ["KeyValueCache", "cache_machine", "key_value_cache"]


def cache_machine() -> AbstractContextManager[JavaMachine]:
    """Run a JVM that has KCache on its class path, with the version of Kafka's client that it asks for."""
    return java_machine(jars.ensure("kcache"))


class KeyValueCache:
    """A `KafkaCache` of one topic. It has read all that the topic holds when it is constructed."""

    def __init__(self, machine: JavaMachine, servers: str, topic: str, partitions: int, directory: str) -> None:
        java = machine.java
        # Py4J asks each map that it returns for its size, and this one raises until `init` was called. So a decoder
        # of Java makes it and calls that.
        recipe = _recipe(servers, topic, partitions, directory).encode()
        decoder = java.java.beans.XMLDecoder(java.java.io.ByteArrayInputStream(recipe))
        self._java = java
        self._cache = decoder.readObject()

    def items(self, keys: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield its entries, for as many keys as `tests.benchmarks.workload.key_of` has made."""
        to_list = self._java.org.apache.kafka.common.utils.Utils.toList
        for first in range(0, keys, AT_ONCE):
            found = self._cache.range(numbered_key(first), True, numbered_key(first + AT_ONCE - 1), True)
            yield from key_values(to_list(found).toString())

    def close(self) -> None:
        """Stop its threads."""
        self._cache.close()


def _recipe(servers: str, topic: str, partitions: int, directory: str) -> str:
    """Return how Java makes a cache, as text that its `XMLDecoder` reads."""
    options = {
        "bootstrap.servers": servers,
        "topic": topic,
        "topic.num.partitions": str(partitions),
        "topic.replication.factor": "1",
        "backing.cache": "memory",
        "data.dir": directory,
        "checkpoint.dir": directory,
        "group.id": "bench",
        "init.timeout.ms": "600000",
    }
    configured = _map("java.util.Properties", {f"kafkacache.{name}": value for name, value in options.items()})
    text = _map("java.util.HashMap", BYTES_AS_TEXT)
    serde = (
        '<object class="org.apache.kafka.common.serialization.Serdes$StringSerde">'
        f'<void method="configure">{text}<boolean>false</boolean></void></object>'
    )
    config = f'<object class="io.kcache.KafkaCacheConfig">{configured}</object>'
    cache = f'<object class="io.kcache.KafkaCache">{config}{serde}{serde}<void method="init"/></object>'
    return f'<java version="17" class="java.beans.XMLDecoder">{cache}</java>'


def _map(kind: str, items: Mapping[str, str]) -> str:
    put = "".join(
        f'<void method="put"><string>{escape(key)}</string><string>{escape(value)}</string></void>'
        for key, value in items.items()
    )
    return f'<object class="{kind}">{put}</object>'


@contextmanager
def key_value_cache(
    machine: JavaMachine, servers: str, topic: str, partitions: int, directory: str
) -> Iterator[KeyValueCache]:
    """Open a cache. The directory stays."""
    cache = KeyValueCache(machine, servers, topic, partitions, directory)
    try:
        yield cache
    finally:
        cache.close()
