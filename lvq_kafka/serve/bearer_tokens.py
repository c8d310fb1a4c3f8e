"""Bearer tokens (RFC 6750), users that a proxy names, and what each may do; from a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_kafka.serve.problems import HttpRefusal
from lvq_kafka.serve.queue_rights import Bearer, QueueRights

__all__ = ["BearerTokens"]

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SHORTEST = 16  # characters; 22 random ones of these have 128 bits
_USER = "user:"  # no token has a colon


class BearerTokens:
    """The tokens that are accepted, as digests, and the users.

    Args:
        bearers: by the digest of a token, what its bearer may do.
        users: the same by the name of a user.
    """

    def __init__(self, bearers: Mapping[bytes, QueueRights], users: Mapping[str, QueueRights]) -> None:
        self._bearers = bearers
        self._users = users

    @classmethod
    def parse(cls, text: str, where: str) -> BearerTokens:
        """Parse a file.

        Each line has a token, or ``user:`` and a name, and then rights as words; see `QueueRights.parse`. Empty lines
        are allowed, and so are those that begin with a number sign. A comment after a token is not: its words would be
        queues.

        Args:
            text: what is in the file.
            where: its name, for errors.

        Raises:
            ConfigError: a line is something else. It is named by its number; no message contains a token.
        """
        bearers: dict[bytes, QueueRights] = {}
        users: dict[str, QueueRights] = {}
        for number, line in enumerate(text.split("\n"), 1):
            who, *words = line.split() or [""]
            if not who or who.startswith("#"):
                continue
            user = who.removeprefix(_USER) if who.startswith(_USER) else None
            digest = _digest(who)
            fault = _fault(who, user, words)
            if not fault and (digest in bearers if user is None else user in users):
                fault = f"has the {'token' if user is None else 'user'} of an earlier line"
            if not fault:
                try:
                    rights = QueueRights.parse(words)
                except ValueError as wrong:
                    fault = f"has {quoted(wrong.args[0])} after its token, which cannot be the name of a queue"
            if fault:
                raise ConfigError(
                    f"Line {number} of {where} {fault}.",
                    options=["token_file"],
                    hint="Write a token and the queues that it may read, or *; for example the output of "
                    "`openssl rand -hex 32`, a space, and prices. The right to write is prices:write.",
                )
            if user is None:
                bearers[digest] = rights
            else:
                users[user] = rights
        if not bearers and not users:
            raise ConfigError(f"There is no token in {where}.", options=["token_file"])
        return cls(bearers, users)

    def bearer(self, authorization: str | None) -> Bearer:
        """Return the bearer of a header.

        Each token is compared, in a time that does not depend on where they differ.

        Raises:
            HttpRefusal: there is no token, or an unknown one.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthorized("This needs a bearer token, in the header Authorization.", "Bearer")
        digest, found = _digest(token.strip()), None
        for known, rights in self._bearers.items():
            if compare_digest(known, digest):
                found = rights
        if found is None:
            raise _unauthorized("The bearer token is not known here.", 'Bearer error="invalid_token"')
        return Bearer(digest, found)

    def user(self, name: str) -> Bearer:
        """Return a user that a proxy has named.

        Raises:
            HttpRefusal: the file has no such user.
        """
        rights = self._users.get(name)
        if rights is None:
            raise HttpRefusal(403, f"The user {quoted(name)} is not known here.")
        return Bearer(f"{_USER}{name}".encode(), rights)

    def __repr__(self) -> str:
        return f"<BearerTokens: {len(self._bearers)}, and {len(self._users)} users>"


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _fault(who: str, user: str | None, words: list[str]) -> str:
    if user == "":
        return f"names no user after {_USER}"
    if user is None and (len(who) < _SHORTEST or _TOKEN.fullmatch(who) is None):
        return f"does not begin with a token of at least {_SHORTEST} letters, digits and - . _ ~ + /"
    return "" if words else "names no queue after its token"


def _unauthorized(detail: str, challenge: str) -> HttpRefusal:
    return HttpRefusal(401, detail, headers=[("www-authenticate", challenge)])
