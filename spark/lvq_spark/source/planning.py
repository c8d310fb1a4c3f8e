"""Planning, on the driver: the cut for the options of a read, once for each DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.declared.addressed import check_asserted
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.offset_options import Offsets, resolve, times
from lvq_spark.cut.pinning import SnapshotSpec, check_queue, pin
from lvq_spark.rules.ranks import check_ranked
from lvq_spark.scan.arrays import binary
from lvq_spark.scan.home_partition import Partitioner, home_partitions
from lvq_spark.scan.shares import PartitionShare, Shares, tasks_of
from lvq_spark.source.source_options import SourceOptions

__all__ = ["assigned", "homes", "open_queue", "plan", "ranges"]


def open_queue(options: SourceOptions, cluster: Cluster) -> LastValueQueue[bytes]:
    """Open the declared queue, or the topic as a queue.

    Raises:
        QueueNotDeclared: there is no queue of that name, and no address that would create it.
        QueueMismatch: it is not as its address says, which asserts it.
        ConfigError: it is a standard queue, or placed by group, and an option rests on where keys are at home; or it
            has no ranks and a column asks for them.
    """
    if options.queue is not None:
        queue = _declared(options, cluster)
        check_queue(queue)
        _check_homes(options, queue, cluster)
    else:
        queue = _bare(options, cluster)
    check_ranked("lvq.extraColumns", options.extra_columns, queue.name, queue.definition.order)
    return queue


def _declared(options: SourceOptions, cluster: Cluster) -> LastValueQueue[bytes]:
    """Open the declared queue, or read a missing one as its address says."""
    assert options.queue is not None
    if options.address is None:
        return LastValueQueue.open(options.queue, cluster=cluster)
    queue = LastValueQueue.at(options.address.text, cluster=cluster)
    check_asserted(queue.definition, options.address, "receiver")
    return queue


def _bare(options: SourceOptions, cluster: Cluster) -> LastValueQueue[bytes]:
    assert options.topic is not None
    return LastValueQueue(
        options.topic,
        key_header=options.key_header,
        key_mismatch=options.key_mismatch,
        ttl=options.ttl,
        max_delay=options.max_delay,
        groups=None if options.group_header is None else Groups(header=options.group_header),
        cluster=cluster,
    )


def _check_homes(options: SourceOptions, queue: LastValueQueue[bytes], cluster: Cluster) -> None:
    """Check that no option rests on home partitions of keys, if messages are placed by group.

    Raises:
        ConfigError: one does, or what it is by default.
    """
    if QueueRules.of(queue.definition).placement == "key" or cluster.topics.describe(queue.topic).partitions == 1:
        return
    said = f"The messages of {queue.name} are placed by group, so a key may have records in any partition"
    if options.partitioner is not None:
        raise ConfigError(f"{said}.", options=["lvq.partitioner", "queue"], hint="Leave lvq.partitioner out.")
    if options.conflate and options.strays == "fail":
        raise ConfigError(
            f"{said}, and this format does not compare them.",
            options=["lvq.strays", "queue"],
            hint="lvq_spark.snapshot returns the one that counts (R14). lvq.strays=pass takes all that there are, one "
            "for each partition.",
        )


def plan(options: SourceOptions, cluster: Cluster) -> SnapshotSpec:
    """Return the cut that a batch reads.

    Raises:
        As `lvq_spark.pin`, and ConfigError: the options do not fit the topic or the queue.
    """
    queue = open_queue(options, cluster)
    topic = queue.definition.topic
    everything = range(cluster.topics.describe(topic).partitions)
    named, read = assigned(options, topic, len(everything)), _read(options, queue, len(everything))
    starts, ends = options.start, options.end
    start: Mapping[int, int] | None = None
    end: Mapping[int, int] | None = None
    as_of: Mapping[int, float] | None = None
    if starts is not None:
        start = resolve(starts, cluster, topic, named, only=read, or_latest=options.or_latest)
    if isinstance(ends, Offsets):
        end = resolve(ends, cluster, topic, named, only=read)
    elif ends is not None:
        moments = times(ends, topic, named)
        as_of = {p: moments[p] for p in read} or moments
        as_of = dict.fromkeys(everything, max(as_of.values())) | as_of
    if not options.fail_on_data_loss:
        start, end = _within(cluster, topic, start, end)
    if end is not None:
        end = {**cluster.logs.end_offsets(topic, stable=True), **end}
    if start is not None:
        start = {**cluster.logs.start_offsets(topic), **start}
    with _named_as_options(options):
        spec = pin(
            queue,
            start=start,
            end=end,
            as_of=as_of,
            as_of_policy=options.as_of_policy,
            group=_group(options, queue),
            on_foreign_commits=options.on_foreign_commits,
        )
    if not options.conflate:
        spec = replace(spec, as_of=None)
    elif options.keep_expired:
        spec = replace(spec, keep_expired=True)
    elif options.as_of is not None and spec.as_of is not None:
        spec = replace(spec, as_of=options.as_of)
    spec = spec.selecting(options.selector, "lvq.selector")
    read = _read(options, queue, spec.partitions)  # Partitions may have been added since.
    return replace(spec, start={p: spec.start[p] if p in read else spec.end[p] for p in spec.end})


def _read(options: SourceOptions, queue: LastValueQueue[bytes], there: int) -> Collection[int]:
    """Return the assigned partitions that can hold the requested keys."""
    definition = queue.definition
    named = assigned(options, definition.topic, there)
    if options.partitioner is None or options.keys is None:
        return named
    return homes(options.keys, options.partitioner, there, key_mismatch=definition.key_mismatch).intersection(named)


def ranges(options: SourceOptions, spec: SnapshotSpec) -> Iterator[tuple[SnapshotSpec, Shares]]:
    """Yield the shares of each task, with the part of the cut that concerns them.

    If every record is read, the records of a partition may be split among several tasks; otherwise its keys may be.
    """
    if options.min_partitions is None and options.max_records_per_partition is None:
        for task in tasks_of(spec, options.slices):
            yield _only(spec, {partition: (spec.start[partition], spec.end[partition]) for partition, _ in task}), task
        return
    total = sum(spec.end[p] - spec.start[p] for p in spec.ranges)
    for partition in spec.ranges:
        start, end = spec.start[partition], spec.end[partition]
        pieces = 1
        if options.min_partitions is not None and options.min_partitions > len(spec.ranges):
            pieces = max(1, round(options.min_partitions * (end - start) / total))
        if options.max_records_per_partition is not None:
            pieces = max(pieces, -(-(end - start) // options.max_records_per_partition))
        pieces = min(pieces, end - start)
        bounds = [start + (end - start) * piece // pieces for piece in range(pieces + 1)]
        for first, after in pairwise(bounds):
            if first < after:
                yield _only(spec, {partition: (first, after)}), (PartitionShare(partition),)


def _only(spec: SnapshotSpec, bounds: Mapping[int, tuple[int, int]]) -> SnapshotSpec:
    """Return the part of a cut within these bounds of partitions."""
    # All ends stay, since their number is the topic's partition count.
    start, end = ({partition: bound[side] for partition, bound in bounds.items()} for side in (0, 1))
    done = None if spec.done is None else {partition: spec.done[partition] for partition in bounds}
    return replace(spec, start=start, end={**spec.end, **end}, done=done, blocked=())


def assigned(options: SourceOptions, topic: str, there: int) -> tuple[int, ...]:
    """Return the existing partitions to read.

    Raises:
        ConfigError: an assigned partition does not exist.
    """
    if options.partitions is None:
        return tuple(range(there))
    unknown = [p for p in options.partitions if p >= there]
    if unknown:
        raise ConfigError(
            f"assign names partition {', '.join(map(str, unknown))} of {topic}, which has {there}.", options=["assign"]
        )
    return options.partitions


@contextmanager
def _named_as_options(options: SourceOptions) -> Iterator[None]:
    """Make errors about the start or end of a cut name the options that set it."""
    try:
        yield
    except ConfigError as error:
        points = {"start": options.start, "end": options.end, "as_of": options.end}
        culprits = [point.option for name in error.options if (point := points.get(name)) is not None]
        if not culprits:
            raise
        raise ConfigError(f"{' and '.join(culprits)} cannot be followed. {error}", options=culprits) from None


def _within(
    cluster: Cluster, topic: str, start: Mapping[int, int] | None, end: Mapping[int, int] | None
) -> tuple[Mapping[int, int] | None, Mapping[int, int] | None]:
    """Limit offsets to those that the log still has, which skips the lost ones."""
    lowest, stable = cluster.logs.start_offsets(topic), cluster.logs.end_offsets(topic, stable=True)
    if end is not None:
        end = {p: min(max(offset, lowest[p]), stable[p]) for p, offset in end.items()}
    if start is not None:
        most = end or stable
        start = {p: min(max(offset, lowest[p]), most[p]) for p, offset in start.items()}
    return start, end


def _group(options: SourceOptions, queue: LastValueQueue[bytes]) -> str | None:
    if not options.hide_consumed:
        return options.group
    if queue.definition.non_destructive:
        raise ConfigError(
            f"The queue {queue.name} was declared with non_destructive=True, so it is never consumed.",
            options=["lvq.hideConsumed"],
            hint="Leave it out.",
        )
    return queue.definition.group


def homes(
    keys: Collection[bytes], partitioner: Partitioner, partitions: int, *, key_mismatch: KeyMismatchPolicy
) -> set[int]:
    """Return the partitions where these keys lie.

    Raises:
        ConfigError: the partitioner does not go by these keys, since a header decides them.
    """
    if key_mismatch == "header":
        raise ConfigError(
            "lvq.partitioner says where record keys lie, but here a header is the key.",
            options=["lvq.partitioner", "lvq.keyMismatch"],
            hint="Omit lvq.partitioner: all partitions are then read for the keys.",
        )
    if partitioner == "consistent_random" and b"" in keys:  # to librdkafka an empty key is none, and lies anywhere
        return set(range(partitions))
    return set(home_partitions(binary(list(keys)), partitions, partitioner).tolist())
