"""Address settings: options for queues that are declared later."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.settings_by_pattern import AddressPattern, AddressSetting, by_pattern, matching
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.connecting import connect_within

__all__ = ["AddressSettings"]


class AddressSettings:
    """Options for queues that are declared later, by patterns of topics (R37).

    ::

        with AddressSettings("localhost:9092") as settings:
            settings.set("stock.#", {"default-last-value-key": "ticker", "max-expiry-delay": 60_000})

    In a pattern, ``*`` is any word of a name, and ``#`` any number of words, even none; dots part words. A declaration
    that says nothing of an option takes it from the most specific pattern that has it. Queues that are declared already
    stay as they are.

    Each call reads the settings from the cluster, or writes one. Takes the arguments of `connect`.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        config: ClientConfig | Mapping[str, Any] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        with ExitStack() as opened:
            self._store = SettingStore(connect_within(opened, bootstrap_servers, config=config, cluster=cluster))
            self._opened = opened.pop_all()

    def all(self) -> dict[str, Mapping[str, object]]:
        """Return the options of all settings, by pattern.

        Raises:
            Unauthorized: this user may not read settings.
            TransportError: the cluster cannot be reached or refuses.
        """
        return by_pattern(self._store.all())

    def of(self, topic: str) -> dict[str, Mapping[str, object]]:
        """Return the settings that match a topic, the most specific first.

        Raises:
            Unauthorized: this user may not read settings.
            TransportError: the cluster cannot be reached or refuses.
        """
        return by_pattern(matching(self._store.all(), topic))

    def set(self, pattern: str, options: Mapping[str, object], *, delimiter: str = ".") -> None:
        """Set the options for a pattern, in place of those that it had.

        Args:
            pattern: the pattern, for example ``"stock.#"``.
            options: options by name, as `LastValueQueue.declare` takes them, or ``{"dynamic-durables": True}``.
            delimiter: what parts words, in the pattern and in the names of topics: ``.``, ``-`` or ``_``.

        Raises:
            ConfigError: the pattern matches no name, or an option is unknown or malformed.
            Unauthorized: this user may not write settings.
            TransportError: the cluster cannot be reached or refuses.
        """
        self._store.put(AddressSetting.of(AddressPattern(pattern, delimiter), options))

    def delete(self, pattern: str) -> bool:
        """Delete the setting with a pattern. Return whether there was one.

        Raises:
            Unauthorized: this user may not write settings.
            TransportError: the cluster cannot be reached or refuses.
        """
        return self._store.delete(pattern)

    def close(self) -> None:
        """Close the connection, unless the cluster was passed in."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
