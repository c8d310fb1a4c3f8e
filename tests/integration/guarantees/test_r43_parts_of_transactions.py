"""R43 on a real broker: a part of a transaction, shown for as long as another one is open."""

from __future__ import annotations

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.keys import home_partition
from tests.contract.harness import settled
from tests.integration.guarantees.conftest import QueueOf
from tests.integration.guarantees.writing import put
from tests.waiting import eventually

FIRST, SECOND, THIRD = (
    [key for key in "abcdefgh" if home_partition(key.encode(), 2) == home][at] for home, at in ((0, 0), (1, 0), (1, 1))
)


def test_r43_a_view_shows_a_part_of_a_transaction_and_all_of_it_after_a_barrier(queue_of: QueueOf) -> None:
    queue: LastValueQueue[str] = queue_of(2)
    put(queue, **{FIRST: "old", SECOND: "old"})
    with (
        queue.view() as view,
        queue.producer(transactional_id=f"{queue.name}-slow") as slow,
        queue.producer(transactional_id=f"{queue.name}-fast") as fast,
    ):
        with slow.transaction(60):
            slow.put(THIRD, "x").result(30)
            with fast.transaction(30):
                fast.put(FIRST, "new")
                fast.put(SECOND, "new")
            eventually(lambda: view[FIRST] == "new", 30)
            snapshot = view.snapshot()
            assert (snapshot[FIRST], snapshot[SECOND]) == ("new", "old")
        settled(queue.cluster, queue.topic)
        view.barrier()
        assert (view[FIRST], view[SECOND]) == ("new", "new")
