"""Pickling and copying: objects that may leave their process stay whole; others refuse, and say what to do instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lvq_kafka import TEXT, Codec, LastValueQueue, connect
from lvq_kafka.errors import BoundToProcess
from lvq_kafka.reading.entries import Deleted, EndOfDump
from lvq_kafka.testing import MemoryCluster
from tests.unit.kafka.mock_cluster import MockCluster

LEAVE: dict[str, Callable[[Any], object]] = {"pickle": pickle.dumps, "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.fixture
def opened(memory_cluster: MemoryCluster) -> Iterator[dict[str, Any]]:
    """Yield one object of each kind that is bound to its process."""
    queue = LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster, value=TEXT)
    with ExitStack() as stack:
        producer = stack.enter_context(queue.producer(transactional_id="t"))
        plain = stack.enter_context(queue.producer())
        receipt = plain.put("a", "1")
        plain.put("b", "2")
        receipt.result(10)
        view, browser = stack.enter_context(queue.view()), stack.enter_context(queue.browser())
        consumer = stack.enter_context(queue.consumer())
        delivery, acked = consumer.acquire(10), consumer.acquire(10)
        assert delivery is not None
        assert acked is not None
        settlement = acked.ack()
        yield {
            "queue": queue,
            "view": view,
            "watch": stack.enter_context(view.watch()),
            "browser": browser,
            "producer": plain,
            "receipt": receipt,
            "consumer": consumer,
            "delivery": delivery,
            "deliveries": aiter(consumer),
            "settlement": settlement,
            "joint settlement": consumer.ack_many([]),
            "transaction": consumer.transaction(producer),
        }


BOUND = (
    "queue", "view", "watch", "browser", "producer", "receipt", "consumer", "delivery", "deliveries", "settlement",
    "joint settlement", "transaction",
)  # fmt: skip


@pytest.mark.parametrize("leave", LEAVE.values(), ids=list(LEAVE))
@pytest.mark.parametrize("what", BOUND)
def test_an_object_that_is_bound_to_its_process_says_so(
    opened: dict[str, Any], what: str, leave: Callable[[Any], object]
) -> None:
    with pytest.raises(BoundToProcess, match="cannot be pickled or copied") as caught:
        leave(opened[what])
    assert isinstance(caught.value, TypeError), "as pickle has it"
    assert caught.value.hint
    if leave is not copy.copy:  # copies the list only
        with pytest.raises(BoundToProcess):
            leave([opened[what]])


def test_a_connection_says_so_and_shows_no_secret() -> None:
    mock = MockCluster()
    secret = {"sasl.username": "u", "sasl.password": "hunter2", "security.protocol": "SASL_PLAINTEXT"}
    cluster = connect(mock.bootstrap_servers, config={**secret, "sasl.mechanism": "PLAIN"})
    queue = LastValueQueue("t", key_header=None, cluster=cluster)
    for one in (cluster, queue):
        for leave in LEAVE.values():
            with pytest.raises(BoundToProcess, match="cannot be pickled or copied") as caught:
                leave(one)
            assert "hunter2" not in str(caught.value)
    cluster.close()
    mock.close()


def test_objects_that_were_read_may_leave(opened: dict[str, Any]) -> None:
    queue, view = opened["queue"], opened["view"]
    snapshot = view.snapshot()
    events = [*view.entries(), Deleted("a", consumed=True), EndOfDump({0: 2})]
    for one in (*events, queue.definition, view.entry("a").position, queue.stats(), opened["consumer"].stats):
        for arrived in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert arrived == one
    assert dict(pickle.loads(pickle.dumps(snapshot))) == dict(snapshot) == {"a": "1", "b": "2"}


def test_a_snapshot_may_leave_while_somebody_iterates_over_it(opened: dict[str, Any]) -> None:
    snapshot = opened["view"].snapshot()
    for one in snapshot:
        for arrived in (pickle.loads(pickle.dumps(snapshot)), copy.copy(snapshot), copy.deepcopy(snapshot)):
            assert list(arrived) == list(snapshot)
            assert arrived[one] == snapshot[one]
            assert arrived.offsets == snapshot.offsets


def test_a_codec_of_module_level_functions_leaves_with_the_snapshot(memory_cluster: MemoryCluster) -> None:
    codec = Codec(str.encode, bytes.decode, name="mine")
    queue = LastValueQueue.declare("others", key_header=None, cluster=memory_cluster, value=codec)
    with queue.producer() as producer:
        producer.put("a", "1")
    with queue.view() as view:
        assert dict(pickle.loads(pickle.dumps(view.snapshot()))) == {"a": "1"}
