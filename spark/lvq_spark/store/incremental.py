"""Bringing up to date what is kept of a queue: what to read for it, and what to do where that was not to be had."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lvq_kafka.errors import DataLoss, LVQError, TopicRecreated
from lvq_kafka.queue import LastValueQueue
from lvq_spark.pinning import SnapshotSpec, pin
from lvq_spark.store.guards import LogState, OnStale, log_state, rebuilding, resized
from lvq_spark.store.manifest import Version

__all__ = ["ATTEMPTS", "Cut", "IncrementalUpdate"]

ATTEMPTS = 10  # to be the one that writes the next version


@dataclass(frozen=True, slots=True)
class Cut:
    """Up to where to read, and the log as it was just before that was pinned."""

    spec: SnapshotSpec
    log: LogState


class IncrementalUpdate(ABC):
    """What the versions of a store and a merged table have in common.

    Args:
        queue, on_stale, timeout: as for `lvq_spark.refresh`.
        anew: what to say where all is read anew.
    """

    def __init__(self, queue: LastValueQueue[Any], on_stale: OnStale, timeout: float, anew: str) -> None:
        self.queue, self.timeout = queue, timeout
        self._on_stale, self._anew = on_stale, anew

    @abstractmethod
    def problem(self, base: Version, log: LogState) -> LVQError | None:
        """Why nothing can be built on a version, by all that is known before the log is read."""

    @abstractmethod
    def _newest(self) -> Version | None:
        """The version to build upon; None where there is none yet."""

    @abstractmethod
    def _there(self, base: Version, cut: Cut) -> Version | None:
        """The version that has this cut already, if one has.

        Raises:
            ConfigError: the cut lies before that of the newest version.
        """

    @abstractmethod
    def _delta(self, base: Version, cut: Cut) -> Version | None:
        """Write a version upon another; None if somebody else was faster."""

    @abstractmethod
    def _full(self, base: Version | None, cut: Cut, reasons: tuple[str, ...]) -> Version | None:
        """The same from the whole log. The reasons are those why not upon ``base``."""

    def _step(self, end: Mapping[int, int] | None, *, at_least: bool = False) -> Version | None:
        """The version that was written, or was there; None if somebody else was faster.

        Args:
            end: where the cut is to be; by default at all that is committed now.
            at_least: whether that may be further on, too.
        """
        base = self._newest()
        log = log_state(self.queue, self.timeout)
        reasons = () if base is None else self._reasons(self.problem(base, log))
        if at_least and end is not None:
            end = None if base is None or reasons else {p: max(at, end.get(p, 0)) for p, at in base.end.items()}
        cut = Cut(pin(self.queue, end=end, timeout=self.timeout), log)
        if base is not None and not reasons:
            reasons = self._reasons(resized(base, cut.spec.partitions))
        if base is None or reasons:
            return self._full(base, cut, reasons)
        return self._there(base, cut) or self._build_upon(base, cut, None if at_least else end)

    def _build_upon(self, base: Version, cut: Cut, end: Mapping[int, int] | None) -> Version | None:
        """Build upon a version, or from the whole log where it turns out that this cannot be.

        Where records of the cut may be gone, those of a later one may not be, and a delta is read in a moment: less may
        happen meanwhile than while all is read. So that is tried first.

        Args:
            end: what the cut was asked to be: then no later one will do.
        """
        try:
            try:
                return self._delta(base, cut)
            except DataLoss:
                later = None if end is not None else self._later(base)
                if later is None:
                    raise
            return self._delta(base, later)
        except (DataLoss, TopicRecreated) as error:
            reasons = self._reasons(error)
        # The version has aged meanwhile, or a task has found that records of the cut may be gone: not of a later one.
        log = log_state(self.queue, self.timeout)
        return self._full(base, Cut(pin(self.queue, end=end, timeout=self.timeout), log), reasons)

    def _later(self, base: Version) -> Cut | None:
        """A cut of now; None if nothing can be built on the version up to there."""
        log = log_state(self.queue, self.timeout)
        if self.problem(base, log) is not None:
            return None
        spec = pin(self.queue, timeout=self.timeout)
        return None if resized(base, spec.partitions) is not None else Cut(spec, log)

    def _reasons(self, problem: LVQError | None) -> tuple[str, ...]:
        """What to say of a version that is rebuilt; nothing where there is no problem.

        Raises:
            LVQError: the problem, where it is to be an error.
        """
        return () if problem is None else rebuilding(problem, self._on_stale, self._anew)
