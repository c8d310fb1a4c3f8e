"""The expiry of a row (R10), as an expression that Spark computes by itself.

It agrees with `lvq_kafka.core.timing.ttl.ExpiryTimes`, by which everything in Python goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER, Ttl

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["DIGITS", "LAST", "expiry", "lives", "unreadable"]

LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that a date can express. Nothing expires later."""


DIGITS = r"\A[0-9]{1,15}\z"
"""The pattern of milliseconds in a header, as `lvq_kafka.core.timing.log_time.header_ms` reads it."""


def expiry(ttl: Ttl) -> Column:
    """Return when a row with the columns ``timestamp`` and ``headers`` expires.

    It is the time after which the row no longer counts; null for never.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    limits = ttl.to_wire()
    said = F.filter("headers", lambda header: header["key"] == F.lit(TTL_HEADER))
    there = F.coalesce(F.size(said) > 0, F.lit(False)) & ~unreadable()
    text = F.try_element_at(said, F.lit(-1))["value"].cast("string")  # the last one counts
    own = F.nullif(F.when(there & text.rlike(DIGITS), text.try_cast("bigint")), F.lit(0))  # 0 says none
    limited = F.least(F.greatest(own, F.lit(limits.get("minimum_ms", 0))), F.lit(limits.get("maximum_ms", NEVER)))
    usual = F.lit(limits.get("default_ms", limits.get("maximum_ms"))).cast("bigint")
    at = F.unix_millis("timestamp") + F.when(own.isNotNull(), limited).otherwise(usual)
    return F.when(at <= LAST, F.timestamp_millis(at))


def lives(ttl: Ttl, as_of: float) -> Column:
    """Return whether a row still counts at a time, in seconds since the epoch."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(expiry(ttl) >= F.timestamp_millis(F.lit(round(as_of * 1000))), F.lit(True))


def unreadable() -> Column:
    """Return whether the headers of a row are unreadable (R16).

    A name among them is not UTF-8 then; Java's client puts a replacement character into it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.exists("headers", lambda header: header["key"].contains("\ufffd")), F.lit(False))
