"""Incremental updates: choose the range to read, and fall back to the whole log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lvq_kafka.errors import DataLoss, LVQError, TopicRecreated
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.pinning import SnapshotSpec, pin
from lvq_spark.store.guards import LogState, OnStale, log_state, rebuilding, resized
from lvq_spark.store.manifest import Version

__all__ = ["ATTEMPTS", "Cut", "IncrementalUpdate"]

ATTEMPTS = 10  # at writing the next version, among other writers


@dataclass(frozen=True, slots=True)
class Cut:
    """A pinned cut, and the log as it was just before the pinning."""

    spec: SnapshotSpec
    log: LogState


class IncrementalUpdate(ABC):
    """The steps that updating a store and updating a merged table have in common.

    Args:
        queue, on_stale, timeout: as for `lvq_spark.refresh`.
        rebuild: the log message when the whole log is read again.
    """

    def __init__(self, queue: LastValueQueue[Any], on_stale: OnStale, timeout: float, rebuild: str) -> None:
        self.queue, self.timeout = queue, timeout
        self._on_stale, self._rebuild_notice = on_stale, rebuild

    @abstractmethod
    def problem(self, base: Version, log: LogState) -> LVQError | None:
        """Return why a version cannot be built on, as far as is known before the log is read."""

    @abstractmethod
    def _newest(self) -> Version | None:
        """Return the version to build on; None if there is none yet.

        Raises:
            DataLoss: nothing is known of the newest one, so nothing can be built on it.
        """

    @abstractmethod
    def _there(self, base: Version, cut: Cut) -> Version | None:
        """Return the version that has this cut already, if there is one.

        Raises:
            ConfigError: the cut lies before that of the newest version.
        """

    @abstractmethod
    def _delta(self, base: Version, cut: Cut) -> Version | None:
        """Write a version on top of another; return None if another writer was faster."""

    @abstractmethod
    def _full(self, base: Version | None, cut: Cut, reasons: tuple[str, ...]) -> Version | None:
        """Write a version from the whole log; return None if another writer was faster.

        The reasons say why it is not built on ``base``.
        """

    def _step(self, end: Mapping[int, int] | None, *, at_least: bool = False) -> Version | None:
        """Return the version that was written or existed; None if another writer was faster.

        Args:
            end: where to cut; by default after everything committed so far.
            at_least: the cut may lie beyond ``end``, too.
        """
        base: Version | None = None
        reasons: tuple[str, ...] = ()
        try:
            base = self._newest()
        except DataLoss as error:
            reasons = self._reasons(error)
        log = log_state(self.queue, self.timeout)
        if base is not None:
            reasons = self._reasons(self.problem(base, log))
        if at_least and end is not None:
            end = None if base is None or reasons else {p: max(at, end.get(p, 0)) for p, at in base.end.items()}
        cut = self._cut(base, log, end)
        if base is not None and not reasons:
            reasons = self._reasons(resized(base, cut.spec.partitions))
        if base is None or reasons:
            return self._full(base, cut, reasons)
        return self._there(base, cut) or self._build_upon(base, cut, None if at_least else end)

    def _build_upon(self, base: Version, cut: Cut, end: Mapping[int, int] | None) -> Version | None:
        """Build on a version, or from the whole log if that turns out to be impossible.

        If records of this cut may be gone, those of a later one may still be there. A delta is also read in a moment,
        so less can happen meanwhile than during a read of the whole log. So try a later delta first.

        Args:
            end: the cut that was asked for. No later one will do then.
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
        # The version aged meanwhile, or a task found that records of the cut may be gone. A later cut may be complete.
        log = log_state(self.queue, self.timeout)
        return self._full(base, self._cut(base, log, end), reasons)

    def _later(self, base: Version) -> Cut | None:
        """Return a current cut; None if the version cannot be built on up to there."""
        log = log_state(self.queue, self.timeout)
        if self.problem(base, log) is not None:
            return None
        cut = self._cut(base, log)
        return None if resized(base, cut.spec.partitions) is not None else cut

    def _cut(self, base: Version | None, log: LogState, end: Mapping[int, int] | None = None) -> Cut:
        """Pin a cut, at a time that is not before that of the version to build on."""
        spec = pin(self.queue, end=end, timeout=self.timeout)
        if base is not None and base.as_of is not None and spec.as_of is not None:
            spec = replace(spec, as_of=max(spec.as_of, base.as_of.timestamp()))
        return Cut(spec, log)

    def _reasons(self, problem: LVQError | None) -> tuple[str, ...]:
        """Return the reasons for a rebuild; none if there is no problem.

        Raises:
            LVQError: the problem, if the policy is to raise it.
        """
        return () if problem is None else rebuilding(problem, self._on_stale, self._rebuild_notice)
