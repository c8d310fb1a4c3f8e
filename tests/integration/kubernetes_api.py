"""The part of the Kubernetes API that Spark's client needs: objects in memory, with selectors and watches.

It uses only the standard library, and runs in a container next to the pods: ``python3 kubernetes_api.py PORT``.
`tests.integration.kubernetes` is the node.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
Selector = Callable[[Object], bool]

PATH = re.compile(
    r"/apis?/(?:[^/]+/)?v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>\w+)(?:/(?P<name>[^/]+))?(?:/status)?"
)


class Refused(Exception):
    """A request that gets an error status."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Store:
    """All objects and all changes. A resource version is the number of changes so far."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.objects: dict[tuple[str, str], Object] = {}
        self.changes: list[tuple[str, str, Object]] = []

    def write(self, kind: str, name: str, body: Object, *, namespace: str) -> Object:
        with self.changed:
            known = (kind, name) in self.objects
            metadata = {"uid": f"{kind}-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", **body["metadata"]}
            metadata |= {"name": name, "namespace": namespace}
            if kind == "pods":
                body = {"status": {"phase": "Pending"}} | body
            return self._change("MODIFIED" if known else "ADDED", kind, body | {"metadata": metadata})

    def delete(self, kind: str, name: str) -> Object:
        with self.changed:
            return self._change("DELETED", kind, self.objects.pop((kind, name)))

    def _change(self, change: str, kind: str, changed: Object) -> Object:
        version = str(len(self.changes) + 1)
        changed = changed | {"metadata": changed["metadata"] | {"resourceVersion": version}}
        if change != "DELETED":
            self.objects[kind, changed["metadata"]["name"]] = changed
        self.changes.append((change, kind, changed))
        self.changed.notify_all()
        return changed

    def read(self, kind: str, name: str) -> Object:
        with self.changed:
            if (kind, name) not in self.objects:
                raise Refused(404, f"{kind} {name} not found")
            return self.objects[kind, name]

    def find(self, kind: str, selected: Selector) -> tuple[list[Object], int]:
        """Return the matching objects, and the version from which a watch continues."""
        with self.changed:
            found = [value for (its, _), value in self.objects.items() if its == kind and selected(value)]
            return found, len(self.changes)

    def watch(self, kind: str, selected: Selector, version: int) -> Iterator[tuple[str, Object]]:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: len(self.changes) > version)  # noqa: B023  # called here
                change, its, value = self.changes[version]
            version += 1
            if its == kind and selected(value):
                yield change, value


def selector(query: dict[str, list[str]]) -> Selector:
    labels = [_label(term) for said in query.get("labelSelector", []) for term in said.split(",")]
    fields = [term for said in query.get("fieldSelector", []) for term in said.split(",")]
    return lambda value: (
        all(fits(value["metadata"].get("labels", {})) for fits in labels)
        and all(_field_fits(value, term) for term in fields)
    )


def _label(term: str) -> Selector:
    found = re.fullmatch(r"([^\s!=]+)(=|!=)([^\s,]*)", term)
    if found is None:
        raise Refused(400, f"unknown label selector {term}")
    name, sign, value = found.groups()
    return lambda labels: (labels.get(name) == value) == (sign == "=")


def _field_fits(value: Object, term: str) -> bool:
    path, _, wanted = term.partition("=")
    found: Any = value
    for name in path.split("."):
        found = found.get(name, {})
    return bool(found == wanted)


def merged(old: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    kept = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merged(kept.get(name), value)
    return kept


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = Store()

    def do_GET(self) -> None:
        self.answer(self.get)

    def do_POST(self) -> None:
        self.answer(self.create)

    def do_PATCH(self) -> None:
        self.answer(self.patch)

    def do_DELETE(self) -> None:
        self.answer(self.delete)

    def answer(self, made: Callable[[re.Match[str], dict[str, list[str]]], Object]) -> None:
        self.body: Object = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        where = urlsplit(self.path)
        place = PATH.fullmatch(where.path)
        try:
            if place is None:
                raise Refused(404, f"no such path {where.path}")
            self.send_json(200, made(place, parse_qs(where.query)))
        except Refused as refused:
            self.send_json(refused.code, {"kind": "Status", "code": refused.code, "message": str(refused)})

    def get(self, place: re.Match[str], query: dict[str, list[str]]) -> Object:
        if place["name"] is not None:
            return self.store.read(place["kind"], place["name"])
        if query.get("watch") == ["true"]:
            return self.watch(place["kind"], query)
        items, version = self.store.find(place["kind"], selector(query))
        return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}, "items": items}

    def create(self, place: re.Match[str], _: object) -> Object:
        return self.store.write(place["kind"], self.body["metadata"]["name"], self.body, namespace=place["namespace"])

    def patch(self, place: re.Match[str], _: object) -> Object:
        form = self.headers["Content-Type"]
        if "apply-patch" in form:  # server-side apply creates what does not exist
            old = self.store.objects.get((place["kind"], place["name"]), {})
        elif "merge-patch" in form:
            old = self.store.read(place["kind"], place["name"])
        else:
            raise Refused(415, f"no patches as {form}")
        return self.store.write(place["kind"], place["name"], merged(old, self.body), namespace=place["namespace"])

    def delete(self, place: re.Match[str], query: dict[str, list[str]]) -> Object:
        items, _ = self.store.find(place["kind"], selector(query))
        gone = [self.store.delete(place["kind"], item["metadata"]["name"]) for item in items]
        return {"kind": "List", "apiVersion": "v1", "items": gone}

    def watch(self, kind: str, query: dict[str, list[str]]) -> Object:
        selected = selector(query)
        if "Upgrade" in self.headers:
            return {}  # no WebSocket here: the client continues with a stream
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        version = int(query.get("resourceVersion", ["0"])[0] or 0)
        for change, value in self.store.watch(kind, selected, version):
            line = json.dumps({"type": change, "object": value}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        raise AssertionError("a watch has no end")

    def send_json(self, status: int, body: Object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(sys.argv[1])), Answers).serve_forever()
