"""Section 2: messages with and without a key, equality of keys, and valid declarations."""

from __future__ import annotations

import pytest

from lvq_kafka import ARTEMIS_KEY_HEADER, QPID_KEY_HEADER, LastValueQueue, Message, QueueDefinition
from lvq_kafka.errors import ConfigError
from tests.scenarios.harness import KEY, Queue, Venue


def test_s018_messages_without_a_key_pass_through(q: Queue) -> None:
    """R1: as in Artemis and Broker-J; Qpid keeps only the second."""
    q.send("-=x1", "-=x2")
    assert q.content() == ["x1", "x2"]
    c = q.consume()
    assert c.waiting == 2
    assert c.take_all() == ["x1", "x2"]


def test_s021_end_markers_of_two_producers_both_arrive(q: Queue) -> None:
    """R1."""
    for name in ("one", "two"):
        with q.queue.producer() as producer:
            producer.put("a", name)
            producer.send(Message(f"end of {name}"))
    assert q.content() == ["end of one", "two", "end of two"]
    assert q.consume().take_all() == ["end of one", "two", "end of two"]


def test_s022_the_empty_text_is_a_key_and_no_key_is_none(q: Queue) -> None:
    """R1 and R2: as in Artemis and Broker-J; in Qpid both are one key."""
    q.send("=v1", "=v2", "-=v3")
    assert q.content() == ["v2", "v3"]
    assert q.consume().take_all() == ["v2", "v3"]


def test_s023_a_number_and_its_text_are_one_key(q: Queue) -> None:
    """R2: as in Qpid and Artemis Core; two keys in Broker-J, an error in Artemis AMQP."""
    with q.queue.producer() as producer:
        producer.send(Message("v1", headers={KEY: 1}))
        producer.send(Message("v2", headers={KEY: "1"}))
    assert q.content() == ["v2"]
    assert q.consume().take_all() == ["v2"]


@pytest.mark.parametrize("name", ["", "  ", None])
def test_s025_a_queue_without_the_name_of_its_key_header_is_refused(venue: Venue, name: str | None) -> None:
    """R3. In Python, None means the record key, which is a valid name. As an option, None means a missing name."""
    for option in ("key-header", "last-value-key", "qpid.last_value_queue_key", "lvqKey"):
        with pytest.raises(ConfigError, match="key header"):
            QueueDefinition.from_options("q", {option: name})
    if name is not None:
        with pytest.raises(ConfigError, match="key header") as caught:
            LastValueQueue.declare("q", key_header=name, cluster=venue.cluster)
        assert caught.value.options == ("key_header",)


def test_s026_a_switch_alone_brings_the_key_header_and_the_order_of_its_system() -> None:
    """R3. A switch that is off counts as off."""
    from_options = QueueDefinition.from_options
    for switch in ("last-value", "lastValue", "default-last-value-queue", "last-value-queue"):
        made = from_options("q", {switch: "true"})
        assert (made.key_header, made.order) == (ARTEMIS_KEY_HEADER, "tail")
    for switch in ("qpid.last_value_queue", "qpid.last_value_queue_no_browse"):
        made = from_options("q", {switch: 1})
        assert (made.key_header, made.order) == (QPID_KEY_HEADER, "in-place")
        assert from_options("q", {switch: 1, "order": "tail"}).order == "tail"
    assert from_options("q", {"last-value-key": "ticker"}).key_header == "ticker"
    assert from_options("q", {"last-value": True, "last-value-key": "ticker"}).key_header == "ticker"
    with pytest.raises(ConfigError) as caught:
        from_options("q", {"last-value": "false", "last-value-key": "ticker"})
    assert caught.value.options == ("last-value", "last-value-key")


def test_s026_switches_of_two_systems_need_the_name_of_the_key_header() -> None:
    """R3."""
    both: dict[str, object] = {"last-value": "true", "qpid.last_value_queue": "1"}
    with pytest.raises(ConfigError, match=r"Name the key header: key-header\.") as caught:
        QueueDefinition.from_options("q", both)
    assert caught.value.options == ("last-value", "qpid.last_value_queue")
    assert QueueDefinition.from_options("q", both | {"key-header": "ticker"}).key_header == "ticker"


def test_s029_options_that_clash_with_a_key_are_refused_and_named() -> None:
    """R3: as Qpid. Groups are not among them (R36), as in Broker-J and Artemis."""
    with pytest.raises(ConfigError, match="priority") as caught:
        QueueDefinition.from_options("q", {"qpid.last_value_queue_key": "ticker", "qpid.priorities": "10"})
    assert caught.value.options == ("qpid.priorities", "qpid.last_value_queue_key")
    with pytest.raises(ConfigError, match="paging") as caught:
        QueueDefinition.from_options("q", {"qpid.last_value_queue_key": "ticker", "qpid.paging": "true"})
    assert caught.value.options == ("qpid.paging",)


def test_s030_the_old_no_browse_switch_says_what_is_always_so(recwarn: pytest.WarningsRecorder) -> None:
    options: dict[str, object] = {"qpid.last_value_queue_key": "ticker"}
    plain = QueueDefinition.from_options("q", options)
    assert QueueDefinition.from_options("q", options | {"qpid.last_value_queue_no_browse": "1"}) == plain
    assert not recwarn.list
