"""The torture test: consumers of a queue on a real broker, while everything that can be killed gets killed.

Consumers run in their own processes. Chaos kills, stops, dismisses and adds them; it kills and freezes the broker; the
topic is compacted all the time. Each process has *habits*: durable delivery counts or its own, a delivery limit or
none, prefetching or many messages at once. Some messages cannot be processed by anybody. Each process writes everything
that happens to it into a *journal*, outside of Kafka. At the end, the *judge* compares the journals and the dead
letters with the contract (G9 to G13). A key is lost if its newest message was neither acked nor has a letter. A
delivery count is wrong if it goes back, or if nothing explains it.

In some runs messages expire, into an expiry topic, or are also scheduled (R10, R11). The judge then works out from a
*tape*, a copy of the log that compaction does not touch, from when until when each message counts. It compares that, to
the millisecond, with the clock by which each delivery was chosen, with the letters of what has expired, and with a view
that is open throughout the run.

In other runs the queue has limits (R12). As a ring it evicts messages, which ends them without a hand-out; processes
record each eviction. If it blocks, the journal has each call of a producer, and how long it waited.

``make torture`` runs it for minutes, with ``NODES=3`` on a cluster; `tests/integration/test_torture.py` for as long as
`make test` can afford.
"""
