"""The ASGI application: it opens and closes views, admits requests, and sends answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterable, MutableMapping
from contextlib import AsyncExitStack, ExitStack
from os import PathLike
from types import TracebackType
from typing import Any, Self, get_args

from lvq_kafka.codecs import form_of
from lvq_kafka.core.latest.catch_up import State
from lvq_kafka.core.measures.measured import SERVER, ServerFacts
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import at_least_one, durations, instance
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.reading.view import LiveMapping, View
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.runtime.keywords import refuse_unknown
from lvq_kafka.serve.calls import HttpCall, Served, not_opened
from lvq_kafka.serve.host_names import check_host, host_rule
from lvq_kafka.serve.http_answers import HttpAnswer, StreamedAnswer, problem
from lvq_kafka.serve.http_peer import Emit, HttpPeer, PeerLost, Receive
from lvq_kafka.serve.http_requests import HttpRequest, read_request
from lvq_kafka.serve.long_answers import LongAnswers, ending
from lvq_kafka.serve.openapi import openapi_document
from lvq_kafka.serve.problems import HttpRefusal, refusal_of
from lvq_kafka.serve.queue_rights import Bearer
from lvq_kafka.serve.queue_writer import QueueWriter
from lvq_kafka.serve.routes import ROUTES, Route, find_route
from lvq_kafka.serve.served_queue import ServedQueue
from lvq_kafka.serve.token_file import TokenFile
from lvq_kafka.serve.trusted_proxies import TrustedProxies
from lvq_kafka.serve.writes_under_way import WritesUnderWay
from lvq_kafka.telemetry.metrics import Metrics, facts_of

__all__ = ["QueueApp", "ServedSource", "app"]

logger = logging.getLogger("lvq_kafka.serve")

Scope = MutableMapping[str, Any]

ServedSource = LastValueQueue[Any] | LiveMapping[Any]
"""A queue, or an open view of one."""

_READY: tuple[State, ...] = ("caught-up",)


class QueueApp:
    """An ASGI application that serves the current values of queues; see `app`.

    A server runs its lifespan, which opens the queues, and closes what it has opened. Nothing runs the lifespan of an
    application that is mounted in another: use ``async with`` in that of the outer one.
    """

    def __init__(
        self,
        sources: Iterable[ServedSource],
        *,
        hosts: Iterable[str],
        writable: bool | Iterable[LastValueQueue[Any]],
        token_file: str | PathLike[str] | None,
        user_header: str | None,
        proxies: Iterable[str],
        ready: Collection[State],
        max_streams: int,
        max_wait: float,
        heartbeat: float,
        metrics: Metrics | None,
        board: bool,
    ) -> None:
        at_least_one(1_000_000, max_streams=max_streams)
        durations("Give the longest wait that a request may ask for.", max_wait=max_wait)
        durations("Give the time without events after which a comment is sent.", heartbeat=heartbeat)
        if metrics is not None:
            instance("metrics", metrics, Metrics, "For example metrics=Metrics().add(consumer).")
        self._sources = _by_name(sources, alone=metrics is not None)
        self._metrics = metrics or Metrics()
        self._metrics.add_source(SERVER, (), facts_of(self, lambda app: (ServerFacts(app.open_streams), False)))
        self._hosts = host_rule(hosts)
        self._ready = _states(ready)
        self._writable = _writable(writable, self._sources)
        proxied = None if user_header is None else TrustedProxies(user_header, proxies)
        _check_proxies(user_header, proxies, token_file)
        self._tokens = None if token_file is None else TokenFile(token_file)
        self._long_answers = LongAnswers(max_streams)
        self._opened = AsyncExitStack()
        self._queues: dict[str, ServedQueue] = {}
        self._writers: dict[str, QueueWriter] = {}
        for name, source in self._sources.items():
            if isinstance(source, LiveMapping):
                self._serve(name, source)
        self._served = Served(
            self._sources.keys(),
            self._queues,
            self._tokens,
            proxied,
            self._writable.keys(),
            self._writers,
            WritesUnderWay(),
            self._ready,
            self._long_answers,
            float(max_wait),
            self._metrics,
            float(heartbeat),
            board,
            self._document(max_wait),
        )

    def _document(self, max_wait: float) -> bytes:
        routes = [route for route in ROUTES if self._writable or not route.writes]
        return json.dumps(openapi_document(routes, max_wait=max_wait, tokens=self._tokens is not None)).encode()

    def _serve(self, name: str, view: LiveMapping[Any]) -> None:
        self._queues[name] = ServedQueue(name, view.undecoded(), form_of(view.value_codec), view)
        self._metrics.add(view)

    # ---------------------------------------------------------------- lifespan

    async def open_async(self) -> Self:
        """Open views of the queues, and producers of those that can be written.

        It does nothing for views that were given, and does not wait until views are complete. It may be opened again
        after it was closed.

        Raises:
            TopicNotFound: the topic of a queue does not exist.
            QueueNotDeclared, TopicRecreated, CommitMapRefused, CatchUpTimeout: a queue that can be written has limits,
                and it is unknown what it holds.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        self._long_answers.ended = False
        try:
            for name, source in self._sources.items():
                if name not in self._queues and isinstance(source, LastValueQueue):
                    view: View[Any] = source.view(undecodable="raw")
                    self._opened.push_async_callback(view.aclose)
                    self._opened.callback(self._queues.pop, name, None)
                    await in_thread(view.start, undo=View.close)
                    self._serve(name, view)
            writers: list[QueueWriter] = []
            self._opened.push_async_callback(self._close_writers, writers)
            for name, queue in self._writable.items():
                if name not in self._writers:
                    writers.append(QueueWriter(queue, self._metrics.add))
                    await writers[-1].open()
                    self._writers[name] = writers[-1]
        except BaseException:
            await self.aclose()
            raise
        return self

    async def _close_writers(self, writers: Iterable[QueueWriter]) -> None:
        """Close them together: each takes a while if the cluster does not answer."""
        self._writers.clear()
        await asyncio.gather(*(writer.aclose() for writer in writers))

    async def aclose(self) -> None:
        """End all streams, and close the views and producers that `open_async` has opened."""
        self.end_streams()
        await self._opened.aclose()

    async def __aenter__(self) -> Self:
        return await self.open_async()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def open_streams(self) -> int:
        """The number of answers that wait or stream."""
        return len(self._long_answers)

    def end_streams(self) -> None:
        """End answers that wait or stream, and bodies that arrive: the server is about to end.

        New ones are refused.

        Call it in the thread of its event loop. Servers wait for open answers before they end the lifespan.
        """
        self._long_answers.end()

    async def _live(self, receive: Receive, send: Emit) -> None:
        """Run the lifespan."""
        await receive()
        try:
            await self.open_async()
        except LVQError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    # ---------------------------------------------------------------- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Emit) -> None:
        """Answer as ASGI says.

        Raises:
            NotImplementedError: the connection is not one of HTTP.
        """
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            raise NotImplementedError(f"This serves HTTP, not {scope['type']}.")

    async def _handle(self, scope: Scope, receive: Receive, send: Emit) -> None:
        """Answer a request.

        An answer that breaks off is left without its end, so that the client notices.
        """
        peer = HttpPeer(receive, send)
        with ExitStack() as held:
            try:
                answer = await self._answer(scope, peer, held)
                if isinstance(answer, StreamedAnswer):
                    held.callback(answer.close)
                await self._send(answer, peer, body=scope["method"] != "HEAD")
            except PeerLost as lost:
                logger.info("a client was cut off: %s", lost)
            except LVQError as error:
                logger.warning("a stream ended early: %s", error)
            except Exception:
                logger.exception("a request could not be answered")

    async def _answer(self, scope: Scope, peer: HttpPeer, held: ExitStack) -> HttpAnswer | StreamedAnswer:
        """Return the answer to a request, whatever happens.

        Args:
            held: gets what the answer needs until it is sent.
        """
        try:
            route, call = self._admit(read_request(scope), peer)
            if not route.long:
                return await route.answer(call)
            held.enter_context(self._long_answers.place())
            answer = await self._long_answers.while_wanted(route.answer(call), peer)
            if answer is None:
                raise ending()
            return answer
        except HttpRefusal as refusal:
            return problem(refusal)
        except PeerLost:
            raise
        except LVQError as error:
            return problem(refusal_of(error))
        except Exception:  # a fault of this library: the client learns nothing of it
            logger.exception("a request could not be answered")
            return problem(HttpRefusal(500, "The server has a fault, which its log shows."))

    async def _send(self, answer: HttpAnswer | StreamedAnswer, peer: HttpPeer, *, body: bool) -> None:
        if isinstance(answer, HttpAnswer):
            await peer.send_whole(answer.status, answer.lines, answer.body if body else b"")
            return
        await peer.send_head(200, answer.lines)
        if body:
            await self._long_answers.while_wanted(answer.stream(peer.send_part), peer)
        await peer.send_end()

    def _admit(self, request: HttpRequest, peer: HttpPeer) -> tuple[Route, HttpCall]:
        """Return the route of a request, and the request with what it may have.

        Raises:
            HttpRefusal: it may not have it, or there is no such thing.
        """
        check_host(request.host, self._hosts)
        route, parts = find_route(request.segments, request.method, writable=bool(self._writable))
        tokens = None if self._tokens is None or route.public else self._tokens.current()
        bearer = self._served.bearer_of(request, tokens)
        found = self._find(parts["queue"], bearer, writes=route.writes) if "queue" in parts else None
        key = parts.get("key", b"")
        return route, HttpCall(request, route.operation, self._served, peer, tokens, bearer, found, key)

    def _find(self, name: bytes, bearer: Bearer, *, writes: bool) -> ServedQueue:
        queue = name.decode("utf-8", "replace")
        if not (bearer.rights.may_write(queue) if writes else bearer.rights.may_read(queue)):
            does = "write" if writes else "read"
            raise HttpRefusal(403, f"Your token or user name does not allow to {does} {quoted(queue)}.")
        found = self._queues.get(queue)
        if found is not None:
            return found
        if queue in self._sources:
            raise not_opened(queue)
        raise HttpRefusal(404, f"There is no queue {quoted(queue)} here.", hint="v1/queues names those that there are.")


@refuse_unknown()
def app(
    *sources: ServedSource,
    hosts: Iterable[str] = (),
    writable: bool | Iterable[LastValueQueue[Any]] = False,
    token_file: str | PathLike[str] | None = None,
    user_header: str | None = None,
    proxies: Iterable[str] = (),
    ready: Collection[State] = _READY,
    max_streams: int = 1000,
    max_wait: float = 60.0,
    heartbeat: float = 15.0,
    metrics: Metrics | None = None,
    board: bool = False,
) -> QueueApp:
    """Return an ASGI application that serves the current values of queues over HTTP (R46).

    It writes nothing, unless that is allowed (R52). docs/how-to/serve.md lists its routes.

    Args:
        sources: queues, of which it opens views itself; or open views, which stay the program's: also those that
            `attach` returns, and those that select.
        hosts: the names that clients use for this server, in their header ``Host``; ``"*"`` for any. Addresses and
            localhost are always allowed.
        writable: whether values can be written and deleted. True needs sources that are queues. For a source that is a
            view, list its queue here; those that are not listed are only read.
        token_file: a file with a bearer token in each line, and the queues that it may read, or ``*``; a queue that it
            may write is ``prices:write``. Without it, everybody may do all of it who can connect. It is read again
            when it changes.
        user_header: the header in which a proxy names a user that it has authenticated. His rights are in the token
            file, in a line that begins with ``user:`` and his name.
        proxies: the addresses and networks from which that header counts; by default, only this machine.
        ready: the states in which ``/ready`` succeeds.
        max_streams: the greatest number of answers that wait or stream at once.
        max_wait: the greatest number of seconds that a request may ask to wait.
        heartbeat: the seconds after which a stream of events without any gets a comment.
        metrics: the metrics at ``/metrics``, to which those of the views are added; by default, of the views alone.
            With it, there need not be a source.
        board: whether there is a page at ``/`` that shows the queues as they change (R47).

    Raises:
        ConfigError: an argument is invalid, or two sources have one name.
        StateError: a view is not open.
    """
    return QueueApp(
        sources,
        hosts=hosts,
        writable=writable,
        token_file=token_file,
        user_header=user_header,
        proxies=proxies,
        ready=ready,
        max_streams=max_streams,
        max_wait=max_wait,
        heartbeat=heartbeat,
        metrics=metrics,
        board=board,
    )


def _by_name(sources: Iterable[ServedSource], *, alone: bool) -> dict[str, ServedSource]:
    found: dict[str, ServedSource] = {}
    for source in sources:
        if isinstance(source, LiveMapping):
            _ = source.cut  # raises if it is not open
            name = source.queue
        elif isinstance(source, LastValueQueue):
            name = source.name
        else:
            raise ConfigError(
                f"{quoted(source)} is neither a queue nor a view.",
                options=["sources"],
                hint="Give a LastValueQueue, or an open view of one.",
            )
        if name in found:
            raise ConfigError(f"Two sources are named {quoted(name)}.", options=["sources"], hint="Leave one out.")
        found[name] = source
    if not (found or alone):
        raise ConfigError("There is nothing to serve.", options=["sources"], hint="Give a queue, or an open view.")
    return found


def _writable(
    given: bool | Iterable[LastValueQueue[Any]], sources: dict[str, ServedSource]
) -> dict[str, LastValueQueue[Any]]:
    """Return the queues that can be written, by name."""
    if given is False:
        return {}
    if given is True:
        views = [name for name, source in sources.items() if isinstance(source, LiveMapping)]
        if views:
            raise ConfigError(
                f"{quoted(views[0])} is a view, which knows nothing of writing.",
                options=["writable"],
                hint="Give its queue: writable=[queue]; or serve the queue instead of the view.",
            )
        return {name: source for name, source in sources.items() if isinstance(source, LastValueQueue)}
    found = {}
    said: object = given
    listed: list[object] = list(said) if isinstance(said, Iterable) and not isinstance(said, str) else [said]
    for queue in listed:
        if not isinstance(queue, LastValueQueue) or queue.name not in sources:
            raise ConfigError(
                f"`writable` has {quoted(queue)}, which is no queue that is served.",
                options=["writable"],
                hint="Give True, or a list of LastValueQueue.",
            )
        found[queue.name] = queue
    return found


def _check_proxies(user_header: str | None, proxies: Iterable[str], token_file: object) -> None:
    if user_header is not None and token_file is None:
        raise ConfigError(
            "`user_header` names users, and nothing says what each may do.",
            options=["user_header", "token_file"],
            hint="Give a token_file, with a line for each: user:alice prices.",
        )
    if user_header is None and proxies:
        raise ConfigError(
            "`proxies` names those who may name users, but not the header.",
            options=["proxies", "user_header"],
            hint="Give user_header, such as Remote-User.",
        )


def _states(ready: object) -> Collection[State]:
    known: tuple[State, ...] = get_args(State)
    named: list[Any] = list(ready) if isinstance(ready, Collection) and not isinstance(ready, str) else []
    if not named or any(state not in known for state in named):
        raise ConfigError(
            f"ready={quoted(ready)} does not name states.",
            options=["ready"],
            hint=f"Give a list of some of {', '.join(known)}.",
        )
    return frozenset(named)
