"""Section 5: queues that are read and never consumed. By R13, their readers are browsers."""

from __future__ import annotations

import pytest

from lvq_kafka.errors import ConfigError
from tests.scenarios.harness import Declare


def test_s074_every_reader_gets_the_newest_value_and_none_takes_it(declare: Declare) -> None:
    """Nothing is ever consumed (R13). To purge the queue, delete every key."""
    q = declare(non_destructive=True)
    q.send("KEY=hello", "KEY=how")
    assert q.queue.stats().depth == 1
    assert (q.browse().drain(), q.browse().drain()) == (["how"], ["how"])
    q.send("KEY=hello", "KEY=how")
    assert q.queue.stats().depth == 1
    assert q.browse().drain() == ["how"]
    with pytest.raises(ConfigError, match="non_destructive"):
        q.queue.purge()
    q.delete("KEY")
    assert (q.queue.stats().depth, q.content()) == (0, [])


def test_s075_readers_that_come_and_go_do_not_change_the_count(declare: Declare) -> None:
    q = declare(non_destructive=True)
    q.send("a=1")
    b = q.browse()
    assert b.take() == "1"
    b.close()
    assert q.queue.stats().depth == 1
    q.send("b=2")
    assert q.queue.stats().depth == 2
    assert q.browse().drain() == ["1", "2"]
    assert q.queue.stats().depth == 2


def test_s076_every_reader_sees_everything_once(declare: Declare) -> None:
    q = declare(non_destructive=True)
    q.send(*(f"{number}={number}" for number in range(5)))
    one, two = q.browse(), q.browse()
    for b in (one, two):
        assert b.drain() == ["0", "1", "2", "3", "4"]
        assert b.drain() == []
    q.send("5=5")
    for b in (one, two):
        assert b.drain() == ["5"]
        assert b.drain() == []


def test_s077_a_consumer_of_a_non_destructive_queue_is_refused(declare: Declare) -> None:
    """R13: as in Qpid; Artemis and Broker-J silently downgrade the consumer."""
    q = declare(non_destructive=True)
    with pytest.raises(ConfigError, match="non_destructive") as caught:
        q.queue.consumer()
    assert caught.value.options == ("non_destructive",)
