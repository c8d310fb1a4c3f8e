"""The torture test: consumers of a queue on a real broker, while everything that can be killed gets killed.

Consumers run in their own processes. Chaos kills, stops, dismisses and adds them; it kills and freezes the broker; the
topic is compacted all the time. Each process has *habits*: durable delivery counts or its own, a delivery limit or
none, prefetching or many messages at once. Some messages cannot be processed by anybody. Each process writes everything
that happens to it into a *journal*, outside of Kafka. At the end, the *judge* compares the journals and the dead
letters with the contract (G9 to G13). A key is lost if its newest message was neither acked nor has a dead letter. A
delivery count is wrong if it goes back, or if nothing explains it.

``make torture`` runs it for minutes, with ``NODES=3`` on a cluster; `tests/integration/test_torture.py` for as long as
`make test` can afford.
"""
