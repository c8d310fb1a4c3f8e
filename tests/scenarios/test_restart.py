"""Section 7: stored messages and acks after a restart of broker and clients."""

from __future__ import annotations

from lvq_kafka.testing import MemoryCluster
from tests.scenarios.harness import PATIENCE, Queue
from tests.waiting import eventually


def test_s088_a_queue_is_the_same_after_a_restart(q: Queue) -> None:
    q.send("a=m1", "a=m2")
    assert len(q.content()) == 1
    q.restart()
    assert len(q.content()) == 1
    q.send("a=m3")
    assert len(q.content()) == 1
    assert q.consume().take_all() == ["m3"]


def test_s090_what_was_held_at_a_restart_comes_again_and_what_was_acked_does_not(q: Queue) -> None:
    q.send("B=B1", "A=A1", "A=A2", "B=B2", "B=B3", "C=C1")
    before = q.consume()
    assert [before.take().value for _ in range(3)] == ["A2", "B3", "C1"]
    q.restart()
    c = q.consume()
    held = [c.take() for _ in range(3)]
    assert [delivery.value for delivery in held] == ["A2", "B3", "C1"]
    assert c.has_nothing()
    q.send("C=C2", "C=C3", "A=A3", "A=A4", "C=C4")
    for delivery in held:
        delivery.ack(wait=True, timeout=PATIENCE)
    q.restart()
    assert q.consume().take_all() == ["A4", "C4"]


def test_s091_every_message_is_durable(q: Queue) -> None:
    """G14: there are no transient messages, which a durable queue could mishandle."""
    q.send("a=1", "a=2")
    assert q.content() == ["2"]
    q.restart()
    assert q.content() == ["2"]


def test_s094_a_view_that_was_away_shows_what_a_new_one_shows(q: Queue) -> None:
    """A view stores no position: it is rebuilt from the current cut (G1, G8)."""
    q.send("a=a1", "b=b1")
    before = q.view().snapshot()
    assert dict(before) == {"a": "a1", "b": "b1"}
    q.restart()
    q.send("a=a2")
    q.delete("b")
    after = q.view().snapshot()
    assert dict(after) == dict(q.view()) == {"a": "a2"}
    assert after.offsets[0] == before.offsets[0] + 2
    assert after.topic_id == before.topic_id


def test_s094_a_view_that_was_cut_off_goes_on_where_it_was(q: Queue) -> None:
    """A view whose process survives while the cluster is unreachable resumes at its position."""
    cluster = q.venue.cluster
    assert isinstance(cluster, MemoryCluster)
    q.send("a=a1", "b=b1")
    view = q.view()
    cluster.disconnect()
    eventually(lambda: view.state == "disconnected")
    assert dict(view) == {"a": "a1", "b": "b1"}
    cluster.write(q.queue.topic, b"a", b"a2")
    cluster.write(q.queue.topic, b"b", None)
    cluster.reconnect()
    view.barrier(PATIENCE)
    assert dict(view) == dict(q.view()) == {"a": "a2"}
    assert view.stats.stale == 0
