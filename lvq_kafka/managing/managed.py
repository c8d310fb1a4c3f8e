"""What a queue's owner does with it, apart from its producers, readers and consumers: look at it, and put it right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.keys import Key
from lvq_kafka.core.validation import choice, instance, limit
from lvq_kafka.errors import ConfigError, QueueNotDeclared
from lvq_kafka.forking import Bound
from lvq_kafka.managing import declaring, management
from lvq_kafka.managing.group_checks import OnForeignCommits
from lvq_kafka.managing.management import Change, Point, Repair
from lvq_kafka.managing.moving import move
from lvq_kafka.managing.queue_stats import QueueStats, measure
from lvq_kafka.managing.reclaiming import Reclaim, reclaim

__all__ = ["Managed"]


class Managed(Bound):
    """The part of `lvq_kafka.LastValueQueue` that looks at what was consumed, and changes it.

    What changes it is done while no consumer is at work: a broker takes commits from outside only then.
    """

    definition: QueueDefinition
    cluster: Cluster
    _declared: bool

    def stats(self, *, on_foreign_commits: OnForeignCommits = "refuse", timeout: float = 60.0) -> QueueStats:
        """How full the queue is: messages, the oldest of them, lag, consumers at work.

        Reads the topic once, from what is done up to its end, and takes note of what is consumed meanwhile. Works
        while consumers are at work and disturbs none. What a consumer has done since it was opened is told by
        `Consumer.stats`.

        Raises:
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused: something is wrong with what is committed;
                `repair` tells and mends it.
            TopicNotFound: the topic is gone.
            CatchUpTimeout: reading took more than ``timeout`` seconds.
            TransportError: the cluster cannot be reached or refuses.
        """
        choice("on_foreign_commits", on_foreign_commits, get_args(OnForeignCommits))
        return measure(
            self.cluster,
            self.definition,
            consumed=self._declared and not self.definition.non_destructive,
            on_foreign_commits=on_foreign_commits,
            timeout=limit(timeout),
        )

    def purge(self, *, keys: Iterable[Key] | None = None, timeout: float = 60.0) -> Change:
        """Count what is in the queue now as consumed: all of it, or the messages of these keys.

        The topic stays as it is, so views, browsers of the topic and other queues on it do not notice. What an open
        transaction hides is still to come.

        Raises:
            QueueError: consumers are at work.
            ConfigError: the queue was declared ``non_destructive``, so nothing of it is ever consumed.
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused, TopicNotFound, CatchUpTimeout,
                TransportError: as `stats`.
        """
        return management.purge(self.cluster, self._consumed("purged"), keys, timeout=limit(timeout))

    def expire(self, older_than: float, *, timeout: float = 60.0) -> Change:
        """Count as consumed what arrived more than ``older_than`` seconds ago.

        That is by the cluster's clock, which the commits of the queue's group tell. Where this user may not describe
        ``__consumer_offsets`` it is by the clock of this machine, and a warning in the log says so.

        Raises what `purge` raises.
        """
        return management.expire(self.cluster, self._consumed("expired"), older_than, timeout=limit(timeout))

    def reset(self, to: Point) -> Change:
        """Go on at another point: what lies from there on and is still in the log is in the queue, nothing else is.

        This mends commits of something else, too, in the partitions that go on elsewhere.

        Args:
            to: ``"earliest"``, ``"latest"``, a time in seconds since the epoch, or offsets by partition; partitions
                that are not named stay where they are. Only what compaction has left can come again.

        Raises what `purge` raises, and `ConfigError` for a point outside the log.
        """
        return management.reset(self.cluster, self._consumed("reset"), to)

    def repair(self, start: Point | None = None, *, dry_run: bool = False) -> Repair:
        """Mend what is wrong with the queue's commits, as far as it can be mended without guessing.

        Partitions that were added are taken in from their beginning. Where the log ends before what was consumed, the
        queue goes on at the end. A commit whose text is missing, not the queue's, newer or damaged is replaced by one
        that goes by its offset, or by ``start``. Where it is lost what was consumed (the group is gone, some of its
        commits are, or they are of an earlier topic), ``start`` says where to begin; without it that is left, and told.

        Args:
            start: see `reset`.
            dry_run: only tell.

        Raises what `reset` raises, except what it mends.
        """
        return management.repair(self.cluster, self._consumed("repaired"), start, dry_run=dry_run)

    def move(
        self,
        destination: Managed,
        *,
        keys: Iterable[Key] | None = None,
        atomic: bool = True,
        timeout: float = 60.0,
    ) -> Change:
        """Move messages to another queue: all, or those of these keys. Values and headers stay as they are.

        There they are new: each replaces what that queue has for its key. Where the other queue has another key header,
        that one names the key; a message without it passes as one without a key, or is refused (R1).

        Args:
            atomic: move in transactions of some thousand messages, so that each message is in one of the queues,
                whatever happens. Takes the right to use the transactional id ``lvq.move.<queue>``. Without it all are
                written, then counted as consumed: if something fails in between, they are in both queues (at least
                once). That works between clusters, too.
            timeout: seconds for reading the queue, and for each batch that is written.

        Raises:
            MissingKey: a message has no key for the other queue, and that refuses such messages.
            DeliveryFailed: a message was not stored there.
            OutcomeUnknown: whether the last batch was moved is not decided yet.
            ConfigError: both queues are on one topic, or no transaction is possible.
            QueueError: consumers are at work, or the messages lie too far apart for one commit map.
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused, TopicNotFound, CatchUpTimeout,
                TransportError: as `stats`.
        """
        instance("destination", destination, Managed, "Open the queue that they are to go to.")
        return move(
            self.cluster,
            self._consumed("moved from"),
            destination.cluster,
            destination.definition,
            keys,
            atomic=atomic,
            timeout=limit(timeout),
        )

    def reclaim(self, *, dry_run: bool = False) -> Reclaim:
        """Delete from the topic, for good, what all declared queues on it have consumed: all below their lowest base.

        That takes a topic with the policy ``compact,delete``. What is gone is gone for everybody: views, Spark and
        browsers of the topic itself no longer see consumed values, and a queue that is declared later or reset cannot
        go back to them. Consumers may be at work.

        Args:
            dry_run: only tell.

        Raises:
            TopicMismatch: the topic's policy does not allow it.
            QueueError: the topic also serves a queue that is never consumed.
            QueueNotDeclared: it, or another queue on the topic, holds no position.
            ConfigError: what another queue is cannot be read.
            TopicRecreated, DataLoss, CommitMapRefused, TransportError: as `stats`, for any of the queues.
        """
        return reclaim(self.cluster, self._consumed("reclaimed"), dry_run=dry_run)

    def drop(self, *, delete_topic: bool = False) -> None:
        """Delete the queue: its definition and what it knows of consumption. Its topic stays unless asked.

        Args:
            delete_topic: delete the topic and everything in it, too.

        Raises:
            QueueNotDeclared: it is not declared.
            QueueError: the topic serves other queues, or consumers are still at work.
            ConfigError: ``delete_topic`` is asked, and what another queue's topic is cannot be read.
            TransportError: the cluster cannot be reached or refuses.
        """
        declaring.drop(self.cluster, self.definition, delete_topic=delete_topic)

    def _consumed(self, what: str) -> QueueDefinition:
        """The definition of a queue that can be consumed.

        Raises:
            ConfigError, QueueNotDeclared: it cannot.
        """
        if self.definition.non_destructive:
            raise ConfigError(
                f"The queue {self.definition.name} was declared with non_destructive=True, so nothing can be {what}.",
                options=["non_destructive"],
                hint="Browse it, delete keys, or declare another queue on its topic.",
            )
        if not self._declared:
            raise QueueNotDeclared(
                f"{self.definition.topic} was opened as a bare topic, so nothing holds what is consumed.",
                queue=self.definition.name,
                hint="Declare a queue on it: LastValueQueue.declare(...).",
            )
        return self.definition
