"""Last value queues on Apache Kafka.

A queue on a log-compacted topic that keeps the newest message for each value of a message header. Declare one with
`LastValueQueue.declare`, then produce, browse, view and consume.
"""

from lvq_kafka._version import __version__
from lvq_kafka.codecs import BYTES, JSON, TEXT, Codec, serializers
from lvq_kafka.connecting import connect
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.policy import TopicSpec
from lvq_kafka.core.records import Position
from lvq_kafka.entries import Deleted, EndOfDump, Entry
from lvq_kafka.errors import LVQError
from lvq_kafka.producer import Message, Producer
from lvq_kafka.queue import LastValueQueue, queues
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.snapshot import Snapshot
from lvq_kafka.reading.view import View
from lvq_kafka.reading.watch import Watch

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "Browser",
    "Codec",
    "Consumer",
    "Deleted",
    "Delivery",
    "EndOfDump",
    "Entry",
    "LVQError",
    "LastValueQueue",
    "Message",
    "Position",
    "Producer",
    "QueueDefinition",
    "Snapshot",
    "TopicSpec",
    "View",
    "Watch",
    "__version__",
    "connect",
    "queues",
    "serializers",
]
