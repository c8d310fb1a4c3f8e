"""R34: pages of a view in the order of keys, their tokens, and the watch that follows."""

from __future__ import annotations

import asyncio
import string
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, KeyPage, LastValueQueue, Ttl
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.errors import CatchUpTimeout, ConfigError, DataLoss, DecodeError, TopicRecreated, UnencodableKey
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock


class Prices(MemoryCluster):
    """A cluster with the topic ``prices``, and a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(clock=self.clock)
        self.create()

    def create(self) -> None:
        self.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})

    def queue(self, name: str = "prices") -> LastValueQueue[str]:
        return LastValueQueue(name, key_header=None, cluster=self, value=TEXT)

    def put(self, **values: str | None) -> None:
        for key, value in values.items():
            self.write("prices", key.encode(), None if value is None else value.encode())


@pytest.fixture
def cluster() -> Prices:
    cluster = Prices()
    cluster.put(a="1", b="1", c="1", d="1", e="1")
    return cluster


def keys(page: KeyPage[str]) -> str:
    return "".join(entry.key for entry in page.entries)


def shown(events: Iterable[Any]) -> list[str]:
    forms = {Entry: lambda e: f"{e.key}={e.value}", Deleted: lambda e: f"-{e.key}", EndOfDump: lambda _: "|"}
    return [forms[type(event)](event) for event in events]


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_r34_pages_are_in_order_and_a_watch_goes_on_from_the_cut_of_the_first(
    cluster: Prices, tmp_path: Path, *, stored: bool
) -> None:
    with cluster.queue().view(store=tmp_path / "store" if stored else None) as view:
        first = view.page(limit=2)
        assert (keys(first), first.last) == ("ab", False)
        cluster.put(a="2", b=None, c=None, bb="1", f="1", d="2")
        view.barrier()
        second = view.page(first, limit=2)
        assert shown(second.entries) == ["bb=1", "d=2"], "what is current"
        third = view.page(second.token, limit=2)
        assert (keys(third), third.last) == ("ef", True)
        changed = ["-b", "-c", "a=2", "bb=1", "f=1", "d=2"] if stored else ["a=2", "-b", "-c", "bb=1", "f=1", "d=2"]
        for since in (third, third.token):
            assert shown(view.watch(since=since).drain()) == [*changed, "|"]
        assert (keys(view.page(third)), view.page(third).last) == ("", True)
        cluster.put(g="1")
        view.barrier()
        assert keys(view.page(third)) == "g"


def test_r34_a_prefix_holds_for_all_pages_and_for_the_watch(cluster: Prices) -> None:
    cluster.put(eu1="1", eu2="1", eu3="1", us1="1")
    with cluster.queue().view() as view:
        page = view.page(prefix="eu", limit=2)
        page = view.page(page, limit=2)
        assert (keys(page), page.last) == ("eu3", True)
        cluster.put(eu1="2", us1="2")
        view.barrier()
        assert shown(view.watch(since=page).drain()) == ["eu1=2", "|"]
        assert shown(view.watch(since=page, prefix="u").drain()) == ["us1=2", "|"]
        assert view.page(page, prefix="eu").entries == []
        with pytest.raises(ConfigError, match="not the prefix of the pages before") as refused:
            view.page(page, prefix="us")
        assert refused.value.options == ("prefix", "after")
        with pytest.raises(UnencodableKey):
            view.page(prefix=1.5)  # type: ignore[arg-type]


def test_r34_an_empty_queue_has_a_last_page_that_a_watch_follows() -> None:
    cluster = Prices()
    with cluster.queue().view() as view:
        page = view.page()
        assert (page.entries, page.last) == ([], True)
        cluster.put(a="1")
        view.barrier()
        assert shown(view.watch(since=page).drain()) == ["a=1", "|"]


def test_r34_pages_and_watches_can_be_of_different_processes_and_wait_for_the_cut(cluster: Prices) -> None:
    with cluster.queue().view() as view:
        first = view.page(limit=2)
    other = cluster.queue().view().start()
    try:
        assert keys(other.page(first.token, limit=9)) == "cde"
    finally:
        other.close()

    async def page_on() -> str:
        async with cluster.queue().view() as view:
            return keys(await view.page_async(first, limit=1))

    assert asyncio.run(page_on()) == "c"


def test_r34_a_view_that_does_not_get_as_far_as_the_first_page_says_so(cluster: Prices) -> None:
    with cluster.queue().view(catch_up_timeout=0.2) as view:
        token = PageToken.parse(view.page().token, "after")
        ahead = PageToken(token.queue, token.topic_id, token.as_of, {0: 99}, b"", b"a")
        with pytest.raises(CatchUpTimeout):
            view.page(ahead.text)


class TestRefusals:
    def test_r34_a_page_of_another_queue(self, cluster: Prices) -> None:
        cluster.topics.create("others", partitions=1, config={"cleanup.policy": "compact"})
        with cluster.queue("others").view() as others, cluster.queue().view() as view:
            page = others.page()
            for use, option in ((view.page, "after"), (lambda since: view.watch(since=since), "since")):
                with pytest.raises(ConfigError, match="of the queue 'others', not of 'prices'") as refused:
                    use(page)
                assert refused.value.options == (option,)

    def test_r34_a_page_of_an_earlier_topic(self, cluster: Prices) -> None:
        with cluster.queue().view() as view:
            page = view.page()
        cluster.topics.delete("prices")
        cluster.create()
        with cluster.queue().view() as view:
            for use in (view.page, lambda since: view.watch(since=since)):
                with pytest.raises(TopicRecreated):
                    use(page)

    def test_r18_r34_a_page_that_is_too_old(self, cluster: Prices) -> None:
        with cluster.queue().view() as view:
            page = view.page(limit=2)
            cluster.clock.now += 0.79 * 86_400
            assert keys(view.page(page)) == "cde"
            cluster.clock.now += 0.02 * 86_400
            with pytest.raises(DataLoss, match=r"69,984 s old.*delete\.retention\.ms"):
                view.page(page)

    def test_r34_a_queue_whose_messages_expire_has_pages_and_no_watch_that_follows(self, cluster: Prices) -> None:
        queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster, ttl=Ttl(default=60.0))
        with queue.producer() as producer:
            producer.put("a", "1")
        with queue.view() as view:
            page = view.page()
            assert keys(page) == "a"
            with pytest.raises(ConfigError, match="expire"):
                view.watch(since=page)

    def test_a_value_that_cannot_be_decoded_fails_its_page(self, cluster: Prices) -> None:
        cluster.write("prices", b"c", b"\xff")
        with cluster.queue().view() as view:
            page = view.page(limit=2)
            with pytest.raises(DecodeError):
                view.page(page)

    @pytest.mark.parametrize(
        "given_", [7, b"lvqp1-", "", "lvqp1-", "lvqp2-abcd", "lvqp1-abcd", "lvqp1-ü", {0: 1}, "{}"]
    )
    def test_r34_another_text_is_no_token(self, cluster: Prices, given_: Any) -> None:
        with cluster.queue().view() as view:
            with pytest.raises(ConfigError) as refused:
                view.page(given_)
            assert refused.value.options == ("after",)
            if isinstance(given_, str):
                with pytest.raises(ConfigError) as refused:
                    view.watch(since=given_)
                assert refused.value.options == ("since",)


TOKENS = st.builds(
    PageToken,
    queue=st.text(max_size=5),
    topic_id=st.text(max_size=5),
    as_of=st.floats(0, 1e12),
    offsets=st.dictionaries(st.integers(0, 99), st.integers(0, 2**63 - 1), min_size=1),
    prefix=st.binary(max_size=5),
    key=st.none() | st.binary(max_size=9),
)


@given(TOKENS)
def test_a_token_is_what_it_says(token: PageToken) -> None:
    assert PageToken.parse(token.text, "after") == token
    assert set(token.text) <= {*string.ascii_letters, *string.digits, "-", "_"}


@given(TOKENS, st.data())
def test_a_token_that_was_changed_is_refused(token: PageToken, data: st.DataObject) -> None:
    text = token.text
    at = data.draw(st.integers(0, len(text) - 1))
    changed = data.draw(st.sampled_from([text[:at], text[:at] + "~" + text[at + 1 :]]))
    with pytest.raises(ConfigError, match="not the token of a page or a watch"):
        PageToken.parse(changed, "after")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"7", b"[]", b"{}", b"[" * 9999, b'["q","i",1,[[0,1]],"",5]', b'["q","i",1,[[0,1]],5,null]'),
        *(b'["q","i",1,[],"",null]', b'["q","i",1,[[0,-1]],"",null]', b'["q","i",1,[[0,1.5]],"",null]'),
        *(b'["q","i",1,[[true,1]],"",null]', b'["q","i",1,[[[],1]],"",null]', b'[7,"i",1,[[0,1]],"",null]'),
        *(b'["q","i",1e308,[[0,1]],"",null]', b'["q","i",1%s,[[0,1]],"",null]' % (b"0" * 400)),
        *(b'["q","i","nan",[[0,1]],"",null]', b'["q","i",-1,[[0,1]],"",null]', b'["q","i",null,[[0,1]],"",null]'),
        *(b'["q","i",1,[[0,1]],"","\xc4\x80"]', b"\xff", b'["q","i",1e999,[[0,1]],"",null]', b" " * 2_000_000),
    ],
)
def test_a_token_with_another_content_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError):
        PageToken.parse("lvqp1-" + urlsafe_b64encode(zlib.compress(content)).decode(), "after")


def test_r11_r34_a_message_that_was_due_for_the_first_page_is_due_for_a_view_whose_clock_is_slower(
    cluster: Prices,
) -> None:
    queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster, max_delay=100.0)
    with queue.producer() as producer:
        producer.put("a", "1", not_before=cluster.clock.now + 10)
        producer.put("b", "1", not_before=cluster.clock.now + 10)
    cluster.clock.now += 20
    with queue.view() as view:
        first = view.page(limit=1)
        assert keys(first) == "a"
        cluster.clock.now -= 15
    with queue.view() as slower:
        assert keys(slower.page()) == ""
        assert keys(slower.page(first)) == "b"
        assert shown(slower.watch(since=first).drain()) == ["|"]
        cluster.clock.now -= 5000
        with pytest.raises(ConfigError, match="later than the time") as refused:
            slower.page(first)
        assert refused.value.options == ("after",)
