"""The terms that a message may carry of its own, in headers that mean something (R22)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from lvq_kafka.core.groups import GROUP_HEADER, Groups, encode_group
from lvq_kafka.core.headers import RESERVED, reserved_header
from lvq_kafka.core.log_time import header_ms
from lvq_kafka.core.not_before import NOT_BEFORE_HEADER, check_ahead, check_max_delay
from lvq_kafka.core.quoting import quoted
from lvq_kafka.core.terms import TTL_HEADER, Ttl, ttl_text
from lvq_kafka.core.validation import moment
from lvq_kafka.errors import ConfigError

__all__ = ["OwnTerms"]

_Pairs = list[tuple[str, bytes | None]]


class OwnTerms:
    """Adds and checks the terms of messages for one queue.

    Args:
        topic: the queue's topic, for errors.
        ttl: how long its messages live; None if they may carry no TTL.
        max_delay: the longest time, in seconds, by which they may be scheduled ahead; None if they may not.
        groups: how they are grouped; None if they belong to no groups.
        now: returns the time, in seconds since the epoch.

    Raises:
        ConfigError: ``max_delay`` is not such a time.
    """

    def __init__(
        self, topic: str, *, ttl: Ttl | None, max_delay: float | None, groups: Groups | None, now: Callable[[], float]
    ) -> None:
        if max_delay is not None:
            check_max_delay("max_delay", max_delay)
        self._topic = topic
        allowed = {TTL_HEADER: ttl, NOT_BEFORE_HEADER: max_delay}
        self._group_header = None if groups is None else groups.header
        self._refused = RESERVED - {name for name, option in allowed.items() if option is not None}
        self._refused -= {self._group_header}
        self.judged = RESERVED if self._group_header is None else RESERVED | {self._group_header}
        """The headers to `check`."""
        self._max_delay = 0.0 if max_delay is None else max_delay
        self._now = now

    def add(
        self, headers: _Pairs, ttl: float | None, not_before: float | datetime | None, group: str | bytes | None
    ) -> None:
        """Add the headers for a message's group, the time from which on it counts, and its TTL.

        Raises:
            ConfigError: the queue does not allow that, a header says it already, or a value makes no sense.
        """
        if group is not None:
            name = self._group_header or GROUP_HEADER
            self._check_sole(headers, name, "group", group)
            headers.append((name, encode_group("group", group)))
        if not_before is not None:
            self._check_sole(headers, NOT_BEFORE_HEADER, "not_before", not_before)
            due = _epoch_seconds(not_before)
            check_ahead("not_before", due, now=self._now(), max_delay=self._max_delay)
            headers.append((NOT_BEFORE_HEADER, b"%d" % round(due * 1000)))
        if ttl is not None:  # last, where readers look first
            self._check_sole(headers, TTL_HEADER, "ttl", ttl)
            headers.append((TTL_HEADER, ttl_text(ttl)))

    def check(self, name: str, value: bytes | None) -> None:
        """Check that this header, one of `judged`, and its value mean something in this queue.

        Raises:
            ConfigError: they do not.
        """
        if name in self._refused:
            raise self._reserved(name)
        if name == self._group_header:
            if value is not None:  # which says that there is no group
                encode_group(f"The header {name}", value)
            return
        own = header_ms(value)
        if own is None:
            option = "ttl in seconds" if name == TTL_HEADER else "not_before"
            raise ConfigError(
                f"The header {name} is {quoted(value)}, not a number of milliseconds.",
                options=[name],
                hint=f"Pass {option} instead, or write 1 to 15 decimal digits.",
            )
        if name == NOT_BEFORE_HEADER:
            check_ahead(name, own / 1000, now=self._now(), max_delay=self._max_delay)

    def check_delete(self, headers: _Pairs) -> None:
        """Check that these headers, of a delete, do not schedule it.

        Raises:
            ConfigError: they do.
        """
        if any(name == NOT_BEFORE_HEADER for name, _ in headers):
            raise ConfigError(
                f"The header {NOT_BEFORE_HEADER} would schedule a delete.",
                options=[NOT_BEFORE_HEADER],
                hint="Delete the key when the time has come, or schedule a last value with a TTL.",
            )

    def _check_sole(self, headers: _Pairs, name: str, option: str, value: object) -> None:
        if name in self._refused:
            raise self._reserved(name)
        if any(other == name for other, _ in headers):
            raise ConfigError(
                f"The message has both {option}={quoted(value)} and the header {name}.",
                options=[option, name],
                hint="Give one of them.",
            )

    def _reserved(self, name: str) -> ConfigError:
        if name != GROUP_HEADER or self._group_header is None:
            return reserved_header(name, self._topic)
        return ConfigError(
            f"The header {name!r} is reserved, and the groups of {self._topic!r} are named by another one.",
            options=[name],
            hint=f"Pass group=..., or write the header {self._group_header}.",
        )


def _epoch_seconds(not_before: float | datetime) -> float:
    """Return the time from which on a message is to count, in seconds since the epoch.

    Raises:
        ConfigError: it is not a time, or has no time zone.
    """
    if not isinstance(not_before, datetime):
        return moment("not_before", not_before, "Give seconds since the epoch, or a datetime with a time zone.")
    if not_before.utcoffset() is None:
        raise ConfigError(
            f"not_before={not_before} has no time zone.",
            options=["not_before"],
            hint="datetime.now(timezone.utc) has one, and astimezone() adds the local one.",
        )
    return moment("not_before", not_before.timestamp(), "Give a time after 1970.")
