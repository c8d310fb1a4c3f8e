"""The exit of the process: all that is still open gets a few seconds to finish.

It says what is left. The library installs no signal handlers. Python calls `atexit` functions when the main thread and
all threads that are not daemons have ended, however that comes about, except by a signal without a handler or
`os._exit`. Daemon threads still run then, so what is open can finish. A forked child of `multiprocessing` ends by
`os._exit`, but runs the finalizers of `multiprocessing.util` before.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from contextlib import suppress
from threading import Thread, current_thread, main_thread
from typing import Protocol

from lvq_kafka.runtime.forking import LeftBehind, notify_of_forks

__all__ = ["Unfinished", "ended", "finish_at_exit", "is_open", "say"]

_TOGETHER = 5.0  # seconds for all that is open; as long as a `with` block that ends on an exception
_AFTER_OTHERS = -1000  # the priority of a finalizer of multiprocessing; the highest go first


class Unfinished(Protocol):
    """An open object that may hold something undecided."""

    def refuse_more(self) -> None:
        """Refuse whatever else its users want of it: the process exits."""

    def finish(self, timeout: float) -> list[str]:
        """Wait, and return what is left undecided, or failed unseen, in sentences.

        No thread can be started any more.
        """


class _Open(LeftBehind):
    """The open objects of this process, in the order of their opening.

    A dict is changed and copied at once, so finalizers may use it, too.
    """

    def __init__(self) -> None:
        self.things: dict[Unfinished, None] = {}
        self.children: dict[int, object] = {}
        """The processes that `multiprocessing` asks to finish at their end, each with a mark of who saw to it."""
        notify_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`. The parent finishes what it has opened."""
        self.things = {}


_open = _Open()


def finish_at_exit(thing: Unfinished) -> None:
    """Finish an object when the process exits, unless it has ended by then."""
    _open.things[thing] = None
    _finish_in_child()


def ended(thing: Unfinished) -> None:
    """Note that an object has nothing left to finish. A finalizer may call it."""
    _open.things.pop(thing, None)


def is_open(thing: Unfinished) -> bool:
    """Return whether an object was opened in this process, and has not ended."""
    return thing in _open.things


def say(what: str) -> None:
    """Say on stderr what is lost as the process exits.

    Not in the log: by then, its handlers may be closed.
    """
    with suppress(Exception):  # there may be no stderr any more
        sys.stderr.write(f"lvq_kafka: {what}\n")
        sys.stderr.flush()


@atexit.register
def _finish() -> None:
    """Let everything finish that is open, within one deadline, and say what is left."""
    deadline = time.monotonic() + _TOGETHER
    things, _open.things = list(_open.things), {}
    for thing in things:
        thing.refuse_more()
    for thing in things:
        try:
            left = thing.finish(max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:  # the user does not want to wait
            deadline = time.monotonic()
            left = thing.finish(0.0)
        except Exception as error:  # noqa: BLE001  # the others finish all the same
            left = [f"{thing!r} did not finish: {error!r}"]
        for sentence in left:
            say(sentence)


def _finish_in_child() -> None:
    """Register with `multiprocessing`, if this is one of its child processes."""
    module = sys.modules.get("multiprocessing.process")
    if os.getpid() in _open.children or module is None or module.parent_process() is None:
        return
    from multiprocessing import util

    # Several threads may open their first at once, but two that wait for all other threads would never end.
    mark = object()
    if _open.children.setdefault(os.getpid(), mark) is not mark:
        return
    # From 3.13 on, finalizers run when the threads that are not daemons have ended.
    finish = _finish if sys.version_info >= (3, 13) else _finish_after_threads
    if finish is _finish_after_threads and util.is_exiting() and current_thread() is not main_thread():
        finish()  # they have run, and only such threads are left
    else:
        util.Finalize(None, finish, exitpriority=_AFTER_OTHERS)


def _finish_after_threads() -> None:
    """Finish in a thread, which the child awaits like all that are not daemons.

    Its other threads may still be at work, and those of executors end only when the main thread goes on.
    """
    Thread(target=_await_threads, name="lvq-exit", daemon=False).start()


def _await_threads() -> None:
    spared = {current_thread(), main_thread()}
    while others := [thread for thread in threading.enumerate() if not thread.daemon and thread not in spared]:
        for thread in others:
            try:
                thread.join()
            except RuntimeError:  # it is just being started
                time.sleep(0.001)
    _finish()
