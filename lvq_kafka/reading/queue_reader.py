"""The common base of views and browsers: reading a queue, by its rules and a selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from typing import Generic

from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import Codec, Undecodable, V, check_undecodable
from lvq_kafka.core.latest.conditions import KeySelection
from lvq_kafka.core.latest.index_rules import IndexRules
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.queue.standard import StandardFilter
from lvq_kafka.core.text.validation import durations, waiting
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import LVQError
from lvq_kafka.reading.follower import Follower
from lvq_kafka.reading.following_reader import FollowingReader
from lvq_kafka.reading.listing import Listing
from lvq_kafka.reading.reader_thread import ReaderStore
from lvq_kafka.reading.record_filters import KeyFilter, UndecodableFilter, ValueFilter, in_turn
from lvq_kafka.reading.selection import Selection, SelectionOptions
from lvq_kafka.reading.store_terms import Subject, store_terms
from lvq_kafka.selectors.of_queues import queue_selector
from lvq_kafka.storing.store_directory import StoreDirectory

__all__ = ["QueueReader"]


class QueueReader(FollowingReader[V], Generic[V]):
    """Reads a queue from its cluster.

    Args:
        selection: what to read.
        by_value: whether the conditions of the selection limit the values held, and not only its keys and partitions.
        watch: notices alterations of the queue; None for a topic that is no declared queue.
        store: the directory to keep the values in; None for memory alone.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        codec: Codec[V],
        *,
        undecodable: Undecodable,
        catch_up_timeout: float | None,
        metadata_interval: float,
        selection: SelectionOptions[V],
        by_value: bool = False,
        since: Callable[[Cluster, str], Mapping[int, int]] | None = None,
        watch: RegistryWatch | None = None,
        store: str | PathLike[str] | None = None,
    ) -> None:
        check_undecodable(undecodable)
        durations("Give the time between checks of the topic.", metadata_interval=metadata_interval)
        self._cluster = cluster
        self._topic = definition.topic
        self._queue = definition.name
        self._codec = codec
        self._raw_on_error = undecodable == "raw"
        self._catch_up_timeout = waiting(catch_up_timeout, "catch_up_timeout")
        selector = queue_selector(definition)
        judged = () if selector is None else (selector,)
        rules = QueueRules.of(definition, None if selector is None else selector.matches)
        self._rules = rules
        self._listing = Listing(rules)
        self._selection = Selection(self._topic, codec, *judged, raw_on_error=self._raw_on_error, **selection)
        self._hiding = UndecodableFilter(definition.topic, codec)
        self._index_rules = IndexRules()
        self._alone = None if definition.conflate else StandardFilter()
        selected = self._selection.keys
        if self._alone is not None:
            self._selection.keys = KeySelection()  # only the filter sees keys as they are in the log
        by_value = by_value and bool(self._selection.conditions)
        self._follower = Follower(
            cluster,
            rules,
            since=since,
            record_filter=in_turn(
                KeyFilter(rules.keys, selected) if selected else None,
                self._alone,
                self._hiding if undecodable == "skip" else None,
                ValueFilter(rules.keys, self._selection) if by_value else None,
            ),
            partitions=self._selection.partitions,
            by_value=by_value,
            metadata_interval=metadata_interval,
            watch=watch,
            store=None
            if store is None
            else ReaderStore(
                StoreDirectory(store, indexes=self._index_rules),
                partial(store_terms, selector=definition.selector, selection=self._selection, undecodable=undecodable),
                partial(Subject.of, definition.name, partitions=self._selection.partitions),
            ),
        )
        self._shared = self._follower.shared

    # ---------------------------------------------------------------- status

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._queue

    @property
    def skipped(self) -> int:
        """The number of undecodable values skipped under the policy ``"skip"``."""
        return self._hiding.skipped

    @property
    def ignored(self) -> int:
        """The number of deletes in a standard queue, where they mean nothing (R35)."""
        return 0 if self._alone is None else self._alone.ignored

    @property
    def unjudged(self) -> int:
        """The number of values that ``where`` or ``selector`` could not judge: not selected (R31)."""
        return self._selection.unjudged

    @property
    def selection_failure(self) -> LVQError | None:
        """The first error of ``where``, a `PredicateFailed`, or None."""
        return self._selection.failure
