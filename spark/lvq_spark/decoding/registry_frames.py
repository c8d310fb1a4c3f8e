"""The frames of a schema registry's serializers, which name the schemas of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column

from lvq_spark.decoding.staged_frame import StagedFrame
from lvq_spark.schema import TYPES

__all__ = ["RegistryFrame", "identities", "read_frame"]

_NAMES = {"00": 4, "01": 16}
"""The lengths of a schema's id and of its guid, by the byte before them, in hexadecimal."""

_HEADERS = {"key": "__key_schema_id"}
_HEADER = "__value_schema_id"


def identities(number: int, guid: str | None) -> list[str]:
    """Return what a frame may call a schema, as `RegistryFrame.identity` has it."""
    return [f"00{number:08X}", *(() if guid is None else (f"01{guid.replace('-', '').upper()}",))]


class RegistryFrame(NamedTuple):
    """The frame of a value.

    Args:
        identity: the schema, in hexadecimal: ``00`` and the id, or ``01`` and the guid; null if there is no frame.
        number: the schema, as people write it.
        raw: the bytes with the frame.
        rest: what follows the schema's name.
        beside: whether the frame is in a header, so that ``raw`` is the value.
    """

    identity: Column
    number: Column
    raw: Column
    rest: Column
    beside: Column

    def value(self, starts: Sequence[bytes] = ()) -> tuple[Column, Column]:
        """Return the value, and why there is none (null if there is).

        Args:
            starts: what the rest of the frame may be. Only Protobuf has one: where the message is in its file.
        """
        from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

        wrong = F.when(self.identity.isNull(), F.lit("does not start with a registry's frame"))
        if not starts:
            return F.when(self.beside, self.raw).otherwise(self.rest), wrong
        length = F.lit(None).cast("int")
        for start in starts:
            here = F.hex(F.substring(self.rest, 1, len(start))) == start.hex().upper()
            length = F.coalesce(length, F.when(here, len(start)))
        value = F.when(self.beside, self.raw).otherwise(F.substr(self.rest, length + 1))
        wrong = wrong.when(F.octet_length(self.rest) == 0, F.lit("does not start with a registry's frame"))
        return value, wrong.when(length.isNull(), F.lit("is another message of its schema"))


def read_frame(raw: Column, rows: StagedFrame, column: str) -> RegistryFrame:
    """Return the frame of a column's values, which is in a header or before the value."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    header = F.lit(None).cast("binary")
    if dict(rows.df.dtypes).get("headers") == TYPES["headers"].replace(": ", ":").replace(", ", ","):
        name = _HEADERS.get(column, _HEADER)
        header = F.get(F.filter(rows.df["headers"], lambda one: one["key"] == name), 0)["value"]
        header = rows.computed(header)
    framed = F.coalesce(header, raw)
    first = rows.computed(F.hex(F.substring(framed, 1, 1)))
    size = F.when(first == "00", _NAMES["00"]).when(first == "01", _NAMES["01"])
    name_of = F.when(F.octet_length(framed) > size, F.hex(F.substr(framed, F.lit(2), size)))
    number = F.when(first == "00", F.conv(name_of, 16, 10)).otherwise(F.lower(name_of))
    identity, rest = rows.computed(F.concat(first, name_of)), rows.computed(F.substr(framed, size + 2))
    return RegistryFrame(identity, number, raw, rest, header.isNotNull())
