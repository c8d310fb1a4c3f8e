"""Fields of JSON bodies as headers, where keys and selectors look for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lvq_kafka.core.log.keys import encode_header
from lvq_kafka.core.log.records import Record, header_value
from lvq_kafka.core.queue.headers import RESERVED
from lvq_kafka.core.text.json_text import read_json

__all__ = ["FieldLifter"]


class FieldLifter:
    """Adds headers to records whose body is an object of JSON: its fields with these names.

    A header that a record has already stays as it is. Strings, numbers and booleans become text as in a header (R2);
    other fields count as missing, and so does a fraction where the key is wanted.

    Args:
        names: those of the headers that are wanted. Reserved ones (R22) are not looked for in bodies.
        key: the one among them that names the key; None if none does.
    """

    def __init__(self, names: Iterable[str], key: str | None) -> None:
        self._names = tuple(sorted(set(names) - RESERVED))
        self._key = key

    def lift(self, record: Record) -> tuple[Record, str]:
        """Return the record with fields of its body among its headers.

        Also return why the body could not be read, if that was necessary; else an empty text. A body is not read if the
        headers have all that is wanted.
        """
        missing = [name for name in self._names if header_value(record.headers, name) is None]
        if not missing or record.value is None:
            return record, ""
        try:
            fields = read_json(record.value.decode())
        except ValueError as error:
            return record, f"its body is not JSON: {error}"
        if not isinstance(fields, dict):
            return record, "its body is not an object of JSON"
        texts = ((name, self._text_of(name, fields.get(name))) for name in missing)
        lifted = tuple((name, text) for name, text in texts if text is not None)
        return record._replace(headers=(*record.headers, *lifted)), ""

    def _text_of(self, name: str, value: Any) -> bytes | None:
        if value is None or isinstance(value, dict | list) or (isinstance(value, float) and name == self._key):
            return None
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:  # half of a surrogate pair, which JSON can write
                return None
        return encode_header(value)
