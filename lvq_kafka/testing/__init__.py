"""Test support for users of last value queues: an in-memory cluster and real brokers.

`MemoryCluster` stands in for a cluster: ``LastValueQueue.declare(..., cluster=MemoryCluster())``. The pytest plugin is
active wherever this package is installed. It provides the fixtures ``memory_cluster``, ``lvq_broker``, ``lvq_cluster``
and ``lvq_topic``; see `lvq_kafka.testing.plugin`.
"""

from __future__ import annotations

from lvq_kafka.testing.brokers import ProvidedBroker, provide_broker
from lvq_kafka.testing.memory_cluster import MemoryCluster

__all__ = ["MemoryCluster", "ProvidedBroker", "provide_broker"]
