"""Schema registries over HTTP: one that keeps schemas, and one with arbitrary answers."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["Answers", "FakeRegistry", "serving"]


class Answers(BaseHTTPRequestHandler):
    """A handler that answers, and prints nothing on stderr."""

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        """Answer the request."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serving(handler: type[Answers], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve requests with a handler, and yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _NotThereError(Exception):
    """There is no such subject, version or schema."""


class FakeRegistry:
    """A registry that keeps whatever it is given, and checks nothing.

    It answers what confluent-kafka's client and serializers ask. As in Confluent's, ids are those of a context, a soft
    delete hides a version, and Protobuf comes as text unless the serialized form is asked for.
    """

    def __init__(self) -> None:
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        """Each request's line, and its authorization."""
        self.statuses: list[int] = []
        """Statuses to answer with, before everything else."""

    @contextmanager
    def served(self, tls: ssl.SSLContext | None = None) -> Iterator[str]:
        """Serve this registry, and yield its address."""
        registry = self

        class Handler(Answers):
            def do(self) -> None:
                registry.asked.append((f"{self.command} {self.path}", self.headers["Authorization"]))
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                status, said = registry.answer(self.command, self.path, json.loads(body) if body else {})
                self.answer(status, json.dumps(said).encode())

            do_GET = do_POST = do_DELETE = do  # noqa: N815  # http.server's names

        with serving(Handler, tls) as url:
            yield url

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return status and answer of a request."""
        if self.statuses:
            return self.statuses.pop(0), {"error_code": 1, "message": "as told"}
        address = urlsplit(path)
        options = {name: values[-1] for name, values in parse_qs(address.query).items()}
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        try:
            return 200, self._answered(method, parts, options, body)
        except (_NotThereError, IndexError, StopIteration):
            return 404, {"error_code": 40401, "message": "there is no such thing"}

    def _answered(self, method: str, parts: list[str], options: dict[str, str], body: dict[str, Any]) -> Any:
        match method, *parts:
            case "POST", "subjects", subject, "versions":
                return self.put(subject, body)
            case "POST", "subjects", subject:
                return next(one for one in self.subjects.get(subject, ()) if _content(one) == _content(body))
            case "GET", "subjects", subject, "versions":
                deleted = options.get("deleted", "").lower() == "true"
                return [one["version"] for one in self._those(subject, lambda one: deleted or not one["deleted"])]
            case "GET", "subjects", subject, "versions", version:
                deleted = options.get("deleted", "").lower() == "true"
                there = self._those(subject, lambda one: deleted or not one["deleted"])
                chosen = there[-1] if version == "latest" else next(o for o in there if o["version"] == int(version))
                return _shown(chosen, options)
            case "DELETE", "subjects", subject, "versions", version:
                chosen = next(one for one in self.subjects.get(subject, ()) if one["version"] == int(version))
                chosen["deleted"] = True
                if options.get("permanent") == "true":
                    self.subjects[subject].remove(chosen)
                return int(version)
            case "GET", "schemas", "ids", number:
                context = _context(options.get("subject", ""))
                return _shown(
                    next(o for o in self._all() if (o["id"], o["context"]) == (int(number), context)), options
                )
            case "GET", "schemas", "guids", guid:
                return _shown(next(one for one in self._all() if one["guid"] == guid), options)
        raise _NotThereError

    def put(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        """Add a version of a subject, unless it has that schema."""
        there = self.subjects.setdefault(subject, [])
        for one in there:
            if _content(one) == _content(schema):
                return one
        context = _context(subject)
        same = [one for one in self._all() if one["context"] == context]
        known = next((one["id"] for one in same if _content(one) == _content(schema)), None)
        added = {
            **schema,
            "subject": subject,
            "version": max((one["version"] for one in there), default=0) + 1,
            "id": known or len({one["id"] for one in same}) + 1,
            "guid": str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(_content(schema)))),
            "context": context,
            "deleted": False,
        }
        there.append(added)
        return added

    def _all(self) -> Iterator[dict[str, Any]]:
        return (one for versions in self.subjects.values() for one in versions)

    def _those(self, subject: str, counts: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        found = [one for one in self.subjects.get(subject, ()) if counts(one)]
        if not found:
            raise _NotThereError
        return found


def _content(schema: dict[str, Any]) -> list[Any]:
    return [schema.get("schemaType") or "AVRO", schema["schema"], schema.get("references") or []]


def _context(subject: str) -> str:
    return subject.split(":")[1] if subject.startswith(":.") else ""


def _shown(schema: dict[str, Any], options: dict[str, str]) -> dict[str, Any]:
    shown = {name: part for name, part in schema.items() if name not in ("context", "deleted")}
    if shown.get("schemaType") == "PROTOBUF" and options.get("format") != "serialized":
        shown["schema"] = 'syntax = "proto3";'
    # Like a real registry: no type if it is Avro.
    return {name: part for name, part in shown.items() if (name, part) != ("schemaType", "AVRO")}
