"""The expiry of a row (R10), as an expression that Spark computes by itself.

It agrees with `lvq_kafka.core.timing.expiry_times.ExpiryTimes`, by which everything in Python goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER, Ttl

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["DIGITS", "LAST", "expiry", "lives", "unreadable"]

LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that a date can express. Nothing expires later."""


DIGITS = r"\A[0-9]{1,15}\z"
"""The pattern of milliseconds in a header, as `lvq_kafka.core.timing.log_time.header_ms` reads it."""


def expiry(times: TimeRule) -> Column:
    """Return when a row with the columns ``timestamp`` and ``headers`` expires.

    It is the time after which the row no longer counts; null for never.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    lifetime, at = _lifetime(times.ttl), F.unix_millis("timestamp")
    for terms in reversed(times.earlier):
        lifetime = F.when(at < F.lit(terms.until), _lifetime(terms.ttl)).otherwise(lifetime)
    expires = at + lifetime
    return F.when(expires <= LAST, F.timestamp_millis(expires))


def _lifetime(ttl: Ttl | None) -> Column:
    """Return the ms for which a row lives; null if nothing limits it."""
    from pyspark.sql import functions as F  # noqa: N812

    if ttl is None or ttl.never:
        return F.lit(None).cast("bigint")
    limits = ttl.to_wire()
    said = F.filter("headers", lambda header: header["key"] == F.lit(TTL_HEADER))
    there = F.coalesce(F.size(said) > 0, F.lit(False)) & ~unreadable()
    text = F.try_element_at(said, F.lit(-1))["value"].cast("string")  # the last one counts
    own = F.nullif(F.when(there & text.rlike(DIGITS), text.try_cast("bigint")), F.lit(0))  # 0 says none
    limited = F.least(F.greatest(own, F.lit(limits.get("minimum_ms", 0))), F.lit(limits.get("maximum_ms", NEVER)))
    usual = F.lit(limits.get("default_ms", limits.get("maximum_ms"))).cast("bigint")
    return F.when(own.isNotNull(), limited).otherwise(usual)


def lives(times: TimeRule, as_of: float) -> Column:
    """Return whether a row still counts at a time, in seconds since the epoch."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(expiry(times) >= F.timestamp_millis(F.lit(round(as_of * 1000))), F.lit(True))


def unreadable() -> Column:
    """Return whether the headers of a row are unreadable (R16).

    A name among them is not UTF-8 then; Java's client puts a replacement character into it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.exists("headers", lambda header: header["key"].contains("\ufffd")), F.lit(False))
