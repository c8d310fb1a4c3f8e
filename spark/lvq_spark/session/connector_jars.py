"""Jars of Spark's Kafka connector, for machines that cannot resolve spark.jars.packages.

``python -m lvq_spark.session.connector_jars`` prints where they are, as ``spark-submit --jars`` takes it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lvq_kafka.embedded.coordinates import Module
from lvq_kafka.embedded.jars import JarSet, Progress
from lvq_kafka.errors import ConfigError, EmbeddedBrokerError

__all__ = ["CONNECTOR", "check_spark", "connector_jars"]

CONNECTOR = JarSet(
    what="jars of Spark's Kafka connector",
    directory="spark-kafka",
    lock_file=Path(__file__).with_name("connector.lock"),
    # All modules are named, and no dependencies are resolved, so the rest stays as Spark has it. Avro's functions are
    # in a package of their own, too, and are often needed to read a topic.
    roots=(
        Module("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        Module("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        Module("org.apache.kafka", "kafka-clients", "3.9.2"),
        Module("org.apache.commons", "commons-pool2", "2.12.1"),
        Module("org.apache.spark", "spark-avro_2.13", "4.1.1"),
    ),
    relocked_by="python -m lvq_spark.session.connector_jars --relock",
)


SPARKS = ("4.1", "4.2", "4.3")
"""The versions of Spark on which the locked jars read batches.

The connector calls Spark's internals, which may change: streams do not run on 4.1.
"""


def check_spark(version: str) -> None:
    """Check that the locked jars support a version of Spark.

    Raises:
        ConfigError: they do not; the error names both versions, and where to get the right jars.
    """
    if ".".join(version.split(".")[:2]) not in SPARKS:
        raise ConfigError(
            f"This is Spark {version}, but the connector bundled with lvq_spark is for {SPARKS[0]} to {SPARKS[-1]}.",
            options=["connector"],
            hint="Omit connector, and let Spark fetch its own with config={'spark.jars.packages': "
            f"'org.apache.spark:spark-sql-kafka-0-10_2.13:{version}'}}.",
        )


def connector_jars(progress: Progress | None = None) -> list[Path]:
    """Return the jars of Spark's Kafka connector and Avro functions.

    They are fetched unless they are cached. They are for the versions of Spark in `SPARKS`. On a cluster, use those of
    its Spark version: ``--packages org.apache.spark:spark-sql-kafka-0-10_2.13:<version>``.

    Raises:
        EmbeddedBrokerError: they cannot be fetched; see `lvq_kafka.embedded.jars.JarSet.ensure`.
    """
    return CONNECTOR.ensure(progress)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit with a message if the jars are not available."""
    parser = argparse.ArgumentParser(prog="python -m lvq_spark.session.connector_jars", description=__doc__)
    parser.add_argument("--relock", action="store_true", help="fetch them again and rewrite the lock")
    options = parser.parse_args(arguments)
    try:
        if options.relock:
            sys.stdout.write(f"{CONNECTOR.relock()} jars locked in {CONNECTOR.lock_file}\n")
            return
        sys.stdout.write(",".join(map(str, connector_jars())) + "\n")
    except EmbeddedBrokerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
