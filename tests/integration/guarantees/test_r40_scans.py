"""Scans on a real broker: in memory and in a store, the same keys in the same order, of one moment."""

from __future__ import annotations

from pathlib import Path

from lvq_kafka import LastValueQueue
from tests.integration.guarantees.writing import put


def test_r40_scans_of_memory_and_of_a_store_are_the_same(queue: LastValueQueue[str], tmp_path: Path) -> None:
    put(queue, **{f"k{number}": str(number) for number in range(300)})
    put(queue, k7=None)
    expected = sorted((f"k{number}", str(number)) for number in range(300) if number != 7)
    with queue.view() as memory, queue.view(store=tmp_path / "store") as store:
        scans = [view.scan(prefix="k") for view in (memory, store)]
        put(queue, k7="again", k1=None)
        memory.barrier()
        store.barrier()
        for scan in scans:
            assert [(entry.key, entry.value) for entry in scan] == expected
            assert len(scan) == 299
        for view in (memory, store):
            assert list(view.scan(start="k6", stop="k8").keys()) == sorted(
                f"k{number}" for number in range(300) if "k6" <= f"k{number}" < "k8"
            )
