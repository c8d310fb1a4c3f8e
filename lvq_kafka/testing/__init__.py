"""For tests of code that uses last value queues: an in-memory log, and real brokers through pytest fixtures.

`MemoryLog` stands in for a cluster: ``LastValueQueue.declare(..., log=MemoryLog())``. The pytest plugin is active
wherever this package is installed and gives the fixtures ``memory_log``, ``lvq_broker``, ``lvq_log`` and
``lvq_topic``; see `lvq_kafka.testing.plugin`.
"""

from __future__ import annotations

from lvq_kafka.testing.brokers import ProvidedBroker, provide_broker
from lvq_kafka.testing.memory_log import MemoryLog

__all__ = ["MemoryLog", "ProvidedBroker", "provide_broker"]
