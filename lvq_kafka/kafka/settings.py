"""The settings of topics: read, changed, and known to all brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from lvq_kafka.core.rights import Right
from lvq_kafka.errors import ConfigError, TopicNotFound, TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.properties import named_in

__all__ = ["await_brokers", "changes", "culprits_among", "settings_of"]

_PAUSE = 0.02  # seconds until a broker is asked again
_ALIVE = 3.0  # seconds in which a broker answers that is there


def settings_of(requests: AdminRequests, topic: str, deadline: float, **which: int) -> dict[str, str]:
    """The settings of a topic, as any broker tells them, or ``broker=`` a certain one."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    [entries] = requests.ask(
        lambda client, left: client.describe_configs([resource], request_timeout=left, **which).values(),
        f"read the settings of topic {topic!r}",
        deadline,
        topic=topic,
        needs=[Right("DescribeConfigs", "Topic", topic)],
        harmless=True,
    )
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def await_brokers(
    requests: AdminRequests,
    brokers: list[int],
    topic: str,
    so: Callable[[Mapping[str, str] | None], bool],
    deadline: float,
) -> None:
    """Wait until each of these brokers says so of a topic's settings (None: there is no such topic).

    One that does not answer is not waited for, and nothing is where this user may not ask.
    """
    for broker in brokers:
        settings: Mapping[str, str] | None = None
        while time.monotonic() < deadline:
            try:
                settings = settings_of(requests, topic, min(deadline, time.monotonic() + _ALIVE), broker=broker)
            except TopicNotFound:
                settings = None
            except TransportError:
                break
            if so(settings):
                break
            time.sleep(_PAUSE)


@contextmanager
def culprits_among(config: Mapping[str, str]) -> Iterator[None]:
    """Let the error about settings that the cluster refuses say which they are; the cluster only tells in words."""
    try:
        yield
    except ConfigError as error:
        culprits = named_in(str(error), config)
        if not culprits:
            raise
        raise ConfigError(
            str(error),
            options=culprits,
            hint="Kafka's documentation of topic configs says which there are, and what they take.",
        ) from error


def changes(config: Mapping[str, str]) -> list[ConfigEntry]:
    """These settings, and no others, as they are to be."""
    return [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
