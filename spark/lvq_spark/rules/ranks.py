"""The rank of a row (R20), as an expression that Spark computes by itself.

It agrees with `lvq_kafka.core.queue.ranking.Ranking`, by which consumers go.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame

from lvq_kafka.core.queue.ranking import DEFAULT_PRIORITY, PRIORITY_HEADER, SORT_HEADER, QueueOrder
from lvq_kafka.core.text.validation import instance
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_spark.rules.expiry import unreadable
from lvq_spark.schema import PRIORITY, SORT_KEY
from lvq_spark.session.local_session import require_frame

__all__ = ["RANKS", "check_ranked", "rank", "with_rank"]

RANKS: dict[str, QueueOrder] = {PRIORITY: "priority", SORT_KEY: "sorted"}
"""The columns of ranks, each with the order of the queues that have it."""

_DIGIT = r"\A[0-9]\z"


def with_rank(df: DataFrame, queue: LastValueQueue[Any]) -> DataFrame:
    """Add the column by which a queue with an order by rank is ordered (R20).

    For a queue with ``order="priority"``, that is ``priority``, an integer from 0 to 9: the one of the message, or 4 if
    it has none, or none that can be read. For one with ``order="sorted"``, it is ``sort_key``, the text of the sort
    header, null without one, which comes first. To order rows as consumers get them, of equal rank by arrival::

        rows = lvq_spark.with_rank(lvq_spark.read_version(spark, store), queue)
        rows.orderBy(F.desc("priority"), "timestamp", "partition", "offset")    # a queue with 10 levels
        rows.orderBy(F.asc_nulls_first("sort_key"), "timestamp", "partition", "offset")

    Args:
        df: rows with the column ``headers`` of this queue: a snapshot, a version, a merged table or a stream.
        queue: the queue.

    Raises:
        ConfigError: the queue has no order by rank, or the frame no headers.
    """
    require_frame(df)
    instance("queue", queue, LastValueQueue, 'For example LastValueQueue.open("prices").')
    definition = queue.definition
    column = next((name for name, order in RANKS.items() if order == definition.order), None)
    if column is None:
        raise ConfigError(
            f"The messages of {definition.name} have no rank: its order is {definition.order!r}.",
            options=["queue", "order"],
            hint='Queues with order="priority" or "sorted" have one.',
        )
    if "headers" not in df.columns:
        raise ConfigError(
            f"The frame has no column headers, which says the rank; it has {', '.join(df.columns)}.",
            options=["df"],
            hint="Read it with the headers.",
        )
    return df.withColumn(column, rank(column, definition.sort_header))


def check_ranked(option: str, columns: tuple[str, ...], name: str, order: QueueOrder) -> None:
    """Check that messages of a queue have the ranks that these columns show.

    Args:
        option: the option that names the columns.
        columns: the columns.
        name: the queue's name, for errors.
        order: its order.

    Raises:
        ConfigError: they have not.
    """
    for column in columns:
        if RANKS.get(column, order) != order:
            raise ConfigError(
                f"{option} names {column}, and the order of {name} is {order!r}: its messages have none.",
                options=[option, "order"],
                hint=f'Queues declared with order="{RANKS[column]}" have that column.',
            )


def rank(column: str, sort_header: str | None) -> Column:
    """Return one of the columns of ranks, for rows with the column ``headers``."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    name = PRIORITY_HEADER if column == PRIORITY else sort_header or SORT_HEADER
    said = F.filter("headers", lambda header: header["key"] == F.lit(name))
    # The last one counts; of several, those without a value are no exception.
    value = F.when(~unreadable(), F.try_element_at(said, F.lit(-1))["value"]).cast("string")
    if column == SORT_KEY:
        return F.make_valid_utf8(value)
    own = F.when(value.rlike(_DIGIT), value.try_cast("int"))
    return F.coalesce(own, F.lit(DEFAULT_PRIORITY))
