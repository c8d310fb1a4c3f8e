"""The torture test: consumers of a queue on a real broker, while everything that can be killed is.

Consumers run in processes of their own that are killed, stopped, sent away and joined by others; the broker is killed
and frozen; the topic is compacted all the time. Every process appends what happens to it to a *journal* of its own,
outside of Kafka. At the end the *judge* holds the journals against what the contract promises (G9 to G13).

``make torture`` runs it for minutes; `tests/integration/test_torture.py` for as long as `make test` can bear.
"""
