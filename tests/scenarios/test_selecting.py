"""Sections 13 and 14: browsers that select by header, age or key."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lvq_kafka.errors import ConfigError
from tests.scenarios.harness import KEY, PATIENCE, PRODUCERS_TIMES, Declare, Queue, text


def test_s139_a_browser_overrides_the_default_filter_of_the_name_that_it_gives(declare: Declare) -> None:
    """R28. Views, and browsers that say so, go by no default."""
    q = declare(default_filters={"selector": "foo = 1", "replay_period": 3600})
    overriding, usual, whole = q.browse(selector="foo = 0"), q.browse(), q.browse(default_filters=False)
    q.send("a=a1", foo="0")
    q.send("b=b1", foo="1")
    assert (overriding.drain(), usual.drain(), whole.drain()) == (["a1"], ["b1"], ["a1", "b1"])
    assert q.content() == ["b1"]
    assert dict(q.view()) == {"a": "a1", "b": "b1"}


def test_s139_filters_of_other_names_remain(declare: Declare) -> None:
    """R15, R28."""
    q = declare(default_filters={"selector": "foo = 1", "replay_period": 0})
    q.send("a=a1", foo="1")
    every, new, updates = q.browse(replay_period=3600), q.browse(selector="foo = 0"), q.browse(dump=False)
    assert (every.dump()[0], new.dump()[0], updates.dump()[0]) == (["a1"], [], [])
    q.send("b=b1", foo="0")
    q.send("c=c1", foo="1")
    assert (every.drain(), new.drain(), updates.drain()) == (["c1"], ["b1"], ["c1"])


def test_s139_a_key_that_leaves_a_selector_leaves_it_after_compaction_too(q: Queue) -> None:
    """R24, R30. Compaction keeps the value that does not match, and removes the one that did."""
    selector = "foo = 0 AND k LIKE '_'"
    q.send("a=a1", "b=b1", foo="0")
    b, view = q.browse(selector=selector), q.view(selector=selector)
    assert b.drain() == ["a1", "b1"]
    q.send("a=a2", foo="1")
    q.venue.compact(q.queue.topic)
    assert b.drain() == ["a left"]
    view.barrier(PATIENCE)
    assert dict(view) == dict(q.view(selector=selector)) == {"b": "b1"}
    assert q.browse(selector=selector).drain() == ["b1"]


def test_s140_a_replay_period_of_nothing_leaves_out_all_that_was_there(q: Queue) -> None:
    """R15."""
    q.send("a=A")
    b = q.browse(replay_period=0)
    q.send("b=B")
    assert b.dump()[0] == []
    assert b.drain() == ["B"]


def test_s143_a_replay_period_leaves_out_what_is_older_until_it_is_updated(declare: Declare) -> None:
    """R15. A key left out of the dump is treated like any other afterwards."""
    q = declare(spec=PRODUCERS_TIMES)
    now = time.time()
    q.send_at(now - 7200, "a=a1")
    q.send_at(now - 60, "b=b1")
    b = q.browse(replay_period=3600)
    assert b.dump()[0] == ["b1"]
    q.send("a=a2")
    assert b.drain() == ["a2"]


def test_r26_a_message_that_is_not_selected_blocks_nothing_and_is_never_handed_out(declare: Declare) -> None:
    """A reader for which a value does not match keeps no newer one from replacing it, before and after compaction."""
    q = declare(selector="foo = 0")
    q.send("a=a1", "b=b1", "c=c1", foo="0")
    q.send("a=a2", "d=d1", foo="1")
    q.venue.compact(q.queue.topic)
    assert q.queue.stats().depth == 2
    assert list(q.view().values()) == q.content() == ["b1", "c1"]
    consumer = q.consume()
    held = consumer.take()
    assert held.value == "b1"
    q.send("b=b2", "c=c2", foo="1")
    q.send("a=a3", foo="0")
    assert consumer.take_all() == ["a3"]
    held.release()
    assert consumer.has_nothing(), "b has a newer value, although that is not in the queue"
    consumer.close()
    assert q.queue.stats().depth == 0
    q.venue.compact(q.queue.topic)
    assert (q.content(), q.consume().has_nothing()) == ([], True)


def test_r26_queues_on_one_topic_divide_its_messages_by_their_selectors(declare: Declare) -> None:
    """R5. A value that moves from one to the other is the newest of its key in both."""
    near = declare(selector="foo = 0")
    far = declare("-far", topic=near.queue.topic, selector="NOT (foo = 0)")
    near.send("a=a1", "b=b1", foo="0")
    near.send("c=c1", foo="1")
    assert (near.content(), far.content()) == (["a1", "b1"], ["c1"])
    browsers = near.browse(), far.browse()
    assert [b.drain() for b in browsers] == [["a1", "b1"], ["c1"]]
    near.send("a=a2", foo="1")
    assert [b.drain() for b in browsers] == [["a left"], ["a2"]]
    assert (near.consume().take_all(), far.consume().take_all()) == (["b1"], ["c1", "a2"])


def test_r26_a_queue_that_is_never_consumed_shows_what_it_selects(declare: Declare) -> None:
    q = declare(non_destructive=True, selector="foo = 0")
    q.send("a=a1", "b=b1", foo="0")
    b = q.browse()
    assert b.drain() == ["a1", "b1"]
    q.send("a=a2", foo="1")
    q.send("a=a3", "c=c1", foo="0")
    assert b.drain() == ["a3", "c1"], "a came back before the browser looked"
    assert dict(q.view()) == {"b": "b1", "a": "a3", "c": "c1"}
    assert q.queue.stats().depth == 3


@pytest.mark.parametrize(
    ("options", "named"), [({"replay_period": "abc"}, "'abc'"), ({"replay_period": [1, 2]}, "1, 2")]
)
def test_s144_a_replay_period_that_is_none_is_refused_by_its_value(
    q: Queue, options: dict[str, Any], named: str
) -> None:
    """R15. This happens before anything is read."""
    with pytest.raises(ConfigError, match="replay_period") as refused:
        q.queue.browser(**options)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"replay_period": "abc"}, "'abc'"),
        ({"replay_period": [1, 2]}, "1, 2"),
        ({"arrival_time": 3600}, "arrival_time is not a filter"),
        ({"selector": "foo = = 1"}, "column 7"),
    ],
)
def test_s144_a_default_filter_that_is_none_fails_when_the_queue_is_declared(
    declare: Declare, filters: dict[str, Any], named: str
) -> None:
    """R28. The way to a consumer's filter is a queue with a selector."""
    with pytest.raises(ConfigError) as refused:
        declare(default_filters=filters)
    assert named in str(refused.value)
    assert "default_filters" in refused.value.options


@pytest.mark.parametrize("option", ["replay_period", "selector"])
def test_s144_a_filter_of_a_consumer_is_refused_with_the_way_out(q: Queue, option: str) -> None:
    """R27."""
    options: dict[str, Any] = {option: "3600"}
    with pytest.raises(ConfigError, match="eclare another queue on the topic") as refused:
        q.consume(**options)
    assert refused.value.options == (option,)


def test_s144_a_filter_that_does_not_exist_fails_when_the_browser_is_made(q: Queue) -> None:
    with pytest.raises(ConfigError, match="arrival_time"):
        q.queue.browser(arrival_time=3600)


def test_s145_a_subscription_to_a_key_gets_its_value_and_its_updates_alone(q: Queue) -> None:
    """The subscription may name the key or its header."""
    q.send("IBM=1", "IBM=2", "MSFT=9")
    browsers = [q.browse(keys=["IBM"]), q.browse(headers={KEY: "IBM"})]
    assert [b.dump()[0] for b in browsers] == [["2"], ["2"]]
    q.send("IBM=3", "MSFT=10")
    assert [b.drain() for b in browsers] == [["3"], ["3"]]


def test_s145_a_view_of_a_key_holds_its_value_alone(q: Queue) -> None:
    """R30. A view of the header's value is one as well."""
    q.send("IBM=1", "IBM=2", "MSFT=9")
    views = [q.view(keys=["IBM"]), q.view(headers={KEY: "IBM"}), q.view(where=lambda entry: entry.key == "IBM")]
    assert [dict(view) for view in views] == [{"IBM": "2"}] * 3
    watches = [view.watch() for view in views]
    q.send("MSFT=10", "IBM=3")
    for view, watch in zip(views, watches):
        view.barrier(30)
        assert dict(view) == {"IBM": "3"}
        assert [text(event) for event in watch.drain()] == ["3"]


def test_s146_a_subscription_to_a_key_that_has_no_value_gets_the_first_one(q: Queue) -> None:
    b = q.browse(keys=["IBM"])
    assert b.dump()[0] == []
    q.send("IBM=1")
    assert b.drain() == ["1"]


def test_s148_subscriptions_to_two_keys_of_a_queue_are_independent(q: Queue) -> None:
    q.send("IBM=1", "MSFT=8", "IBM=2")
    ibm, msft = q.browse(keys=["IBM"]), q.browse(keys=["MSFT"])
    assert (ibm.drain(), msft.drain()) == (["2"], ["8"])
    q.send("MSFT=9")
    assert (ibm.drain(), msft.drain()) == ([], ["9"])
    q.send("IBM=3")
    ibm.close()
    assert msft.drain() == []
    assert dict(q.view()) == {"MSFT": "9", "IBM": "3"}
    assert q.queue.stats().depth == 2
