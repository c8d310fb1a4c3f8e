"""Checks on the driver for problems that would fail a connector job with a Java error."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing

from pyspark.sql import DataFrame

from lvq_kafka.errors import ConfigError, TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.session.java_errors import java_error
from lvq_spark.session.remote import is_connect, spark_errors

__all__ = ["check_plan", "check_rights"]


def check_rights(spec: SnapshotSpec, config: ClientConfig, timeout: float) -> None:
    """Check that this user may read the topic, by reading a little of it.

    Pinning a cut takes fewer rights.

    Raises:
        Unauthorized, DataLoss, TransportError: it cannot be read.
    """
    partition, deadline = spec.ranges[0], time.monotonic() + timeout
    start, trouble = {partition: spec.start[partition]}, None
    with closing(KafkaCluster(config)) as cluster, closing(cluster.reader(spec.topic, start, headers=False)) as reader:
        while time.monotonic() < deadline:
            try:
                if reader.poll(0.1).positions:
                    return
            except TransportError as error:
                if not error.retriable:
                    raise
                trouble = error
    if trouble is not None:  # otherwise it is only slow, and the tasks have more patience
        raise trouble


def check_plan(load: Callable[[], DataFrame]) -> None:
    """Check that the connector accepts its options and reaches the cluster.

    It uses its own properties, and connects when a read is planned.

    Raises:
        ConfigError: it refuses an option.
        LVQError: it does not reach the cluster; see `java_error`.
    """
    from pyspark.errors import IllegalArgumentException

    try:
        _plan(load())
    except spark_errors() as error:
        text = str(error)
        if found := java_error(text):
            raise found from error
        wrong = _WRONG.search(text)
        if wrong or isinstance(error, IllegalArgumentException):
            reason = wrong[1] if wrong else text.splitlines()[0]
            raise ConfigError(
                f"Spark's Kafka connector rejects its options: {reason}", options=["connector_options"]
            ) from error
        raise


_WRONG = re.compile(r"org\.apache\.kafka\.common\.config\.ConfigException\)?:? (.+)")
"""The message of Java's client about a property that it does not accept."""


def _plan(frame: DataFrame) -> None:
    if is_connect(frame.sparkSession):
        frame._explain_string()  # type: ignore[operator]
    else:
        frame._jdf.queryExecution().executedPlan()
