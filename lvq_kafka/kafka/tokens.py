"""Tokens of OAUTHBEARER from a callback of the user's (``oauth_cb``), whose errors come to light."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from lvq_kafka.errors import AuthenticationFailed, ConfigError
from lvq_kafka.kafka.properties import without_secrets
from lvq_kafka.kafka.threads import in_thread

__all__ = ["Tokens", "tokens_of"]

Token = tuple[Any, ...]
"""As the client takes it: the token, until when it is good (seconds since 1970), and, if need be, whose it is and its
extensions."""

_PATIENCE = 10.0  # seconds; the client waits as long for its first token
_HINT = "Mend the callback given as oauth_cb, or what it asks for tokens."


class Tokens:
    """What the client calls for a token, in a thread of its own, in place of the callback.

    Of a callback that raises, the client (2.16.1) says after ten seconds that no token came. So the first one is
    fetched before there is a client, where its error finds whoever opens one.

    Args:
        properties: the client's, with the callback.
        failed: told why a later call has brought no token. The client calls again ten seconds later, and keeps the
            token that it has until then.
    """

    def __init__(self, properties: Mapping[str, Any], failed: Callable[[str], None]) -> None:
        self._properties = properties
        self._callback: Callable[[str | None], Token] = properties["oauth_cb"]
        self._failed = failed
        self._first: Token | None = None

    def fetch(self) -> None:
        """Fetch the first one.

        Raises:
            AuthenticationFailed: the callback raises, which is the ``__cause__``, or does not return in time, or what
                it returns is no longer good.
            ConfigError: what it returns is no token.
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
        """A token; the client calls this."""
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
    """The property that takes the place of ``oauth_cb``, with the first token; none where there is none to be called.

    Raises:
        AuthenticationFailed, ConfigError: see `Tokens.fetch`.
    """
    if not callable(properties.get("oauth_cb")):  # the client says what is wrong with it
        return {}
    tokens = Tokens(properties, failed)
    tokens.fetch()
    return {"oauth_cb": tokens}


def _check(token: object) -> None:
    if not (isinstance(token, tuple) and 2 <= len(token) <= 4 and isinstance(token[0], str) and _is_number(token[1])):
        raise ConfigError(
            f"oauth_cb returns {type(token).__name__}, not a tuple of a token (text) and its end (seconds since 1970).",
            options=["oauth_cb"],
            hint="For example: return token, time.time() + 300.",
        )
    if token[1] <= time.time():
        raise _refused(f"the token from oauth_cb was good until {token[1]:.0f}, and it is {time.time():.0f}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refused(reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"Cannot log in: {reason}.", code="_AUTHENTICATION", hint=_HINT)
