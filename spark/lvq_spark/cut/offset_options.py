"""Start and end options in the Kafka connector's syntax: offsets, times, earliest, latest."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.errors import ConfigError

__all__ = ["EARLIEST", "LATEST", "TOPIC_ID", "Offsets", "OffsetsOrTimes", "Times", "resolve", "times"]

EARLIEST, LATEST = -2, -1
"""The offsets that stand for the start and the end of a partition."""

_LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, which is the last that a date can express."""

TOPIC_ID = "topic id"
"""The JSON name, beside a topic's offsets, that holds the topic's id.

No topic can have that name, since it contains a space.
"""


@dataclass(frozen=True, slots=True)
class Offsets:
    """One offset for all partitions (`EARLIEST` or `LATEST`), or one for each.

    Args:
        option: the option that set them, for messages.
        topic: the topic that the option names; None if it names none.
    """

    option: str
    everywhere: int | None = None
    topic: str | None = None
    by_partition: Mapping[int, int] | None = None

    @classmethod
    def parse(cls, option: str, text: str, *, refused: int | None = None) -> Offsets:
        """Parse ``earliest``, ``latest`` or ``{"topic": {"0": 23, "1": -2}}``.

        Args:
            refused: `EARLIEST` or `LATEST`, if that makes no sense here.

        Raises:
            ConfigError: the text is something else, or is refused.
        """
        word = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
        if word is not None:
            found, numbers = cls(option, everywhere=word), {word}
        else:
            topic, offsets = _by_partition(option, text, 'earliest, latest or JSON like {"prices": {"0": 23}}')
            found, numbers = cls(option, topic=topic, by_partition=offsets), set(offsets.values())
        if refused in numbers or min(numbers) < EARLIEST:
            said = {EARLIEST: "earliest (-2)", LATEST: "latest (-1)"}.get(refused or 0, "")
            raise ConfigError(
                f"{option} is {text.strip()}: an offset is 0 or more, or -2 (earliest) or -1 (latest)"
                + (f", but {said} would leave nothing to read." if said else "."),
                options=[option],
            )
        return found


@dataclass(frozen=True, slots=True)
class Times:
    """One time for all partitions, or one for each, in milliseconds since the epoch.

    The fields are those of `Offsets`.
    """

    option: str
    everywhere: int | None = None
    topic: str | None = None
    by_partition: Mapping[int, int] | None = None

    @classmethod
    def parse(cls, option: str, text: str) -> Times:
        """Parse milliseconds, or ``{"topic": {"0": milliseconds}}``.

        Raises:
            ConfigError: the text is something else.
        """
        if re.fullmatch(r"\+?[0-9]{1,18}", text.strip()) and int(text) <= _LAST:
            return cls(option, everywhere=int(text))
        if not option.endswith("ByTimestamp"):
            raise ConfigError(
                f"{option} is {text.strip()!r}, not a time in milliseconds since the epoch.",
                options=[option],
                hint="For example 1767225600000; for a time per partition use the option with ...ByTimestamp.",
            )
        topic, numbers = _by_partition(option, text, 'JSON like {"prices": {"0": 1767225600000}}')
        if min(numbers.values()) < 0 or max(numbers.values()) > _LAST:
            raise ConfigError(f"{option} has a time before 1970 or after 9999.", options=[option])
        return cls(option, topic=topic, by_partition=numbers)


OffsetsOrTimes = Offsets | Times


def _by_partition(option: str, text: str, form: str) -> tuple[str, dict[int, int]]:
    wrong = ConfigError(f"{option} is {text.strip()!r}, not {form}.", options=[option])
    try:
        said = read_json(text, once=True)
    except ValueError as error:
        raise ConfigError(f"{option} is {text.strip()!r}, not {form}: {error}.", options=[option]) from None
    if not isinstance(said, dict):
        raise wrong
    topics = {name: value for name, value in said.items() if name != TOPIC_ID}
    if len(topics) != 1:
        raise ConfigError(
            f"{option} names {len(topics)} topics: {', '.join(topics)}." if topics else f"{option} names no topic.",
            options=[option],
            hint="Read one topic at a time.",
        )
    [(topic, numbers)] = topics.items()
    if not isinstance(numbers, dict) or not numbers or not all(map(_is_entry, numbers.items())):
        raise wrong
    found = {int(partition): number for partition, number in numbers.items()}
    if len(found) < len(numbers):
        raise ConfigError(f"{option} is {text.strip()!r}, which names a partition twice.", options=[option])
    return topic, found


def _is_entry(entry: tuple[str, Any]) -> bool:
    return re.fullmatch("[0-9]{1,9}", entry[0]) is not None and type(entry[1]) is int


def _for_each(point: OffsetsOrTimes, topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Return the number for each of these partitions.

    Raises:
        ConfigError: the point names another topic, or does not name exactly these partitions.
    """
    if point.by_partition is None:
        return dict.fromkeys(partitions, point.everywhere or 0)
    if point.topic != topic:
        raise ConfigError(
            f"{point.option} is for the topic {point.topic}, but {topic} is read.", options=[point.option]
        )
    missing = sorted(set(partitions) - point.by_partition.keys())
    unknown = sorted(point.by_partition.keys() - set(partitions))
    if missing or unknown:
        what = [f"lacks partition {', '.join(map(str, missing))}"] if missing else []
        what += [f"names partition {', '.join(map(str, unknown))}, which is not read"] if unknown else []
        raise ConfigError(
            f"{point.option} must name exactly the partitions of {topic} that are read: it {' and '.join(what)}.",
            options=[point.option],
            hint="-2 stands for the earliest offset of a partition, -1 for the latest.",
        )
    return dict(point.by_partition)


def times(point: Times, topic: str, partitions: Collection[int]) -> dict[int, float]:
    """Return a time in seconds since the epoch for each of these partitions."""
    return {partition: at / 1000 for partition, at in _for_each(point, topic, partitions).items()}


def resolve(
    point: OffsetsOrTimes,
    cluster: Cluster,
    topic: str,
    partitions: Collection[int],
    *,
    only: Collection[int] | None = None,
    or_latest: bool = False,
    timeout: float = 10.0,
) -> dict[int, int]:
    """Return the offset for each of these partitions.

    The latest offset is the last stable one, before any uncommitted record.

    Args:
        only: the partitions to resolve; the point covers all of ``partitions``.
        or_latest: use the latest offset instead of failing if no record is as new as the time.

    Raises:
        ConfigError: the point does not fit the topic, or no record is as new as its time.
    """
    numbers = _for_each(point, topic, partitions)
    if only is not None:
        numbers = {partition: numbers[partition] for partition in only}
    if isinstance(point, Times):
        return _at(point, numbers, cluster, topic, or_latest, timeout)
    lowest = cluster.logs.start_offsets(topic, timeout=timeout) if EARLIEST in numbers.values() else {}
    stable = cluster.logs.end_offsets(topic, stable=True, timeout=timeout) if LATEST in numbers.values() else {}
    ends = {EARLIEST: lowest, LATEST: stable}
    return {p: ends[number][p] if number < 0 else number for p, number in numbers.items()}


def _at(
    point: Times, numbers: Mapping[int, int], cluster: Cluster, topic: str, or_latest: bool, timeout: float
) -> dict[int, int]:
    ends = cluster.logs.end_offsets(topic, timeout=timeout)
    found = {at: cluster.logs.offsets_at(topic, at, timeout=timeout) for at in set(numbers.values())}
    starts = {partition: found[at][partition] for partition, at in numbers.items()}
    late = sorted(partition for partition, start in starts.items() if start >= ends[partition])
    if late and not or_latest:
        raise ConfigError(
            f"Partition {', '.join(map(str, late))} of {topic} has no record as new as {point.option} says.",
            options=[point.option],
            hint="Set startingOffsetsByTimestampStrategy to latest to read nothing there.",
        )
    stable = cluster.logs.end_offsets(topic, stable=True, timeout=timeout) if late else ends
    return {partition: min(start, stable[partition]) for partition, start in starts.items()}
