"""R34 on a real broker: pages of two processes' views while a producer writes, and the watch that follows."""

from __future__ import annotations

from pathlib import Path

from tests.following import keep_up
from tests.integration.guarantees.conftest import QueueOf
from tests.integration.guarantees.writing import put, ticking


def test_r34_pages_made_under_load_and_the_watch_that_follows_hold_what_the_view_holds(
    queue_of: QueueOf, tmp_path: Path
) -> None:
    queue = queue_of(3)
    put(queue, gone="1", kept="1")
    with (
        ticking(queue, lambda number: f"k{number % 200:03}", limit=4000) as ticker,
        queue.view() as memory,
        queue.view(store=tmp_path / "store") as store,
    ):
        ticker.await_count(500)
        kept: dict[str, str] = {}
        page, views = memory.page(limit=15), [store, memory]
        while True:
            kept |= {entry.key: entry.value for entry in page.entries}
            if page.last:
                break
            ticker.await_count(min(4000, ticker.count + 100))
            page = views[0].page(page.token, limit=15)
            views.reverse()
        put(queue, gone=None)
        with store.watch(since=page.token) as watch:
            ticker.await_count(4000)
            ticker.stop()
            store.barrier()
            keep_up(kept, watch.drain())
        assert kept == dict(store)
        assert len(kept) == 201
