"""A parser of server-sent events that keeps to the standard (HTML, section 9.2.6), as a browser has."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["EventParser", "ServerEvent"]


@dataclass(frozen=True)
class ServerEvent:
    """An event as a browser dispatches it."""

    name: str
    data: str
    last_id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class EventParser:
    """Takes bytes as they come, and returns the events that are complete."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: int | None = None
        self.comments = 0
        self._left = b""
        self._name = ""
        self._data: list[str] = []
        self._next_id = ""

    def feed(self, data: bytes) -> list[ServerEvent]:
        self._left += data
        *lines, self._left = re.split(rb"\r\n|\r|\n", self._left)
        return [event for line in lines if (event := self._take(line.decode())) is not None]

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            self.last_id = self._next_id
            name, data = self._name or "message", self._data
            self._name, self._data = "", []
            return ServerEvent(name, "\n".join(data), self.last_id) if data else None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not field:
            self.comments += 1
        elif field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self._next_id = value
        elif field == "retry" and value.isdigit():
            self.retry = int(value)
        return None
