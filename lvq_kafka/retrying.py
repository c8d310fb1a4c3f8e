"""Trying again what the cluster could not answer just now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from lvq_kafka.errors import TransportError

__all__ = ["patiently"]

T = TypeVar("T")

_PAUSE = 0.1  # seconds

logger = logging.getLogger("lvq_kafka.retrying")


def patiently(call: Callable[[], T], timeout: float, *, unless: tuple[type[TransportError], ...] = ()) -> T:
    """Make a call; where it fails in a way that can pass by itself, make it again, for ``timeout`` seconds.

    Args:
        unless: errors that somebody else waits out.

    Raises:
        TransportError: the last one, when it is not retriable or the time is over.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return call()
        except TransportError as error:
            if not error.retriable or isinstance(error, unless) or time.monotonic() + _PAUSE > deadline:
                raise
            logger.debug("trying again after: %s", error)
            time.sleep(_PAUSE)
