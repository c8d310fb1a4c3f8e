"""Tools for agents: current values, each answer with how current it is (R51).

They read, and write nothing. An answer is a JSON object. Before a queue is complete there is no answer but an error: an
agent would take a key that is missing for one that has no value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from lvq_kafka.codecs import BYTES
from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.errors import ConfigError, QueueMismatch
from lvq_kafka.json_lines import shown
from lvq_kafka.queue import LastValueQueue, queues
from lvq_kafka.reading.entries import EndOfDump, Entry, to_record
from lvq_kafka.reading.selection import Selection

if TYPE_CHECKING:
    from lvq_kafka.cluster import Cluster
    from lvq_kafka.core.latest.catch_up import ReaderStatus
    from lvq_kafka.reading.view import View

__all__ = ["TOOLS", "AgentTool", "AgentTools", "currency", "described_value"]

_MOST_KEYS = 100  # of one call
_MOST_VALUES = 200  # of one answer
_USUAL = 50
_MOST_READ = 20_000  # values that are judged for one answer
_STEP = 16  # values that are read at once: how large they are is not known
_MOST_QUEUES = 500


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool, as a model reads it."""

    name: str
    description: str
    arguments: Mapping[str, Any]
    """The properties of its JSON Schema."""
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": dict(self.arguments),
            "required": list(self.required),
            "additionalProperties": False,
        }


_QUEUE = {"type": "string", "description": "The name of the queue, as list_queues has it."}
_CURRENT = "The answer says in `note` how current it is; do not report values as current if it says otherwise."

TOOLS = (
    AgentTool(
        "list_queues",
        "List the last value queues that can be read here. A queue holds the newest value of each of its keys.",
        {},
    ),
    AgentTool(
        "describe_queue",
        f"Describe a queue: its key, order, times and limits, the number of keys, and how current it is. {_CURRENT}",
        {"queue": _QUEUE},
        ("queue",),
    ),
    AgentTool(
        "get_values",
        f"Get the current values of keys. A key in `missing` has no value at the cut. {_CURRENT}",
        {
            "queue": _QUEUE,
            "keys": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": _MOST_KEYS,
                "description": "The keys, as text.",
            },
        },
        ("queue", "keys"),
    ),
    AgentTool(
        "find_values",
        "Find current values by a selector over message headers, by a prefix of the key, or all, in the order of keys. "
        f"If `more` is true, call again with `after`, the `next` of this answer, even if it has no values. {_CURRENT}",
        {
            "queue": _QUEUE,
            "selector": {
                "type": "string",
                "description": "A condition as in JMS, for example: price > 100 AND exchange IN ('NYSE', 'LSE').",
            },
            "prefix": {"type": "string", "description": "Only keys that begin with this text."},
            "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_VALUES, "default": _USUAL},
            "after": {"type": "string", "description": "The `next` of the answer before."},
        },
        ("queue",),
    ),
)


class _ReadQueue(NamedTuple):
    """A queue, and the view of it."""

    queue: LastValueQueue[bytes]
    view: View[bytes]

    @property
    def is_over(self) -> bool:
        """True if the view has ended, or if another queue has the name by now (R39)."""
        return self.view.state in ("failed", "closed") or isinstance(self.view.status.trouble, QueueMismatch)


class AgentTools:
    """The tools, on the views that they need. Its methods may be called from several threads.

    Args:
        cluster: where the queues are.
        names: the queues that may be read; empty for all that are declared.
        timeout: seconds to wait until a queue is complete.
        most_bytes: the bytes of one value that an answer has.
        most_in_all: the bytes of values and keys after which an answer ends.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: Iterable[str] = (),
        *,
        timeout: float = 30.0,
        most_bytes: int = 4096,
        most_in_all: int = 65_536,
    ) -> None:
        self._cluster = cluster
        self._names = tuple(dict.fromkeys(names))
        self._timeout = timeout
        self._most_bytes = most_bytes
        self._most_in_all = most_in_all
        self._lock = Lock()
        self._opened: dict[str, _ReadQueue] = {}
        self._calls: Mapping[str, Callable[..., dict[str, Any]]] = {
            "list_queues": self._list,
            "describe_queue": self._describe,
            "get_values": self._get,
            "find_values": self._find,
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a tool, whose arguments fit its schema.

        Raises:
            KeyError: there is no such tool.
            ConfigError: an argument is wrong, or the queue is not one of those here.
            LVQError: the queue cannot be read, or is not complete in time.
        """
        return self._calls[name](**arguments)

    def close(self) -> None:
        """Close all views."""
        with self._lock, ExitStack() as closing:
            for opened in self._opened.values():
                closing.callback(opened.view.close)
            self._opened.clear()

    def _list(self) -> dict[str, Any]:
        found = [one for one in queues(cluster=self._cluster) if not self._names or one.name in self._names]
        absent = sorted(set(self._names) - {one.name for one in found})
        rows: list[dict[str, Any]] = []
        for definition in found[:_MOST_QUEUES]:
            row: dict[str, Any] = {"name": definition.name, "topic": definition.topic, "readable": definition.conflate}
            opened = self._opened.get(definition.name)
            row["state"] = "not read yet" if opened is None else opened.view.state
            rows.append(row)
        answer: dict[str, Any] = {"queues": rows, "left_out": max(0, len(found) - _MOST_QUEUES)}
        answer["note"] = "The list is that of the registry now. A queue is read once a tool asks for its values."
        if absent:
            answer["note"] += f" Not declared: {listed(absent)}."
        return answer

    def _describe(self, queue: str) -> dict[str, Any]:
        opened = self._open(queue)
        view, status = opened.view, opened.view.status  # before the cut, which is then no older than it says
        return {**currency(queue, status, view.cut), "keys": len(view), "definition": opened.queue.definition.as_row()}

    def _get(self, queue: str, keys: list[str]) -> dict[str, Any]:
        view = self._open(queue).view
        status, before = view.status, view.cut
        rows: list[dict[str, Any]] = []
        missing, left_out, size = [], [], 0
        for key in dict.fromkeys(keys):
            if size >= self._most_in_all:
                left_out.append(key)
                continue
            entry, _ = view.look_up(key)
            if entry is None:
                missing.append(key)
                continue
            rows.append(described_value(entry, self._most_bytes))
            size += _size(rows[-1])
        answer = {**currency(queue, status, before), "values": rows, "missing": missing, "left_out": left_out}
        if left_out:
            answer["note"] += f" The values of {len(left_out)} keys are left out for their size: ask for these alone."
        return answer

    def _find(
        self,
        queue: str,
        selector: str | None = None,
        prefix: str | None = None,
        limit: int = _USUAL,
        after: str | None = None,
    ) -> dict[str, Any]:
        view = self._open(queue).view
        selection = None if selector is None else Selection(view.topic, BYTES, selector=selector)
        status, before = view.status, view.cut
        rows: list[dict[str, Any]] = []
        read = size = 0
        token, last = after, False
        while not last and len(rows) < limit and read < _MOST_READ and size < self._most_in_all:
            page = view.page(token, limit=min(_STEP, limit - len(rows)), prefix=prefix)
            chosen = [entry for entry in page.entries if selection is None or selection.matches(to_record(entry))]
            rows += [described_value(entry, self._most_bytes) for entry in chosen]
            size += sum(_size(row) for row in rows[len(rows) - len(chosen) :])
            read, token, last = read + len(page.entries), page.token, page.last
        answer = {**currency(queue, status, before), "values": rows, "more": not last}
        if not last:
            answer["next"] = token
            answer["note"] += " There may be more values: this answer alone is not all of them."
        if selection is not None and selection.unjudged:
            answer["unjudged"] = selection.unjudged
            answer["note"] += f" {selection.unjudged} values could not be judged, and are not in it."
        return answer

    def _open(self, queue: str) -> _ReadQueue:
        """Return a queue, and the view of it, complete.

        Raises what `call` raises.
        """
        if self._names and queue not in self._names:
            raise ConfigError(
                f"{brief(queue)} is not one of the queues here.",
                options=["queue"],
                hint=f"There are {listed(self._names)}.",
            )
        with self._lock:
            opened = self._opened.get(queue)
            if opened is not None and opened.is_over:
                opened.view.close()
                del self._opened[queue]
                opened = None
            if opened is None:
                source = LastValueQueue.open(queue, cluster=self._cluster)
                opened = self._opened[queue] = _ReadQueue(source, source.view().start())
        if not opened.view.complete:
            opened.view.wait_caught_up(self._timeout)
        return opened


def currency(queue: str, status: ReaderStatus, cut: EndOfDump) -> dict[str, Any]:
    """Return how current an answer is, for programs and in words (R51).

    Args:
        status: that of the reader, taken before the values.
        cut: the cut that the values are at, or later.
    """
    age = max(0.0, status.silence)
    seen = f"{max(1, ceil(age * 10)) / 10:,.1f}"
    why = "; ".join(map(str, [*filter(None, [status.trouble]), *status.blocked_by]))
    if status.state == "caught-up" and not status.lag:
        note = f"Current: nothing that was acknowledged more than {seen} s ago is missing."
    elif status.state == "caught-up":
        note = f"Nearly current: {status.lag:,} offsets of the log are still to be read."
    elif status.state == "blocked":
        note = "Incomplete: an open transaction hides newer records, so values may be older than the newest."
    else:
        note = f"Stale: the reader is {status.state}, and last saw the end of the log {seen} s ago. Values may differ."
    return {
        "queue": queue,
        "state": status.state,
        "current": status.state == "caught-up" and not status.lag,
        "age": round(age, 3),
        "lag": status.lag,
        "cut": {
            "topic_id": cut.topic_id,
            "offsets": {str(partition): offset for partition, offset in cut.offsets.items()},
            "as_of": cut.as_of,
        },
        "note": f"{note} ({why})" if why else note,
    }


def described_value(entry: Entry[bytes], most: int) -> dict[str, Any]:
    """Return an entry for an agent, with bytes and what is cut off marked.

    Args:
        most: the bytes of the value that are returned.
    """
    value, whole = entry.value[:most], len(entry.value)
    key = encode_key(entry.key)
    row: dict[str, Any] = {"key": shown(key[:most])}
    if len(key) > most:
        row["key_truncated"] = True
    try:
        entry.value.decode("utf-8")
    except UnicodeDecodeError:
        row |= {"value": base64.b64encode(value).decode(), "encoding": "base64"}
    else:
        row |= {"value": value.decode("utf-8", "ignore"), "encoding": "text"}  # a character may be cut in two
    row |= {"bytes": whole, "truncated": whole > most}
    row |= {"position": str(entry.position), "timestamp": entry.timestamp}
    headers: dict[str, Any] = {}
    for name, data in entry.headers:
        most -= len(name) + len(data or b"")
        if most < 0:
            row["headers_left_out"] = True
            break
        headers[name] = None if data is None else shown(data)
    return row | {"headers": headers}


def _size(row: Mapping[str, Any]) -> int:
    return len(json.dumps(row))
