"""The producer of a standard queue."""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn

from lvq_kafka.codecs import V
from lvq_kafka.core.keys import Key
from lvq_kafka.core.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_kafka.producer import MessageHeaders, Producer

__all__ = ["StandardProducer"]

_Pairs = list[tuple[str, bytes | None]]


class StandardProducer(Producer[V]):
    """Sends messages to one standard queue, with `send`. See `Producer`.

    A message's key, if it has one, gives it a partition: those with one key are in order. Others go to any partition.
    """

    def put(
        self,
        key: Key,
        value: V,
        headers: MessageHeaders | None = None,
        *,
        ttl: float | None = None,
        not_before: float | datetime | None = None,
        priority: int | None = None,
        sort: str | None = None,
        group: str | bytes | None = None,
    ) -> NoReturn:
        """Refuse: there are no values of keys to set.

        Raises:
            ConfigError: always.
        """
        raise self._no_mapping("put", key)

    def delete(self, key: Key, headers: MessageHeaders | None = None, *, group: str | bytes | None = None) -> NoReturn:
        """Refuse: there are no keys to delete.

        Raises:
            ConfigError: always.
        """
        raise self._no_mapping("delete", key)

    def _no_mapping(self, what: str, key: Key) -> ConfigError:
        way_out = "Send the message: producer.send(Message(value))." if what == "put" else "Consume messages, or purge."
        return ConfigError(
            f"{what}({quoted(key)}) needs a queue with one value for each key, and {self.topic!r} is that of a "
            "standard queue (conflate=False).",
            options=["conflate"],
            hint=way_out,
        )

    def _agree(self, key: bytes, named: bytes | None, headers: _Pairs) -> bytes | None:
        if not key and named is None:  # so readers give the key of a message without one
            return None
        return super()._agree(key, named, headers)

    def _make_key(self, headers: _Pairs) -> bytes | None:
        return None
