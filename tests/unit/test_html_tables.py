"""Views, snapshots and answers in notebooks: bounded, escaped, with the cut and the state (R49)."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from lvq_kafka import JSON, TEXT, LastValueQueue
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually


class Cells(HTMLParser):
    """The texts of a table, by tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._open.append(tag)
        self.found.setdefault(tag, [])

    def handle_endtag(self, tag: str) -> None:
        while self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.found[self._open[-1]].append(data)


def test_r49_a_notebook_shows_the_first_keys_the_cut_and_the_state(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=memory_cluster)
    with queue.producer() as producer, queue.view() as view:
        for number in range(25):
            producer.put(f"k{number:02}", "v")
        producer.flush()
        view.barrier()
        for shown in (view, view.snapshot()):
            cells = Cells(shown._repr_html_()).found
            assert cells["strong"] == ["prices, 25 keys"]
            assert cells["em"] == ["caught-up"]
            assert cells["td"] == [text for number in range(20) for text in (f"k{number:02}", "v")]
            assert "the first 20 of 25" in cells["p"]
        answer = view.sql("SELECT key, NULL AS nothing FROM prices ORDER BY key LIMIT 1")
        cells = Cells(answer._repr_html_()).found
        assert (cells["strong"], cells["em"], cells["th"]) == (["1 row"], ["current"], ["key", "nothing"])
        memory_cluster.disconnect()
        eventually(lambda: view.state == "disconnected")
        assert Cells(view._repr_html_()).found["em"][0].startswith("prices may not be current: it is disconnected")
        memory_cluster.reconnect()
    assert "closed" in view._repr_html_()


@pytest.mark.parametrize("value", [b'"<script>alert(1)</script>"', b"\xff<b>", b'{"<img src=x onerror=y>": "\\u202e"}'])
def test_r49_a_notebook_shows_text_whatever_is_in_a_queue(memory_cluster: MemoryCluster, value: bytes) -> None:
    memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    memory_cluster.write("prices", b"<i>" + value, value)
    memory_cluster.write("prices", b"z" * 10_000, b"y" * 100_000)
    with LastValueQueue("prices", key_header=None, value=JSON, cluster=memory_cluster).view() as view:
        html = view._repr_html_()
    tags = set(Cells(html).found)
    assert tags <= {"p", "strong", "em", "br", "table", "thead", "tbody", "tr", "th", "td"}
    assert "\u202e" not in html
    assert len(html) < 4000
