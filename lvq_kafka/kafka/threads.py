"""Calls that may never return."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


def in_thread(call: Callable[[], T], name: str = "lvq-question") -> Future[T]:
    """Run a call that may never return, on a thread of its own; return its future.

    The call is the client's or a user's.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  # the waiter raises it
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future
