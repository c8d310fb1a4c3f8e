"""R34: a resumed watch brings what an earlier one kept up to date, after any compaction, or is refused."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.errors import DataLoss
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples
from tests.following import keep_up

DAY = 86_400

REMOVED = st.sampled_from([True, True, True, False])

steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", None, None]), REMOVED, REMOVED),
    min_size=4,
    max_size=12,
)


def state(history: Iterable[tuple[str, str | None, bool, bool]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value, _, _ in history:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


LOST = [("a", "1", True, True), ("b", "1", True, True), ("a", None, True, True), ("b", "2", True, True)]


@example(history=LOST, cut=2, old=4, stamped=True)
@example(history=LOST, cut=2, old=4, stamped=False)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=steps, cut=st.integers(1, 6), old=st.integers(3, 12), stamped=st.booleans())
def test_a_resumed_watch_is_exact_or_refused(
    history: list[tuple[str, str | None, bool, bool]], cut: int, old: int, stamped: bool
) -> None:
    """The first ``old`` records are older than deletes are kept; of each it was drawn what compaction may remove."""
    cut = min(cut, len(history))
    cluster = MemoryCluster()
    cluster.topics.create("q", partitions=1, config={"cleanup.policy": "compact"})
    queue: LastValueQueue[str] = LastValueQueue("q", key_header=None, value=TEXT, cluster=cluster)
    now = cluster.now()
    for at, (key, value, _, _) in enumerate(history):
        written = now - 2 * DAY if at < old else now
        cluster.write("q", key.encode(), value and value.encode(), timestamp=round(written * 1000))
    if stamped:
        cluster.topics.alter_config("q", {"message.timestamp.type": "LogAppendTime"})
    cluster.compact("q", choose=lambda record: history[record.offset][2])
    cluster.compact("q", drop_tombstones=True, choose=lambda record: record.offset < old and history[record.offset][3])
    left = {record.offset for record in cluster.records("q")}
    kept = state(history[:cut])
    with queue.view() as view:
        try:
            events = view.watch(since={0: cut}).drain()
        except DataLoss:
            assert not left.issuperset(range(cut, len(history))), "nothing was missing"
            return
        keep_up(kept, events)
        assert kept == dict(view) == state(history)
