"""R34: pages and the changes since the first one's cut are the fold at any later time."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lvq_kafka import TEXT, LastValueQueue, View
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples
from tests.following import keep_up

KEYS = ["", "a", "a\0", "aa", "ab", "b", "ba", "c"]
WRITES = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.text("12", max_size=2)), max_size=6)


class World:
    """A queue, a model of it, and two views, one in memory and one with a store."""

    def __init__(self, stack: ExitStack, partitions: int) -> None:
        self.cluster = MemoryCluster()
        self.cluster.topics.create("q", partitions=partitions, config={"cleanup.policy": "compact"})
        self.queue: LastValueQueue[str] = LastValueQueue("q", key_header=None, value=TEXT, cluster=self.cluster)
        self._partitions = partitions
        self.model: dict[str, str] = {}
        folder = stack.enter_context(TemporaryDirectory(prefix="lvq-paging-"))
        self.views: list[View[str]] = [
            stack.enter_context(self.queue.view(store=store)) for store in (None, Path(folder) / "store")
        ]

    def write(self, writes: Iterable[tuple[str, str | None]]) -> None:
        for key, value in writes:
            partition = home_partition(key.encode(), self._partitions)
            self.cluster.write("q", key.encode(), None if value is None else value.encode(), partition=partition)
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=WRITES,
    between=st.lists(
        st.tuples(WRITES, st.integers(0, 1), st.booleans(), st.booleans(), st.integers(1, 3)), min_size=9, max_size=9
    ),
    after=st.tuples(WRITES, WRITES),
    partitions=st.integers(1, 2),
    prefix=st.sampled_from([None, "a", "b"]),
)
def test_r34_pages_and_the_changes_since_are_the_fold_at_any_later_time(
    before: list[tuple[str, str | None]],
    between: list[tuple[list[tuple[str, str | None]], int, bool, bool, int]],
    after: tuple[list[tuple[str, str | None]], ...],
    partitions: int,
    prefix: str | None,
) -> None:
    """Whatever is written and compacted between pages, which views of several processes make."""
    with ExitStack() as stack:
        world = World(stack, partitions)
        world.write(before)
        kept: dict[str, str] = {}
        view = world.views[0]
        view.barrier()
        page = view.page(limit=1, prefix=prefix)
        keep_up(kept, page.entries)
        order = [entry.key for entry in page.entries]
        for writes, chosen, compacts, waits, limit in between:
            if page.last:
                break
            world.write(writes)
            if compacts:
                world.cluster.compact("q")
            view = world.views[chosen]
            if waits:
                view.barrier()
            page = view.page(page.token, limit=limit)
            assert len(page.entries) <= limit
            keep_up(kept, page.entries)
            order += [entry.key for entry in page.entries]
        assert page.last
        assert order == sorted(set(order), key=str.encode)
        world.write(after[0])
        watch = world.views[1].watch(since=page)
        keep_up(kept, watch.drain())
        world.write(after[1])
        world.views[1].barrier()
        keep_up(kept, watch.drain())
        expected = {key: value for key, value in world.model.items() if key.startswith(prefix or "")}
        assert kept == expected == {entry.key: entry.value for entry in world.views[1].scan(prefix=prefix)}
