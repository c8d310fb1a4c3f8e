"""Schema registries over HTTP: one with arbitrary answers, one with the contents of confluent's mock client."""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

__all__ = ["Answers", "served", "serving"]

_VERSION = re.compile(r"/subjects/([^/]+)/versions(?:/(\d+|latest))?")


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
def serving(handler: type[Answers]) -> Iterator[str]:
    """Serve requests with a handler, and yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def served(client: SchemaRegistryClient) -> Iterator[str]:
    """Serve the subjects of a client over Confluent's protocol, and yield the address."""

    class Registry(Answers):
        def do_GET(self) -> None:
            try:
                status, answer = 200, _answer(client, urllib.parse.urlsplit(self.path).path)
            except SchemaRegistryError as error:
                status, answer = 404, {"error_code": error.error_code, "message": error.error_message}
            self.answer(status, json.dumps(answer).encode())

    with serving(Registry) as url:
        yield url


def _answer(client: SchemaRegistryClient, path: str) -> Any:
    found = _VERSION.fullmatch(path)
    assert found is not None, path
    subject, version = urllib.parse.unquote(found[1]), found[2]
    if version is None:
        return client.get_versions(subject)
    registered = (
        client.get_latest_version(subject) if version == "latest" else client.get_version(subject, int(version))
    )
    # Like a real registry: no type if it is Avro, and no references if there are none.
    return {
        "subject": registered.subject,
        "version": registered.version,
        "id": registered.schema_id,
        **{name: part for name, part in registered.schema.to_dict().items() if (name, part) != ("schemaType", "AVRO")},
    }
