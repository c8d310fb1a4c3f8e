"""R42: values that equal the one returned last, from a real broker and in the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from lvq_kafka import Deleted, Entry, LastValueQueue
from tests.integration.guarantees.writing import put


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_r42_a_watch_leaves_out_what_was_only_written_again(
    queue: LastValueQueue[str], tmp_path: Path, *, stored: bool
) -> None:
    put(queue, a="1", b="1", c="1")
    with (
        queue.view(store=tmp_path / "store" if stored else None) as view,
        view.watch(dump=True, changed=True) as watch,
        queue.browser(changed=True) as browser,
    ):
        assert len(watch.drain()) == len(browser.drain()) == 4
        put(queue, a="1", b="2", c=None)
        view.barrier()
        for events in (watch.drain(), browser.drain()):
            assert [(e.key, e.value if isinstance(e, Entry) else e) for e in events if not hasattr(e, "offsets")] == [
                ("b", "2"),
                ("c", Deleted("c")),
            ]
