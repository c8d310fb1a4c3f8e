"""The JSON lines that ``lvq`` writes and reads: one object per line, in UTF-8.

A current value, from ``get``, ``browse``, ``watch``, ``consume`` and ``export``::

    {"key": "IBM", "value": "118.50", "position": "prices/0/41", "timestamp": 1732205000.123,
     "headers": {"ticker": "IBM"}}

- ``key``, ``value`` and header values are text if their bytes are UTF-8, else ``{"base64": "…"}``. A header without a
  value is null.
- Where the format is JSON, by ``--format`` or by the queue, ``value`` is the JSON itself. A value of another format
  appears as ``undecodable`` instead of ``value``.
- ``position`` is its place in the log, ``topic/partition/offset``; ``timestamp`` is in seconds since the epoch.
- ``headers`` holds the last header of each name, the one that counts. ``all_headers`` is present when a name repeats,
  and holds all headers in order, as pairs.
- ``previous`` is present with ``--previous``, and is the line of the value that was replaced, or null.
- ``delivery_count`` is present, from ``consume``, for a redelivered message.
- ``expires`` is present, from ``consume``, for a message that expires, in seconds since the epoch.
- Characters that could control a terminal, such as control characters and direction changes, are escaped (``\\u009b``).

Everything that is not a value has an ``event``:

- ``{"event": "deleted", "key": "IBM"}``: the key no longer has a value.
- ``{"event": "consumed", "key": "IBM"}``, from ``browse``: a consumer is done with its value, so ``browse`` omits it
  from here on. It is still the current value of the key for ``get``, ``watch`` and ``export``.
- ``{"event": "left", "key": "IBM"}``, from ``browse --header``: its newest value is not selected.
- ``{"event": "expired", "key": "IBM"}``: its newest value has expired.
- ``{"event": "end-of-dump", "offsets": {"0": 42}, "as_of": 1732205001.5, "blocked": [], "topic_id": "…"}``: all current
  values have been written. ``offsets`` is the next offset of each partition, and ``as_of`` the time, in seconds since
  the epoch, by which others had expired; ``blocked`` lists the partitions that an open transaction holds up.
  ``lvq watch --since`` takes this line.

``put --from-jsonl`` and ``send --from-jsonl`` read the same lines. They need ``value``, and ``key`` or ``headers``;
``deleted`` deletes the key; other fields and events are ignored. So the output of one queue is valid input for another
of the same format. The first line of an export says whether its values are JSON: if the format that they would be read
as is another, nothing is read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from lvq_kafka.core.facts import Format, Position, Shortfall
from lvq_kafka.core.log.keys import encode_header, encode_key
from lvq_kafka.core.log.records import Headers
from lvq_kafka.core.text.json_text import MOST_NESTED, read_json
from lvq_kafka.errors import DecodeError, EncodeError
from lvq_kafka.reading.entries import Deleted, EndOfDump, Event, Replacement

if TYPE_CHECKING:
    from lvq_kafka.consuming.delivery import Delivery

__all__ = [
    "Line",
    "announced_values",
    "blocked_rows",
    "delivery_line",
    "event_line",
    "how_gone",
    "is_unread",
    "parse_headers",
    "parse_line",
    "parse_value",
    "shown",
    "to_json",
    "to_line",
    "value_line",
]

_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder for each call


class Valued(Protocol):
    """The interface that an entry and a delivery share."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def position(self) -> Position: ...
    @property
    def timestamp(self) -> float: ...
    @property
    def headers(self) -> Headers: ...


def shown(data: bytes) -> str | dict[str, str]:
    """Return bytes as JSON: text, or marked base64."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def to_line(row: Mapping[str, Any]) -> bytes:
    """Encode a row as one line."""
    return _line(_encode(row))


def _line(text: str) -> bytes:
    return _steering_nothing(text).encode("utf-8") + b"\n"


def to_json(value: object, *, indent: int | None = None) -> str:
    """Encode JSON that cannot control a terminal: such characters are escaped, as JSON allows."""
    return _steering_nothing(json.dumps(value, ensure_ascii=False, indent=indent))


def _steering_nothing(text: str) -> str:
    if text.isprintable():
        return text
    # These include lone surrogates, which UTF-8 cannot encode.
    odd = {character for character in set(text) if not character.isprintable()} - {"\n"}
    return text.translate({ord(character): json.dumps(character)[1:-1] for character in odd})


def is_unread(value: object, form: Format) -> bool:
    """Return whether a value is bytes that its codec could not decode."""
    return form != "bytes" and isinstance(value, bytes)


def value_line(item: Valued, form: Format) -> bytes:
    """Return the line for a value."""
    return _line(_value_text(item, form))


def delivery_line(delivery: Delivery[Any], form: Format) -> bytes:
    """Return the line for a delivery."""
    more = f', "delivery_count": {delivery.delivery_count}' if delivery.redelivered else ""
    if delivery.expires is not None:
        more += f', "expires": {delivery.expires!r}'
    return _line(_value_text(delivery, form, more))


def _value_text(item: Valued, form: Format, more: str = "") -> str:
    # Built by hand: for a million values, a dict for each and json's handling of it took half of an export.
    value, name = item.value, "value"
    if isinstance(value, bytes):
        name = "undecodable" if is_unread(value, form) else name
        value = shown(value)
    last = {header: "null" if data is None else _encode(shown(data)) for header, data in item.headers}
    headers = ", ".join([f"{_encode(header)}: {data}" for header, data in last.items()])
    text = (
        f'{{"key": {_encode(shown(encode_key(item.key)))}, "{name}": {_encode(value)}, '
        f'"position": {_encode(str(item.position))}, "timestamp": {item.timestamp!r}, "headers": {{{headers}}}'
    )
    if len(last) < len(item.headers):
        pairs = [(header, None if data is None else shown(data)) for header, data in item.headers]
        text += f', "all_headers": {_encode(pairs)}'
    if isinstance(item, Replacement):
        text += f', "previous": {"null" if item.previous is None else _value_text(item.previous, form)}'
    return f"{text}{more}}}"


def how_gone(event: Deleted) -> str:
    """Return why a key no longer has a value, in a word."""
    return "consumed" if event.consumed else "left" if event.left else "expired" if event.expired else "deleted"


def event_line(event: Event[Any], form: Format) -> bytes:
    """Return the line for an event of a browser or a watch."""
    if isinstance(event, Deleted):
        text = _encode({"event": how_gone(event), "key": shown(encode_key(event.key))})
        if event.previous is not None:
            text = f'{text[:-1]}, "previous": {_value_text(event.previous, form)}}}'
        return _line(text)
    if isinstance(event, EndOfDump):
        offsets = {str(partition): offset for partition, offset in event.offsets.items()}
        blocked = blocked_rows(event.blocked)
        row = {"event": "end-of-dump", "offsets": offsets, "as_of": event.as_of, "blocked": blocked}
        return to_line(row | {"topic_id": event.topic_id})
    return value_line(event, form)


def blocked_rows(shortfalls: tuple[Shortfall, ...] | list[Shortfall]) -> list[dict[str, Any]]:
    """Return rows for the partitions that an open transaction holds up."""
    return [{"partition": short.partition, "open_since": short.stable, "target": short.target} for short in shortfalls]


@dataclass(frozen=True, slots=True)
class Line:
    """A parsed line: a message, or the deletion of a key."""

    key: bytes | None
    value: Any
    headers: list[tuple[str, bytes | None]]
    delete: bool = False


def parse_line(text: str, form: Format, *, named: bool = True) -> Line | None:
    """Parse a line; return None if it holds neither a value nor a deletion.

    Args:
        text: the line.
        form: the format that its value shall have.
        named: whether somebody named it. It may also be only that of the queue, and the lines come from one that has
            none, whose JSON they have as text.

    Raises:
        DecodeError: the line is malformed; the error says why.
    """
    try:
        row = read_json(text, MOST_NESTED + 1)  # the value is one level down
    except ValueError as error:
        raise _unreadable(f"is not JSON: {error}", text) from None
    if not isinstance(row, dict):
        raise _unreadable("is not a JSON object", text)
    key = None if row.get("key") is None else _stored("key", row["key"], text)
    if row.get("event") == "deleted":
        if key is None:
            raise _unreadable("is a delete without a key", text)
        return Line(key, None, [], delete=True)
    if "lvq_export" in row:
        _check_export(row, form, text)
        return None
    if "event" in row:
        return None
    headers = parse_headers(row.get("all_headers", row.get("headers")), text)
    if "undecodable" in row:
        if form != "bytes":
            raise _unreadable(
                "has an undecodable value",
                text,
                hint="Leave it out; or write the lines with --format bytes, and read them so.",
            )
        return Line(key, _stored("undecodable", row["undecodable"], text), headers)
    if "value" not in row:
        raise _unreadable("has no value", text)
    if form == "json":
        if not named and _is_json_as_text(row["value"]):
            raise _unreadable(
                "has JSON as text, which would be written as text within JSON",
                text,
                hint="To write it as it is, give --format bytes; --format json writes the text.",
            )
        return Line(key, row["value"], headers)
    return Line(key, parse_value(_stored("value", row["value"], text), form), headers)


def announced_values(text: str) -> int:
    """Return how many values the first line of an export announces; 0 for another line."""
    row = read_json(text, MOST_NESTED + 1)
    values = row.get("values") if "lvq_export" in row else None
    return values if isinstance(values, int) else 0


def _is_json_as_text(value: object) -> bool:
    """Return whether a value is the text of an object or a list."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return False
    try:
        read_json(value)
    except ValueError:
        return False
    return True


def _check_export(row: Mapping[str, Any], form: Format, text: str) -> None:
    """Check that the lines of an export will be read in the format they were written in."""
    if row["lvq_export"] != 1:
        raise _unreadable(f"comes from an export of version {row['lvq_export']}, which needs a newer lvq", text)
    written = row.get("format", form)
    if (written == "json") != (form == "json"):
        raise _unreadable(
            f"comes from an export of values as {written}, but they would be read as {form}",
            text,
            hint=f"Give --format {written} here too.",
        )


def parse_value(data: bytes, form: Format) -> Any:
    """Parse a value from the command line or stdin into what its codec encodes.

    Raises:
        EncodeError: the value does not have that format.
    """
    try:
        if form == "json":
            return read_json(data.decode("utf-8-sig"))
        return data.decode("utf-8") if form == "text" else data
    except ValueError as error:
        raise EncodeError(f"The value is not {'JSON' if form == 'json' else 'UTF-8 text'}: {error}.") from None


def parse_headers(given: object, text: str) -> list[tuple[str, bytes | None]]:
    """Return headers from an object of JSON, or from pairs; none for null.

    Args:
        text: where they come from, for the error.

    Raises:
        DecodeError: they are something else; the error says why.
    """
    if given is None:
        return []
    if isinstance(given, dict):
        given = list(given.items())
    try:
        pairs: list[tuple[object, object]] = [(name, value) for name, value in cast("list[Any]", given)]
    except (TypeError, ValueError):
        raise _unreadable("has headers that are neither an object nor pairs", text) from None
    return [(str(name), None if value is None else _stored(f"header {name}", value, text)) for name, value in pairs]


def _stored(what: str, value: object, text: str) -> bytes:
    """Return the bytes that `shown` shows like this."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise _unreadable(f"has a {what} that UTF-8 cannot encode", text) from None
    if isinstance(value, bool | int) and what != "value":
        return encode_key(value)
    if isinstance(value, float) and what.startswith("header "):
        return encode_header(value)
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise _unreadable(f"has a {what} that is not base64", text) from None
    hint = "Use --format json for any JSON." if what == "value" else ""
    raise _unreadable(f'has a {what} that is neither text nor {{"base64": …}}', text, hint=hint)


def _unreadable(why: str, text: str, *, hint: str = "") -> DecodeError:
    return DecodeError(f"{why}.", position=None, raw=text.encode("utf-8", "replace"), hint=hint)
