"""A schema registry for tests: what confluent-kafka's own mock client holds, over HTTP."""

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

_VERSION = re.compile(r"/subjects/([^/]+)/versions(?:/(\d+|latest))?")


@contextmanager
def served(client: SchemaRegistryClient) -> Iterator[str]:
    """The address where the subjects of a client are found, in the words of Confluent's protocol."""

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, answer = 200, _answer(client, urllib.parse.urlsplit(self.path).path)
            except SchemaRegistryError as error:
                status, answer = 404, {"error_code": error.error_code, "message": error.error_message}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _answer(client: SchemaRegistryClient, path: str) -> Any:
    found = _VERSION.fullmatch(path)
    assert found is not None, path
    subject, version = urllib.parse.unquote(found[1]), found[2]
    if version is None:
        return client.get_versions(subject)
    registered = (
        client.get_latest_version(subject) if version == "latest" else client.get_version(subject, int(version))
    )
    # As a registry has it: without a type where that is Avro, and without references where there are none.
    return {
        "subject": registered.subject,
        "version": registered.version,
        "id": registered.schema_id,
        **{name: part for name, part in registered.schema.to_dict().items() if (name, part) != ("schemaType", "AVRO")},
    }
