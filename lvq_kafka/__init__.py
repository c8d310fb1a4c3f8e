"""Last value queues on Apache Kafka.

A last value queue keeps the newest message for each value of a message header, on a log-compacted topic. Declare one
with `LastValueQueue.declare`, then produce, browse, view and consume.

Everything that its methods take or return can be imported from here; errors are in `lvq_kafka.errors`.
"""

from lvq_kafka._version import __version__
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
