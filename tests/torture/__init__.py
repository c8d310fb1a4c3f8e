"""The torture test: consumers of a queue on a real broker, while everything that can be killed is.

Consumers run in processes of their own that are killed, stopped, sent away and joined by others; the broker is killed
and frozen; the topic is compacted all the time. Each process has *habits*: it counts deliveries durably or for itself,
gives up what is delivered too often or not, takes messages ahead or many at a time. Some messages cannot be processed
by anybody. Every process appends what happens to it to a *journal* of its own, outside of Kafka. At the end the *judge*
holds the journals, and the dead letters, against what the contract promises (G9 to G13): a key whose newest message was
neither acked nor has a dead letter is lost, and a count that goes back or that nothing explains is wrong.

``make torture`` runs it for minutes, with ``NODES=3`` on a cluster; `tests/integration/test_torture.py` for as long as
`make test` can bear.
"""
