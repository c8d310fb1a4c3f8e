"""Address settings: options for the queues whose topics match a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.settings_by_pattern import AddressPattern, AddressSetting, by_pattern, matching
from lvq_kafka.core.text.validation import instance
from lvq_kafka.declared.setting_store import SettingStore
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.connecting import connect_within
from lvq_kafka.managing.applying_settings import apply_settings
from lvq_kafka.managing.declaring import Alteration

__all__ = ["AddressSettings"]


class AddressSettings:
    """Options for queues that are declared later, by patterns of topics (R37).

    ::

        with AddressSettings("localhost:9092") as settings:
            settings.set("stock.#", {"default-last-value-key": "ticker", "max-expiry-delay": 60_000})

    In a pattern, ``*`` is any word of a name, and ``#`` any number of words, even none; dots part words. A declaration
    that says nothing of an option takes it from the most specific pattern that has it. Queues that are declared already
    stay as they are until `apply`.

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
            self._cluster = connect_within(opened, bootstrap_servers, config=config, cluster=cluster)
            self._store = SettingStore(self._cluster)
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
            ConfigError: the topic is no text.
            Unauthorized: this user may not read settings.
            TransportError: the cluster cannot be reached or refuses.
        """
        instance("topic", topic, str, "For example 'stock.us'.")
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
        """Delete the setting with a pattern, readable or not. Return whether there was one.

        Raises:
            ConfigError: the pattern is no text.
            UnencodableKey: it is text that UTF-8 cannot encode.
            Unauthorized: this user may not write settings.
            TransportError: the cluster cannot be reached or refuses.
        """
        instance("pattern", pattern, str, "For example 'stock.#'.")
        return self._store.delete(pattern)

    def apply(self, *, dry_run: bool = False) -> dict[str, Alteration]:
        """Alter declared queues to what settings give today (R39).

        Return the alterations, by queue. A queue's own options stay, and so does what cannot be altered, such as the
        key header. It loses what it took from a setting that is gone.

        Args:
            dry_run: only return what would be altered.

        Raises:
            ConfigError: a setting does not go with a queue's own options. Here and below, all other queues are altered.
            QueueMismatch: someone else altered a queue at the same time.
            TopicNotFound: the expiry topic does not exist.
            Unauthorized: this user may not read settings, or alter a queue.
            TransportError: the cluster cannot be reached or refuses.
        """
        found, first = {}, None
        for applied in apply_settings(self._cluster, dry_run=dry_run):
            if applied.alteration is not None:
                found[applied.before.name] = applied.alteration
            first = first or applied.error
        if first is not None:
            raise first
        return found

    def close(self) -> None:
        """Close the connection, unless the cluster was passed in."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
