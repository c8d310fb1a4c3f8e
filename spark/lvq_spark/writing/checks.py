"""Check everything before any of it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame

from lvq_kafka.core.producer.message_terms import OwnTerms
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.foreign_headers import GROUP_HEADERS, ForeignHeaders
from lvq_kafka.core.queue.headers import RESERVED, reserved_header
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text import quoting
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import LONGEST_TTL, TTL_HEADER, check_ttl
from lvq_kafka.errors import ConfigError, MessageTooLarge, MissingKey
from lvq_spark.rules.expiry import DIGITS
from lvq_spark.scan.serialization import map_in_arrow
from lvq_spark.schema import GROUP
from lvq_spark.writing.rows import HEADERS_WANTED, is_priority, is_time, is_ttl, unkeyed
from lvq_spark.writing.sizes import SizeLimits, oversize

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "check_deletes",
    "check_foreign",
    "check_groups",
    "check_ranks",
    "check_rows",
    "check_schedules",
    "check_ttls",
]

_DIGIT = r"\A[0-9]\z"


def check_rows(
    rows: DataFrame, definition: QueueDefinition, limits: SizeLimits, *, key: str, newest: str | None
) -> int:
    """Check that each row can be written as it is, and return the number of keys.

    Args:
        rows: rows of key, value, headers and `suspect`.

    Raises:
        MissingKey, ConfigError, MessageTooLarge: as described for `lvq_spark.publish`.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    key_header = definition.key_header

    def disagrees(header: Column) -> Column:
        return (header["key"] == F.lit(key_header)) & (header["value"] != F.col("key"))

    clash = F.lit(False) if key_header is None else F.coalesce(F.exists("headers", disagrees), F.lit(False))
    nameless = F.coalesce(F.exists("headers", lambda header: header["key"].isNull()), F.lit(False))
    allowed = {
        TTL_HEADER: definition.ttl is not None,
        NOT_BEFORE_HEADER: definition.max_delay is not None,
        PRIORITY_HEADER: definition.order == "priority",
        SORT_HEADER: definition.sort_header == SORT_HEADER,
    }
    names = RESERVED - {header for header, may in allowed.items() if may}
    names -= set() if definition.groups is None else {definition.groups.header}
    reserved = F.array_min(F.filter(F.col("headers")["key"], lambda name: name.isin(*sorted(names))))
    refused = unkeyed() if definition.keyless == "refuse" else F.lit(False)
    keys = rows.groupBy("key", (F.col("key").isNull() | refused).alias("keyless")).agg(
        F.count(F.lit(1)).alias("n"),
        F.max(clash).alias("clash"),
        F.max(nameless).alias("nameless"),
        F.min(reserved).alias("reserved"),
        F.max("suspect").alias("suspect"),
    )
    several = F.col("key").isNotNull() & (F.col("n") > 1)
    found = keys.agg(
        F.count("key").alias("keys"),
        F.sum(F.when(F.col("keyless"), F.col("n"))).alias("keyless"),
        F.count(F.when(several, 1)).alias("several"),
        F.min(F.when(several, F.struct("key", "n"))).alias("example"),
        F.count(F.when(F.col("clash"), 1)).alias("clashes"),
        F.min(F.when(F.col("clash"), F.col("key"))).alias("clashing"),
        F.count(F.when(F.col("nameless"), 1)).alias("nameless"),
        F.min(F.when(F.col("nameless"), F.col("key"))).alias("unnamed"),
        F.min("reserved").alias("reserved"),
        F.max("suspect").alias("suspect"),
    ).collect()[0]
    if found.keyless:
        raise MissingKey(
            f"{_many(found.keyless, 'row has', 'rows have')} no key (the column {key} is null, or the headers say so).",
            hint="A row names the value that it replaces. Omit such rows.",
        )
    if found.several:
        which = "rows" if newest is None else f"rows that are the newest by {newest}"
        raise ConfigError(
            f"{_many(found.several, 'key has', 'keys have')} several {which}, "
            f"among them {quoting.quoted(bytes(found.example.key))} with {found.example.n}.",
            options=["key"] if newest is None else ["newest"],
            hint="Name a column that decides which of them counts: newest=..." if newest is None else "",
        )
    if found.clashes:
        raise ConfigError(
            f"{_many(found.clashes, 'row has', 'rows have')} a header {key_header!r} that disagrees with the key, "
            f"among them the one of {quoting.quoted(bytes(found.clashing))}.",
            options=["key", "headers"],
            hint="The header is set from the key: omit it.",
        )
    if found.nameless:
        raise ConfigError(
            f"{_many(found.nameless, 'row has', 'rows have')} a header without a name, among them the one of "
            f"{quoting.quoted(bytes(found.unnamed))}.",
            options=["headers"],
            hint=HEADERS_WANTED,
        )
    if found.reserved is not None:
        raise reserved_header(found.reserved, definition.topic)
    if found.suspect:
        _check_sizes(rows, limits, key_header, "row is", "rows are")
    return int(found.keys)


def check_ttls(rows: DataFrame) -> None:
    """Check the TTLs of rows for a queue that has them.

    Raises:
        ConfigError: as described for `lvq_spark.publish`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    said = F.filter("headers", lambda header: header["key"] == F.lit(TTL_HEADER))
    longest = round(LONGEST_TTL * 1000)

    def is_none(header: Column) -> Column:
        text = header["value"].cast("string")
        return ~F.coalesce(text.rlike(DIGITS) & text.try_cast("bigint").between(1, longest), F.lit(False))

    unreadable = F.exists(said, is_none)
    given = F.col("ttl") if "ttl" in rows.columns else F.lit(None).cast("double")
    twice = given.isNotNull() & F.col("value").isNotNull() & (F.size(said) > 1)
    faults = F.when(~is_ttl(given), "ttl").when(twice, "twice").when(unreadable, "header")
    found = rows.select("key", faults.alias("fault"), given.alias("ttl")).where("fault is not null").first()
    if found is None:
        return
    key = quoting.quoted(bytes(found.key))
    if found.fault == "ttl":
        check_ttl("ttl", found.ttl, f"It is the one of {key}. Leave it null for a value that lives on.")
    what = (
        f"is not a number of milliseconds from 1 to {longest:,}"
        if found.fault == "header"
        else "and ttl are both given"
    )
    raise ConfigError(
        f"The header {TTL_HEADER} of the row of {key} {what}.",
        options=[TTL_HEADER] if found.fault == "header" else ["ttl", TTL_HEADER],
        hint="Name a column of seconds with ttl=..., and omit the header.",
    )


def check_schedules(rows: DataFrame, max_delay: float, now: float) -> None:
    """Check the times from which on rows count, for a queue whose messages may be scheduled.

    Args:
        rows: rows of key, value, headers and, where it was given, not_before.
        max_delay: the longest delay of the queue, in seconds.
        now: the time, in seconds since the epoch.

    Raises:
        ConfigError: as described for `lvq_spark.publish`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    said = F.filter("headers", lambda header: header["key"] == F.lit(NOT_BEFORE_HEADER))
    unreadable = F.exists(said, lambda header: ~F.coalesce(header["value"].cast("string").rlike(DIGITS), F.lit(False)))
    given = F.col("not_before") if "not_before" in rows.columns else F.lit(None).cast("double")
    own = F.try_element_at(said, F.lit(-1))["value"].cast("string").try_cast("bigint")
    late = own > F.lit(round((now + max_delay) * 1000))
    faults = (
        F.when(~is_time(given), "time")
        .when(given.isNotNull() & (F.size(said) > 1), "twice")
        .when(unreadable, "header")
        .when((F.size(said) > 0) & F.col("value").isNull(), "delete")
        .when(late, "late")
    )
    found = rows.select("key", faults.alias("fault")).where("fault is not null").first()
    if found is None:
        return
    what, hint = _SCHEDULE_FAULTS[found.fault]
    raise ConfigError(
        f"The row of {quoting.quoted(bytes(found.key))} {what}.",
        options=["not_before", NOT_BEFORE_HEADER] if found.fault == "twice" else ["not_before"],
        hint=hint,
    )


def check_foreign(rows: DataFrame, definition: QueueDefinition, now: float) -> list[str]:
    """Check the headers of other systems; return lines for the log on those without effect.

    Args:
        rows: rows of key, value and headers.
        definition: the queue.
        now: the time, in seconds since the epoch.

    Raises:
        ConfigError: as described for `lvq_spark.publish`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    foreign = QueueRules.of(definition).foreign_headers()
    names = F.array_intersect(F.col("headers")["key"], F.array(*map(F.lit, sorted(foreign.names))))
    found = {row.name for row in rows.select(F.explode(names).alias("name")).distinct().collect()}
    for name in sorted(found - foreign.stand_for.keys()):
        foreign.ignore(name)
    meant = sorted(found & foreign.stand_for.keys())
    if meant:
        concerned = rows.where(F.exists("headers", lambda header: header["key"].isin(*meant)))
        check = _ForeignCheck(definition, now)
        fault = map_in_arrow(concerned.select("key", "value", "headers"), check, _ForeignCheck.REPORT).first()
        if fault is not None:
            raise ConfigError(
                f"The row of {quoting.quoted(bytes(fault.key))}: {fault.said}", options=fault.options, hint=fault.hint
            )
    return [str(warning) for warning in foreign.pop_warnings()]


@dataclass(frozen=True, slots=True)
class _ForeignCheck:
    """Judges headers of other systems as a producer does."""

    definition: QueueDefinition
    now: float

    REPORT = "key binary, said string, options array<string>, hint string"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Report the first row that a producer would refuse."""
        import pyarrow as pa

        terms = OwnTerms(QueueRules.of(self.definition), now=lambda: self.now)
        for batch in batches:
            for key, value, headers in zip(*(batch.column(name).to_pylist() for name in ("key", "value", "headers"))):
                try:
                    _judge(terms, value, [(header["key"], header["value"]) for header in headers])
                except ConfigError as error:
                    said = str(error).removesuffix(error.hint).rstrip()
                    fault = {"key": key, "said": said, "options": list(error.options), "hint": error.hint}
                    kinds = (pa.binary(), pa.string(), pa.list_(pa.string()), pa.string())
                    cells = [pa.array([cell], kind) for cell, kind in zip(fault.values(), kinds)]
                    yield pa.RecordBatch.from_arrays(cells, [*fault])
                    return


def _judge(terms: OwnTerms, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    if value is None:
        terms.check_delete(headers)
    for name, said in headers:
        if name in terms.foreign.names:
            terms.check(name, said)
    terms.translate(headers)


def check_groups(rows: DataFrame, groups: Groups, foreign: ForeignHeaders) -> None:
    """Check the groups of rows for a queue that has them.

    Args:
        rows: rows of key, value, headers and, where it was given, `GROUP`.
        groups: how the queue's messages are grouped.
        foreign: what headers of other systems mean in the queue.

    Raises:
        ConfigError: as described for `lvq_spark.publish`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = [groups.header, *foreign.stand_for.keys() & GROUP_HEADERS]
    said = F.coalesce(F.filter("headers", lambda header: header["key"].isin(*names)), F.array())
    blank = F.exists(said, lambda header: F.trim(header["value"].cast("string")) == "")
    given = F.col(GROUP).isNotNull() if GROUP in rows.columns else F.lit(False)
    placed = F.lit(groups.placement == "group")
    faults = (
        F.when(given & (F.size(said) > 1), "twice")
        .when(blank, "blank")
        .when(placed & F.col("value").isNull() & (F.size(said) == 0), "delete")
    )
    found = rows.select("key", faults.alias("fault")).where("fault is not null").first()
    if found is None:
        return
    what, hint = _GROUP_FAULTS[found.fault]
    raise ConfigError(
        f"The row of {quoting.quoted(bytes(found.key))} {what}.",
        options=["group", groups.header] if found.fault == "twice" else ["group"],
        hint=hint,
    )


_GROUP_FAULTS = {
    "twice": ("has both a group and the header that names it", "Give one of them."),
    "blank": ("has a blank group", "Leave it null for a value without a group."),
    "delete": (
        "is a delete that does not say the group of its key's value, by which it would be placed",
        "Name a column of groups with group=..., null for a value without one.",
    ),
}
"""Faults of the group of a row, each with what to do."""

_SCHEDULE_FAULTS = {
    "time": ("has a not_before that is not a time of this era", "Give timestamps, or seconds since the epoch."),
    "twice": (f"has both not_before and the header {NOT_BEFORE_HEADER}", "Give one of them."),
    "header": (
        f"has a header {NOT_BEFORE_HEADER} that is not a number of milliseconds",
        "Name a column of times with not_before=..., and omit the header.",
    ),
    "delete": (
        "would schedule a delete",
        "Publish the delete when its time has come, or schedule a last value with a TTL.",
    ),
    "late": (
        "is scheduled further ahead than the queue's max_delay",
        "Publish it later, or declare a queue with a longer max_delay.",
    ),
}
"""Faults of the time from which on a row counts, each with what to do."""


def check_ranks(rows: DataFrame, rank_header: str) -> None:
    """Check the ranks of rows, for a queue with an order by rank.

    Args:
        rows: rows of key, value, headers and, where it was given, priority or sort.
        rank_header: the header that holds the rank.

    Raises:
        ConfigError: as described for `lvq_spark.publish`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    option = "priority" if rank_header == PRIORITY_HEADER else "sort"
    said = F.filter("headers", lambda header: header["key"] == F.lit(rank_header))
    given = F.col(option) if option in rows.columns else F.lit(None).cast("string")
    twice = given.isNotNull() & F.col("value").isNotNull() & (F.size(said) > 1)
    faults = F.when(twice, "twice")
    if option == "priority":
        faults = F.when(~is_priority(given), "rank").when(twice, "twice")
        unreadable = F.exists(
            said, lambda header: ~F.coalesce(header["value"].cast("string").rlike(_DIGIT), F.lit(False))
        )
        faults = faults.when(unreadable, "header")
    elif rank_header == SORT_HEADER:
        text = F.exists(said, lambda header: ~F.coalesce(F.is_valid_utf8(header["value"].cast("string")), F.lit(False)))
        faults = faults.when(text, "header")
    found = rows.select("key", faults.alias("fault")).where("fault is not null").first()
    if found is None:
        return
    what = {
        "rank": "has a priority that is not from 0 to 9",
        "twice": f"has both {option} and the header {rank_header}",
        "header": f"has a header {rank_header} that is not {'a digit' if option == 'priority' else 'text in UTF-8'}",
    }[found.fault]
    raise ConfigError(
        f"The row of {quoting.quoted(bytes(found.key))} {what}.",
        options={"rank": [option], "twice": [option, rank_header], "header": [rank_header]}[found.fault],
        hint=f"Name a column with {option}=..., and omit the header.",
    )


def check_deletes(rows: DataFrame, limits: SizeLimits, key_header: str | None) -> int:
    """Check that all keys can be deleted, and return their number.

    Raises:
        MessageTooLarge: a key, with its key header, is larger than the client or the topic takes.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    found = rows.agg(F.count("key").alias("keys"), F.max("suspect").alias("suspect")).collect()[0]
    if found.suspect:
        _check_sizes(rows, limits, key_header, "delete is", "deletes are")
    return int(found.keys)


def _check_sizes(rows: DataFrame, limits: SizeLimits, key_header: str | None, one: str, more: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    over = rows.where("suspect").withColumn("oversize", oversize(limits, key_header)).where("oversize is not null")
    worst = F.max(F.struct(F.abs("oversize").alias("size"), "oversize", "key"))
    found = over.agg(F.count("oversize").alias("oversizes"), worst.alias("worst")).collect()[0]
    if not found.oversizes:
        return
    key, size = bytes(found.worst.key), found.worst.size
    if found.worst.oversize > 0:
        takes = f"the client accepts {limits.client} (message.max.bytes)"
    else:
        takes = f"the topic {limits.name} accepts {limits.topic} (max.message.bytes)"
    raise MessageTooLarge(
        f"{_many(found.oversizes, one, more)} too large, {'' if found.oversizes == 1 else 'among them '}the one of "
        f"{quoting.quoted(key)}: it has {size} bytes, and {takes}. Nothing was written.",
        key=key,
        code="MSG_SIZE_TOO_LARGE",
        hint="Raise message.max.bytes here and max.message.bytes on the topic, or store the value elsewhere.",
    )


def _many(count: int, one: str, more: str) -> str:
    """Return a count with its singular or plural wording."""
    return f"{count} {one if count == 1 else more}"
