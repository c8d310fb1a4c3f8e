"""R42: what a watch with ``changed`` returns, against a plain one that is asked at the same moments, and a dict."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lvq_kafka import Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.codecs import BYTES
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples

VALUES = [None, b"", b"1", b"2", b"x" * 15, b"x" * 16, b"x" * 40, b"x" * 39 + b"y"]
WRITES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(VALUES)), min_size=1, max_size=5)


def differing(events: Iterable[Any], returned: dict[str, bytes], *, all_known: bool) -> list[Any]:
    """Return the events that change what was returned so far; note what they say."""
    found = []
    for event in events:
        if isinstance(event, Entry):
            if returned.get(event.key) == event.value:
                continue
            returned[event.key] = event.value
        elif isinstance(event, Deleted) and returned.pop(event.key, None) is None and all_known:
            continue
        found.append(event)
    return found


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(WRITES, max_size=8), before=WRITES, dump=st.booleans(), stored=st.booleans())
def test_r42_a_watch_returns_the_events_that_change_what_it_returned_before(
    rounds: list[list[tuple[str, bytes | None]]], before: list[tuple[str, bytes | None]], *, dump: bool, stored: bool
) -> None:
    cluster = MemoryCluster()
    cluster.topics.create("q", partitions=1, config={"cleanup.policy": "compact"})
    queue: LastValueQueue[bytes] = LastValueQueue("q", key_header=None, value=BYTES, cluster=cluster)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="lvq-changed-"))
        for key, value in before:
            cluster.write("q", key.encode(), value)
        view = stack.enter_context(queue.view(store=Path(folder) / "store" if stored else None))
        plain, watch = view.watch(dump=dump), view.watch(dump=dump, changed=True)
        returned: dict[str, bytes] = {}
        kept: dict[str, bytes] = {}
        for writes in [[], *rounds]:
            for key, value in writes:
                cluster.write("q", key.encode(), value)
            view.barrier()
            events = watch.drain()
            assert events == differing(plain.drain(), returned, all_known=dump)
            for event in events:
                if isinstance(event, Entry):
                    kept[event.key] = event.value
                elif not isinstance(event, EndOfDump):
                    kept.pop(event.key, None)
            if dump:
                assert kept == dict(view)
