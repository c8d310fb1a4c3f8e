"""Server-sent events: dump, updates, deletes with their reason, the state, resuming, and slow clients (R46)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka import Ttl
from lvq_kafka.errors import BrokerUnavailable, DataLoss
from lvq_kafka.serve import app, http_peer
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.unit.polling import before_polls
from tests.unit.serve.asgi_client import AsgiClient, Stream
from tests.unit.serve.scenes import Scene, scene, values_of

EVENTS = "/v1/queues/prices/events"


def named(events: list[Any]) -> list[str]:
    """Return the events in short."""

    def short(event: Any) -> str:
        match event.name:
            case "value":
                return f"{event.json['key']}={event.json['value']}"
            case "deleted":
                return f"{event.json['key']} {event.json['reason']}"
            case "state":
                return f"({event.json['state']})"
            case "reset":
                return f"reset {event.json.get('error', '')}".strip()
            case name:
                return str(name)

    return [short(event) for event in events]


async def some(stream: Stream, number: int) -> list[str]:
    return named([await stream.event() for _ in range(number)])


async def test_r46_a_stream_is_the_state_a_dump_its_end_and_updates() -> None:
    async with scene() as on, on.client.stream(EVENTS) as stream:
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        assert (stream.headers["cache-control"], stream.headers["lvq-state"]) == ("no-store", "caught-up")
        events = await stream.until("end-of-dump")
        assert named(events) == ["(caught-up)", "reset", "IBM=118.50", "MSFT=27.95", "end-of-dump"]
        assert events[2].json["headers"] == {"exchange": "NYSE"}
        assert events[2].json["position"] == "prices/0/0"
        assert [event.last_id for event in events[:4]] == ["", *["start-over"] * 3]
        assert events[4].last_id.startswith("lvqp1-")
        assert events[4].json["offsets"] == {"0": 2}
        on.put(FB="1", MSFT=None)
        assert await some(stream, 2) == ["FB=1", "MSFT deleted"]


async def test_r34_r46_a_client_that_was_cut_off_goes_on_where_it_was() -> None:
    async with scene() as on:
        async with on.client.stream(EVENTS) as stream:
            last = (await stream.until("end-of-dump"))[-1].last_id
        on.put(IBM="119.00", FB="1", MSFT=None)
        await on.settle()
        for how in ({"last_event_id": last}, {}):
            target = EVENTS if how else f"{EVENTS}?since={last}"
            async with on.client.stream(target, **how) as stream:
                events = await stream.until("end-of-dump")
                assert named(events) == ["(caught-up)", "IBM=119.00", "FB=1", "MSFT deleted", "end-of-dump"]
                assert events[-1].last_id != last


async def test_g3_r34_r46_a_client_converges_however_often_it_is_cut_off() -> None:
    """Each time, it goes on from the last event that it has got, and ends up with the values of the view."""
    async with scene() as on:
        held: dict[str, str] = {}
        last = ""
        for number in range(40):
            on.put(**{f"k{number % 7}": str(number), f"k{number % 3}": None if number % 2 else f"x{number}"})
            await on.settle()
            async with on.client.stream(EVENTS, **({"last_event_id": last} if last else {})) as stream:
                for _ in range(1 + number % 5 if number < 39 else 100):
                    event = await stream.event()
                    if event.name == "reset":
                        held.clear()
                    elif event.name == "value":
                        held[event.json["key"]] = event.json["value"]
                    elif event.name == "deleted":
                        held.pop(event.json["key"], None)
                    last = event.last_id or last
                    if event.name == "end-of-dump":
                        break
        assert event.name == "end-of-dump"
        assert held == dict(on.view)


async def test_r46_a_client_that_is_cut_off_in_a_dump_starts_over_whatever_its_address_says() -> None:
    async with scene() as on:
        async with on.client.stream(EVENTS) as stream:
            point = (await stream.until("end-of-dump"))[-1].last_id
        async with on.client.stream(f"{EVENTS}?since={point}", last_event_id="start-over") as stream:
            assert "IBM=118.50" in named(await stream.until("end-of-dump"))


@pytest.mark.parametrize("since", ["garbage", "lvqp1-AAAA"])
async def test_r46_a_point_that_is_none_begins_with_a_reset_and_a_dump(since: str) -> None:
    async with scene() as on:
        for how in ({"last_event_id": since}, {}):
            target = EVENTS if how else f"{EVENTS}?since={since}"
            async with on.client.stream(target, **how) as stream:
                events = await stream.until("end-of-dump")
                wanted = ["(caught-up)", "reset ConfigError", "IBM=118.50", "MSFT=27.95", "end-of-dump"]
                assert named(events) == wanted
                assert "is not the token of a page or a watch" in events[1].json["reason"]


async def test_r34_r46_a_point_of_an_earlier_topic_begins_with_a_reset() -> None:
    async with scene() as on:
        async with on.client.stream(EVENTS) as stream:
            last = (await stream.until("end-of-dump"))[-1].last_id
        before = on.view.cut.topic_id
        on.cluster.topics.delete("prices")
        on.cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        async with asyncio.timeout(10):
            while on.view.cut.topic_id == before or on.view.state != "caught-up":
                await asyncio.sleep(0)
        async with on.client.stream(EVENTS, last_event_id=last) as stream:
            assert named(await stream.until("end-of-dump")) == ["(caught-up)", "reset TopicRecreated", "end-of-dump"]


async def test_r34_r46_a_stream_that_cannot_go_on_for_any_reason_says_so_and_begins_again() -> None:
    """A browser's EventSource gives up for good on any status but 200."""
    async with scene() as on:
        async with on.client.stream(EVENTS) as stream:
            last = (await stream.until("end-of-dump"))[-1].last_id
        on.cluster.topics.delete("prices")
        async with on.client.stream(EVENTS, last_event_id=last) as stream:
            assert stream.status == 200
            events = named([event for event in await stream.until("end-of-dump") if event.name != "state"])
            assert events == ["reset TopicNotFound", "IBM=118.50", "MSFT=27.95", "end-of-dump"]


async def test_g5_r46_a_stream_says_its_state_at_once_however_long_it_takes_to_go_on() -> None:
    async with scene() as on:
        async with on.client.stream(EVENTS) as stream:
            last = (await stream.until("end-of-dump"))[-1].last_id
        held = threading.Event()
        described = on.cluster.logs.end_offsets

        def late(topic: str, **options: Any) -> Any:
            held.wait(20)
            return described(topic, **options)

        on.cluster.logs.end_offsets = late  # type: ignore[method-assign]
        async with on.client.stream(EVENTS, last_event_id=last) as stream:
            assert named([await stream.event()]) == ["(caught-up)"]
            held.set()
            assert named(await stream.until("end-of-dump")) == ["end-of-dump"]


async def test_g5_r46_a_client_keeps_what_it_has_until_there_is_something_new() -> None:
    """While the view reads the topic again, there is no dump, and no reset."""
    async with scene() as on:
        go_on = threading.Event()
        before_polls(on.cluster, lambda reader, poll: go_on.wait(20))
        on.cluster.fail_next("poll", DataLoss("truncated"))
        async with asyncio.timeout(10):
            while on.view.state != "stale":
                await asyncio.sleep(0)
        async with on.client.stream(EVENTS) as stream:
            assert named([await stream.event()]) == ["(stale)"]
            assert (await on.client.get("/v1/queues/prices/values/IBM")).body == b"118.50"
            go_on.set()
            events = await stream.until("end-of-dump")
            assert named(events) == ["(caught-up)", "reset", "IBM=118.50", "MSFT=27.95", "end-of-dump"]


async def test_r10_r46_a_stream_says_that_a_value_has_expired_and_one_without_a_store_cannot_resume() -> None:
    clock = Clock()
    async with scene(queue={"ttl": Ttl(default=60)}, clock=clock) as on:
        async with on.client.stream(EVENTS) as stream:
            last = (await stream.until("end-of-dump"))[-1].last_id
            clock.now += 61
            on.put(NEW="1")
            assert sorted(await some(stream, 3)) == ["IBM expired", "MSFT expired", "NEW=1"]
        async with on.client.stream(EVENTS, last_event_id=last) as stream:
            assert "reset ConfigError" in named(await stream.until("end-of-dump"))


async def test_r24_r46_a_stream_may_be_of_some_keys_or_values() -> None:
    async with scene() as on:
        on.put(**{"a/1": "1", "a/2": "2"})
        await on.settle()
        for query, dump in {
            "keys=IBM&keys=a%2F1": ["IBM=118.50", "a/1=1"],
            "prefix=a%2F": ["a/1=1", "a/2=2"],
            "selector=exchange='NYSE'": ["IBM=118.50"],
        }.items():
            async with on.client.stream(f"{EVENTS}?{query}") as stream:
                assert named(await stream.until("end-of-dump")) == ["(caught-up)", "reset", *dump, "end-of-dump"]
        async with on.client.stream(f"{EVENTS}?selector=exchange='NYSE'") as stream:
            await stream.until("end-of-dump")
            on.put(IBM="1")
            assert named([await stream.event()]) == ["IBM left"]
        refused = await on.client.get(f"{EVENTS}?selector=exchange=")
        assert (refused.status, refused.json["error"]) == (400, "ConfigError")


async def test_r42_r46_a_stream_may_leave_out_unchanged_values() -> None:
    async with scene() as on, on.client.stream(f"{EVENTS}?changed=1") as stream:
        await stream.until("end-of-dump")
        on.put(IBM="118.50", MSFT="28.00")
        assert named([await stream.event()]) == ["MSFT=28.00"]


async def test_r46_pages_end_where_a_stream_goes_on() -> None:
    async with scene() as on:
        first = (await on.client.get("/v1/queues/prices/values?limit=1")).json
        on.put(IBM="119.00", FB="1")
        await on.settle()
        last = (await on.client.get(f"/v1/queues/prices/values?after={first['token']}")).json
        assert [row["key"] for row in last["values"]] == ["MSFT"]
        assert last["last"] is True
        async with on.client.stream(f"{EVENTS}?since={last['token']}") as stream:
            assert named(await stream.until("end-of-dump"))[1:] == ["IBM=119.00", "FB=1", "end-of-dump"]


async def test_r46_the_prefix_of_pages_holds_for_a_client_that_connects_again() -> None:
    async with scene() as on:
        page = (await on.client.get("/v1/queues/prices/values?prefix=IB")).json
        target = f"{EVENTS}?since={page['token']}"
        async with on.client.stream(target) as stream:
            last = (await stream.until("end-of-dump"))[-1].last_id
        on.put(MSFT="1", IBM="2")
        await on.settle()
        async with on.client.stream(target, last_event_id=last) as stream:
            assert named(await stream.until("end-of-dump"))[1:] == ["IBM=2", "end-of-dump"]


async def test_g5_r46_a_stream_says_when_its_view_is_cut_off_and_goes_on() -> None:
    async with scene() as on, on.client.stream(EVENTS) as stream:
        await stream.until("end-of-dump")
        on.cluster.disconnect()
        event = await stream.event("state")
        assert event.json["state"] == "disconnected"
        assert event.json["reason"]
        reply = await on.client.get("/v1/queues/prices/values/IBM")
        assert (reply.body, reply.headers["lvq-state"]) == (b"118.50", "disconnected")
        on.cluster.reconnect()
        assert (await stream.event("state")).json["state"] == "caught-up"


async def test_g5_r46_a_stream_of_a_view_that_has_failed_says_so_and_ends() -> None:
    async with scene() as on, on.client.stream(EVENTS) as stream:
        await stream.until("end-of-dump")
        on.view._follower.fail(BrokerUnavailable("The broker burns.", code="_FAIL"))
        event = await stream.event("state")
        assert (event.json["state"], event.json["reason"]) == ("failed", "The broker burns.")
        with pytest.raises(EOFError):
            await stream.event()
        reply = await on.client.get("/v1/queues/prices/values/IBM")
        assert (reply.status, reply.json["error"]) == (503, "ReaderFailed")
        assert (await on.client.get("/ready")).status == 503


async def test_g3_r46_a_client_that_takes_nothing_holds_up_nobody_and_then_gets_the_newest() -> None:
    async with scene() as on, on.client.stream(EVENTS) as slow, on.client.stream(EVENTS) as quick:
        for stream in (slow, quick):
            await stream.until("end-of-dump")
        slow.taking.clear()
        for number in range(500):
            on.put(IBM=f"{number}.", MSFT=f"{number}.")
        await on.settle()
        while (event := await quick.event()).json.get("value") != "499." or event.json["key"] != "MSFT":
            pass
        slow.taking.set()
        got = []
        while not {"IBM=499.", "MSFT=499."} <= set(got):
            got += named([await slow.event()])
        assert len(got) < 50, "what changed meanwhile comes once"


async def test_g3_r46_a_client_that_takes_nothing_for_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It notices, since the end of the stream is missing, and may go on from its last event."""
    monkeypatch.setattr(http_peer, "_SLOWEST", 0.05)
    async with scene() as on, on.client.stream(EVENTS) as stream:
        await stream.until("end-of-dump")
        stream.taking.clear()
        on.put(IBM="119.00")
        await freed(on)
        assert stream.parts.empty()


async def test_a_quiet_stream_gets_comments() -> None:
    async with scene(heartbeat=0.1) as on, on.client.stream(EVENTS) as stream:
        await stream.until("end-of-dump")
        parts = [await asyncio.wait_for(stream.parts.get(), 10) for _ in range(2)]
        assert parts == [b":\n\n"] * 2


async def test_r46_a_stream_says_how_current_it_is_as_often_as_a_client_asks() -> None:
    async with scene() as on, on.client.stream(f"{EVENTS}?heartbeat=1") as stream:
        assert stream.headers["lvq-format"] == "text"
        await stream.until("end-of-dump")
        again = await stream.event()
        assert (again.name, again.json["state"], again.json["lag"]) == ("state", "caught-up", 0)
        refused = await on.client.get(f"{EVENTS}?heartbeat=0.5")
        assert refused.json["detail"] == "The parameter heartbeat must be a number of seconds from 1 to 3600."


async def test_g1_r46_a_stream_of_a_blocked_view_says_what_holds_it_up(tmp_path: Path) -> None:
    """A view that reads its topic again is served meanwhile."""
    cluster = MemoryCluster()
    queue = values_of(cluster)
    cluster.write("prices", b"IBM", b"118.50")
    queue.view(store=tmp_path / "s").open().close()
    cluster.topics.delete("prices")
    cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    with queue.producer(transactional_id="t") as producer, producer.transaction():
        producer.put("FB", "1")
        with closing(queue.view(store=tmp_path / "s", metadata_interval=0.05)) as view:
            view.start()
            async with asyncio.timeout(20):
                while view.state != "blocked":
                    await asyncio.sleep(0.001)
            async with AsgiClient(app(view)).stream(EVENTS) as stream:
                event = await stream.event("state")
                assert event.json["state"] == "blocked"
                assert "a transaction open since offset 0 hides later records" in event.json["reason"]


async def test_streams_are_bounded_in_number_and_end_with_client_and_server() -> None:
    async with scene(max_streams=1) as on:
        async with on.client.stream(EVENTS) as stream:
            await stream.until("end-of-dump")
            refused = await on.client.get(EVENTS)
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        await freed(on)
        async with on.client.stream(EVENTS) as stream:
            await stream.until("end-of-dump")
            on.app.end_streams()
            with pytest.raises(EOFError):
                await stream.event()
        await freed(on)


async def freed(on: Scene) -> None:
    """Wait until nothing is kept for any client."""
    async with asyncio.timeout(10):
        while (on.app.open_streams, len(on.view._shared.notifier)) != (0, 0):
            await asyncio.sleep(0)


async def test_a_head_of_a_stream_has_no_body_and_keeps_nothing() -> None:
    async with scene() as on:
        head = await on.client.get(EVENTS, method="HEAD")
        assert (head.status, head.body, head.headers["content-type"]) == (200, b"", "text/event-stream")
        await freed(on)
        assert (await on.client.get(EVENTS, accept="image/png")).status == 406
