"""Descriptions of routes, by which queries are parsed and the OpenAPI document is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from lvq_kafka.core.latest.catch_up import State
from lvq_kafka.serve.parameters import Parameter, seconds

__all__ = [
    "AT_CUT",
    "CACHED",
    "CURRENT",
    "HEADERS",
    "HELD",
    "IF_NONE_MATCH",
    "JSON_TYPE",
    "SCHEMAS",
    "SELECTOR",
    "AnswerForm",
    "HttpOperation",
    "Schema",
    "schema_of",
]

Schema = Mapping[str, Any]
"""A JSON Schema of the dialect of OpenAPI 3.1."""

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """An answer of one status that is no problem."""

    meaning: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    """The schemas of its bodies, by media type; none for an answer without a body."""
    headers: tuple[str, ...] = ()
    """The names of its own headers, which `HEADERS` describes."""


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """The requests that a route takes, and its answers."""

    name: str
    """A name for programs that are made of the document."""
    summary: str
    answers: Mapping[int, AnswerForm]
    """By status."""
    query: Mapping[str, Parameter] = field(default_factory=dict)
    waits: str = ""
    """The meaning of its parameter ``wait``; empty if it has none."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The meanings of the request headers that it heeds, beside those for types and tokens."""
    body: str = ""
    """The meaning of the body that it takes; empty if it takes none."""
    refusals: tuple[int, ...] = ()
    """The statuses of problems, beside those that follow from its path."""

    def parameters(self, max_wait: float) -> Mapping[str, Parameter]:
        """Return all parameters of its query.

        Args:
            max_wait: the longest that a request may ask to wait, in seconds.
        """
        if not self.waits:
            return self.query
        return {"wait": Parameter(seconds(max_wait), self.waits), **self.query}


def schema_of(name: str) -> Schema:
    """Return a schema that is the one of `SCHEMAS` with a name."""
    assert name in SCHEMAS, name
    return {"$ref": f"#/components/schemas/{name}"}


def _row(meaning: str, needed: Mapping[str, Schema], others: Mapping[str, Schema] = {}) -> Schema:
    return {"type": "object", "description": meaning, "required": [*needed], "properties": {**needed, **others}}


_STRING: Schema = {"type": "string"}
_OFFSETS: Schema = {"type": "object", "additionalProperties": {"type": "integer"}}
_TEXT: Schema = {"$ref": "#/components/schemas/Text"}
_HEADER_VALUE: Schema = {"anyOf": [_TEXT, {"type": "null"}]}
_AGE = "Seconds since the end of the log was last known. Nothing older is missing from a view that is caught up."

SCHEMAS: Mapping[str, Schema] = {
    "State": {
        "type": "string",
        "enum": [*get_args(State)],
        "description": "Only a view that is `caught-up` has all current values.",
    },
    "Text": {
        "description": "Text, or what is no UTF-8, in base64.",
        "anyOf": [
            _STRING,
            {"type": "object", "required": ["base64"], "properties": {"base64": {**_STRING, "format": "byte"}}},
        ],
    },
    "Entry": {
        **_row(
            "A key with its newest value. `undecodable` stands for `value` where that has not the queue's format.",
            {
                "key": _TEXT,
                "position": {**_STRING, "description": "`topic/partition/offset`."},
                "timestamp": {"type": "number", "description": "Seconds since the epoch."},
                "headers": {
                    "type": "object",
                    "additionalProperties": _HEADER_VALUE,
                    "description": "The last header of each name.",
                },
            },
            {
                "value": {"description": "As its queue declares: JSON, or text, or bytes as text or base64."},
                "undecodable": _TEXT,
                "all_headers": {
                    "type": "array",
                    "description": "All headers as pairs, if a name repeats.",
                    "items": {
                        "type": "array",
                        "prefixItems": [_STRING, _HEADER_VALUE],
                        "minItems": 2,
                        "maxItems": 2,
                    },
                },
            },
        ),
        "oneOf": [{"required": ["value"]}, {"required": ["undecodable"]}],
    },
    "Page": _row(
        "Values in the order of keys.",
        {
            "values": {"type": "array", "items": {"$ref": "#/components/schemas/Entry"}},
            "token": {
                **_STRING,
                "description": "For `after` of the next page; of the last page, for `since` of events.",
            },
            "last": {"type": "boolean", "description": "False if more may follow, even if there are no values."},
        },
    ),
    "Queue": _row(
        "A queue, as its view is now.",
        {
            "name": _STRING,
            "format": {"enum": ["bytes", "text", "json"]},
            "state": {"$ref": "#/components/schemas/State"},
            "complete": {"type": "boolean", "description": "Whether it was complete before. Otherwise it answers 503."},
            "lag": {"type": "integer", "description": "Offsets that are still to be read."},
            "age": {"type": "number", "description": _AGE},
        },
        {
            "trouble": {**_STRING, "description": "Why it is disconnected."},
            "keys": {"type": "integer"},
            "topic_id": _STRING,
            "as_of": {"type": "number", "description": "The time by which others had expired, since the epoch."},
            "cut": {**_OFFSETS, "description": "The next offset of each partition."},
        },
    ),
    "Problem": _row(
        "The reason of a refusal, and the remedy (RFC 9457).",
        {
            "title": _STRING,
            "status": {"type": "integer"},
            "detail": _STRING,
        },
        {
            "error": {**_STRING, "description": "The name of the library's error."},
            "rule": {**_STRING, "description": "The number of the rule by which a message is refused."},
        },
    ),
}
"""Those that have a name."""

HEADERS: Mapping[str, tuple[str, Schema]] = {
    "lvq-state": ("The state of the view, taken before the values.", schema_of("State")),
    "lvq-age": (_AGE, {"type": "number", "minimum": 0}),
    "lvq-cut": ("Up to where the log was read, by partition: `0=42, 1=17`. Left out if it is very long.", _STRING),
    "lvq-token": ("For `since` of events, which go on from here.", _STRING),
    "lvq-format": ("The format of values.", {"type": "string", "enum": ["bytes", "text", "json"]}),
    "lvq-position": ("The position of the write, for `at-least` of a later request.", _STRING),
    "etag": ("One value of one topic in one form; or one file.", _STRING),
    "cache-control": ("Caches may keep it, and have to ask each time; or may not.", _STRING),
    "vary": ("The form depends on `Accept`.", _STRING),
    "x-accel-buffering": ("Keeps a proxy from holding events back.", _STRING),
    "retry-after": ("Seconds after which the same request may succeed.", {"type": "integer"}),
    "allow": ("The methods that there are.", _STRING),
    "accept-encoding": ("The encodings of bodies that are taken.", _STRING),
    "connection": ("The connection is closed, since the rest of a body is not read.", _STRING),
    "www-authenticate": ("The kind of credentials that are needed (RFC 6750).", _STRING),
}
"""The headers of answers: their meanings and schemas."""

CURRENT = ("lvq-state", "lvq-age", "lvq-cut")
"""The headers that say how current an answer is (R46)."""

HELD = ("cache-control", "etag")
"""Those by which a client keeps it."""

CACHED: tuple[str, ...] = (*CURRENT, *HELD, "vary")
"""Those of a value."""

AT_CUT: tuple[str, ...] = (*CURRENT, "cache-control", "vary", "lvq-token")
"""Those of all values."""

IF_NONE_MATCH = (
    "Entity tags that the client has. If one of them is still that of the answer, it is 304, without a body."
)

SELECTOR = "Only values that this condition on headers selects, in the syntax of JMS."
