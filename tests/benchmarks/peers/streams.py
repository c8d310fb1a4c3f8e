"""Kafka Streams' `GlobalKTable`, in memory or on RocksDB, in a JVM of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from lvq_kafka.embedded.jars import ensure_jars
from tests.benchmarks.peers import jars
from tests.benchmarks.peers.java import AT_ONCE, BYTES_AS_TEXT, JavaMachine, java_machine, key_values, numbered_key

__all__ = ["GlobalTable", "global_table", "streams_machine"]


def streams_machine() -> AbstractContextManager[JavaMachine]:
    """Run a JVM that has Kafka Streams on its class path."""
    return java_machine([*ensure_jars(), *jars.ensure("kafka-streams")])


class GlobalTable:
    """A `GlobalKTable` of one topic. It starts on construction; then `wait`.

    Args:
        machine: where it runs.
        servers: the address of the cluster.
        topic: what it reads.
        directory: where it keeps its positions and, on RocksDB, its values.
        on_disk: whether its values are in RocksDB, which is what users get unless they ask for memory.
    """

    def __init__(
        self, machine: JavaMachine, servers: str, topic: str, directory: str, *, on_disk: bool = False
    ) -> None:
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
        stores = streams.state.Stores
        store = stores.persistentKeyValueStore("values") if on_disk else stores.inMemoryKeyValueStore("values")
        kept = getattr(streams.kstream.Materialized, "as")(store)
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

    def items(self, keys: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield its entries, for keys as `tests.benchmarks.workload.key_of` makes them.

        Args:
            keys: how many there are; in memory, it knows that itself.
        """
        streams = self._java.org.apache.kafka.streams
        kind = streams.state.QueryableStoreTypes.keyValueStore()
        store = self._streams.store(streams.StoreQueryParameters.fromNameAndType("values", kind))
        to_list = self._java.org.apache.kafka.common.utils.Utils.toList
        for first in range(0, store.approximateNumEntries() if keys is None else keys, AT_ONCE):
            found = store.range(numbered_key(first), numbered_key(first + AT_ONCE - 1))
            yield from key_values(to_list(found).toString())

    def close(self) -> None:
        """Stop its threads."""
        self._streams.close()


@contextmanager
def global_table(machine: JavaMachine, servers: str, topic: str, directory: str | None = None) -> Iterator[GlobalTable]:
    """Start a `GlobalKTable` in memory, and remove what it leaves; or one on disk, in a directory that stays."""
    with tempfile.TemporaryDirectory(prefix="bench-streams-") as own:
        table = GlobalTable(machine, servers, topic, directory or own, on_disk=directory is not None)
        try:
            yield table
        finally:
            table.close()
