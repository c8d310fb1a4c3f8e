"""Topic settings: read them, change them, and wait until all brokers know them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from lvq_kafka.core.facts import Right
from lvq_kafka.errors import ConfigError, TopicNotFound, TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.properties import named_in

__all__ = ["await_brokers", "changes", "culprits_among", "settings_of"]

_PAUSE = 0.02  # seconds until a broker is asked again
_ALIVE = 3.0  # seconds within which a live broker answers


def settings_of(requests: AdminRequests, topic: str, deadline: float, **which: int) -> dict[str, str]:
    """Return a topic's settings, from any broker or from the one given as ``broker=``."""
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
    """Wait until each broker reports topic settings for which ``so`` returns True.

    ``so`` gets None if the broker knows no such topic. Brokers that do not answer are skipped, and so are all if this
    user may not ask.
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
    """Add the names of rejected settings to the error; the cluster only puts them in its text."""
    try:
        yield
    except ConfigError as error:
        culprits = named_in(str(error), config)
        if not culprits:
            raise
        raise ConfigError(
            str(error),
            options=culprits,
            hint="See Kafka's documentation of topic configs for their names and values.",
        ) from None


def changes(config: Mapping[str, str]) -> list[ConfigEntry]:
    """Return config entries that change these settings, and no others."""
    return [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
