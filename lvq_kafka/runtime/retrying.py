"""Retries for transient cluster errors."""

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
    """Make a call, and retry it for ``timeout`` seconds while it fails with retriable errors.

    Args:
        unless: errors that are waited out elsewhere.

    Raises:
        TransportError: the last error, if it is not retriable or time is up.
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
