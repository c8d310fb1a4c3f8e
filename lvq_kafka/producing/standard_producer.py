"""The producer of a standard queue."""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn

from lvq_kafka.codecs import V
from lvq_kafka.core.log.keys import Key
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_kafka.producing.producer import MessageHeaders, Producer

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
        raise self._no_values(
            f"so {quoted(key)} has no value to set", "Use send() instead: producer.send(Message(value))."
        )

    def delete(self, key: Key, headers: MessageHeaders | None = None, *, group: str | bytes | None = None) -> NoReturn:
        """Refuse: there are no keys to delete.

        Raises:
            ConfigError: always.
        """
        raise self._no_values(f"so {quoted(key)} has no value to delete", "Consume the messages, or purge the queue.")

    def _no_values(self, so: str, hint: str) -> ConfigError:
        what = f"{self.topic!r} is the topic of a standard queue (`conflate=False`), {so}."
        return ConfigError(what, options=["conflate"], hint=hint)

    def _agree(self, key: bytes, named: bytes | None, headers: _Pairs) -> bytes | None:
        if not key and named is None:  # so readers give the key of a message without one
            return None
        return super()._agree(key, named, headers)

    def _make_key(self, headers: _Pairs) -> bytes | None:
        return None
