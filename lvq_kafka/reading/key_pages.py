"""Pages: the values of a view in the order of keys, some at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from lvq_kafka.codecs import V
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.core.log.keys import Key, encode_key
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError, DataLoss, TopicRecreated
from lvq_kafka.reading.entries import Entry

__all__ = ["TRUSTED", "KeyPage", "check_age", "check_prefix", "check_queue", "check_same_topic", "token_of"]

TRUSTED = 0.8
"""The part of the retention of deletes that a point to resume from may be old.

The rest allows for clocks that differ, and for the time that reading takes.
"""


@dataclass(frozen=True, slots=True)
class KeyPage(Generic[V]):
    """Some entries of a view, in byte order of keys; see `View.page`."""

    entries: list[Entry[V]]
    token: str
    """Text that the next page, and a watch after the last one, begin from."""
    last: bool
    """True if there were no more keys when this page was made."""


def token_of(after: KeyPage[V] | str, option: str) -> PageToken:
    """Return the token of a page, or with a text.

    Raises:
        ConfigError: it is neither.
    """
    text = after.token if isinstance(after, KeyPage) else after
    if not isinstance(text, str):
        raise ConfigError(f"{option}={quoted(after)} is no page.", options=[option], hint="Give a page, or its token.")
    return PageToken.parse(text, option)


def check_queue(token: PageToken, queue: str, option: str) -> None:
    """Check that a token is of this queue.

    Raises:
        ConfigError: it is of another one.
    """
    if token.queue != queue:
        raise ConfigError(
            f"{option}= is of the queue {token.queue!r}, not of {queue!r}.",
            options=[option],
            hint="Give a page or token of this queue, or begin without one.",
        )


def check_prefix(token: PageToken, prefix: Key | None) -> None:
    """Check that a page has the prefix of those before, if one is given.

    Raises:
        ConfigError: it has another one.
    """
    if prefix is not None and encode_key(prefix) != token.prefix:
        raise ConfigError(
            f"prefix={quoted(prefix)} is not the prefix of the pages before.",
            options=["prefix", "after"],
            hint="Leave it out: the token has it.",
        )


def check_same_topic(token: PageToken, topic: str, topic_id: str) -> None:
    """Check that a page is of the topic that has this id.

    Raises:
        TopicRecreated: it is of an earlier topic of that name.
    """
    if token.topic_id != topic_id:
        raise TopicRecreated(
            f"The topic {topic} was re-created since the first page.",
            topic=topic,
            hint="Begin with the first page.",
        )


def check_age(token: PageToken, retention: float, now: float) -> None:
    """Check that a watch can still follow the pages.

    Args:
        token: where they ended.
        retention: the seconds for which the topic keeps deletes.
        now: the time, in seconds since the epoch.

    Raises:
        DataLoss: the first page is too old.
    """
    age = now - token.as_of
    if age > TRUSTED * retention:
        raise DataLoss(
            f"The first page is {age:,.0f} s old, and the topic keeps deletes for {retention:g} s "
            "(delete.retention.ms): some that a watch has to return after the last page may be gone.",
            hint="Begin with the first page, read them sooner, or raise delete.retention.ms.",
        )
