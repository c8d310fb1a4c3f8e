"""The peers' released jars, fetched once per user as the broker's are, and checked against the locks here.

``python -m tests.benchmarks.peers.jars`` fetches them; with ``--relock`` it resolves them again and writes the locks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lvq_kafka.embedded.coordinates import Module
from lvq_kafka.embedded.jars import KAFKA_VERSION, JarSet

ARTEMIS = "2.55.0"  # the newest whose AMQP module can be fetched
BROKER_J = "10.1.0"
KCACHE = "5.2.3"
ROCKSDB = "10.1.3"  # the version that Kafka Streams asks for

# Roots of the locks. Broker-J's own bundle depends on a database that the public repository lacks, so its parts are
# named here: the protocol, and the durable store that comes with it.
ROOTS = {
    "artemis": (
        Module("org.apache.artemis", "artemis-server", ARTEMIS, transitive=True),
        Module("org.apache.artemis", "artemis-amqp-protocol", ARTEMIS, transitive=True),
        Module("org.slf4j", "slf4j-simple", "2.0.18"),
    ),
    "broker-j": (
        Module("org.apache.qpid", "qpid-broker", BROKER_J),
        Module("commons-cli", "commons-cli", "1.11.0"),
        Module("org.apache.qpid", "qpid-broker-core", BROKER_J, transitive=True),
        Module("org.apache.qpid", "qpid-broker-plugins-amqp-1-0-protocol", BROKER_J, transitive=True),
        Module("org.apache.qpid", "qpid-broker-plugins-derby-store", BROKER_J, transitive=True),
        Module("org.apache.qpid", "qpid-broker-plugins-logging-logback", BROKER_J, transitive=True),
    ),
    "kcache": (Module("io.kcache", "kcache", KCACHE, transitive=True),),
    # Beside the broker's jars, which lack its own store.
    "kafka-streams": (
        Module("org.apache.kafka", "kafka-streams", KAFKA_VERSION),
        Module("org.rocksdb", "rocksdbjni", ROCKSDB),
    ),
}

PEERS = {
    peer: JarSet(
        what=f"jars of {peer}",
        directory=f"peer-{peer}",
        lock_file=Path(__file__).with_name(f"{peer}.lock"),
        roots=roots,
        relocked_by="python -m tests.benchmarks.peers.jars --relock",
    )
    for peer, roots in ROOTS.items()
}


def ensure(peer: str) -> list[Path]:
    """Return the paths of a peer's jars, fetching them if they are not in the cache."""
    return PEERS[peer].ensure()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--relock", action="store_true")
    parser.add_argument("peer", nargs="*", choices=[*PEERS, []])
    options = parser.parse_args()
    for peer in options.peer or PEERS:
        if options.relock:
            PEERS[peer].relock()
        print(peer, len(ensure(peer)), "jars")


if __name__ == "__main__":
    main()
