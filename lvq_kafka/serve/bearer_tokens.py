"""Bearer tokens and the queues that each may read, from a file (RFC 6750)."""

from __future__ import annotations

import re
from hashlib import sha256
from hmac import compare_digest

from lvq_kafka.core.queue.definition import is_name
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["BearerTokens"]

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SHORTEST = 16  # characters; 22 random ones of these have 128 bits
_ALL = "*"


class BearerTokens:
    """The tokens that are accepted, as digests.

    Args:
        readable: by the digest of a token, the names of the queues that it may read; ``*`` for all.
    """

    def __init__(self, readable: dict[bytes, frozenset[str]]) -> None:
        self._readable = readable

    @classmethod
    def parse(cls, text: str, where: str) -> BearerTokens:
        """Parse a file: in each line a token and the queues that it may read, or ``*`` for all.

        Empty lines are allowed, and so are those that begin with a number sign. A comment after a token is not: its
        words would be queues.

        Args:
            text: what is in the file.
            where: its name, for errors.

        Raises:
            ConfigError: a line is something else. It is named by its number; no message contains a token.
        """
        readable: dict[bytes, frozenset[str]] = {}
        for number, line in enumerate(text.split("\n"), 1):
            token, *queues = line.split() or [""]
            if not token or token.startswith("#"):
                continue
            fault = _fault(token, queues)
            if not fault and (digest := _digest(token)) in readable:
                fault = "has the token of an earlier line"
            if fault:
                raise ConfigError(
                    f"Line {number} of {where} {fault}.",
                    options=["token_file"],
                    hint="Write a token and the queues that it may read, or *; for example the output of "
                    "`openssl rand -hex 32`, a space, and prices.",
                )
            readable[digest] = frozenset(queues)
        if not readable:
            raise ConfigError(f"There is no token in {where}.", options=["token_file"])
        return cls(readable)

    def readable(self, authorization: str | None) -> frozenset[str]:
        """Return the queues that the bearer of a header may read; ``*`` for all.

        Each token is compared, in a time that does not depend on where they differ.

        Raises:
            HttpRefusal: there is no token, or an unknown one.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthorized("This needs a bearer token, in the header Authorization.", "Bearer")
        digest, found = _digest(token.strip()), None
        for known, queues in self._readable.items():
            if compare_digest(known, digest):
                found = queues
        if found is None:
            raise _unauthorized("The bearer token is not known here.", 'Bearer error="invalid_token"')
        return found

    @staticmethod
    def includes(readable: frozenset[str], queue: str) -> bool:
        """Return whether a queue is among those of `readable`."""
        return _ALL in readable or queue in readable

    def __repr__(self) -> str:
        return f"<BearerTokens: {len(self._readable)}>"


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _fault(token: str, queues: list[str]) -> str:
    if len(token) < _SHORTEST or _TOKEN.fullmatch(token) is None:
        return f"does not begin with a token of at least {_SHORTEST} letters, digits and - . _ ~ + /"
    if not queues:
        return "names no queue after its token"
    wrong = next((name for name in queues if name != _ALL and not is_name(name)), None)
    return "" if wrong is None else f"has {quoted(wrong)} after its token, which cannot be the name of a queue"


def _unauthorized(detail: str, challenge: str) -> HttpRefusal:
    return HttpRefusal(401, detail, headers=[("www-authenticate", challenge)])
