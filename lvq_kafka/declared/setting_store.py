"""The address settings of a cluster, in a compacted topic."""

from __future__ import annotations

import logging

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.log.keys import encode_key, key_text
from lvq_kafka.core.queue.settings_by_pattern import SETTINGS_TOPIC, AddressSetting
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.declared.compacted_topic import CompactedTopic
from lvq_kafka.errors import ConfigError

__all__ = ["SettingStore"]

logger = logging.getLogger("lvq_kafka.settings")

_MOST_TOLD = 10  # unreadable settings logged individually
_SPARED = "declaring a queue needs no such right."


class SettingStore:
    """Reads and writes address settings.

    An unreadable setting (malformed, or from a newer library) holds for no queue, and stops nothing else.

    Args:
        timeout: seconds for each request to the cluster.
    """

    def __init__(self, cluster: Cluster, *, timeout: float = 10.0) -> None:
        self._topic = CompactedTopic(cluster, SETTINGS_TOPIC, spared=_SPARED, timeout=timeout)
        self._left_out: set[bytes] = set()

    def all(self) -> list[AddressSetting]:
        """Return every readable setting, by pattern; none if the cluster has no such topic.

        Raises:
            Unauthorized: this user may not read the topic.
        """
        table, found = self._topic.read().table, []
        left_out: list[ConfigError] = []
        for key in table.key_range():
            if (value := table.value(key)) is not None:
                try:
                    found.append(AddressSetting.from_json(value, pattern=key_text(key)))
                except ConfigError as error:
                    if key not in self._left_out:
                        self._left_out.add(key)
                        left_out.append(error)
        for unreadable in left_out[:_MOST_TOLD]:
            logger.warning("left out: %s", unreadable)
        if len(left_out) > _MOST_TOLD:
            logger.warning("left out: %d more settings that cannot be read", len(left_out) - _MOST_TOLD)
        return found

    def put(self, setting: AddressSetting) -> None:
        """Write a setting, in place of the one with its pattern.

        Raises:
            Unauthorized: this user may not write to the topic.
        """
        self._topic.create()
        self._topic.append(setting.pattern.text, setting.to_json(), _what(setting.pattern.text))

    def delete(self, pattern: str) -> bool:
        """Remove the setting with a pattern, readable or not. Return whether there was one.

        Raises:
            UnencodableKey: no record can have that key.
            Unauthorized: this user may not write to the topic.
        """
        if self._topic.read().table.value(encode_key(pattern)) is None:
            return False
        self._topic.append(pattern, None, _what(pattern))
        return True


def _what(pattern: str) -> str:
    return f"the setting {brief(pattern)}"
