"""All declared queues, measured from outside: depth, age, lag and damage."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Self, get_args

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.measures.measured import QUEUE, QueueFacts
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.text.validation import durations
from lvq_kafka.declared.damage import DamageKind
from lvq_kafka.errors import LVQError, TopicNotFound
from lvq_kafka.managing.queue_stats import QueueStats
from lvq_kafka.queue import LastValueQueue, queues
from lvq_kafka.telemetry.metrics import Metrics

__all__ = ["QueueSurvey"]

logger = logging.getLogger("lvq_kafka.telemetry")

_REST = 9.0  # times as long as measuring a queue took, it is left alone: so a tenth of the time at most is reading
_SOON = 5.0  # seconds until a cluster that did not answer is asked again

_UNLISTED = "the list of queues cannot be read"
"""Stands for the trouble of all queues, of which one line in the log is enough."""

_NO_DAMAGE: Mapping[str, int] = dict.fromkeys(get_args(DamageKind), 0)


@dataclass(slots=True)
class _Found:
    """The last measurement of a queue."""

    definition: QueueDefinition
    stats: QueueStats | None
    damage: Mapping[str, int]
    dead_letters: int | None
    trouble: str
    """The reason why the last attempt failed; empty if it did not."""
    measured: float
    """When it was last measured, or first tried, on the clock of `time.monotonic`."""
    took: float
    now: float
    """The time of the measurement, in seconds since the epoch."""
    due: float

    def facts(self) -> QueueFacts:
        """Return what is shown of the queue.

        After a failed attempt there are no numbers, and it says for how long.
        """
        up = not self.trouble
        return QueueFacts(
            self.stats if up else None,
            self.damage if up else {},
            self.dead_letters if up else None,
            up,
            time.monotonic() - self.measured,
            self.took,
            self.now,
        )


class QueueSurvey:
    """Measures all declared queues, one after the other, in a thread of its own.

    It joins no group and commits nothing. A queue that cannot be measured costs the others nothing: its metrics say so,
    and the log says why. One is measured at most every ``every`` seconds, and so seldom that reading takes a tenth of
    the time.

    ::

        with QueueSurvey(cluster) as survey:
            survey.metrics.to_prometheus()

    Args:
        cluster: the cluster, which stays open.
        every: seconds between two measurements of a queue.
        timeout: seconds that reading a queue may take.
        metrics: gets the metrics; by default, they are alone.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self, cluster: Cluster, *, every: float = 30.0, timeout: float = 60.0, metrics: Metrics | None = None
    ) -> None:
        durations("Give the seconds between two measurements.", every=every)
        durations("Give the seconds that reading a queue may take.", timeout=timeout)
        self.metrics = Metrics() if metrics is None else metrics
        self._cluster = cluster
        self._every = float(every)
        self._timeout = float(timeout)
        self._found: dict[tuple[str, str], _Found] = {}
        self._sources: dict[tuple[str, str], object] = {}  # a new one each time that a queue appears
        self._trouble = ""
        self._stop = Event()
        self._thread: Thread | None = None

    # ---------------------------------------------------------------- lifecycle

    def start(self) -> Self:
        """Begin to measure, without waiting; does nothing if it has begun."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="lvq-survey", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """End. A measurement that is under way ends by itself."""
        self._stop.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self.measure())

    # ---------------------------------------------------------------- measuring

    def measure(self) -> float:
        """Measure the queues whose turn it is, and return the seconds until the next turn."""
        try:
            declared = {(each.name, each.topic): each for each in queues(cluster=self._cluster)}
        except Exception as error:  # noqa: BLE001  # a fault of this library, which may pass
            self._fail(error)
            return min(_SOON, self._every)
        if self._trouble:
            logger.info("the list of queues can be read again")
            self._trouble = ""
        for gone in self._found.keys() - declared.keys():
            del self._found[gone], self._sources[gone]
        for place, definition in declared.items():
            known = self._found.get(place)
            if self._stop.is_set():
                break
            if known is None or known.trouble == _UNLISTED or time.monotonic() >= known.due:
                self._enter(place, self._attempt(definition, known))
        now = time.monotonic()
        return max(0.0, min((each.due for each in self._found.values()), default=now + self._every) - now)

    def _enter(self, place: tuple[str, str], found: _Found) -> None:
        self._found[place] = found
        if place not in self._sources:
            source = self._sources[place] = object()
            self.metrics.add_source(QUEUE, place, lambda: self._facts(place, source))

    def _facts(self, place: tuple[str, str], source: object) -> tuple[QueueFacts, bool] | None:
        """Return what is known of a queue; None once it is gone.

        It is gone, too, if there is another in its place.
        """
        found = self._found.get(place)
        return None if found is None or self._sources.get(place) is not source else (found.facts(), False)

    def _fail(self, error: Exception) -> None:
        """Note that nothing can be known of any queue."""
        if not self._trouble:
            _report(error, "the queues cannot be measured: %s")
        self._trouble = _reason(error)
        for found in self._found.values():
            found.trouble = found.trouble or _UNLISTED

    def _attempt(self, definition: QueueDefinition, known: _Found | None) -> _Found:
        began = time.monotonic()
        found = _Found(definition, None, {}, None, "", began, 0.0, 0.0, 0.0)
        try:
            self._measure(found)
        except Exception as error:  # noqa: BLE001  # a fault of this library, which may pass
            found.trouble = _reason(error)
            found.measured = began if known is None else known.measured
            if known is None or not known.trouble or known.trouble == _UNLISTED:
                _report(error, "the queue %s cannot be measured: %s", definition.name)
        else:
            if known is not None and known.trouble not in ("", _UNLISTED):
                logger.info("the queue %s can be measured again", definition.name)
        ended = time.monotonic()
        found.took = ended - began
        found.due = ended + max(self._every - found.took, _REST * found.took)
        return found

    def _measure(self, found: _Found) -> None:
        """Measure a queue.

        Raises:
            LVQError: it cannot be measured.
        """
        with LastValueQueue.open(found.definition.name, cluster=self._cluster) as queue:
            if queue.definition.non_destructive:
                found.damage = {}
            else:
                damages = queue.repair(dry_run=True).found
                found.damage = {**_NO_DAMAGE, **{each.kind: len(each.partitions) for each in damages}}
            if not any(found.damage.values()):
                found.stats = queue.stats(timeout=self._timeout)
            found.now = self._cluster.now()
            if (letters := queue.definition.dead_letters) is not None:
                found.dead_letters = self._length(letters)

    def _length(self, topic: str) -> int | None:
        with suppress(TopicNotFound):
            starts, ends = self._cluster.logs.start_offsets(topic), self._cluster.logs.end_offsets(topic)
            return sum(ends.values()) - sum(starts.values())
        return None


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, LVQError) else repr(error)


def _report(error: Exception, line: str, *names: str) -> None:
    """Log an error. One that is no `LVQError` is a fault of this library."""
    if isinstance(error, LVQError):
        logger.warning(line, *names, error)
    else:
        logger.error(line, *names, _reason(error), exc_info=error)
