"""A version of a store, and the manifest that makes it one."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.queue.message_groups import Placement
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.timing.time_rule import ALWAYS, TimeRule
from lvq_kafka.errors import ConfigError, DataLoss
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.rules.scheduling import NotDue
from lvq_spark.session.task_failures import REBUILT

__all__ = ["HOW_READ", "DataFile", "Version", "cut_id", "decode", "encode"]

HOW_READ = ("key_header", "key_mismatch", "selector", "placement")
"""The fields of a version, and of a cut, by which the same offsets give other rows, beside `Version.times`."""

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a version. ``name`` is relative to the store.

    ``overlay``: its keys hide the records of them in the version's other files. ``crc32`` covers the whole file;
    early manifests have none.
    """

    name: str
    bytes: int
    overlay: bool = False
    crc32: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a store: a queue's values at a cut through its log, and their origin.

    Args:
        number: versions are counted from 1. A number is used once.
        kind: ``"full"``: read from the whole log; ``"delta"``: made of version ``base`` and later records of the log.
        reasons: why it is a full one although there was a version before it.
        base: the version that a delta is built on.
        queue: the queue that it is a store of.
        topic: the queue's topic.
        topic_id: distinguishes that topic from another one of the same name.
        key_header: the source of a record's key.
        key_mismatch: what counts when header and record key disagree.
        selector: the queue's selector, if it has one.
        start: the log start of each partition. Records below it are not in the version.
        end: the cut: the offset after the last record that counts, in each partition.
        read_from: where reading for this version began. ``end - read_from`` is the number of offsets read.
        pinned: a moment at which the log did not reach beyond the cut. Deletes are known up to then.
        committed: when the version became visible to readers.
        rows: the number of keys. ``kept`` counts further records that no reader sees: deletes, and records of keys in
            other partitions than the one that counts (R14).
        overlaid: the number of records in its overlay, which holds the changes since its other files were written.
        upserts: the number of records read for it: the newest of each key, by partition.
        deletes: how many of these are deletes.
        cut: identifies this cut through this log.
        stream: the streaming query and batch that brought it, if ``upsert`` of an earlier version wrote it.
        schema: the columns of the files, in Spark's notation.
        epochs: the epochs of the leaders whose logs reached ``end``, where they are known.
        places: of a merged table: a digest of the partitions, offsets and roles of its records, which shows when others
            have changed them. See `lvq_spark.store.merged_table`.
        data: the folder of the files written last; the others lie where earlier versions put them.
        times: from when until when messages count. ``rows`` counts those that have expired since they were written,
            too.
        placement: what writers choose the partition of a message by (R14).
        as_of: the time by which messages are due that count in it (R11), if they may be scheduled.
        scheduled: by partition, what did not count then, if they may be scheduled. Reading for the next version starts
            there once the first of them is due.
    """

    number: int
    kind: Literal["full", "delta"]
    queue: str
    topic: str
    topic_id: str
    key_header: str | None
    key_mismatch: KeyMismatchPolicy
    start: Mapping[int, int]
    end: Mapping[int, int]
    read_from: Mapping[int, int]
    pinned: datetime
    committed: datetime
    rows: int
    kept: int
    overlaid: int
    upserts: int
    deletes: int
    cut: str
    schema: str
    data: str
    files: tuple[DataFile, ...]
    reasons: tuple[str, ...] = ()
    base: int | None = None
    stream: tuple[str, int] | None = None
    epochs: Mapping[int, int] = field(default_factory=dict)
    places: int | None = None
    times: TimeRule = ALWAYS
    selector: str | None = None
    as_of: datetime | None = None
    scheduled: Mapping[int, NotDue] | None = None
    placement: Placement = "key"

    @property
    def partitions(self) -> int:
        """The topic's partition count."""
        return len(self.end)

    @property
    def records_read(self) -> int:
        """The number of offsets read for it."""
        return sum(self.end[partition] - begin for partition, begin in self.read_from.items())

    def judged_by(self, times: TimeRule) -> bool:
        """Return whether its messages count as this rule says.

        Alterations of their queue since the version was pinned do not concern them (R39).
        """
        return self.times_then(times) == self.times_then(self.times)

    def times_then(self, times: TimeRule) -> dict[str, object]:
        """Return what this rule says of the messages up to the version's cut."""
        return times.until(round(self.pinned.timestamp() * 1000)).options

    def due(self, spec: SnapshotSpec) -> dict[int, int]:
        """Return where to read again, in the partitions where something has become due.

        That is judged at the time of a cut. Records lost at the start of the log are in no snapshot either.
        """
        if spec.due_by is None:
            return {}
        as_of = round(spec.due_by * 1000)
        return {
            partition: max(one.offset, min(spec.start[partition], self.end[partition]))
            for partition, one in (self.scheduled or {}).items()
            if one.due <= as_of
        }

    def beyond(self, spec: SnapshotSpec) -> SnapshotSpec:
        """Return the part of a cut to read on top of this version."""
        return replace(spec, start={**self.end, **self.due(spec)})

    def still_scheduled(self, spec: SnapshotSpec, found: Mapping[int, NotDue] | None) -> Mapping[int, NotDue] | None:
        """Return the records that do not count at a cut's time, once it has been read.

        Args:
            found: those among them that were `beyond` this version.
        """
        if not spec.times.may_schedule:
            return None
        again = self.due(spec)
        left = {partition: one for partition, one in (self.scheduled or {}).items() if partition not in again}
        more = found or {}
        return {**left, **{partition: one.with_more(left.get(partition)) for partition, one in more.items()}}


def cut_id(spec: SnapshotSpec) -> str:
    """Return the identity of a cut: specs with the same identity read the same rows."""
    facts = [spec.topic, spec.topic_id, spec.key_header, spec.key_mismatch, *map(_pairs, (spec.start, spec.end))]
    facts += [] if spec.selector is None else [spec.selector]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _pairs(offsets: Mapping[int, int]) -> list[list[int]]:
    return [[partition, offset] for partition, offset in sorted(offsets.items())]


_OFFSETS = ("start", "end", "read_from", "epochs")
_MOMENTS = ("pinned", "committed")
_OPTIONS: Mapping[str, tuple[Callable[[Any], object], Callable[[Any], Any]]] = {
    "times": (TimeRule.to_wire, TimeRule.from_wire),
    "selector": (str, str),
    "placement": (str, str),
    "as_of": (lambda moment: moment.astimezone(UTC).isoformat(), datetime.fromisoformat),
    "scheduled": (
        lambda found: {str(partition): list(one) for partition, one in sorted(found.items())},
        lambda found: {int(partition): NotDue(int(offset), int(due)) for partition, (offset, due) in found.items()},
    ),
}
"""Fields that only some queues have, each with the writer and the parser of its JSON."""


def encode(version: Version) -> bytes:
    """Return the manifest as JSON. Offsets are by partition, times in ISO 8601 and UTC."""
    document: dict[str, Any] = {"format": _FORMAT}
    for name, known in Version.__dataclass_fields__.items():
        value = getattr(version, name)
        if name in _OPTIONS and value == known.default:
            continue  # so that versions of a queue without it can be read by libraries that know of none
        if name in _OFFSETS:
            value = {str(partition): offset for partition, offset in sorted(value.items())}
        elif name in _MOMENTS:
            value = value.astimezone(UTC).isoformat()
        elif name == "files":
            value = [asdict(file) for file in value]
        elif name in _OPTIONS:
            value = _OPTIONS[name][0](value)
        document[name] = value
    document["crc32"] = _crc32(document)
    return json.dumps(document, indent=1).encode()


def _crc32(document: Mapping[str, Any]) -> int:
    """Return the checksum of a manifest's content, independent of its formatting."""
    said = {name: value for name, value in document.items() if name != "crc32"}
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def decode(content: bytes, where: str) -> Version:
    """Read a manifest.

    Raises:
        ConfigError: a newer library wrote it. Such a manifest is never built over.
        DataLoss: it is damaged, or not a manifest.
    """
    try:
        document = read_json(content.decode("utf-8"))
        found = _crc32(document)
        written = int(document.pop("format"))
        noted = document.pop("crc32", found)  # earlier versions wrote none
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(where) from error
    if noted != found and written <= _FORMAT:
        raise _unreadable(where)
    unknown = sorted(document.keys() - Version.__dataclass_fields__.keys())
    if written > _FORMAT or unknown:
        what = f"has the format {written}, but this library knows {_FORMAT}"
        if written <= _FORMAT:
            what = f"has unknown fields: {', '.join(unknown)}"
        raise ConfigError(f"{where} {what}.", options=["path"], hint="A newer lvq-kafka wrote it: upgrade.")
    try:
        for name in _OFFSETS:
            document[name] = {int(partition): int(offset) for partition, offset in document[name].items()}
        for name in _MOMENTS:
            document[name] = datetime.fromisoformat(document[name])
        document["files"] = tuple(
            DataFile(file["name"], file["bytes"], file["overlay"], file.get("crc32")) for file in document["files"]
        )
        document |= {name: parse(document[name]) for name, (_, parse) in _OPTIONS.items() if name in document}
        document["reasons"] = tuple(document["reasons"])
        document["stream"] = tuple(document["stream"]) if document["stream"] else None
        return Version(**document)
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise _unreadable(where) from error


def _unreadable(where: str) -> DataLoss:
    return DataLoss(f"{where} is not a version's manifest, or is damaged.", hint=REBUILT)
