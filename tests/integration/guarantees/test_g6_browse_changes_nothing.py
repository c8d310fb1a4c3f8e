"""G6, browsing changes nothing: not the log, not the queue's consumption, not the cluster's groups or topics."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient

from lvq_kafka import EndOfDump, Entry, LastValueQueue
from tests.integration.guarantees.cluster import read_raw
from tests.integration.guarantees.conftest import Declare
from tests.integration.guarantees.writing import put


def picture(queue: LastValueQueue[str], servers: str) -> dict[str, Any]:
    """Return everything about a queue that is visible from outside."""
    cluster, topic = queue.cluster, queue.topic
    admin = AdminClient({"bootstrap.servers": servers})
    groups = admin.list_consumer_groups(request_timeout=10).result().valid
    return {
        "log": (
            cluster.logs.start_offsets(topic),
            cluster.logs.end_offsets(topic),
            cluster.logs.end_offsets(topic, stable=True),
        ),
        "records": read_raw(servers, topic, committed=False),
        "topic": (cluster.topics.describe(topic), cluster.topics.config(topic)),
        "consumed": cluster.groups.committed(queue.definition.group, topic),
        "groups": {group.group_id: str(group.state) for group in groups},
        "topics": set(admin.list_topics(timeout=10).topics),
    }


def test_g6_browsers_and_views_of_every_kind_leave_everything_as_it_was(declare: Declare, servers: str) -> None:
    queue = declare(3)
    put(queue, a="1", b="1", c="1", d="1")
    put(queue, a="2", d=None)
    with queue.consumer() as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        delivery.ack(wait=True)
    before = picture(queue, servers)

    for options in (
        {},
        {"dump": False},
        {"replay_period": 60},
        {"keys": ["a"]},
        {"headers": {"ticker": "a"}},
        {"hide_consumed": False},
    ):
        with queue.browser(follow=False, **options) as browser:
            for _ in browser:
                pass
    with queue.browser() as follower:
        follower.drain()
    with queue.view() as view, view.watch(dump=True) as watch:
        assert len(view) == 3
        view.barrier()
        assert view.snapshot().offsets == before["log"][1]
        watch.drain()

    after = picture(queue, servers)
    # Groups of tests that have just ended may disappear meanwhile.
    assert after.pop("groups").items() <= before.pop("groups").items()
    assert after == before


def test_g6_browsed_messages_can_be_browsed_again_and_are_still_there_to_consume(declare: Declare) -> None:
    queue = declare()
    put(queue, a="1", b="1")
    for _ in range(3):
        with queue.browser(follow=False) as browser:
            *entries, end = browser
            assert [event.key for event in entries if isinstance(event, Entry)] == ["a", "b"]
            assert isinstance(end, EndOfDump)
    with queue.consumer() as consumer:
        for key in ("a", "b"):
            delivery = consumer.acquire(30)
            assert delivery is not None
            assert (delivery.key, delivery.delivery_count) == (key, 1)
            delivery.ack()
