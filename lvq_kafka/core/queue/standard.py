"""Standard queues: queues without conflation, in which each message stands alone (R35).

No message replaces another, so nothing depends on their keys. The record key is the value of the key header, if there
is one: messages with the same key are in one partition, and so in order. Otherwise, the record key is null, which
spreads messages over the partitions. The topic is not compacted, so record keys need not be unique.
"""

from __future__ import annotations

from collections.abc import Sequence

from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError

__all__ = [
    "OwnKey",
    "StandardFilter",
    "check_mapping",
    "check_standard",
    "conflate_from_wire",
    "judged_keys",
    "no_keys",
]


def check_standard(name: str, **options: str) -> None:
    """Check that the options of a standard queue leave messages alone.

    Args:
        name: the queue's name, for errors.
        options: the options on how keys relate messages, by name.

    Raises:
        ConfigError: one of them has no meaning in a standard queue.
    """
    for option, allowed, why in (
        ("order", ("tail", "priority", "sorted"), "no message takes the place of another"),
        ("keyless", ("pass",), "no message needs a key"),
        ("key_mismatch", ("record",), "no key decides anything"),
    ):
        if options[option] not in allowed:
            raise ConfigError(
                f"`{option}` and `conflate` of the queue {name} exclude each other: in a standard queue, {why}.",
                options={option: options[option], "conflate": False},
                hint="Leave one of them out.",
            )


def check_mapping(name: str, *, conflate: bool, what: str) -> None:
    """Check that a queue has a current value for each key.

    Args:
        name: the queue's name, for errors.
        conflate: whether it is a last value queue.
        what: the feature that needs this, as the subject of a sentence.

    Raises:
        ConfigError: it is a standard queue.
    """
    if not conflate:
        raise ConfigError(
            f"{what} needs one value for each key, and {name} is a standard queue (`conflate=False`).",
            options=["conflate"],
            hint="Browse its messages (queue.browser(), or lvq browse), or consume them.",
        )


def conflate_from_wire(part: object) -> bool:
    """Parse the part of a definition's JSON.

    Raises:
        ConfigError: it is not false, the only value that is ever written.
    """
    if part is not False:
        raise ConfigError(f"conflate={quoted(part)} is not false, and is left out otherwise.", options=["conflate"])
    return False


def judged_keys(keys: Sequence[bytes | None]) -> list[bytes | None]:
    """Return the keys of messages as selectors see them.

    A message without a key has an empty one, as in a delivery.
    """
    return [key or b"" for key in keys]


def no_keys(batch: RecordBatch) -> list[bytes | None]:
    """Return keys under which each record of a batch stands alone."""
    return [None] * len(batch)


class OwnKey(bytes):
    """The key of a message that stands alone.

    It equals no other key, not even one with the same bytes. So a fold that keeps the newest record of each key keeps
    them all.
    """

    __slots__ = ()

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


class StandardFilter:
    """Gives each message an `OwnKey`: that of its record, or an empty one.

    Deletes are dropped: there is nothing that they could delete.
    """

    def __init__(self) -> None:
        self.ignored = 0
        """The number of deletes."""

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the messages of a batch."""
        if batch.deletes:
            rows = [row for row, value in enumerate(batch.values) if value is not None]
            self.ignored += len(batch) - len(rows)
            batch = batch.pick(rows)
        keys: list[bytes | None] = [OwnKey(key or b"") for key in batch.keys]
        return RecordBatch(batch.partitions, batch.offsets, batch.timestamps, keys, batch.values, batch.headers)
