"""Names and options of earlier versions, which are errors that name their successors."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.errors import ConfigError

__all__ = ["NAMES", "refuse_removed", "successor"]

_SLICES = (
    "Tasks read Kafka with their own Python. If the keys of a partition do not fit into the memory of one, set slices "
    "(lvq.slices for the format lvq): several tasks then read the partition."
)
_OPTIONS = {
    "engine": f"There is only one engine. {_SLICES}",
    "connector_options": "Spark's Kafka connector no longer reads snapshots. Give properties of librdkafka to the "
    f"queue's ClientConfig; a login that only Java's client has does not work. {_SLICES}",
    "connector": "Nothing needs Spark's Kafka connector. For Avro's functions let Spark fetch them: "
    "config={'spark.jars.packages': 'org.apache.spark:spark-avro_2.13:<version of Spark>'}.",
}
NAMES = {
    "choose_engine": _OPTIONS["engine"],
    "SchemaRegistry": "Make a SchemaRegistryClient of confluent-kafka, and call read_subject(client, subject).",
    "upsert": "Call refresh instead: in a loop, or whenever a stream has a batch, "
    "foreachBatch(lambda rows, number: refresh(rows.sparkSession, queue, path)). It goes on from a store of upsert.",
}
"""Names that lvq_spark no longer has, with what to use instead."""


def refuse_removed(function: str, given: Mapping[str, object]) -> None:
    """Refuse the options of a function that it does not have.

    Raises:
        ConfigError: it had one of them once; the error names the successor.
        TypeError: it never had one of them.
    """
    for name in given:
        if name not in _OPTIONS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        raise ConfigError(f"{function} no longer has the option {name}.", options=[name], hint=_OPTIONS[name])


def successor(name: str) -> ImportError | None:
    """Return the error for a name that lvq_spark had once; None if it never had it."""
    instead = NAMES.get(name)
    return None if instead is None else ImportError(f"lvq_spark no longer has {name}. {instead}", name="lvq_spark")
