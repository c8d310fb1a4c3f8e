"""Open clients that log little and say why they cannot connect."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from lvq_kafka.core.facts import Right
from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import bounded
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
_NUMBER = re.compile(r"rdkafka#\S+")  # a client's number in this process


_INFO = 6  # a syslog level, as the client uses
_LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)  # Python's levels by syslog level


class _Repeats(logging.Filter):
    """Log filter that passes the same line once in ten seconds.

    A client without a broker repeats a line twenty times a second.
    """

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
logger.addHandler(logging.NullHandler())  # without a handler, Python itself would write to stderr
logger.addFilter(_Repeats())


class Health:
    """Errors that a client reports outside of any call, through its ``error_cb``.

    A call to an unreachable cluster only reports a timeout. The reason arrives here, and so does the news that a
    consumer's topic was deleted.
    """

    def __init__(self, servers: str, properties: Mapping[str, Any] | None = None) -> None:
        self.losses = 0
        """Connections lost in use: requests in flight on one may still arrive, after later ones."""
        self.unanswered = 0
        """Heartbeats of the consumer protocol without an answer in time. The client drops answers that come later."""
        self._servers = servers
        self._properties = properties or {}  # the client's, to explain refusals
        self._refusal: KafkaError | None = None
        self._outage: KafkaError | None = None
        self._news: KafkaError | None = None
        self._detail = ""
        self._answered = False
        self._token = ""  # why oauth_cb has not brought a new token

    def report(self, error: KafkaError) -> None:
        """Record an error."""
        code = error.code()
        if is_refusal(error):
            self._refusal = error
            if _TOKENLESS in error.str() and not self._answered:  # without a token the client contacts no broker
                self._outage = error
            self._news = self._outage or self._news
        elif code == KafkaError._ALL_BROKERS_DOWN:
            # The first report without a reason means a connection that was closed in good order; the next one may
            # already be up.
            if self._outage is not None or self._refusal is not None or self._detail:
                self._news = error
            self._outage = error
        elif code in NO_TOPIC or code in UNAUTHORIZED or error.fatal():
            self._news = error
        elif code != KafkaError._UNKNOWN_PARTITION:  # a new partition; the client finds it by itself
            self._detail = error.str()
            if self._outage is not None:  # the client repeats _ALL_BROKERS_DOWN only after a broker was up
                self._news = self._outage

    def report_token(self, failure: str) -> None:
        """Record why ``oauth_cb`` has not brought the next token."""
        self._token = failure
        logger.warning("%s; the client retries in ten seconds", self._token)

    def recovered(self) -> None:
        """Forget earlier connection errors: a broker has answered."""
        self._answered = True
        self._refusal = self._outage = None
        self._detail = self._token = ""

    @property
    def refused(self) -> bool:
        """True while no broker is left and at least one has refused us: waiting will not help."""
        return self._refusal is not None and self._outage is not None

    def pop_news(self) -> KafkaError | None:
        """Return and clear the last report that a consumer must raise.

        For example, all brokers are down, or its topic was deleted.
        """
        news, self._news = self._news, None
        return news

    def explain(
        self, error: KafkaError, doing: str, *, topic: str | None = None, needs: Sequence[Right] = ()
    ) -> LVQError:
        """Return the library's error for a client's error, with the reason recorded here.

        See `translate`.
        """
        if self._refusal is not None and error.code() in UNREACHABLE:
            error = self._refusal
        if self._token and is_refusal(error):
            error = KafkaError(error.code(), f"{error.str()}; {self._token}")
        detail = self._detail
        if self._outage is not None and not detail:  # all down without an error; the client reports all other losses
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
    """Logger of a client that counts lost connections and lost heartbeats.

    Nothing else reports them.

    A poll delivers the log line before the answer to a request that was re-sent because of the loss. The line is not
    passed on unless the user asked for it, nor is any line below the requested level.
    """

    def __init__(self, health: Health, *, closes: bool, level: int) -> None:
        self._health = health
        self._closes = closes
        self._least = _LEVELS[max(0, min(level, 7))]

    def log(self, level: int, form: str, *parts: object) -> None:
        """Log a line, as `logging.Logger.log` does; the client calls this."""
        if "FAIL" in parts and any("Disconnected" in str(part) or "timed out" in str(part) for part in parts):
            self._health.losses += 1
            if not self._closes and level < logging.ERROR:
                return
        elif "REQTMOUT" in parts and any("ConsumerGroupHeartbeatRequest in flight" in str(part) for part in parts):
            self._health.unanswered += 1
        if level >= self._least:
            logger.log(level, form, *(bounded(part) if isinstance(part, str) else part for part in parts))


def open_consumer(
    config: ClientConfig, health: Health, owned: Mapping[str, Any], defaults: Mapping[str, PropertyValue] | None = None
) -> Consumer:
    """Open a consumer: the user's properties override ``defaults``, ``owned`` override both.

    Raises:
        ConfigError: librdkafka rejects a property.
    """
    return _open(Consumer, {**(defaults or {}), **config.for_consumer(), **owned}, health)


def open_producer(
    config: ClientConfig, health: Health, owned: Mapping[str, Any], defaults: Mapping[str, PropertyValue] | None = None
) -> Producer:
    """Open a producer: the user's properties override ``defaults``, ``owned`` override both.

    Raises:
        ConfigError: librdkafka rejects a property.
    """
    return _open(Producer, {**(defaults or {}), **config.for_producer(), **owned}, health)


def open_admin(config: ClientConfig, health: Health) -> AdminClient:
    """Open an admin client; polling it delivers its log lines and errors.

    Raises:
        ConfigError: librdkafka rejects a property.
    """
    # Otherwise a question about a topic that was deleted would create it, where brokers create topics by themselves.
    return _open(AdminClient, {**config.for_admin(), "allow.auto.create.topics": False}, health)


def _open(kind: Callable[..., Client], properties: dict[str, Any], health: Health) -> Client:
    closes = str(properties.get("log.connection.close", "false")).lower() in ("true", "1")
    level = str(properties.get("log_level", _INFO))
    asked = 7 if properties.get("debug") else int(level) if level.isdecimal() else _INFO
    heard: dict[str, PropertyValue] = {"log.connection.close": True, "log_level": max(asked, _INFO)}
    if not level.isdecimal():
        heard["log_level"] = level  # the client reports what is wrong with it
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
    if "SASL mechanism" in reason or "OAuth token" in reason:  # these messages name no property
        culprits += [name for name in ("sasl.mechanism", "sasl.mechanisms", "oauth_cb") if name in properties]
    near = []
    if culprits and "No such configuration property" in reason:
        near = nearest(culprits[0], COMMON | CONSUMER_ONLY | PRODUCER_ONLY)
    reason = without_secrets(reason, properties)
    return ConfigError(
        f"The Kafka client rejects its properties: {reason.rstrip('.')}.",
        options=culprits,
        hint=f"Did you mean {near[0]}?"
        if near
        else "See librdkafka's CONFIGURATION.md for the values that each takes.",
    )
