"""Places messages by their group, so that a group lies in one partition (R36)."""

from __future__ import annotations

import logging
import time
from functools import lru_cache, partial

from lvq_kafka.cluster import Cluster, LogWriter, Receipt
from lvq_kafka.codecs import HeaderPairs
from lvq_kafka.core.log.keys import home_partition, key_text
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.runtime.aio import in_background

__all__ = ["GroupPlacement"]

_REFRESH = 30.0  # seconds for which a partition count is used, as by the client's own placement

_REMEMBERED = 4096  # groups

logger = logging.getLogger("lvq_kafka.producer")


class GroupPlacement:
    """Appends messages of one queue to the partition of their group.

    That is the partition in which the group's name would be at home as a key. A message without a group goes by the
    default group, if groups are shared, else by its key.

    Args:
        writer: the writer to append with.
        cluster: the cluster, which is asked for the topic's partition count: now, and while messages are sent, in the
            background.
        topic: the queue's topic.
        groups: how its messages are grouped.

    Raises:
        TopicNotFound: the topic does not exist.
        TransportError: the cluster cannot be reached or refuses.
    """

    def __init__(self, writer: LogWriter, cluster: Cluster, topic: str, groups: Groups) -> None:
        self._append = writer.append
        self._groups = groups
        self._home = lru_cache(_REMEMBERED)(home_partition)  # which takes some 5 µs, more than the rest
        self._describe = partial(cluster.topics.describe, topic)
        self._partitions = self._describe().partitions
        self._refresh_at = time.monotonic() + _REFRESH

    def append(self, topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs | None = None) -> Receipt:
        """Append a message or a delete. See `LogWriter.append`."""
        return self._append(topic, key, value, headers, self._place(headers or ()))

    def append_named(
        self, topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs | None = None
    ) -> Receipt:
        """Append a message, or a delete whose headers name the group of the key's value.

        Raises:
            ConfigError: it is a delete, and they do not.
        """
        name = self._groups.header
        if value is None and not any(header == name for header, _ in headers or ()):
            raise ConfigError(
                f"The delete of {quoted(key_text(key or b''))} needs the group of its value: {quoted(topic)} is placed "
                "by group, and the delete has to go to the same partition.",
                options=["group", "placement"],
                hint=f"Pass `group|group=...`; or, for a value without a group, `no-group|headers={{{name!r}: None}}`.",
            )
        return self.append(topic, key, value, headers)

    def _place(self, headers: HeaderPairs) -> int:
        """Return the partition for a message with these headers; -1 leaves it to the key."""
        if time.monotonic() > self._refresh_at:
            self._refresh_at = time.monotonic() + _REFRESH
            in_background(self._refresh)
        group = self._groups.group(headers)
        return -1 if group is None else self._home(group, self._partitions)

    def _refresh(self) -> None:
        try:
            self._partitions = self._describe().partitions
        except LVQError as error:
            logger.warning("the partitions of a queue placed by group are as before: %s", error)
