"""The terms that a message may set for itself, in headers with a meaning (R22)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypedDict

from lvq_kafka.core.queue.foreign_headers import DELAY_HEADERS, GROUP_HEADERS
from lvq_kafka.core.queue.headers import RESERVED, reserved_header
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, encode_group
from lvq_kafka.core.queue.ranking import DEFAULT_PRIORITY, HIGHEST_PRIORITY, PRIORITY_HEADER, SORT_HEADER
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import moment
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER, check_ahead
from lvq_kafka.core.timing.log_time import header_ms
from lvq_kafka.core.timing.ttl import TTL_HEADER, check_ttl_header, ttl_text
from lvq_kafka.errors import ConfigError

__all__ = ["MessageTerms", "OwnTerms"]

_Pairs = list[tuple[str, bytes | None]]

_PRIORITIES = frozenset(b"%d" % priority for priority in range(HIGHEST_PRIORITY + 1))


class MessageTerms(TypedDict, total=False):
    """The terms of one message, beside its headers.

    Attributes:
        ttl: the seconds after which it expires, if its queue allows that (R10).
        not_before: the time from which it counts, if its queue allows that (R11): in seconds since the epoch, or as a
            datetime with a time zone.
        priority: its priority, from 0 to 9 (first), in a queue with ``order="priority"``; without one, it is 4 (R20).
        sort: the text by which it is sorted, in a queue with ``order="sorted"``; it becomes the queue's sort header
            (R20).
        group: the group that it belongs to, if its queue has groups (R36). It becomes the header of the queue's groups.
    """

    ttl: float | None
    not_before: float | datetime | None
    priority: int | None
    sort: str | None
    group: str | bytes | None


class OwnTerms:
    """Adds and checks the terms of messages for one queue.

    Args:
        rules: the rules of the queue.
        now: returns the time, in seconds since the epoch.
    """

    def __init__(self, rules: QueueRules, now: Callable[[], float]) -> None:
        order, max_delay = rules.order.order, rules.times.max_delay
        self._topic = rules.keys.topic
        self._sort_header = rules.order.sort_header or SORT_HEADER
        self._group_header = None if rules.groups is None else rules.groups.header
        self.foreign = rules.foreign_headers()
        """The headers of other systems that ask for a time or a group."""
        allowed = {
            TTL_HEADER: rules.times.ttl is not None,
            NOT_BEFORE_HEADER: max_delay is not None,
            PRIORITY_HEADER: order == "priority",
            SORT_HEADER: order == "sorted" and self._sort_header == SORT_HEADER,
            GROUP_HEADER: self._group_header == GROUP_HEADER,
        }
        self._sorted = order == "sorted"
        self._sorted_by_key = self._sort_header == rules.keys.header
        self._refused = RESERVED - {name for name, may in allowed.items() if may}
        self.judged = RESERVED | self.foreign.names | ({self._group_header} - {None})
        """The headers to `check`."""
        self._max_delay = max_delay or 0.0
        self._now = now

    def add(
        self,
        headers: _Pairs,
        *,
        ttl: float | None = None,
        not_before: float | datetime | None = None,
        priority: int | None = None,
        sort: str | None = None,
        group: str | bytes | None = None,
    ) -> None:
        """Add the headers for a message's times, rank and group.

        Raises:
            ConfigError: the queue does not allow that, a header sets it already, or a value makes no sense.
        """
        if group is not None:
            name = self._group_header or GROUP_HEADER
            self._check_sole(headers, name, "group", group)
            headers.append((name, encode_group("group", group)))
        if priority is not None:
            self._check_sole(headers, PRIORITY_HEADER, "priority", priority)
            headers.append((PRIORITY_HEADER, _priority_text(priority)))
        if sort is not None:
            if not self._sorted:
                raise reserved_header(SORT_HEADER, self._topic, "sort")
            if self._sorted_by_key:
                raise ConfigError(
                    f"`sort` and the key of the message share the header {self._sort_header}: it is both key header "
                    "and sort header.",
                    options={"sort": sort, self._sort_header: None},
                    hint="Leave `sort` out.",
                )
            self._check_sole(headers, self._sort_header, "sort", sort)
            headers.append((self._sort_header, _sort_text(sort)))
        if not_before is not None:
            self._check_sole(headers, NOT_BEFORE_HEADER, "not_before", not_before)
            due = _epoch_seconds(not_before)
            check_ahead("not_before", due, now=self._now(), max_delay=self._max_delay)
            headers.append((NOT_BEFORE_HEADER, b"%d" % round(due * 1000)))
        if ttl is not None:  # last, where readers look first
            self._check_sole(headers, TTL_HEADER, "ttl", ttl)
            headers.append((TTL_HEADER, ttl_text(ttl)))

    def check(self, name: str, value: bytes | None) -> None:
        """Check that this header, one of `judged`, and its value have a meaning in this queue.

        A header of another system may have none: `foreign` notes that.

        Raises:
            ConfigError: they have none.
        """
        if name in self.foreign.names:
            self._check_foreign(name, value)
            return
        if name in self._refused:
            raise self._reserved(name)
        if name == self._group_header:
            if value is not None:  # None stands for no group
                encode_group(f"The header {name}", value)
            return
        if name == PRIORITY_HEADER:
            if value not in _PRIORITIES:
                raise _unreadable(name, value, f"a digit from 0 to {HIGHEST_PRIORITY}", "priority")
        elif name == SORT_HEADER:
            if not _is_text(value):
                raise _unreadable(name, value, "text in UTF-8", "sort")
        elif (own := header_ms(value)) is None:
            option = "ttl in seconds" if name == TTL_HEADER else "not_before"
            raise _unreadable(name, value, "a number of milliseconds", option, "write 1 to 15 decimal digits")
        elif name == TTL_HEADER:
            check_ttl_header(own)
        else:
            check_ahead(name, own / 1000, now=self._now(), max_delay=self._max_delay)

    def _check_foreign(self, name: str, value: bytes | None) -> None:
        if name not in self.foreign.stand_for:
            self.foreign.ignore(name)
        elif name in GROUP_HEADERS:
            if value is not None:
                encode_group(f"The header {name}", value)
        elif (own := header_ms(value)) is None:
            raise _unreadable(name, value, "a number of milliseconds", "not_before", "write 1 to 15 decimal digits")
        else:
            now = self._now()
            check_ahead(name, own / 1000 + (now if name in DELAY_HEADERS else 0), now=now, max_delay=self._max_delay)

    def translate(self, headers: _Pairs) -> None:
        """Write this queue's own headers in place of those of other systems that it has checked.

        Raises:
            ConfigError: two headers have different times or groups.
        """
        stand_for = self.foreign.stand_for
        if not stand_for or not any(name in stand_for for name, _ in headers):
            return
        now = round(self._now() * 1000)
        said: dict[str, tuple[str, bytes | None]] = {}  # by own header: the one that the message has, and its value
        for name, value in dict(headers).items():  # of repeated headers, the last one counts
            if name in stand_for and name in DELAY_HEADERS:
                value = b"%d" % (now + int(value or 0))
            other, found = said.setdefault(stand_for.get(name, name), (name, value))
            if found != value:
                raise ConfigError(
                    f"The message has the headers {other} and {name}, and they disagree.",
                    options=[other, name],
                    hint="Give one of them.",
                )
        asked = {stand_for[name] for name, _ in headers if name in stand_for}
        translated: _Pairs = []
        for name, value in headers:
            own = stand_for.get(name, name)
            if own not in asked:
                translated.append((name, value))
            elif own in said:
                translated.append((own, said.pop(own)[1]))
        headers[:] = translated

    def check_delete(self, headers: _Pairs) -> None:
        """Check that these headers, of a delete, do not schedule it.

        Raises:
            ConfigError: they do.
        """
        scheduling = self._given(headers, NOT_BEFORE_HEADER)
        if scheduling is not None:
            raise ConfigError(
                f"The header {scheduling} would schedule a delete.",
                options=[scheduling],
                hint="Delete the key when the time has come, or schedule a last value with a TTL.",
            )

    def _check_sole(self, headers: _Pairs, name: str, option: str, value: object) -> None:
        if name in self._refused:
            raise self._reserved(name, option)
        if (given := self._given(headers, name)) is not None:
            raise ConfigError(
                f"The message has both `{option}` and the header {given}.",
                options={option: value, given: None},
                hint="Give one of them.",
            )

    def _given(self, headers: _Pairs, name: str) -> str | None:
        """Return the name of another header with the same meaning; None if there is none.

        It may be another system's.
        """
        stand_for = self.foreign.stand_for
        return next((other for other, _ in headers if other == name or stand_for.get(other) == name), None)

    def _reserved(self, name: str, option: str | None = None) -> ConfigError:
        if name != GROUP_HEADER or self._group_header is None:
            return reserved_header(name, self._topic, option)
        return ConfigError(
            f"The header {name!r} is reserved, and the groups of {self._topic!r} are named by another one.",
            options=[name],
            hint=f"Pass group=..., or write the header {self._group_header}.",
        )


def _unreadable(name: str, value: bytes | None, what: str, option: str, otherwise: str = "write that") -> ConfigError:
    return ConfigError(
        f"The header {name} is {quoted(value)}, not {what}.",
        options=[name],
        hint=f"Pass {option} instead, or {otherwise}.",
    )


def _priority_text(priority: object) -> bytes:
    """Return a priority as the value of its header.

    Raises:
        ConfigError: it is not one.
    """
    if type(priority) is not int or not 0 <= priority <= HIGHEST_PRIORITY:
        raise ConfigError(
            f"priority={quoted(priority)} is not a whole number from 0 to {HIGHEST_PRIORITY}.",
            options=["priority"],
            hint=f"{HIGHEST_PRIORITY} comes first. Leave it out for the default, {DEFAULT_PRIORITY}.",
        )
    return b"%d" % priority


def _sort_text(sort: object) -> bytes:
    """Return the text by which a message is sorted as the value of its header.

    Raises:
        ConfigError: it is not text, or UTF-8 cannot encode it.
    """
    try:
        if isinstance(sort, str):
            return sort.encode()
    except UnicodeEncodeError:
        pass
    raise ConfigError(
        f"sort={quoted(sort)} is not text that UTF-8 can encode.",
        options=["sort"],
        hint="Numbers sort as text: write them with leading zeros. Leave it out to come first.",
    )


def _is_text(value: bytes | None) -> bool:
    if value is None:
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _epoch_seconds(not_before: float | datetime) -> float:
    """Return the time from which a message counts, in seconds since the epoch.

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
