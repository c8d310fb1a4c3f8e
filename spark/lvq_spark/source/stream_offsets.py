"""Positions of a stream, as Spark keeps them in its checkpoint, and the limit of a batch.

They are written as the Kafka connector writes them, with additions under names that no topic can have: the topic's id,
when the stream last caught up and, if its messages expire, the time of the batch that ends there::

    {"prices": {"0": 23, "1": 42}, "topic id": "…", "caught up": 1767225600000}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lvq_kafka.core.facts import Shortfall
from lvq_kafka.errors import ConfigError, TopicRecreated
from lvq_spark.cut.offset_options import TOPIC_ID

__all__ = ["LASTS", "Hidden", "StreamOffset", "limited"]

_CAUGHT_UP, _AS_OF = "caught up", "as of"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A stream's position: each partition's next offset, and when it last caught up (ms).

    ``as_of`` is the time by which the records before it have expired or not (ms); None if they never do.
    """

    topic: str
    topic_id: str
    offsets: Mapping[int, int]
    caught_up: int
    as_of: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the position as Spark keeps it."""
        # Spark compares the text: the same offset must always be written the same way.
        numbers = {str(partition): self.offsets[partition] for partition in sorted(self.offsets)}
        judged = {} if self.as_of is None else {_AS_OF: self.as_of}
        return {self.topic: numbers, TOPIC_ID: self.topic_id, _CAUGHT_UP: self.caught_up, **judged}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> StreamOffset:
        """Read a position that `to_json` has written.

        Raises:
            ConfigError: it is the position of another source.
        """
        beside = {TOPIC_ID, _CAUGHT_UP}
        topics = said.keys() - {*beside, _AS_OF}
        if len(topics) != 1 or not beside < said.keys():
            raise ConfigError(
                f"The checkpoint belongs to another source: {json.dumps(said)}.",
                options=["checkpointLocation"],
                hint="Give the query a checkpoint of its own. Offsets noted by Spark's Kafka connector can be its "
                "startingOffsets.",
            )
        [topic] = topics
        offsets = {int(partition): offset for partition, offset in said[topic].items()}
        return cls(topic, said[TOPIC_ID], offsets, said[_CAUGHT_UP], said.get(_AS_OF))

    def check_topic(self, topic: str, topic_id: str) -> None:
        """Check that this is a position in this topic (R18).

        Raises:
            TopicRecreated: it is for another topic, or for an earlier one of the same name.
        """
        if self.topic != topic:
            raise TopicRecreated(
                f"The checkpoint belongs to the topic {self.topic}, but {topic} is read.",
                topic=topic,
                hint="Give the query a checkpoint of its own.",
            )
        if self.topic_id != topic_id:
            raise TopicRecreated(
                f"The topic {topic} was deleted and re-created since the stream's checkpoint was written.",
                topic=topic,
                hint="Start over with another checkpoint and an empty target.",
            )


def limited(starts: Mapping[int, int], ends: Mapping[int, int], most: int) -> tuple[bool, dict[int, int]]:
    """Limit a batch to ``most`` offsets, shared in proportion to each partition's backlog.

    Return whether that is all there is, and the ends.
    """
    waiting = {partition: ends[partition] - starts[partition] for partition in ends}
    total = sum(waiting.values())
    if total <= most:
        return True, dict(ends)
    limited, left = dict(starts), most
    for partition in sorted(waiting, key=waiting.__getitem__, reverse=True):
        # Rounded up, so that the smallest get their turn, too, as soon as the others have less.
        share = min(-(-most * waiting[partition] // total), left)
        limited[partition] += share
        left -= share
    return False, limited


LASTS = 5.0
"""Seconds within which active transactions usually end."""


class Hidden:
    """A watch for open transactions, which hold back the last stable offset.

    It is called with the ends of the log now and then.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[int, int], float] = {}
        self._reported: set[tuple[int, int]] = set()

    def newly_hidden(self, stable: Mapping[int, int], ends: Mapping[int, int], now: float) -> list[Shortfall]:
        """Return the partitions newly found blocked for `LASTS` seconds by a transaction.

        Args:
            stable: the last stable offset of each partition that is read.
            ends: the ends of their logs. The order in which the two were requested makes no difference.
            now: seconds of a monotonic clock.
        """
        here = [(p, offset) for p, offset in stable.items() if offset < ends.get(p, 0)]
        self._since = {place: self._since.get(place, now) for place in here}
        self._reported.intersection_update(here)
        due = [place for place in here if now - self._since[place] >= LASTS and place not in self._reported]
        self._reported.update(due)
        return [Shortfall(p, offset, ends[p], offset) for p, offset in sorted(due)]
