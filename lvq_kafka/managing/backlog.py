"""A queue as seen from outside its consumers: group progress and pending messages."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NoReturn

from lvq_kafka.cluster import Cluster, Commit, TopicDescription
from lvq_kafka.cluster.reading_to_end import read_to_end
from lvq_kafka.core.commit_map.commit_map import ANY_LENGTH, LONGEST_TEXT, CommitMap
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.log.progress import Progress, describe
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import size_of
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.queue.rules import OrderRule
from lvq_kafka.core.waiting.pending import Deletion
from lvq_kafka.declared.damage import Findings, examine
from lvq_kafka.declared.group_checks import OnForeignCommits, known_ends, trusted
from lvq_kafka.errors import CatchUpTimeout, DataLoss, TransportError
from lvq_kafka.selectors.of_queues import queue_rules

__all__ = ["Backlog", "QueueSnapshot", "Tally", "read_backlog", "snapshot_queue", "weight"]

_POLL = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A queue's topic and its group's commits, at one moment."""

    definition: QueueDefinition
    described: TopicDescription
    commits: Mapping[int, Commit]
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    known: Mapping[int, int]
    """The offsets up to which these are the logs that the group knows; see `known_ends`."""
    stable: Mapping[int, int]
    """The last stable offsets; an open transaction hides everything beyond."""
    epochs: Mapping[int, int]
    """The leader epochs."""

    def findings(self) -> Findings:
        """Return the damage to the commits, and the maps that can be trusted."""
        definition = self.definition
        return examine(
            definition.group,
            definition.topic,
            self.ends,
            self.commits,
            queue=definition.name,
            described=self.described,
            ends=self.known,
        )

    @property
    def refused(self) -> set[int]:
        """The partitions whose commit can be trusted for its offset at most."""
        return {p for damage in self.findings().damages if damage.kind == "commit-refused" for p in damage.partitions}

    def maps(self, on_foreign_commits: OnForeignCommits = "refuse") -> dict[int, CommitMap]:
        """Return the commit maps. Raises what `check_group` raises."""
        return trusted(self.findings(), on_foreign_commits)

    def commits_of(self, maps: Mapping[int, CommitMap]) -> dict[int, Commit]:
        """Return these maps as commits, for the logs as they are."""
        return {p: Commit(one.base, one.encode(ANY_LENGTH), self.epochs[p]) for p, one in maps.items()}


def snapshot_queue(
    cluster: Cluster, definition: QueueDefinition, *, consumed: bool = True, decided: bool = True
) -> QueueSnapshot:
    """Take a snapshot of a queue.

    Args:
        consumed: True if there is a group to ask.
        decided: see `ConsumerGroups.committed`.

    Raises:
        TopicNotFound: the topic does not exist.
        TransportError: the cluster cannot be reached or refuses.
    """
    topic = definition.topic
    while True:
        described = cluster.topics.describe(topic)
        # Read the commits first: messages consumed meanwhile must not appear to lie beyond the end.
        commits = cluster.groups.committed(definition.group, topic, decided=decided) if consumed else {}
        starts, ends, stable = (
            cluster.logs.start_offsets(topic),
            cluster.logs.end_offsets(topic),
            cluster.logs.stable_ends(topic),
        )
        if described.partitions == len(starts) == len(ends) == len(stable):
            break  # otherwise partitions were just added, or a broker has just heard of them
    return QueueSnapshot(
        definition,
        described,
        commits,
        starts=starts,
        ends=ends,
        known=known_ends(cluster, topic, commits, stable),
        stable={partition: end.offset for partition, end in stable.items()},
        epochs={partition: end.leader_epoch for partition, end in stable.items()},
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """The fate of the values in the log from the base on. All others are still waiting.

    Values removed by compaction or truncation no longer count, so none of these is a total since the queue was
    declared.
    """

    added: int
    """All values, whatever their fate."""
    replaced: int
    """Values followed by a newer value of their key."""
    deleted: int
    """Values followed by a delete of their key."""
    consumed: int
    """Values that the group has committed as done.

    May include replaced values that lie among consumed ones, and those that were evicted (R12).
    """
    expired: int = 0
    """Values that had expired, and that no newer one has replaced (R10)."""
    scheduled: int = 0
    """Values that do not count yet, and that no newer one has replaced (R11)."""


class Backlog:
    """The pending messages of a queue, read once.

    They are those that count, in queue order, and those that are scheduled.

    Args:
        done: the number of further values that were read and that the group had consumed.
        now: the time by which messages are due and expire, in seconds since the epoch.
    """

    def __init__(self, ledger: Ledger, loaded: Mapping[int, CommitMap], done: int, now: float) -> None:
        ledger.pass_time(now)
        self._ledger = ledger
        self._loaded = loaded
        self.messages: list[Item] = []
        """The newest of each key that counts."""
        while (item := ledger.acquire()) is not None:
            self.messages.append(item)
        self.scheduled = [item for partition in loaded for item in ledger.assignment.scheduled(partition)]
        """The messages, and deletes, that do not count yet, in log order within each partition."""
        counted, scheduled = ledger.stats, sum(not isinstance(item, Deletion) for item in self.scheduled)
        self.tally = Tally(counted.read + done, counted.replaced, counted.deleted, done, counted.expired, scheduled)
        """The fate of the values that were read."""
        self._withdrawn = set(self.scheduled)

    def leave(self, items: Iterable[Item]) -> None:
        """Prepare these messages to be counted as done by `claim`."""
        for item in items:
            (self._ledger.withdraw if item in self._withdrawn else self._ledger.leave)(item)

    def remove(self, items: Iterable[Item]) -> None:
        """Mark these leaving messages as done for good."""
        for item in items:
            (self._ledger.bury_withdrawn if item in self._withdrawn else self._ledger.commit)(item)

    def claim(self, leaving: Collection[Item] = ()) -> dict[int, CommitMap]:
        """Return what the group may commit in each partition.

        That is what it had committed, what was removed, and what is leaving.
        """
        return {partition: self._claim(partition, leaving) for partition in self._loaded}

    def fitting(self, leaving: Collection[Item], most: int) -> set[Item]:
        """Return the lowest of these messages per partition that fit into ``most`` characters.

        The group's earlier commits always fit: none of that is ever dropped.
        """
        found: set[Item] = set()
        for partition, loaded in self._loaded.items():
            items = sorted((item for item in leaving if item.partition == partition), key=attrgetter("offset"))
            stored = _length(loaded)
            limit = max(most, LONGEST_TEXT if stored == ANY_LENGTH else stored)

            def length(number: int, partition: int = partition, items: Sequence[Item] = items) -> int:
                return _length(self._claim(partition, set(items[:number])))

            if items and length(len(items)) > limit:
                items = items[: bisect_right(range(1, len(items)), limit, key=length)]
            found.update(items)
        return found

    def _claim(self, partition: int, leaving: Collection[Item]) -> CommitMap:
        # Nothing was handed out, so delivered marks and counts stay as they were.
        loaded, claim = self._loaded[partition], self._ledger.assignment.claim(partition, leaving)
        counts = {at: count for at, count in loaded.counts.items() if at >= claim.base and not claim.done(at)}
        return replace(
            claim, topic_tag=loaded.topic_tag, delivered=loaded.delivered, counts=counts, sequence=loaded.sequence
        )


def _length(one: CommitMap) -> int:
    """Return the length of a map's text; more than any limit if it cannot be encoded."""
    try:
        return len(one.encode(ANY_LENGTH))
    except ValueError:
        return ANY_LENGTH


def read_backlog(
    cluster: Cluster,
    snapshot: QueueSnapshot,
    loaded: Mapping[int, CommitMap],
    *,
    keep: Callable[[bytes | None], bool] = lambda key: False,
    weigh: bool = False,
    timeout: float,
) -> Backlog:
    """Read a queue from its bases to its last stable offsets.

    Args:
        loaded: the commit map of each partition.
        keep: selects the keys whose values and headers are kept.
        weigh: whether to keep the sizes of all others instead, for `weight`.

    Raises:
        CatchUpTimeout: the end was not reached within ``timeout`` seconds.
        TransportError: the cluster cannot be reached or refuses.
    """
    deadline = time.monotonic() + timeout
    starts = snapshot.starts
    while True:
        try:
            return _read(cluster, snapshot, loaded, starts, keep, weigh, deadline)
        except DataLoss:
            begins = cluster.logs.start_offsets(snapshot.definition.topic)
            if begins == starts:
                raise
            starts = begins  # the log was truncated meanwhile


def _read(
    cluster: Cluster,
    snapshot: QueueSnapshot,
    loaded: Mapping[int, CommitMap],
    starts: Mapping[int, int],
    keep: Callable[[bytes | None], bool],
    weigh: bool,
    deadline: float,
) -> Backlog:
    definition = snapshot.definition
    rules = queue_rules(definition)
    if definition.key_mismatch == "fail":  # nothing is consumed here, so do not stop where a consumer would
        rules = replace(rules, keys=replace(rules.keys, mismatch="record"))
    needed = {*rules.times.headers, *_headers_that_tell_apart(definition)}
    # In the order of arrival, and whole: nobody takes these messages, and what a ring may lack room for is there.
    listed = replace(rules, selects=None, order=OrderRule(rules.order.place), groups=None, limits=None)
    ledger = Ledger(listed, limit=ANY_LENGTH)
    positions: dict[int, int] = {}
    targets: dict[int, int] = {}
    map_ends = {partition: done.end for partition, done in loaded.items()}
    done_before = 0
    for partition, done in loaded.items():
        positions[partition] = max(done.base, starts[partition])
        targets[partition] = max(snapshot.stable[partition], done.end)
        ledger.assign(partition, done, targets[partition], start=positions[partition])
    ledger.pass_time(cluster.now())  # so that what is due by now takes its place (R11)

    def add(fetch: Fetch) -> None:
        nonlocal done_before
        batch = fetch.batch
        keys, _ = rules.keys.choose(batch)
        batch = rules.selected(batch, keys)  # before the headers go that it needs
        for row, (key, value) in enumerate(zip(keys, batch.values)):
            if value is None:
                continue
            partition, offset = batch.partitions[row], batch.offsets[row]
            if offset < map_ends[partition] and loaded[partition].done(offset):
                done_before += 1
            if not keep(key):
                batch.values[row] = b"%d" % size_of(key, value, batch.headers[row]) if weigh else b""
                batch.headers[row] = _named(needed, batch.headers[row]) if needed else None
        ledger.add(batch, keys)
        ledger.advance(fetch.positions)

    _read_to(targets, cluster, definition.topic, positions, add, deadline)
    return Backlog(ledger, loaded, done_before, cluster.now())


def _headers_that_tell_apart(definition: QueueDefinition) -> Iterator[str]:
    """Yield the headers by which statistics tell messages apart."""
    if definition.order == "priority":
        yield PRIORITY_HEADER
    if definition.groups is not None:
        yield definition.groups.header


def weight(item: Item) -> int:
    """Return the size in bytes of a message whose value was not kept, if it was weighed."""
    return int(item.value)


def _named(
    names: Collection[str], headers: Sequence[tuple[str, bytes | None]] | None
) -> Sequence[tuple[str, bytes | None]] | None:
    """Return the headers with these names, if any, without all others."""
    return [pair for pair in headers if pair[0] in names] or None if headers else None


def _read_to(
    targets: Mapping[int, int],
    cluster: Cluster,
    topic: str,
    positions: Mapping[int, int],
    add: Callable[[Fetch], object],
    deadline: float,
) -> None:
    progress = Progress(positions)
    if progress.reached(targets):
        return

    def give_up(shortfalls: list[Shortfall], trouble: TransportError | None) -> NoReturn:
        raise CatchUpTimeout(
            f"The end of {topic} was not reached in time: {describe(shortfalls)}.",
            shortfalls=shortfalls,
            hint="Allow more time.",
        ) from trouble

    unread = {p: position for p, position in positions.items() if position < targets[p]}
    with closing(cluster.reader(topic, unread)) as reader:
        timeout = deadline - time.monotonic()
        for fetch in read_to_end(lambda: reader.poll(_POLL), progress, targets, give_up=give_up, timeout=timeout):
            add(fetch)
