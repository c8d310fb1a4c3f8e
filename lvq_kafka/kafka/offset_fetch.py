"""Fetch a group's committed offsets, waiting for open transactions or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from threading import Lock, Thread
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lvq_kafka.core.facts import Right
from lvq_kafka.errors import BrokerUnavailable, Closed, OffsetsPending
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.error_mapping import TRANSIENT, UNREACHABLE, kafka_error
from lvq_kafka.kafka.reader import READ_RULES
from lvq_kafka.runtime.forking import LeftBehind, notify_of_forks
from lvq_kafka.runtime.overriding import override

__all__ = ["COMMITS", "OffsetFetcher", "home_of", "memberless", "why_pending"]

COMMITS = "__consumer_offsets"
"""The topic in which brokers store the commits of groups."""

_PAUSE = 0.02  # seconds
_IDLE = 5.0  # seconds
_SLICE = 1.0  # seconds; then check whether the broker refuses us, which the call itself does not report


class _GroupClient:
    """The consumer that fetches one group's commits.

    It is opened on the first request, and again after it was closed as idle.

    Args:
        opening: opens one.
    """

    def __init__(self, opening: Callable[[], tuple[Consumer, Health]]) -> None:
        self.lock = Lock()
        self.consumer: Consumer | None = None
        self.used_at = time.monotonic()
        self._open = opening
        self._health: Health

    def use(self) -> tuple[Consumer, Health]:
        """Return the consumer, opening it if necessary. The caller holds the lock."""
        if self.consumer is None:
            self.consumer, self._health = self._open()
        return self.consumer, self._health

    def is_idle(self, seconds: float) -> bool:
        """Return whether it has been unused for that long; if so, it is locked."""
        return time.monotonic() - self.used_at >= seconds and self.lock.acquire(blocking=False)

    def forget(self) -> None:
        """Close the connections. The caller holds the lock."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            with suppress(KafkaException):  # it is no longer needed either way
                consumer.close()


class OffsetFetcher(LeftBehind):
    """Fetcher of group commits. Thread-safe; one request at a time for each group.

    It uses consumers that never join: librdkafka's admin call for this (up to 2.16.0 at least) ends the process with a
    segmentation fault when the coordinator moves or is still loading. A group's consumer is kept while requests keep
    coming: to open one and find the coordinator takes much longer than the request. It is closed after some idle
    seconds.

    Args:
        decided: wait for transactions that hold offsets of the group; otherwise return what is committed so far.
    """

    def __init__(self, config: ClientConfig, *, decided: bool) -> None:
        self._config = config
        self._decided = decided
        self._lock = Lock()
        self._kept: dict[str, _GroupClient] = {}
        self._closed = False
        notify_of_forks(self)

    @override
    def left_behind(self) -> None:
        # This object keeps the consumers: closing one here never returns.
        self._lock = Lock()
        self._left, self._kept = self._kept, {}

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._closed = True
            kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            with one.lock:
                one.forget()

    @property
    def keeps(self) -> bool:
        """True while any consumer is kept."""
        return bool(self._kept)

    def let_go(self, idle: float) -> bool:
        """Close the consumers idle for this many seconds; return whether any are left."""
        with self._lock:
            over = [group for group, one in self._kept.items() if one.is_idle(idle)]
            gone = [self._kept.pop(group) for group in over]
        for one in gone:  # outside the lock: requests for other groups do not wait
            one.forget()
            one.lock.release()
        return self.keeps

    def fetch(self, group: str, topic: str, partitions: Iterable[int], deadline: float) -> list[TopicPartition]:
        """Return a group's commits, retrying transient errors until the deadline.

        Raises:
            OffsetsPending: an open transaction holds some of them, or the replicas that store them are not in sync.
        """
        asked = [TopicPartition(topic, partition) for partition in partitions]
        try:
            return self._fetch(group, asked, f"read the commits of group {group!r}", deadline)
        except BrokerUnavailable as error:
            if self._decided and (why := why_pending(self._config, group, asked)):
                raise why from error
            raise

    def _fetch(self, group: str, asked: list[TopicPartition], doing: str, deadline: float) -> list[TopicPartition]:
        kept = self._checkout(group, doing, deadline)
        try:
            consumer, health = kept.use()
            while True:
                left = deadline - time.monotonic()
                try:
                    answer = _without_errors(consumer.committed(asked, max(0.1, min(left, _SLICE))))
                except KafkaException as exception:
                    error = kafka_error(exception)
                    if error is None:
                        raise
                    told = consumer.poll(0)  # the call reports only a timeout; what the client has seen comes here
                    error = (told.error() if told is not None else None) or error
                    if error.code() not in TRANSIENT | UNREACHABLE or health.refused or left <= _PAUSE:
                        kept.forget()  # a client reports its refusal only once; a new one reports it again
                        needs = [Right("Describe", "Group", group), Right("Describe", "Topic", asked[0].topic)]
                        raise health.explain(error, doing, needs=needs) from None
                    time.sleep(_PAUSE)
                else:
                    health.recovered()
                    return answer
        finally:
            kept.used_at = time.monotonic()
            kept.lock.release()

    def _checkout(self, group: str, doing: str, deadline: float) -> _GroupClient:
        """Return a group's client, locked."""
        while True:
            kept = self._of(group)
            if not kept.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise BrokerUnavailable(
                    f"Cannot {doing}: earlier requests are still waiting for an answer.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="Check that the group's coordinator can be reached.",
                )
            if self._kept.get(group) is kept:
                return kept
            kept.lock.release()  # it was closed meanwhile

    def _of(self, group: str) -> _GroupClient:
        with self._lock:
            if self._closed:
                raise Closed("The cluster is closed.")
            kept = self._kept.get(group)
            if kept is None:
                kept = self._kept[group] = _GroupClient(
                    partial(_open_consumer, self._config, group, decided=self._decided)
                )
            kept.used_at = time.monotonic()
        _housekeeper.register(self)
        return kept


class _Housekeeper(LeftBehind):
    """Cleanup of idle consumers, on a thread that runs only while there are any."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._fetchers: WeakSet[OffsetFetcher] = WeakSet()
        self._at_work = False
        notify_of_forks(self)

    @override
    def left_behind(self) -> None:
        self._lock = Lock()
        self._fetchers = WeakSet()
        self._at_work = False

    def register(self, fetcher: OffsetFetcher) -> None:
        """Add a fetcher that keeps a consumer."""
        with self._lock:
            self._fetchers.add(fetcher)
            if not self._at_work:
                # The system may be out of threads, and Python starts none at shutdown. Then the next request tries
                # again.
                with suppress(RuntimeError):
                    Thread(target=self._work, name="lvq-kafka-idle", daemon=True).start()
                    self._at_work = True

    def _work(self) -> None:
        while True:
            time.sleep(_IDLE / 2)
            with self._lock:
                askers = list(self._fetchers)
            idle = [fetcher for fetcher in askers if not fetcher.let_go(_IDLE)]
            with self._lock:
                # A fetcher used meanwhile has registered again, or is about to.
                self._fetchers.difference_update(fetcher for fetcher in idle if not fetcher.keeps)
                if not self._fetchers:
                    self._at_work = False
                    return
            del askers, idle


_housekeeper = _Housekeeper()


def _open_consumer(config: ClientConfig, group: str, *, decided: bool) -> tuple[Consumer, Health]:
    """Open a consumer that fetches commits.

    A broker never holds back the answer to one that reads uncommitted records.
    """
    level = {} if decided else {"isolation.level": "read_uncommitted"}
    health = Health(config.bootstrap_servers, config.properties)
    return open_consumer(config, health, {**READ_RULES, **level, "group.id": group}), health


def why_pending(
    config: ClientConfig, group: str, asked: list[TopicPartition], *, known: bool = False
) -> OffsetsPending | None:
    """Return the error if a coordinator holds back stable offsets; None if it is only slow.

    The client does not report the reason: it retries until the timeout, and reports only that. A coordinator that holds
    back stable offsets answers at once for what is committed so far. One that was slow answers both.

    Args:
        known: it was the reason the last time, too, so one of the two requests is skipped.
    """
    by_now, _ = _open_consumer(config, group, decided=False)
    with closing(by_now):
        if not _answers(by_now, asked):
            return None
        if not known:
            decided, _ = _open_consumer(config, group, decided=True)
            with closing(decided):
                if _answers(decided, asked):
                    return None
        return _pending(group, asked[0].topic, *_replicas(by_now, group))


def memberless(config: ClientConfig, group: str) -> object:
    """Return the identity of a committer that is no member, for a transaction."""
    consumer, _ = _open_consumer(config, group, decided=True)
    with closing(consumer):
        return consumer.consumer_group_metadata()


def _answers(consumer: Consumer, asked: list[TopicPartition]) -> bool:
    try:
        consumer.committed(asked, _SLICE)
    except KafkaException:
        return False
    return True


def _replicas(consumer: Consumer, group: str) -> tuple[int, list[int], list[int]]:
    """Return the partition that stores a group, its replicas, and those in sync.

    The lists are empty if that partition is not visible.
    """
    with suppress(KafkaException, KeyError):
        partitions = consumer.list_topics(COMMITS, _SLICE).topics[COMMITS].partitions
        home = partitions[home_of(group, max(1, len(partitions)))]
        return home.id, sorted(home.replicas), sorted(home.isrs)
    return 0, [], []


def home_of(group: str, partitions: int) -> int:
    """Return the partition of `COMMITS` that stores a group, by Java's hash of its name."""
    code = 0
    for character in group:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return abs(code - (code >> 31 << 32)) % partitions


def _pending(group: str, topic: str, partition: int, replicas: list[int], in_sync: list[int]) -> OffsetsPending:
    """Return the error for offsets that are not stable yet.

    A broker answers once no transaction holds offsets of the group, and all its commits are replicated.
    """
    if len(in_sync) < len(replicas):
        return OffsetsPending(
            f"The commits of group {group!r} in topic {topic!r} are not decided yet: of the replicas {replicas} of "
            f"partition {partition} of {COMMITS}, which holds the group, only {in_sync} are in sync.",
            code="NOT_ENOUGH_REPLICAS",
            retriable=True,
            hint="The broker waits for replicas, or for the end of an open transaction. Bring back the missing "
            "brokers; kafka-transactions.sh lists open transactions.",
        )
    return OffsetsPending(
        f"An open transaction holds the offsets of group {group!r} in topic {topic!r}: what was consumed is known "
        "when it ends.",
        code="UNSTABLE_OFFSET_COMMIT",
        retriable=True,
        hint="Its consumer may have died: open a producer with its transactional id to end it at once, or wait for "
        "its transaction.timeout.ms, a minute by default. kafka-transactions.sh lists open transactions.",
    )


def _without_errors(partitions: list[TopicPartition]) -> list[TopicPartition]:
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions
