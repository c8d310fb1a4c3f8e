"""The OpenAPI document is what the server does: schemathesis makes requests of it, and judges the answers (R46)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.openapi.checks import RejectedPositiveData

import lvq_kafka.serve
from lvq_kafka import BYTES, JSON, TEXT, Codec
from lvq_kafka._version import __version__
from lvq_kafka.core.latest.catch_up import State
from lvq_kafka.serve import QueueApp, app
from lvq_kafka.serve.openapi import openapi_document
from lvq_kafka.serve.parameters import FLAG, ParameterKind, seconds, whole_number
from lvq_kafka.serve.routes import ROUTES
from lvq_kafka.serve.write_requests import HEADERS
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples
from tests.unit.serve.asgi_client import AsgiClient
from tests.unit.serve.scenes import scene, values_of

TOKEN = "a" * 32
HOST = "testserver"  # that of schemathesis
MAX_WAIT = 0.05

FREE = {"selector", "after", "at-least"}
"""Parameters whose form a schema cannot say, so that a valid request may be refused for them."""

WRITING = {"PUT", "DELETE"}
"""Methods whose requests the rules of a queue may refuse, which the document does not know."""

CONFIG: dict[str, Any] = {
    "parameters": {"path.queue": "prices"},
    "headers": {"Authorization": f"Bearer {TOKEN}"},
    "max-stream-events": 2,  # more may be a while in coming
    "continue-on-failure": True,
    "request-timeout": 120,  # seconds: the first Arrow imports a large package
    "generation": {"max-examples": examples(30)},
    "phases": {"stateful": {"enabled": False}},  # no state leads to another that has other operations
}

GENERAL = {"content-type", "content-length", "content-security-policy", "x-content-type-options", "referrer-policy"} | {
    "cross-origin-resource-policy"
}
"""The headers that need no word in the document: those of every answer."""


@schemathesis.check
def has_described_headers_only(context: Any, response: Any, case: Any) -> None:
    described = case.operation.responses.find_by_status_code(response.status_code)
    if described is not None:
        assert {*response.headers} - GENERAL <= {name for name, _ in described.headers.items()}, (
            "a header is not in the document"
        )


@contextmanager
def serving(place: Path, value: Codec[Any] = TEXT) -> Iterator[QueueApp]:
    """Serve a queue to those who have a token."""
    (place / "tokens").write_text(f"{TOKEN} prices prices:write\n")
    (place / "tokens").chmod(0o600)
    cluster = MemoryCluster()
    queue = values_of(cluster, value)
    for key in ("IBM", "", "a/b", "0"):  # schemathesis begins with 0
        cluster.write("prices", key.encode(), b"118", [("exchange", b"NYSE")])
    with queue.view() as view:
        tokens, states = place / "tokens", get_args(State)  # a busy machine may seem disconnected for a moment
        served = app(
            view, hosts=[HOST], writable=[queue], token_file=tokens, max_wait=MAX_WAIT, ready=states, board=True
        )
        asyncio.run(served.open_async())
        yield served
        asyncio.run(served.aclose())


def closed(schema: Any) -> Any:
    """Return a schema whose objects have no other properties than those that it names."""
    if isinstance(schema, dict):
        found = {name: closed(part) for name, part in schema.items()}
        return {**found, "additionalProperties": False} if "properties" in schema else found
    return [closed(part) for part in schema] if isinstance(schema, list) else schema


def strict(document: dict[str, Any], served: QueueApp) -> Any:
    """Return what schemathesis needs of a document, in which nothing goes that the server does not do."""
    schema = schemathesis.openapi.from_dict(closed(document), config=SchemathesisConfig.from_dict(CONFIG))
    schema.app = served
    return schema


async def document_of(served: QueueApp) -> dict[str, Any]:
    found: dict[str, Any] = (await AsgiClient(served).get("/openapi.json")).json
    return found


def failures_of(recorder: ScenarioRecorder) -> Iterator[str]:
    for number, checks in recorder.checks.items():
        case = recorder.cases[number].value
        refusable = case.method in WRITING or FREE & {*(case.query or ())}
        for check in checks:
            found = check.failure_info
            if found is not None and not (refusable and isinstance(found.failure, RejectedPositiveData)):
                yield f"{found.code_sample}\n{found.failure.message}"


def test_r46_r52_the_server_does_what_its_document_says(tmp_path: Path) -> None:
    """Statuses, headers, types and bodies are those of the document; what it does not allow is refused."""
    with serving(tmp_path) as served:
        document = asyncio.run(document_of(served))
        schema = strict(document, served)
        wrong: list[str] = []
        judged: set[str] = set()
        for event in from_schema(schema).execute():
            if isinstance(event, NonFatalError):
                raise event.value
            if isinstance(event, FatalError):
                raise event.exception
            if isinstance(event, ScenarioFinished):
                wrong += failures_of(event.recorder)
                judged |= {event.recorder.label} if event.recorder.checks else set()
        assert not wrong, "\n\n".join(wrong)
        assert judged == {
            f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods
        }
        assert {"GET", *WRITING} == {label.partition(" ")[0] for label in judged}


@pytest.mark.parametrize("tokens", [True, False])
def test_the_document_is_one_of_openapi_and_describes_all_routes(tokens: bool) -> None:
    document = json.loads(json.dumps(openapi_document(ROUTES, max_wait=60.0, tokens=tokens)))
    schemathesis.openapi.from_dict(document).validate()
    assert set(document["paths"]) == {f"/{route.path}" for route in ROUTES}
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len({*names}) == len(names) == len(ROUTES)
    for route in ROUTES:
        operation = document["paths"][f"/{route.path}"][route.methods[0].lower()]
        guarded = tokens and not route.public
        assert ("security" in operation, "401" in operation["responses"]) == (guarded, guarded), route.path


def test_r46_every_type_in_the_document_can_be_had(tmp_path: Path) -> None:
    """The body is what the document says of that type. That of a value itself depends on its queue."""
    documented, had = set(), set()
    for value in (BYTES, TEXT, JSON):
        with serving(tmp_path, value) as served:
            schema = strict(asyncio.run(document_of(served)), served)
            for route in (route for route in ROUTES if not route.writes):
                operation = schema[f"/{route.path}"]["GET"]
                for kind in route.operation.answers[200].content:
                    documented.add((route.path, kind))
                    case = operation.Case(path_parameters={"queue": "prices", "key": "IBM"})
                    asked = {"Accept": f"{kind}; version=1.0.0"}  # OpenMetrics has no other version
                    reply = case.call_and_validate(headers=CONFIG["headers"] | asked)
                    if reply.status_code == 200:
                        assert reply.headers["content-type"][0].partition(";")[0] == kind
                        had.add((route.path, kind))
                    else:
                        assert reply.status_code == 406, (route.path, kind, reply.content)
    assert had == documented


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (FLAG, st.integers(-2, 3).map(str)),
        (whole_number(1000), st.integers(-5, 1005).map(str)),
        (seconds(60), st.floats(allow_nan=False, allow_infinity=False).map(json.dumps)),
        (seconds(3600, least=0.01), st.floats(-1, 4000).map(json.dumps)),
    ],
)
@given(data=st.data())
def test_r46_a_parameter_is_what_its_schema_says(
    kind: ParameterKind, texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    text = data.draw(texts)
    try:
        kind.parse(text.encode())
    except ValueError:
        parsed = False
    else:
        parsed = True
    assert parsed is Draft202012Validator(kind.schema).is_valid(json.loads(text))


def test_r46_the_document_has_every_header_that_is_looked_at() -> None:
    """Beside those that OpenAPI keeps for other parts of a document, those of a body, and a browser's own."""
    sources = Path(lvq_kafka.serve.__file__).parent.glob("*.py")
    read = {name for source in sources for name in re.findall(r"\.header\(\"([a-z-]+)\"\)", source.read_text())}
    documented = {name.lower() for route in ROUTES for name in route.operation.headers}
    others = {"accept", "authorization", "content-encoding", "content-length", "content-range", "sec-fetch-site"}
    assert (read | {HEADERS}) - others == documented


def test_the_document_is_public_and_a_client_need_not_get_it_twice(tmp_path: Path) -> None:
    async def play(served: QueueApp) -> None:
        client = AsgiClient(served)
        first = await client.get("/openapi.json")
        assert (first.status, first.headers["content-type"]) == (200, "application/json")
        assert "prices" not in first.body.decode(), "it says nothing of the queues"
        assert (await client.get("/openapi.json", if_none_match=first.headers["etag"])).status == 304
        assert first.json["info"]["version"] == __version__
        [wait] = [one for one in parameters(first.json, "/v1/queues/{queue}/values/{key}") if one["name"] == "wait"]
        assert wait["schema"]["maximum"] == MAX_WAIT, "as this server has it"

    with serving(tmp_path) as served:
        asyncio.run(play(served))


async def test_r52_the_document_of_a_server_that_only_reads_has_no_writes() -> None:
    async with scene() as on:
        document = await document_of(on.app)
    assert {method for path in document["paths"].values() for method in path} == {"get"}


def parameters(document: dict[str, Any], path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["paths"][path]["get"]["parameters"]
    return found
