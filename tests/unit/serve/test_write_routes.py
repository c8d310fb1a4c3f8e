"""Writes over HTTP: what they store, what they answer, and what they refuse (R52)."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from lvq_kafka import BYTES, JSON, TEXT, Codec, Groups, LastValueQueue, Limits, Position, Ttl
from lvq_kafka.admitting import occupancy
from lvq_kafka.errors import (
    BrokerUnavailable,
    Closed,
    ConfigError,
    DeliveryFailed,
    DeliveryUnknown,
    LVQError,
    MessageTooLarge,
    QueueNotDeclared,
    ReaderFailed,
    TopicRecreated,
)
from lvq_kafka.serve import app, http_peer, writes_under_way
from lvq_kafka.serve.write_requests import LARGEST_VALUE, read_write
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.unit.serve.asgi_client import AsgiClient, Reply
from tests.unit.serve.desks import desk
from tests.unit.serve.scenes import scene, values_of
from tests.unit.serve.test_write_rules import request

IBM = "/v1/queues/prices/values/IBM"


class TestWrites:
    async def test_g7_r52_a_value_is_stored_as_it_is_and_can_be_read_by_its_position(self) -> None:
        async with desk() as on:
            reply = await on.client.put(IBM, "119.00 €".encode())
            assert (reply.status, reply.body, reply.headers["lvq-position"]) == (204, b"", "prices/0/0")
            assert "content-length" not in reply.headers
            assert reply.headers["cache-control"] == "no-store"
            read = await on.client.get(f"{IBM}?at-least={reply.headers['lvq-position']}")
            assert (read.status, read.body.decode()) == (200, "119.00 €")
            (record,) = on.cluster.records("prices")
            assert (record.key, record.headers) == (b"IBM", (("ticker", b"IBM"),))
            assert on.under_way == 0

    async def test_r9_r52_a_delete_is_stored_whether_there_was_a_value_or_not(self) -> None:
        async with desk() as on:
            await on.client.put(IBM, b"1")
            for position in ("prices/0/1", "prices/0/2"):
                reply = await on.client.delete(IBM)
                assert (reply.status, reply.headers["lvq-position"]) == (204, position)
                assert (await on.client.get(f"{IBM}?at-least={position}")).status == 404
            assert on.stored() == [(b"IBM", b"1"), (b"IBM", None), (b"IBM", None)]

    async def test_r2_r52_a_key_may_be_any_bytes_and_a_value_comes_in_parts(self) -> None:
        keys = [b"", b"a/b", b"\xff\x00", "Zürich".encode(), b"%2F"]
        async with desk(BYTES) as on:
            for key in keys:
                place = f"/v1/queues/prices/values/{quote(key, safe='')}"
                assert (await on.client.put(place, [b"\x00", b"", b"\xff"])).status == 204
            assert on.stored() == [(key, b"\x00\xff") for key in keys]
            assert (await on.client.put(IBM, b"")).status == 204
            assert on.stored()[-1] == (b"IBM", b"")

    async def test_r52_a_json_value_keeps_its_bytes(self) -> None:
        async with desk(JSON) as on:
            value = b'{"b": 1.50, "a": "\\u00e9"}\n'
            at = (await on.client.put(IBM, value, content_type="text/plain")).headers["lvq-position"]
            read = await on.client.get(f"{IBM}?at-least={at}")
            assert (read.body, read.headers["content-type"]) == (value, "application/json")

    @pytest.mark.parametrize(
        ("codec", "value"),
        [
            (TEXT, b"\xff"),
            (JSON, b"{"),
            (JSON, b""),
            (JSON, b"\xff"),
            (JSON, b"NaN"),
            (JSON, b"[" * 600 + b"]" * 600),
            (Codec(lambda n: b"%d" % n, int, name="number"), b"12a"),
        ],
    )
    async def test_r52_a_value_that_is_not_of_the_queues_format_is_refused(self, codec: Any, value: bytes) -> None:
        async with desk(codec) as on:
            reply = await on.client.put(IBM, value)
            assert (reply.status, reply.json["error"]) == (400, "EncodeError")
            assert f"The codec {codec.name!r} cannot read this value ({len(value)} bytes)" in reply.json["detail"]
            assert on.stored() == []

    async def test_r52_a_programs_own_codec_reads_what_it_may(self) -> None:
        async with desk(Codec(lambda n: b"%d" % n, int, name="number")) as on:
            assert (await on.client.put(IBM, b"012")).status == 204
            assert on.stored() == [(b"IBM", b"012")]

    async def test_r10_r22_r52_headers_and_terms_are_those_of_the_message(self) -> None:
        async with desk(queue={"ttl": Ttl(), "max_delay": 3600.0}) as on:
            reply = await on.client.put(f"{IBM}?ttl=60&delay=5", b"1", lvq_headers='{"Exchange": "NYSE"}')
            assert reply.status == 204
            (record,) = on.cluster.records("prices")
            found = dict(record.headers)
            assert (found["Exchange"], found["lvq-ttl"], found["ticker"]) == (b"NYSE", b"60000", b"IBM")
            assert 4.0 < int(found["lvq-not-before"] or 0) / 1000 - on.cluster.now() < 5.1

    async def test_r36_r52_a_value_has_its_group(self) -> None:
        async with desk(queue={"groups": Groups()}) as on:
            assert (await on.client.put(f"{IBM}?group=a", b"1")).status == 204
            assert (await on.client.delete(f"{IBM}?group=a")).status == 204
            assert [dict(record.headers)["lvq-group"] for record in on.cluster.records("prices")] == [b"a", b"a"]

    @pytest.mark.parametrize(
        ("query", "headers", "rule", "word"),
        [
            ("ttl=5", "{}", "R10", "ttl"),
            ("delay=5", "{}", "R11", "max_delay"),
            ("priority=5", "{}", "R20", "priority"),
            ("group=a", "{}", "R36", "group"),
            ("", '{"lvq-ttl": "5000"}', "R10", "lvq-ttl"),
            ("", '{"lvq-unkeyed": "1"}', "R1", "says that a message has no key"),
            ("", '{"ticker": "MSFT"}', "R2", "key header 'ticker' says 'MSFT'"),
            ("", '{"a\\u0000b": "c"}', "R2", "NUL"),
        ],
    )
    async def test_r22_r52_a_term_that_the_queue_does_not_allow_is_refused_by_its_rule(
        self, query: str, headers: str, rule: str, word: str
    ) -> None:
        async with desk() as on:
            reply = await on.client.put(f"{IBM}?{query}", b"1", lvq_headers=headers)
            assert (reply.status, reply.json["rule"], word in reply.json["detail"]) == (400, rule, True), reply.json
            assert on.stored() == []

    async def test_r12_r52_a_full_queue_is_429_and_updates_pass(self) -> None:
        async with desk(queue={"limits": Limits(messages=1, policy="reject")}) as on:
            assert (await on.client.put(IBM, b"1")).status == 204
            reply = await on.client.put("/v1/queues/prices/values/FB", b"1")
            assert (reply.status, reply.headers["retry-after"], reply.json["rule"]) == (429, "1", "R12")
            assert "holds 1 of 1 messages" in reply.json["detail"]
            assert (await on.client.put(IBM, b"2")).status == 204
            assert (await on.client.delete(IBM)).status == 204
            assert (await on.client.put("/v1/queues/prices/values/FB", b"1")).status == 204
            assert on.stored() == [(b"IBM", b"1"), (b"IBM", b"2"), (b"IBM", None), (b"FB", b"1")]

    async def test_r52_conditions_are_refused_with_the_reason(self) -> None:
        async with desk() as on:
            for reply in (
                await on.client.put(IBM, b"1", if_match='"a"'),
                await on.client.delete(IBM, if_none_match="*"),
            ):
                assert (reply.status, "Kafka has no conditional writes" in reply.json["detail"]) == (400, True)
            assert on.stored() == []


class TestBounds:
    @pytest.mark.parametrize("parts", [[b"a" * LARGEST_VALUE, b"a"], [b"a" * (LARGEST_VALUE + 1)]])
    async def test_r52_a_large_body_is_413(self, parts: list[bytes]) -> None:
        async with desk() as on:
            reply = await on.client.put(IBM, parts)
            assert (reply.status, reply.headers["connection"]) == (413, "close")
            declared = await on.client.put(IBM, b"", content_length=str(LARGEST_VALUE + 1))
            assert declared.status == 413
            delete = await on.client.get(IBM, method="DELETE", body=b"a")
            assert (delete.status, "has no body" in delete.json["detail"]) == (413, True)
            assert (on.stored(), on.under_way, on.app._served.writes.room.size) == ([], 0, 0)

    async def test_r12_r52_a_message_larger_than_its_queue_is_413_in_its_words(self) -> None:
        async with desk(queue={"limits": Limits(bytes=10, policy="reject")}) as on:
            reply = await on.client.put(IBM, b"a" * 20)
            assert (reply.status, reply.json["error"]) == (413, "MessageTooLarge")
            assert "the queue prices may hold 10 in all" in reply.json["detail"]

    async def test_r52_writes_under_way_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writes_under_way, "_MOST", 2)
        async with desk() as on:
            on.cluster.disconnect()
            writes = [asyncio.ensure_future(on.client.put(IBM, b"%d" % number)) for number in range(2)]
            await on.until(2)
            reply = await on.client.put(IBM, b"2")
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert "Nothing was written" in reply.json["detail"]
            on.cluster.reconnect()
            assert [reply.status for reply in await asyncio.gather(*writes)] == [204, 204]
            assert on.under_way == 0
            assert (await on.client.put(IBM, b"3")).status == 204
            assert [value for _, value in on.stored()] == [b"0", b"1", b"3"]

    async def test_r52_bytes_under_way_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writes_under_way, "_MOST_BYTES", 10)
        async with desk() as on:
            assert (await on.client.put(IBM, [b"a" * 6, b"a" * 6])).status == 503
            assert (await on.client.put(IBM, b"a" * 10)).status == 204
            assert on.app._served.writes.room.size == 0

    async def test_r52_a_body_that_does_not_come_is_408(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_peer, "_UPLOAD", 0.01)
        async with desk() as on:
            sent: list[Any] = []

            async def receive() -> Any:
                await asyncio.Event().wait()

            async def send(message: Any) -> None:
                sent.append(message)

            await on.app(on.client.scope(IBM, "PUT"), receive, send)
            assert sent[0]["status"] == 408
            assert (on.under_way, on.stored()) == (0, [])

    async def test_r52_a_client_that_leaves_within_its_body_writes_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with desk() as on:
            messages = [{"type": "http.request", "body": b"1", "more_body": True}, {"type": "http.disconnect"}]

            async def receive() -> Any:
                return messages.pop(0)

            async def send(message: Any) -> None:
                raise AssertionError(message)

            await on.app(on.client.scope(IBM, "PUT"), receive, send)
            assert (on.under_way, on.stored()) == (0, [])
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class TestUnknownOutcomes:
    async def test_r52_an_answer_that_does_not_come_in_time_is_504_and_the_write_goes_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writes_under_way, "_PATIENCE", 0.01)
        async with desk() as on:
            on.cluster.disconnect()
            reply = await on.client.put(IBM, b"1", idempotency_key="a")
            assert (reply.status, reply.json["error"]) == (504, "OutcomeUnknown")
            assert "may have been, or may still be" in reply.json["detail"]
            assert on.under_way == 1
            again = await on.client.put(IBM, b"1", idempotency_key="a")
            assert (again.status, on.under_way) == (504, 1), "it waited for the first"
            on.cluster.reconnect()
            await on.until(0)
            monkeypatch.setattr(writes_under_way, "_PATIENCE", 30.0)
            known = await on.client.put(IBM, b"1", idempotency_key="a")
            assert (known.status, known.headers["lvq-position"]) == (204, "prices/0/0")
            assert on.stored() == [(b"IBM", b"1")]

    async def test_r52_a_write_whose_client_has_left_is_remembered(self) -> None:
        async with desk() as on:
            on.cluster.disconnect()
            first = asyncio.ensure_future(on.client.put(IBM, b"1", idempotency_key="a"))
            await on.until(1)
            first.cancel()
            on.cluster.reconnect()
            await on.until(0)
            assert (await on.client.put(IBM, b"1", idempotency_key="a")).headers["lvq-position"] == "prices/0/0"
            assert len(on.stored()) == 1

    async def test_r52_a_write_that_the_end_of_the_server_leaves_undecided_is_504(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("lvq_kafka.serve.queue_writer._CLOSING", 0.01)
        async with desk() as on:
            on.cluster.disconnect()
            write = asyncio.ensure_future(on.client.put(IBM, b"1", idempotency_key="a"))
            await on.until(1)
            on.app.end_streams()
            late = await on.client.put(IBM, b"2")
            assert (late.status, late.headers["retry-after"]) == (503, "5")
            writer = on.app._writers["prices"]
            await on.app.aclose()
            with pytest.raises(Closed):
                await writer.write(b"IBM", b"2", read_write(request(), {}))
            reply = await write
            assert (reply.status, reply.json["error"]) == (504, "DeliveryUnknown")
            assert len(on.app._served.writes._repeated) == 0, "a repetition writes again"
            on.cluster.reconnect()


class TestFailures:
    LOST = DeliveryFailed("Sequence lost.", code="OUT_OF_ORDER_SEQUENCE_NUMBER")

    async def test_r52_a_producer_that_has_failed_for_good_is_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with desk() as on:
            writer = on.app._writers["prices"]
            first = writer._producer
            on.cluster.fail_next("append", self.LOST)
            reply = await on.client.put(IBM, b"1")
            assert (reply.status, reply.json["error"], "retry-after" in reply.headers) == (503, "DeliveryFailed", False)
            assert (await on.client.put(IBM, b"2")).status == 204
            assert writer._producer is not first
            second = writer._producer
            on.cluster.fail_next("append", self.LOST)
            assert [(await on.client.put(IBM, b"3")).status for _ in range(2)] == [503, 204]
            assert writer._producer is second, "the next one comes some time after the last"
            monkeypatch.setattr(writer, "_next", 0.0)
            assert (await on.client.put(IBM, b"4")).status == 204
            assert writer._producer is not second
            assert [value for _, value in on.stored()] == [b"2", b"3", b"4"]

    async def test_r12_r52_a_queue_with_limits_that_is_declared_again_can_be_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(occupancy, "_REFRESH", 0.01)
        options: dict[str, Any] = {"limits": Limits(messages=1, policy="reject")}
        async with desk(queue=options) as on:
            writer = on.app._writers["prices"]
            assert (await on.client.put(IBM, b"1")).status == 204
            await asyncio.to_thread(LastValueQueue.open("prices", cluster=on.cluster).drop)
            async with asyncio.timeout(20):
                while (reply := await on.client.put(IBM, b"1")).status == 204:
                    await asyncio.sleep(0)
            assert (reply.status, reply.json["error"]) == (503, "ReaderFailed")
            dropped = await on.client.put(IBM, b"2")
            assert (dropped.status, dropped.json["error"]) == (503, "GroupNotFound")
            declare = partial(LastValueQueue.declare, "prices", key_header="ticker", value=TEXT, cluster=on.cluster)
            await asyncio.to_thread(partial(declare, **options))
            monkeypatch.setattr(writer, "_next", 0.0)
            assert (await on.client.put(IBM, b"3")).status == 204
            assert on.stored()[-1] == (b"IBM", b"3")

    @pytest.mark.parametrize(
        "error",
        [
            Closed("The producer of the queue prices was closed while a message waited."),
            QueueNotDeclared("No group.", queue="prices"),
            ReaderFailed("Reading prices has stopped."),
            TopicRecreated("Another topic.", topic="prices"),
        ],
    )
    async def test_r52_a_producer_whose_queue_cannot_be_judged_any_more_is_replaced(self, error: LVQError) -> None:
        async with desk() as on:
            writer = on.app._writers["prices"]
            first = writer._producer
            on.cluster.fail_next("append", error)
            assert (await on.client.put(IBM, b"1")).json["error"] == type(error).__name__
            assert (await on.client.put(IBM, b"2")).status == 204
            assert writer._producer is not first

    async def test_r52_a_failure_that_passes_or_is_of_one_message_replaces_nothing(self) -> None:
        async with desk() as on:
            first = on.app._writers["prices"]._producer
            errors = {
                MessageTooLarge("Large.", code="MSG_SIZE_TOO_LARGE"): 413,
                DeliveryFailed("Later.", code="_TIMED_OUT", retriable=True): 503,
                DeliveryUnknown("Late.", code="_TIMED_OUT"): 504,
            }
            for error, status in errors.items():
                on.cluster.fail_next("append", error)
                assert (await on.client.put(IBM, b"1")).status == status
            assert (await on.client.put(IBM, b"1")).status == 204
            assert on.app._writers["prices"]._producer is first

    async def test_r52_a_producer_that_cannot_be_opened_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with desk() as on:
            opens = LastValueQueue._producer
            on.cluster.fail_next("append", self.LOST)
            assert (await on.client.put(IBM, b"1")).status == 503

            def refuse(*arguments: Any) -> Any:
                raise BrokerUnavailable("No broker.", code="_TRANSPORT", retriable=True)

            monkeypatch.setattr("lvq_kafka.serve.queue_writer._BETWEEN", 0.0)
            monkeypatch.setattr(LastValueQueue, "_producer", refuse)
            assert [(await on.client.put(IBM, b"1")).status for _ in range(2)] == [503, 503]
            monkeypatch.setattr(LastValueQueue, "_producer", opens)
            assert (await on.client.put(IBM, b"1")).status == 204

    async def test_r52_a_fault_of_the_library_leaves_the_outcome_open(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with desk() as on:

            async def fail(*arguments: Any) -> Any:
                raise ZeroDivisionError

            monkeypatch.setattr(on.app._writers["prices"], "write", fail)
            reply = await on.client.put(IBM, b"1", idempotency_key="a")
            assert (reply.status, "may have been written" in reply.json["detail"]) == (504, True)
            assert "ZeroDivisionError" in caplog.text
            assert on.under_way == 0


class TestRepetitions:
    async def test_r52_a_repetition_gets_the_first_answer_and_writes_nothing(self) -> None:
        async with desk() as on:
            replies = [
                await on.client.put(f"{IBM}?", b"1", lvq_headers="{}", idempotency_key=key) for key in ('"a"', "a", "b")
            ]
            assert [reply.status for reply in replies] == [204] * 3
            assert [reply.headers["lvq-position"][-1] for reply in replies] == ["0", "0", "1"]
            assert replies[0] == replies[1]
            deletes = [await on.client.delete(IBM, idempotency_key="c") for _ in range(2)]
            assert deletes[0] == deletes[1]
            assert len(on.stored()) == 3

    async def test_r52_repetitions_at_once_are_one_write(self) -> None:
        async with desk() as on:
            on.cluster.disconnect()
            writes = [asyncio.ensure_future(on.client.put(IBM, b"1", idempotency_key="a")) for _ in range(5)]
            await on.until(1)
            on.cluster.reconnect()
            assert {reply.headers["lvq-position"] for reply in await asyncio.gather(*writes)} == {"prices/0/0"}
            assert on.stored() == [(b"IBM", b"1")]

    async def test_r52_the_key_of_another_request_is_422(self) -> None:
        async with desk(queue={"ttl": Ttl()}) as on:
            await on.client.put(IBM, b"1", idempotency_key="a")
            others: list[Reply] = [
                await on.client.put(IBM, b"2", idempotency_key="a"),
                await on.client.put("/v1/queues/prices/values/FB", b"1", idempotency_key="a"),
                await on.client.put(f"{IBM}?ttl=5", b"1", idempotency_key="a"),
                await on.client.put(IBM, b"1", idempotency_key="a", lvq_headers='{"a": "b"}'),
                await on.client.delete(IBM, idempotency_key="a"),
            ]
            assert [reply.status for reply in others] == [422] * 5
            assert "another request" in others[0].json["detail"]
            assert len(on.stored()) == 1

    async def test_r52_a_write_that_was_refused_is_not_remembered(self) -> None:
        async with desk(queue={"limits": Limits(messages=1, policy="reject")}) as on:
            fb = "/v1/queues/prices/values/FB"
            await on.client.put(IBM, b"1")
            assert (await on.client.put(fb, b"1", idempotency_key="a")).status == 429
            await on.client.delete(IBM)
            assert (await on.client.put(fb, b"1", idempotency_key="a")).status == 204

    async def test_r52_a_write_is_forgotten_after_ten_minutes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock()
        monkeypatch.setattr(writes_under_way, "time", SimpleNamespace(monotonic=clock))
        place = writes_under_way.WritesUnderWay()

        async def write() -> Any:
            return next(positions)

        first, second = Position("prices", 0, 1), Position("prices", 0, 2)
        positions = iter([first, second])
        seen = []
        for passes in (0, 599, 1):
            clock.now += passes
            with place.room.enter() as held:
                seen.append(await place.outcome(place.begin((b"", "a"), b"", held, write), named=True))
        assert seen == [first, first, second]


class TestRights:
    TOKENS = (
        "reader-reader-reader prices\n"
        "writer-writer-writer prices:write\n"
        "both-both-both-both- prices prices:write\n"
        "user:alice prices prices:write\n"
        "user:bob prices\n"
    )

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "tokens"
        path.write_text(self.TOKENS)
        path.chmod(0o600)
        return path

    async def test_r52_each_token_does_what_its_line_says(self, file: Path) -> None:
        async with desk(token_file=file) as on:
            seen = {}
            for name in ("reader-reader-reader", "writer-writer-writer", "both-both-both-both-", "none-none-none-none"):
                given = {"authorization": f"Bearer {name}"}
                put = await on.client.put(IBM, b"1", **given)
                delete = await on.client.delete("/v1/queues/prices/values/FB", **given)
                seen[name[:4]] = put.status, delete.status, (await on.client.get("/v1/queues/prices", **given)).status
            assert seen == {
                "read": (403, 403, 200),
                "writ": (204, 204, 403),
                "both": (204, 204, 200),
                "none": (401,) * 3,
            }
            refused = await on.client.put(IBM, b"1", authorization="Bearer reader-reader-reader")
            assert refused.json["detail"] == "Your token or user name does not allow to write 'prices'."
            assert (await on.client.put(IBM, b"1")).status == 401

    async def test_r52_repetitions_are_of_one_bearer(self, file: Path) -> None:
        async with desk(token_file=file) as on:
            for name in ("writer-writer-writer", "both-both-both-both-"):
                given = {"authorization": f"Bearer {name}", "idempotency_key": "a"}
                assert {(await on.client.put(IBM, name.encode(), **given)).status for _ in range(2)} == {204}
            assert len(on.stored()) == 2

    async def test_r52_a_proxy_names_users(self, file: Path) -> None:
        async with desk(token_file=file, user_header="Remote-User") as on:
            assert (await on.client.put(IBM, b"1", remote_user="alice")).status == 204
            assert (await on.client.put(IBM, b"1", remote_user="bob")).status == 403
            assert (await on.client.get("/v1/queues/prices", remote_user="bob")).status == 200
            assert (await on.client.get(IBM, remote_user="eve")).status == 403
            assert (await on.client.get(IBM)).status == 401
            token = "Bearer both-both-both-both-"
            assert (await on.client.put(IBM, b"1", authorization=token)).status == 204
            assert (await on.client.put(IBM, b"1", authorization=token, remote_user="bob")).status == 403
            elsewhere = AsgiClient(on.app, peer="10.0.0.1")
            assert (await elsewhere.put(IBM, b"1", remote_user="alice")).status == 403
            assert (await elsewhere.put(IBM, b"1", authorization=token)).status == 204

    async def test_r52_a_user_who_loses_his_right_loses_his_stream(self, file: Path) -> None:
        async with (
            desk(token_file=file, user_header="Remote-User") as on,
            on.client.stream("/v1/queues/prices/events?heartbeat=1", remote_user="bob") as stream,
        ):
            await stream.until("end-of-dump")
            file.write_text("user:bob prices:write\n")
            with pytest.raises(EOFError):
                await stream.until("none")

    @pytest.mark.parametrize(
        ("options", "fault"),
        [
            ({"user_header": "Remote-User"}, "nothing says what each may do"),
            ({"proxies": ["10.0.0.1"]}, "but not the header"),
            ({"writable": "prices"}, "writable has"),
            ({"writable": 5}, "writable has"),
            ({"writable": [5]}, "writable has"),
        ],
    )
    def test_r52_options_that_make_no_sense_are_errors(self, options: dict[str, Any], fault: str) -> None:
        with pytest.raises(ConfigError, match=fault):
            app(values_of(MemoryCluster()), **options)


class TestSources:
    async def test_r52_a_view_can_be_written_if_its_queue_is_given(self) -> None:
        async with scene() as on:
            with pytest.raises(ConfigError, match="'prices' is a view, which knows nothing of writing"):
                app(on.view, writable=True)
            queue = LastValueQueue("prices", key_header="ticker", cluster=on.cluster, value=TEXT)
            served = app(on.view, writable=[queue])
            client = AsgiClient(served)
            early = await client.put(IBM, b"1")
            assert (early.status, "Its lifespan does not run" in early.json["detail"]) == (503, True)
            async with served:
                assert (await client.put(IBM, b"119.00")).headers["lvq-position"] == "prices/0/2"
                assert (await client.get(f"{IBM}?at-least=prices/0/2")).body == b"119.00"
            assert (await client.put(IBM, b"1")).status == 503
            async with served:
                assert (await client.put(IBM, b"1")).status == 204
            other = LastValueQueue("other", key_header="ticker", cluster=on.cluster)
            with pytest.raises(ConfigError, match="no queue that is served"):
                app(on.view, writable=[other])

    async def test_r52_a_queue_that_is_not_listed_is_only_read(self) -> None:
        cluster = MemoryCluster()
        queue = values_of(cluster)
        other = LastValueQueue.declare("other", key_header="k", value=TEXT, cluster=cluster)
        async with app(queue, other, writable=[other]) as served:
            client = AsgiClient(served)
            refused = await client.put(IBM, b"1")
            assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
            assert (await client.put("/v1/queues/other/values/IBM", b"1")).status == 204
            assert (await client.put("/v1/queues/none/values/IBM", b"1")).status == 404

    async def test_r52_a_server_that_only_reads_says_so(self) -> None:
        async with scene() as on:
            for method in ("PUT", "DELETE", "POST", "PATCH", "OPTIONS"):
                reply = await on.client.get(IBM, method=method)
                assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
                assert "only reads" in reply.json["detail"]
            assert len(on.cluster.records("prices")) == 2

    async def test_r52_writes_are_counted_among_the_metrics(self) -> None:
        async with desk() as on:
            await on.client.put(IBM, b"1")
            text = (await on.client.get("/metrics")).body.decode()
            assert "messaging_client_sent_messages_total{" in text
