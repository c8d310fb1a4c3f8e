"""Opening clients: quiet ones, that say why they cannot connect."""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from lvq_kafka.core.quoting import bounded
from lvq_kafka.core.rights import Right
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.kafka.client import ClientConfig, PropertyValue
from lvq_kafka.kafka.credentials import check_credentials, refused_credentials
from lvq_kafka.kafka.error_mapping import NO_TOPIC, NOISE, UNAUTHORIZED, UNREACHABLE, kafka_error, translate
from lvq_kafka.kafka.properties import COMMON, CONSUMER_ONLY, PRODUCER_ONLY, named_in, without_secrets
from lvq_kafka.kafka.refusals import is_refusal
from lvq_kafka.kafka.tokens import tokens_of

__all__ = ["Health", "open_admin", "open_consumer", "open_producer"]

Client = TypeVar("Client", Consumer, Producer, AdminClient)

_TOKENLESS = "Failed to acquire SASL OAUTHBEARER token"
_NUMBER = re.compile(r"rdkafka#\S+")  # a client's, of those in this process


_INFO = 6  # of syslog, as the client counts
_LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)  # Python's, by syslog's


class _Repeats(logging.Filter):
    """Lets the same line through once in ten seconds: a client without a broker says it twenty times a second."""

    def __init__(self, interval: float = 10.0) -> None:
        super().__init__()
        self._interval = interval
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        line = NOISE.sub("", _NUMBER.sub("", record.getMessage()))
        now = time.monotonic()
        if now - self._last.get(line, -self._interval) < self._interval:
            return False
        if len(self._last) >= 100:
            self._last.clear()
        self._last[line] = now
        return True


logger = logging.getLogger("lvq_kafka.client")
logger.addHandler(logging.NullHandler())  # without a handler Python itself would write to stderr
logger.addFilter(_Repeats())


class Health:
    """What a client reports on its own account, outside of any call: the client's ``error_cb``.

    A call that meets a closed door only says that it timed out. The reason comes here, and so does the news that a
    topic is gone from under a consumer.
    """

    def __init__(self, servers: str, properties: Mapping[str, Any] | None = None) -> None:
        self.losses = 0
        """Connections that were lost in use: what was on its way over one may arrive yet, behind what is sent later."""
        self._servers = servers
        self._properties = properties or {}  # the client's, which tell what a refusal is about
        self._refusal: KafkaError | None = None
        self._outage: KafkaError | None = None
        self._news: KafkaError | None = None
        self._detail = ""
        self._answered = False
        self._token = ""  # why oauth_cb has brought no other one

    def report(self, error: KafkaError) -> None:
        """Take note of an error."""
        code = error.code()
        if is_refusal(error):
            self._refusal = error
            if _TOKENLESS in error.str() and not self._answered:  # without a token no broker is asked at all
                self._outage = error
            self._news = self._outage or self._news
        elif code == KafkaError._ALL_BROKERS_DOWN:
            # Once, and without a reason, a connection was closed in good order: the next one may well stand already.
            if self._outage is not None or self._refusal is not None or self._detail:
                self._news = error
            self._outage = error
        elif code in NO_TOPIC or code in UNAUTHORIZED or error.fatal():
            self._news = error
        elif code != KafkaError._UNKNOWN_PARTITION:  # a partition that was just added; the client finds it by itself
            self._detail = error.str()
            if self._outage is not None:  # it is not said again that all are gone before one was there
                self._news = self._outage

    def report_token(self, failure: str) -> None:
        """Take note of why ``oauth_cb`` has not brought the next token."""
        self._token = failure
        logger.warning("%s; the client asks it again in ten seconds", self._token)

    def recovered(self) -> None:
        """A broker has answered: what was said of connections before is history."""
        self._answered = True
        self._refusal = self._outage = None
        self._detail = self._token = ""

    @property
    def refused(self) -> bool:
        """Whether no broker is left and at least one has refused us: waiting will not help."""
        return self._refusal is not None and self._outage is not None

    def pop_news(self) -> KafkaError | None:
        """What a consumer has to hear of, each report once: all brokers are gone, or its topic is."""
        news, self._news = self._news, None
        return news

    def explain(
        self, error: KafkaError, doing: str, *, topic: str | None = None, needs: Sequence[Right] = ()
    ) -> LVQError:
        """The library's error for a client's error, with the reason that was reported here; see `translate`."""
        if self._refusal is not None and error.code() in UNREACHABLE:
            error = self._refusal
        if self._token and is_refusal(error):
            error = KafkaError(error.code(), f"{error.str()}; {self._token}")
        detail = self._detail
        if self._outage is not None and not detail:  # all gone without an error: it reports every other way to lose one
            detail = "The connection was opened, and closed by the other side without an answer"
        return translate(
            error,
            doing,
            topic=topic,
            needs=needs,
            servers=self._servers,
            detail=detail,
            properties=self._properties,
        )


class _Ear:
    """Takes the client's log, and hears in it of connections that were lost: nothing else tells of one at once.

    A poll brings the line before the answer to a request that was sent again because of it. That is not passed on
    where it was not asked for; nor is what is below the level that was.
    """

    def __init__(self, health: Health, *, closes: bool, level: int) -> None:
        self._health = health
        self._closes = closes
        self._least = _LEVELS[max(0, min(level, 7))]

    def log(self, level: int, form: str, *parts: object) -> None:
        """As of a logger; the client calls this."""
        if "FAIL" in parts and any("Disconnected" in str(part) or "timed out" in str(part) for part in parts):
            self._health.losses += 1
            if not self._closes and level < logging.ERROR:
                return
        if level >= self._least:
            logger.log(level, form, *(bounded(part) if isinstance(part, str) else part for part in parts))


def open_consumer(
    config: ClientConfig, health: Health, owned: Mapping[str, Any], defaults: Mapping[str, PropertyValue] | None = None
) -> Consumer:
    """A consumer: ``defaults`` below the user's properties, ``owned`` above.

    Raises:
        ConfigError: librdkafka refuses a property.
    """
    return _open(Consumer, {**(defaults or {}), **config.for_consumer(), **owned}, health)


def open_producer(
    config: ClientConfig, health: Health, owned: Mapping[str, Any], defaults: Mapping[str, PropertyValue] | None = None
) -> Producer:
    """A producer: ``defaults`` below the user's properties, ``owned`` above.

    Raises:
        ConfigError: librdkafka refuses a property.
    """
    return _open(Producer, {**(defaults or {}), **config.for_producer(), **owned}, health)


def open_admin(config: ClientConfig, health: Health) -> AdminClient:
    """An admin client. Its log and its errors come out when it is polled.

    Raises:
        ConfigError: librdkafka refuses a property.
    """
    return _open(AdminClient, config.for_admin(), health)


def _open(kind: Callable[..., Client], properties: dict[str, Any], health: Health) -> Client:
    closes = str(properties.get("log.connection.close", "false")).lower() in ("true", "1")
    level = str(properties.get("log_level", _INFO))
    asked = 7 if properties.get("debug") else int(level) if level.isdecimal() else _INFO
    heard: dict[str, PropertyValue] = {"log.connection.close": True, "log_level": max(asked, _INFO)}
    if not level.isdecimal():
        heard["log_level"] = level  # the client says what is wrong with it
    check_credentials(properties)
    tokens = tokens_of(properties, health.report_token)
    try:
        ear = _Ear(health, closes=closes, level=asked)
        return kind({**properties, **tokens, **heard, "error_cb": health.report}, logger=ear)
    except KafkaException as exception:
        error = kafka_error(exception)
        raise _config_error(str(exception) if error is None else error.str(), properties) from None
    except (TypeError, ValueError) as exception:
        raise _config_error(str(exception), properties) from None


def _config_error(reason: str, properties: Mapping[str, Any]) -> ConfigError:
    known = refused_credentials(reason, properties)
    if known is not None:
        return known
    culprits = named_in(reason, properties)
    if "SASL mechanism" in reason or "OAuth token" in reason:  # which names none
        culprits += [name for name in ("sasl.mechanism", "sasl.mechanisms", "oauth_cb") if name in properties]
    near = []
    if culprits and "No such configuration property" in reason:
        near = difflib.get_close_matches(culprits[0], COMMON | CONSUMER_ONLY | PRODUCER_ONLY, 1)
    reason = without_secrets(reason, properties)
    return ConfigError(
        f"The Kafka client refuses its properties: {reason.rstrip('.')}.",
        options=culprits,
        hint=f"Did you mean {near[0]}?" if near else "librdkafka's CONFIGURATION.md says what each of them takes.",
    )
