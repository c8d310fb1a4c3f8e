"""OAUTHBEARER tokens from a user's callback (``oauth_cb``), with its errors reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from lvq_kafka.errors import AuthenticationFailed, ConfigError
from lvq_kafka.kafka.properties import without_secrets
from lvq_kafka.kafka.threads import in_thread

__all__ = ["Tokens", "tokens_of"]

Token = tuple[Any, ...]
"""A token, as the tuple that the client takes.

It holds the token, its expiry (seconds since 1970) and, if necessary, its principal and extensions.
"""

_PATIENCE = 10.0  # seconds; the client waits as long for its first token
_HINT = "Fix the callback oauth_cb, or the service that it asks for tokens."


class Tokens:
    """The callable that the client gets in place of the user's ``oauth_cb``.

    The client calls it on a thread of its own. If the callback raises, the client (2.16.1) reports after ten seconds
    that no token came. So the first one is fetched before there is a client, and its error reaches the caller that
    opens one.

    Args:
        properties: the client's, with the callback.
        failed: called with the reason if a later call brings no token. The client calls again ten seconds later, and
            keeps its current token until then.
    """

    def __init__(self, properties: Mapping[str, Any], failed: Callable[[str], None]) -> None:
        self._properties = properties
        self._callback: Callable[[str | None], Token] = properties["oauth_cb"]
        self._failed = failed
        self._first: Token | None = None

    def fetch(self) -> None:
        """Fetch the first token.

        Raises:
            AuthenticationFailed: the callback raises (its error is the ``__cause__``), does not return in time, or
                returns a token that has expired.
            ConfigError: the callback returns something that is not a token.
        """
        config = self._properties.get("sasl.oauthbearer.config")
        fetching = in_thread(lambda: self._callback(config), "lvq-token")
        try:
            self._first = fetching.result(_PATIENCE)
        except Exception as error:
            if not fetching.done():
                raise _refused(f"oauth_cb has not returned within {_PATIENCE:g} s") from None
            raise _refused(self._describe(error)) from error
        _check(self._first)

    def __call__(self, config: str | None) -> Token:
        """Return a token; the client calls this."""
        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            token = self._callback(config)
            _check(token)
        except Exception as error:
            self._failed(self._describe(error))
            raise
        return token

    def _describe(self, error: Exception) -> str:
        text = without_secrets(" ".join(str(error).split()), self._properties).rstrip(".")
        return f"oauth_cb raised {type(error).__name__}{': ' if text else ''}{text}"


def tokens_of(properties: Mapping[str, Any], failed: Callable[[str], None]) -> dict[str, Tokens]:
    """Return the property that replaces ``oauth_cb``, with the first token fetched.

    Returns an empty dict if ``oauth_cb`` is not callable.

    Raises:
        AuthenticationFailed, ConfigError: see `Tokens.fetch`.
    """
    if not callable(properties.get("oauth_cb")):  # the client reports what is wrong with it
        return {}
    tokens = Tokens(properties, failed)
    tokens.fetch()
    return {"oauth_cb": tokens}


def _check(token: object) -> None:
    if not (isinstance(token, tuple) and 2 <= len(token) <= 4 and isinstance(token[0], str) and _is_number(token[1])):
        raise ConfigError(
            f"oauth_cb returns {type(token).__name__}, not a tuple of a token (text) and its expiry (seconds since "
            "1970).",
            options=["oauth_cb"],
            hint="For example: return token, time.time() + 300.",
        )
    if token[1] <= time.time():
        raise _refused(f"the token from oauth_cb expired at {token[1]:.0f}, and it is now {time.time():.0f}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refused(reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"Cannot log in: {reason}.", code="_AUTHENTICATION", hint=_HINT)
