"""Waiting in tests: for a condition, with a deadline. No test sleeps for a guessed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["eventually"]

T = TypeVar("T")

_never = threading.Event()


def eventually(condition: Callable[[], T], timeout: float = 10.0, *, every: float = 0.005) -> T:
    """Call the condition until its answer is truthy, and return that. An AssertionError inside it counts as "not yet".

    Raises:
        AssertionError: the deadline passed. It carries the last answer, or is the condition's own last error.
    """
    deadline = time.monotonic() + timeout
    while True:
        failure = None
        answer = None
        try:
            answer = condition()
        except AssertionError as error:
            failure = error
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise failure or AssertionError(f"not within {timeout:g} s; the last answer was {answer!r}")
        _never.wait(every)
