"""One request on its way: what it asks for, of whom, and where it is answered from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lvq_kafka.core.latest.catch_up import State
from lvq_kafka.serve.bearer_tokens import BearerTokens
from lvq_kafka.serve.http_peer import HttpPeer
from lvq_kafka.serve.http_requests import HttpRequest
from lvq_kafka.serve.long_answers import LongAnswers
from lvq_kafka.serve.operations import HttpOperation
from lvq_kafka.serve.parameters import parse_query
from lvq_kafka.serve.problems import HttpRefusal
from lvq_kafka.serve.queue_rights import EVERYBODY, Bearer
from lvq_kafka.serve.queue_writer import QueueWriter
from lvq_kafka.serve.served_queue import ServedQueue
from lvq_kafka.serve.token_file import TokenFile
from lvq_kafka.serve.trusted_proxies import TrustedProxies
from lvq_kafka.serve.writes_under_way import WritesUnderWay
from lvq_kafka.telemetry.metrics import Metrics

__all__ = ["HttpCall", "Served", "not_opened"]


@dataclass(frozen=True, slots=True)
class Served:
    """The queues that are served, and the limits."""

    names: Collection[str]
    """The names of all queues, open or not."""
    queues: Mapping[str, ServedQueue]
    """Those that are open."""
    tokens: TokenFile | None
    proxies: TrustedProxies | None
    """The proxies that may name the user of a request; None for none."""
    writable: Collection[str]
    """The names of the queues that can be written."""
    writers: Mapping[str, QueueWriter]
    """Those that are open, by the name of the queue."""
    writes: WritesUnderWay
    ready: Collection[State]
    long_answers: LongAnswers
    max_wait: float
    """The longest that a request may ask to wait, in seconds."""
    metrics: Metrics
    heartbeat: float
    """The seconds after which a stream without events gets a comment."""
    board: bool
    """Whether there is a board."""
    document: bytes
    """The OpenAPI document."""

    def bearer_of(self, request: HttpRequest, tokens: BearerTokens | None) -> Bearer:
        """Return who sends a request.

        Args:
            request: the request.
            tokens: those that count; None if everybody may do everything.

        Raises:
            HttpRefusal: he is not known.
        """
        if tokens is None:
            return EVERYBODY
        user = None if self.proxies is None else self.proxies.user_of(request)
        return tokens.bearer(request.header("authorization")) if user is None else tokens.user(user)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request whose route is known, and which may have what it asks for."""

    request: HttpRequest
    operation: HttpOperation
    """The description of its route."""
    served: Served
    peer: HttpPeer
    tokens: BearerTokens | None
    """Those by which it was admitted; None if it needs none."""
    bearer: Bearer
    """Its sender, and his rights."""
    found: ServedQueue | None = None
    """The queue that its path names, if it names one."""
    key: bytes = b""
    """The key that its path names."""

    @property
    def queue(self) -> ServedQueue:
        """The queue that its path names."""
        assert self.found is not None, "the route has a queue"
        return self.found

    @property
    def writer(self) -> QueueWriter:
        """The writer of the queue that its path names.

        Raises:
            HttpRefusal: there is none.
        """
        name = self.queue.name
        if name not in self.served.writable:
            raise HttpRefusal(
                405,
                f"{name} cannot be written here.",
                hint="Its server only reads it.",
                headers=[("allow", "GET, HEAD")],
            )
        writer = self.served.writers.get(name)
        if writer is None:
            raise not_opened(name)
        return writer

    @property
    def cache_control(self) -> tuple[str, str]:
        """The header that lets a cache keep an answer, and has it ask each time."""
        return "cache-control", "no-cache" if self.served.tokens is None else "private, no-cache"

    @property
    def allowed(self) -> bool:
        """True if its bearer may still read the queue: the tokens may have changed since."""
        if self.served.tokens is None or (tokens := self.served.tokens.current()) is self.tokens:
            return True
        try:
            bearer = self.served.bearer_of(self.request, tokens)
        except HttpRefusal:
            return False
        return bearer.rights.may_read(self.queue.name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the query. Raises what `parse_query` raises."""
        return parse_query(self.request.query, self.operation.parameters(self.served.max_wait))


def not_opened(name: str) -> HttpRefusal:
    """Return the answer to a request for a queue that is not open."""
    return HttpRefusal(
        503,
        f"{name} was not opened.",
        hint="Its lifespan does not run. Enter the application with `async with` in that of the outer one.",
    )
