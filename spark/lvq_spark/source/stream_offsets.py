"""Positions of a stream, as Spark keeps them in its checkpoint, and the limit of a batch.

They are written as the Kafka connector writes them, with two additions under names that no topic can have: the topic's
id, and when the stream last caught up::

    {"prices": {"0": 23, "1": 42}, "topic id": "…", "caught up": 1767225600000}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lvq_kafka.errors import ConfigError, TopicRecreated
from lvq_spark.offset_options import TOPIC_ID

__all__ = ["StreamOffset", "limited"]

_CAUGHT_UP = "caught up"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A stream's position: each partition's next offset, and when it last caught up (ms)."""

    topic: str
    topic_id: str
    offsets: Mapping[int, int]
    caught_up: int

    def to_json(self) -> dict[str, Any]:
        """Return the position as Spark keeps it."""
        # Spark compares the text: the same offset must always be written the same way.
        numbers = {str(partition): self.offsets[partition] for partition in sorted(self.offsets)}
        return {self.topic: numbers, TOPIC_ID: self.topic_id, _CAUGHT_UP: self.caught_up}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> StreamOffset:
        """Read a position that `to_json` has written.

        Raises:
            ConfigError: it is the position of another source.
        """
        beside = {TOPIC_ID, _CAUGHT_UP}
        if len(said) != 1 + len(beside) or not beside < said.keys():
            raise ConfigError(
                f"The checkpoint belongs to another source: {json.dumps(said)}.",
                options=["checkpointLocation"],
                hint="Give the query a checkpoint of its own. Offsets noted by Spark's Kafka connector can be its "
                "startingOffsets.",
            )
        [topic] = said.keys() - beside
        offsets = {int(partition): offset for partition, offset in said[topic].items()}
        return cls(topic, said[TOPIC_ID], offsets, said[_CAUGHT_UP])

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
