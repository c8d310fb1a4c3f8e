"""The group of a row (R36), as an expression that Spark computes by itself.

It agrees with `lvq_kafka.Groups.group`, by which everything in Python goes.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column

from lvq_kafka.core.text.validation import instance
from lvq_kafka.queue import LastValueQueue
from lvq_spark.rules.expiry import unreadable

__all__ = ["group_of"]


def group_of(queue: LastValueQueue[Any]) -> Column:
    """Return the group of a row of a queue, for a frame with the column ``headers``.

    ::

        read_version(spark, path).withColumn("group", group_of(queue))

    It is null for a row without a group, and for all rows of a queue without groups. `snapshot` and the format ``lvq``
    have it as the column ``group``, if it is asked for.

    Args:
        queue: the queue.

    Raises:
        ConfigError: ``queue`` is not a queue.
    """
    instance("queue", queue, LastValueQueue, 'For example LastValueQueue.open("prices").')
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    groups = queue.definition.groups
    none = F.lit(None if groups is None or groups.default is None else groups.default.encode()).cast("binary")
    if groups is None:
        return none
    named = F.filter("headers", lambda header: header["key"] == F.lit(groups.header))
    said = F.try_element_at(named, F.lit(-1))["value"]  # the last one counts
    return F.coalesce(F.when(~unreadable() & (F.length(said) > 0), said), none)
