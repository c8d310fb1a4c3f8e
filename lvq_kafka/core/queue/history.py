"""The history of a queue's definition: as it was declared, and its alterations (R39).

An alteration holds from `NOTICE` after the append time of its record in the registry. All who use the queue look there
more often than that, so they know of it before it holds. A message is judged by the terms that hold at its append time,
so the judgment is a function of the registry and of the log alone.

Each alteration is a record of its own, under a key of its own, and names the one that it follows. Nothing replaces
such a record, so compaction keeps all of them, and the first of several that follow the same one counts forever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.altering import FIXED
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC, QueueDefinition, removal
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import brief, quoted
from lvq_kafka.core.text.validation import known_fields
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.errors import ConfigError

__all__ = [
    "NOTICE",
    "QueueHistory",
    "Revision",
    "alteration_key",
    "alteration_to_json",
    "is_alteration",
    "read_history",
]

NOTICE = 30.0
"""Seconds from the record of an alteration until it holds."""

_VERSION = 1
_BETWEEN = b"/"  # in the key of an alteration: no name of a queue has it


@dataclass(frozen=True, slots=True)
class Revision:
    """The definition of a queue from a time on."""

    since: int
    """The first append time, in ms since the epoch, for which it holds; 0 for the one that was declared."""
    definition: QueueDefinition


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """The definitions of a queue, oldest first."""

    revisions: tuple[Revision, ...]
    ids: tuple[str, ...] = ("",)
    """The id of each: empty for the one that was declared."""

    @property
    def newest_id(self) -> str:
        """The id of the last one."""
        return self.ids[-1]

    @property
    def newest(self) -> QueueDefinition:
        """The options that the queue was given last, whether they hold already or not."""
        return self._with_terms(self.revisions[-1].definition)

    def in_force(self, now: float) -> QueueDefinition:
        """Return the options that hold for the queue as a whole at a time, in seconds.

        Its times are those of all messages that were appended by then.
        """
        if len(self.revisions) == 1:
            return self.revisions[0].definition
        place = self._place(now)
        return replace(self.revisions[place].definition, earlier=_earlier(self.revisions[: place + 1]))

    def known(self, now: float) -> QueueDefinition:
        """Return the options that hold at a time for the queue as a whole, and its times for good.

        The times include alterations that are still to come, so they are right for messages of any append time.
        """
        return self._with_terms(self.revisions[self._place(now)].definition)

    def next_change(self, now: float) -> float | None:
        """Return when the next alteration holds, in seconds since the epoch; None if all do."""
        later = self.revisions[self._place(now) + 1 :]
        return later[0].since / 1000 if later else None

    def has(self, own_id: str) -> bool:
        """Return whether an alteration is one of these."""
        return own_id in self.ids

    def _place(self, now: float) -> int:
        moment = round(now * 1000)
        return max(place for place, one in enumerate(self.revisions) if one.since <= moment or not place)

    def _with_terms(self, definition: QueueDefinition) -> QueueDefinition:
        if len(self.revisions) == 1:
            return definition
        last = self.revisions[-1].definition
        return replace(definition, ttl=last.ttl, max_delay=last.max_delay, earlier=_earlier(self.revisions))


def _earlier(revisions: Sequence[Revision]) -> tuple[EarlierTerms, ...]:
    """Return the terms before the last revision, without those that the next repeats."""
    found: list[EarlierTerms] = []
    for one, after in pairwise(revisions):
        mine, next_ones = one.definition, after.definition
        if (mine.ttl, mine.max_delay) != (next_ones.ttl, next_ones.max_delay):
            found.append(EarlierTerms(until=after.since, ttl=mine.ttl, max_delay=mine.max_delay))
    return tuple(found)


# ------------------------------------------------------------------------------------------------ records


def is_alteration(key: bytes) -> bool:
    """Return whether a record of the registry with this key is an alteration."""
    return _BETWEEN in key


def alteration_key(name: str, own_id: str) -> str:
    """Return the key of an alteration's record."""
    return f"{name}/{own_id}"


def alteration_to_json(definition: QueueDefinition, *, after: str) -> bytes:
    """Return the value of an alteration's record.

    Args:
        definition: the queue's options from then on.
        after: the id of the alteration that it follows; empty for the first.
    """
    content = {"version": _VERSION, "after": after, "definition": json.loads(definition.to_json())}
    return json.dumps(content, sort_keys=True).encode()


def read_history(name: str, records: Iterable[Record]) -> QueueHistory | None:
    """Return the history of a queue from its records; None if it is not declared.

    Raises:
        ConfigError: one of them is malformed, or was written by a newer library.
    """
    declared, alterations = None, []
    for record in records:
        if is_alteration(record.key or b""):
            alterations.append(record)
        else:
            declared = record
    if declared is None or declared.value is None:
        return None
    revisions = [Revision(0, QueueDefinition.from_json(declared.value, name=name))]
    ids = [""]
    for record in sorted(alterations, key=lambda record: record.offset):
        if record.value is None:
            continue
        after, definition = _alteration(name, key_text(record.key or b""), record.value)
        if after != ids[-1]:
            continue  # of several that follow the same one, the first counts
        if any(getattr(definition, option) != getattr(revisions[0].definition, option) for option in FIXED):
            continue  # it follows a former queue of that name, and came too late
        ids.append(key_text((record.key or b"").partition(_BETWEEN)[2]))
        since = max(record.timestamp + round(NOTICE * 1000), revisions[-1].since + 1)
        revisions.append(Revision(since, definition))
    return QueueHistory(tuple(revisions), tuple(ids))


def _alteration(name: str, key: str, value: bytes) -> tuple[str, QueueDefinition]:
    where = f"An alteration of the queue {brief(name)} in {REGISTRY_TOPIC}"
    mend = f"Upgrade if a newer lvq-kafka wrote it; otherwise remove it: {removal(key)}."
    try:
        fields = known_fields("alteration", read_json(value.decode("utf-8")), ("version", "after", "definition"))
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{where} is not readable: {str(error).rstrip('.')}.", hint=mend) from None
    version, after = fields.get("version"), fields.get("after")
    if version != _VERSION or not isinstance(after, str):
        raise ConfigError(f"{where} has version {quoted(version)} and follows {quoted(after)}.", hint=mend)
    document = json.dumps(fields.get("definition")).encode()
    return after, QueueDefinition.from_json(document, name=name, where=where, mend=mend)
