"""Steps of a comparison, in a form that a process with another client can run, too.

A script is a list of steps. Each step is a list: its name, and arguments of JSON. The results are a list with one entry
for each step that has one:

- ``send MESSAGE``: ``"refused"`` if the broker refuses the message; no entry if it is stored.
- ``open CONSUMER``, ``close CONSUMER``: no entry. A consumer that is closed releases its messages.
- ``take CONSUMER``: the body of the next message, or None if none comes.
- ``ack CONSUMER``, ``release CONSUMER``: no entry; the message that it took first among those that it holds.
- ``drain CONSUMER``: the bodies of all messages, each acked before the next one is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict

__all__ = ["SentMessage", "Step", "Worker", "play"]

Step = Sequence[Any]


class SentMessage(TypedDict, total=False):
    """A message to send."""

    body: str
    key: str
    """The value of the property ``key``."""
    priority: int
    sort: str
    """The value of the property ``sort``."""
    group: str


class Worker(Protocol):
    """Carries out steps on a queue."""

    def send(self, message: SentMessage) -> bool:
        """Return whether the message was stored."""

    def open(self, consumer: str) -> None: ...

    def close(self, consumer: str) -> None: ...

    def take(self, consumer: str) -> str | None: ...

    def ack(self, consumer: str) -> None: ...

    def release(self, consumer: str) -> None: ...


def play(script: Sequence[Step], worker: Worker) -> list[Any]:
    """Carry out a script, and return its results."""
    results: list[Any] = []
    for name, argument in script:
        if name == "send":
            if not worker.send(argument):
                results.append("refused")
        elif name == "take":
            results.append(worker.take(argument))
        elif name == "drain":
            results.append(_drain(worker, argument))
        else:
            getattr(worker, name)(argument)
    return results


def _drain(worker: Worker, consumer: str) -> list[str]:
    bodies = []
    while (body := worker.take(consumer)) is not None:
        bodies.append(body)
        worker.ack(consumer)
    return bodies
