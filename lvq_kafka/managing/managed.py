"""Queue management: inspect what was consumed, and change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.keys import Key
from lvq_kafka.core.validation import choice, instance, limit
from lvq_kafka.errors import ConfigError, QueueNotDeclared
from lvq_kafka.forking import Bound
from lvq_kafka.group.group_checks import OnForeignCommits
from lvq_kafka.managing import declaring, management
from lvq_kafka.managing.management import Change, Point, Repair
from lvq_kafka.managing.moving import move
from lvq_kafka.managing.queue_stats import QueueStats, measure
from lvq_kafka.managing.reclaiming import Reclaim, reclaim

__all__ = ["Managed"]


class Managed(Bound):
    """The part of `lvq_kafka.LastValueQueue` that inspects and changes what was consumed.

    Changes require that no consumer is active: only then do brokers accept commits from outside.
    """

    definition: QueueDefinition
    cluster: Cluster
    _declared: bool

    def stats(self, *, on_foreign_commits: OnForeignCommits = "refuse", timeout: float = 60.0) -> QueueStats:
        """Return the queue's depth, oldest message, lag and number of active consumers.

        Reads the topic once, from the bases to its end, and accounts for messages consumed meanwhile. It works while
        consumers are active and does not disturb them. For what a single consumer has done, see `Consumer.stats`.

        Raises:
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused: the group's commits are damaged; `repair`
                reports and repairs it.
            TopicNotFound: the topic does not exist.
            CatchUpTimeout: reading took longer than ``timeout`` seconds.
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
        """Mark everything now in the queue as consumed, or only the messages of ``keys``.

        The topic does not change, so views, browsers of the topic and other queues on it do not notice. Messages hidden
        by an open transaction are still to come.

        Raises:
            QueueError: consumers are active.
            ConfigError: the queue was declared ``non_destructive``, so nothing in it is ever consumed.
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused, TopicNotFound, CatchUpTimeout, TransportError:
                as in `stats`.
        """
        return management.purge(self.cluster, self._consumed("purged"), keys, timeout=limit(timeout))

    def expire(self, older_than: float, *, timeout: float = 60.0) -> Change:
        """Mark messages that arrived more than ``older_than`` seconds ago as consumed.

        Age is judged by the cluster's clock, as read from the commits of the queue's group. If this user may not
        describe ``__consumer_offsets``, this machine's clock is used, with a logged warning.

        Raises what `purge` raises.
        """
        return management.expire(self.cluster, self._consumed("expired"), older_than, timeout=limit(timeout))

    def reset(self, to: Point) -> Change:
        """Move the queue to another point: it then holds exactly what the log has from there on.

        This also repairs commits of other clients, in the partitions that are moved.

        Args:
            to: ``"earliest"``, ``"latest"``, a time in seconds since the epoch, or offsets by partition; partitions
                that are not named stay where they are. Only values that compaction has left can be redelivered.

        Raises what `purge` raises, and `ConfigError` for a point outside the log.
        """
        return management.reset(self.cluster, self._consumed("reset"), to)

    def repair(self, start: Point | None = None, *, dry_run: bool = False) -> Repair:
        """Repair the queue's commits, as far as possible without guessing.

        Partitions that were added are included from their beginning. If the log ends before what was consumed, the
        queue continues at the end. A commit whose text is missing, not the queue's, newer or damaged is replaced by one
        that uses its offset, or ``start``. If the record of what was consumed is lost (the group is gone, some of its
        commits are, or they belong to an earlier topic), ``start`` says where to begin; without it, that damage is left
        and reported.

        Args:
            start: see `reset`.
            dry_run: only report.

        Raises what `reset` raises, except what it repairs.
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
        """Move messages to another queue: all, or those of ``keys``. Values and headers are kept.

        In the other queue they are new: each replaces what that queue has for its key. If the other queue has another
        key header, that one names the key; a message without it counts as one without a key, or is refused (R1).

        Args:
            atomic: move in transactions of some thousand messages, so that each message is in exactly one of the
                queues, whatever happens. Requires the right to use the transactional id ``lvq.move.<queue>``. Otherwise
                all messages are written, then marked as consumed: if something fails in between, they are in both
                queues (at least once). That works between clusters, too.
            timeout: seconds for reading the queue, and for each batch that is written.

        Raises:
            MissingKey: a message has no key for the other queue, which refuses such messages.
            DeliveryFailed: a message was not stored in the other queue.
            OutcomeUnknown: it is not yet decided whether the last batch was moved.
            ConfigError: both queues are on one topic, or no transaction is possible.
            QueueError: consumers are active, or the messages lie too far apart for one commit map.
            QueueNotDeclared, TopicRecreated, DataLoss, CommitMapRefused, TopicNotFound, CatchUpTimeout, TransportError:
                as in `stats`.
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
        """Delete from the topic, permanently, what all declared queues on it have consumed.

        That is everything below their lowest base. Requires a topic with the policy ``compact,delete``. Deleted records
        are gone for everyone: views, Spark and browsers of the topic itself no longer see consumed values, and a queue
        that is declared later or reset cannot go back to them. Consumers may be active.

        Args:
            dry_run: only report.

        Raises:
            TopicMismatch: the topic's policy does not allow it.
            QueueError: the topic also serves a queue that is never consumed.
            QueueNotDeclared: this queue, or another one on the topic, holds no position.
            ConfigError: the definition of another queue cannot be read.
            TopicRecreated, DataLoss, CommitMapRefused, TransportError: as in `stats`, for any of the queues.
        """
        return reclaim(self.cluster, self._consumed("reclaimed"), dry_run=dry_run)

    def drop(self, *, delete_topic: bool = False) -> None:
        """Delete the queue's definition and progress. Its topic stays unless requested.

        Args:
            delete_topic: also delete the topic and everything in it.

        Raises:
            QueueNotDeclared: the queue is not declared.
            QueueError: the topic serves other queues, or consumers are still active.
            ConfigError: ``delete_topic`` was requested, and the topic of another queue cannot be read.
            TransportError: the cluster cannot be reached or refuses.
        """
        declaring.drop(self.cluster, self.definition, delete_topic=delete_topic)

    def _consumed(self, what: str) -> QueueDefinition:
        """Return the definition of a queue that can be consumed.

        Raises:
            ConfigError, QueueNotDeclared: it cannot be consumed.
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
