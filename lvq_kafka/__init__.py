"""Last value queues on Apache Kafka.

A last value queue keeps the newest message for each value of a message header, on a log-compacted topic. Declare one
with `LastValueQueue.declare`, then produce, browse, view and consume.

Everything that its methods take or return can be imported from here; errors are in `lvq_kafka.errors`.
"""

from typing import TYPE_CHECKING

from lvq_kafka._version import __version__

if TYPE_CHECKING:
    from lvq_kafka.address_settings import AddressSettings
    from lvq_kafka.cluster import Cluster, Receipt
    from lvq_kafka.codecs import BYTES, DECLARED, JSON, TEXT, Codec
    from lvq_kafka.consuming.acquiring import AsyncDeliveries
    from lvq_kafka.consuming.consumer import Consumer
    from lvq_kafka.consuming.consumer_options import ConsumerOptions
    from lvq_kafka.consuming.consumer_session import Session
    from lvq_kafka.consuming.consumer_stats import ConsumerStats
    from lvq_kafka.consuming.delivery import Delivery
    from lvq_kafka.consuming.settlement import Settlement
    from lvq_kafka.consuming.transaction import Transaction
    from lvq_kafka.core.commit_map.commit_map import CommitMap
    from lvq_kafka.core.facts import Depth, Position, Shortfall
    from lvq_kafka.core.latest.catch_up import ReaderStatus
    from lvq_kafka.core.latest.fold import ReaderStats
    from lvq_kafka.core.producer.message_terms import MessageTerms
    from lvq_kafka.core.queue.default_filters import DefaultFilters
    from lvq_kafka.core.queue.definition import BareOptions, QueueDefinition, QueueOptions
    from lvq_kafka.core.queue.limits import Limits
    from lvq_kafka.core.queue.message_groups import Groups
    from lvq_kafka.core.queue.option_names import ARTEMIS_KEY_HEADER, QPID_KEY_HEADER
    from lvq_kafka.core.queue.topic_settings import Finding, TopicSpec
    from lvq_kafka.core.timing.earlier_terms import EarlierTerms
    from lvq_kafka.core.timing.ttl import Ttl
    from lvq_kafka.core.waiting.lifecycle import MessageState as DeliveryState
    from lvq_kafka.declared.damage import Damage
    from lvq_kafka.errors import LVQError
    from lvq_kafka.kafka import ClientConfig
    from lvq_kafka.kafka.connecting import connect
    from lvq_kafka.kafka.serializers import serializers
    from lvq_kafka.managing.backlog import Tally
    from lvq_kafka.managing.feeding import Feed, FeedStats
    from lvq_kafka.managing.management import Change, Repair
    from lvq_kafka.managing.queue_stats import PartitionStats, QueueStats, WaitingStats
    from lvq_kafka.managing.reclaiming import Reclaim
    from lvq_kafka.producing.producer import Message, Producer, ProducerOptions
    from lvq_kafka.queue import Alteration, Declaration, LastValueQueue, queues
    from lvq_kafka.reading.attached_view import AttachedView, attach
    from lvq_kafka.reading.browser import Browser
    from lvq_kafka.reading.entries import Deleted, EndOfDump, Entry
    from lvq_kafka.reading.key_pages import KeyPage
    from lvq_kafka.reading.scan import KeyScan
    from lvq_kafka.reading.selection import SelectionOptions
    from lvq_kafka.reading.snapshot import Snapshot
    from lvq_kafka.reading.sql_answer import SqlAnswer
    from lvq_kafka.reading.view import View
    from lvq_kafka.reading.watch import Watch

__all__ = [
    "ARTEMIS_KEY_HEADER",
    "BYTES",
    "DECLARED",
    "JSON",
    "QPID_KEY_HEADER",
    "TEXT",
    "AddressSettings",
    "Alteration",
    "AsyncDeliveries",
    "AttachedView",
    "BareOptions",
    "Browser",
    "Change",
    "ClientConfig",
    "Cluster",
    "Codec",
    "CommitMap",
    "Consumer",
    "ConsumerOptions",
    "ConsumerStats",
    "Damage",
    "Declaration",
    "DefaultFilters",
    "Deleted",
    "Delivery",
    "DeliveryState",
    "Depth",
    "EarlierTerms",
    "EndOfDump",
    "Entry",
    "Feed",
    "FeedStats",
    "Finding",
    "Groups",
    "KeyPage",
    "KeyScan",
    "LVQError",
    "LastValueQueue",
    "Limits",
    "Message",
    "MessageTerms",
    "PartitionStats",
    "Position",
    "Producer",
    "ProducerOptions",
    "QueueDefinition",
    "QueueOptions",
    "QueueStats",
    "ReaderStats",
    "ReaderStatus",
    "Receipt",
    "Reclaim",
    "Repair",
    "SelectionOptions",
    "Session",
    "Settlement",
    "Shortfall",
    "Snapshot",
    "SqlAnswer",
    "Tally",
    "TopicSpec",
    "Transaction",
    "Ttl",
    "View",
    "WaitingStats",
    "Watch",
    "__version__",
    "attach",
    "connect",
    "queues",
    "serializers",
]

_HOMES = {
    "ARTEMIS_KEY_HEADER": "core.queue.option_names",
    "AddressSettings": "address_settings",
    "Alteration": "queue",
    "AsyncDeliveries": "consuming.acquiring",
    "AttachedView": "reading.attached_view",
    "BYTES": "codecs",
    "BareOptions": "core.queue.definition",
    "Browser": "reading.browser",
    "Change": "managing.management",
    "ClientConfig": "kafka",
    "Cluster": "cluster",
    "Codec": "codecs",
    "CommitMap": "core.commit_map.commit_map",
    "Consumer": "consuming.consumer",
    "ConsumerOptions": "consuming.consumer_options",
    "ConsumerStats": "consuming.consumer_stats",
    "DECLARED": "codecs",
    "Damage": "declared.damage",
    "Declaration": "queue",
    "DefaultFilters": "core.queue.default_filters",
    "Deleted": "reading.entries",
    "Delivery": "consuming.delivery",
    "DeliveryState": "core.waiting.lifecycle:MessageState",
    "Depth": "core.facts",
    "EarlierTerms": "core.timing.earlier_terms",
    "EndOfDump": "reading.entries",
    "Entry": "reading.entries",
    "Feed": "managing.feeding",
    "FeedStats": "managing.feeding",
    "Finding": "core.queue.topic_settings",
    "Groups": "core.queue.message_groups",
    "JSON": "codecs",
    "KeyPage": "reading.key_pages",
    "KeyScan": "reading.scan",
    "LVQError": "errors",
    "LastValueQueue": "queue",
    "Limits": "core.queue.limits",
    "Message": "producing.producer",
    "MessageTerms": "core.producer.message_terms",
    "PartitionStats": "managing.queue_stats",
    "Position": "core.facts",
    "Producer": "producing.producer",
    "ProducerOptions": "producing.producer",
    "QPID_KEY_HEADER": "core.queue.option_names",
    "QueueDefinition": "core.queue.definition",
    "QueueOptions": "core.queue.definition",
    "QueueStats": "managing.queue_stats",
    "ReaderStats": "core.latest.fold",
    "ReaderStatus": "core.latest.catch_up",
    "Receipt": "cluster",
    "Reclaim": "managing.reclaiming",
    "Repair": "managing.management",
    "SelectionOptions": "reading.selection",
    "Session": "consuming.consumer_session",
    "Settlement": "consuming.settlement",
    "Shortfall": "core.facts",
    "Snapshot": "reading.snapshot",
    "SqlAnswer": "reading.sql_answer",
    "TEXT": "codecs",
    "Tally": "managing.backlog",
    "TopicSpec": "core.queue.topic_settings",
    "Transaction": "consuming.transaction",
    "Ttl": "core.timing.ttl",
    "View": "reading.view",
    "WaitingStats": "managing.queue_stats",
    "Watch": "reading.watch",
    "attach": "reading.attached_view",
    "connect": "kafka.connecting",
    "queues": "queue",
    "serializers": "kafka.serializers",
}
"""The module of each name. A name is imported when somebody asks for it: together they take a third of a second."""

if not TYPE_CHECKING:  # type checkers would take every name for one of ours

    def __getattr__(name: str) -> object:
        from importlib import import_module

        module, _, there = _HOMES.get(name, "").partition(":")
        if module:
            found = getattr(import_module(f"{__name__}.{module}"), there or name)
            globals()[name] = found
            return found
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")  # such as lvq_kafka.errors
            except ModuleNotFoundError as missing:
                if missing.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
