"""The text that says where a page or a watch ended, and the cut from which changes follow."""

from __future__ import annotations

import math
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any

from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError

__all__ = ["PageToken"]

_VERSION = "lvqp1-"  # with it, a token begins; a change of its content is a new one
_LONGEST = 1 << 20  # bytes of its content: 50,000 partitions, or a long key


@dataclass(frozen=True, slots=True)
class PageToken:
    """The end of a page, and the cut of the first one; or the cut that a watch has returned.

    It is not encrypted or signed: who holds one can read the key and the offsets in it.
    """

    queue: str
    """The name of the queue."""
    topic_id: str
    as_of: float
    """The time of the cut, in seconds since the epoch."""
    offsets: Mapping[int, int]
    """The cut: the next offset of each partition."""
    prefix: bytes
    """The text that all keys of the pages begin with."""
    key: bytes | None
    """The last key of the page; None before the first one, and of a watch."""

    @property
    def text(self) -> str:
        """The token: letters, digits, hyphens and underscores."""
        fields = [
            self.queue,
            self.topic_id,
            self.as_of,
            sorted(self.offsets.items()),
            self.prefix.decode("latin-1"),
            None if self.key is None else self.key.decode("latin-1"),
        ]
        data = dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return _VERSION + urlsafe_b64encode(zlib.compress(data)).decode().rstrip("=")

    @staticmethod
    def is_one(text: str) -> bool:
        """Return whether a text is meant as a token."""
        return text.startswith(_VERSION)

    @classmethod
    def parse(cls, text: str, option: str) -> PageToken:
        """Return the token with this text.

        Raises:
            ConfigError: it is none, or one of another version; the error names the option.
        """
        try:
            if not cls.is_one(text):
                raise ValueError(text)
            body = text[len(_VERSION) :]
            packed = urlsafe_b64decode(body + "=" * (-len(body) % 4))
            unpacking = zlib.decompressobj()  # which checks a sum, too
            data = unpacking.decompress(packed, _LONGEST)
            if not unpacking.eof or unpacking.unused_data:
                raise ValueError(text)
            return cls._of(read_json(data.decode("utf-8", "surrogatepass")))
        except (ValueError, TypeError, OverflowError, zlib.error):
            raise ConfigError(
                f"{option}={quoted(text)} is not the token of a page or a watch.",
                options=[option],
                hint="Give it as it was returned, to the version of the library that returned it; or begin without "
                "one.",
            ) from None

    @classmethod
    def _of(cls, fields: Any) -> PageToken:
        """Return the token with these fields.

        Raises ValueError, TypeError or OverflowError if they are none.
        """
        queue, topic_id, as_of, pairs, prefix, key = fields
        texts = [queue, topic_id, prefix, *([] if key is None else [key])]
        offsets = dict(pairs)
        numbers = [*offsets, *offsets.values()]
        if not all(isinstance(text, str) for text in texts) or not 0 <= 1000 * float(as_of) < math.inf or not numbers:
            raise ValueError(fields)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(fields)
        last = None if key is None else key.encode("latin-1")
        return cls(queue, topic_id, float(as_of), offsets, prefix.encode("latin-1"), last)
