"""The Spark session of the tour, which starts while the rest is shown."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LateSession"]


class LateSession:
    """A Spark session that starts on its own thread.

    Leaving the block before the session has started cancels the start.
    """

    def __init__(self) -> None:
        self._given_up = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._session = self._thread.submit(self._start)

    def result(self) -> SparkSession:
        """Return the session once it has started, or raise the error of its start."""
        return self._session.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up = True
        while not wait([self._session], timeout=0.05).done:
            _end_jvm()  # fails pending requests, however far the start has got
        self._thread.shutdown()

    def _start(self) -> SparkSession:
        with _quiet_stderr(shown=lambda: not self._given_up):
            spark = _open_session()
            spark.range(1).count()
        return spark


def _open_session() -> SparkSession:
    from lvq_spark import local_session

    return local_session("local[2]")


def _end_jvm() -> None:
    from pyspark import SparkContext

    if (gateway := SparkContext._gateway) is not None:
        gateway.proc.terminate()


@contextmanager
def _quiet_stderr(shown: Callable[[], bool]) -> Iterator[None]:
    """Capture the output of Java and Spark, and print it on failure if it is still wanted."""
    with tempfile.TemporaryFile() as kept:
        stderr = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            if shown():
                os.write(stderr, kept.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
