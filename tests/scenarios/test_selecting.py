"""Sections 13 and 14: browsers that select by header, age or key."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lvq_kafka.errors import ConfigError
from tests.scenarios.harness import KEY, PRODUCERS_TIMES, Declare, Queue, text


def test_s139_a_browser_that_selects_by_a_header_gets_what_has_it(q: Queue) -> None:
    """There is no default filter to override: a queue looks the same to all other readers."""
    b = q.browse(headers={"foo": 0})
    q.send("a=a1", foo="0")
    q.send("b=b1", foo="1")
    assert b.drain() == ["a1"]
    assert q.content() == ["a1", "b1"]


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


def test_s144_a_filter_that_does_not_exist_fails_when_the_browser_is_made(q: Queue) -> None:
    with pytest.raises(TypeError, match="arrival_time"):
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
