"""Fuzz tests of everything that reads foreign data. LVQ_EFFORT multiplies the number of examples."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from lvq_kafka import BYTES, JSON, TEXT, Codec, Entry, LastValueQueue, queues
from lvq_kafka.cli.board import Board
from lvq_kafka.cli.bulk_send import _parse
from lvq_kafka.cli.table import ValueTable
from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.facts import Format
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Headers, Record
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC, is_name
from lvq_kafka.dialects.address_forms import parse_address
from lvq_kafka.errors import LVQError
from lvq_kafka.json_lines import event_line, to_line
from lvq_kafka.selectors.selector import Selector
from lvq_kafka.testing import MemoryCluster
from tests.effort import TIMES
from tests.fuzz.strategies import addresses, commits, definitions, headers, keys, lines, values

LONGEST = 5_000
FORMS: dict[Format, Codec] = {"bytes": BYTES, "text": TEXT, "json": JSON}


def harmless(text: str) -> None:
    """Check that a text shown to users is short and has no terminal control characters."""
    assert len(text) < LONGEST
    assert text.replace("\n", "").replace("\t", "").isprintable(), ascii(text)


@contextmanager
def errors_harmless() -> Iterator[None]:
    """Allow the library's errors if their texts are harmless; let others fail the test."""
    try:
        yield
    except LVQError as error:
        for told in (str(error), *getattr(error, "__notes__", ())):
            harmless(told)


class _Harmless(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        harmless(record.getMessage())


@contextmanager
def fresh_cluster() -> Iterator[MemoryCluster]:
    """Yield an in-memory cluster with a queue ``prices``; check that log messages are harmless."""
    logger, handler = logging.getLogger("lvq_kafka"), _Harmless()
    logger.addHandler(handler)
    cluster = MemoryCluster()
    try:
        LastValueQueue.declare("prices", key_header="ticker", cluster=cluster)
        yield cluster
    finally:
        cluster.close()
        logger.removeHandler(handler)


@settings(max_examples=60 * TIMES)
@given(definitions())
@example((b"evil", b"[" * 100_000))
@example((b"evil", b'{"version":1,"name":"evil","topic":"__consumer_offsets","key_header":"k"}'))
def test_a_record_of_the_registry_is_the_trouble_of_its_own_queue_only(record: tuple[bytes, bytes]) -> None:
    key, value = record
    if key == b"prices":
        return
    with fresh_cluster() as cluster:
        cluster.writer().append(REGISTRY_TOPIC, key, value).result(5)
        names = [one.name for one in queues(cluster=cluster)]
        assert "prices" in names
        with errors_harmless():
            opened = LastValueQueue.open(key_text(key), cluster=cluster)
            assert opened.name in names
            assert is_name(opened.name)
            assert not opened.name.startswith("-")
            assert not opened.topic.startswith("__")
            assert opened.topic != REGISTRY_TOPIC
        LastValueQueue.open("prices", cluster=cluster)
        LastValueQueue.declare("fresh", key_header="k", cluster=cluster)
        with errors_harmless():
            LastValueQueue.declare("evil", key_header="k", cluster=cluster)


@settings(max_examples=100 * TIMES)
@given(lines())
@example(b'{"key":"k","value":' + b"[" * 1_100)
def test_a_json_line_is_read_or_refused_and_what_was_read_can_be_sent(text: bytes) -> None:
    for form, codec in FORMS.items():
        with errors_harmless():
            line = _parse(text, form, 1)
            if line is None or line.delete:
                continue
            codec.encode(line.value, "prices", [])
            _send(line.key, line.value, line.headers, codec)


def _send(key: bytes | None, value: object, given: Headers, codec: Codec) -> None:
    cluster = _shared_log()
    with LastValueQueue.open("prices", value=codec, cluster=cluster).producer() as producer:
        producer.put("k" if key is None else key, value, given).result(5)


@settings(max_examples=25 * TIMES)
@given(keys, values(), headers, st.sampled_from(sorted(FORMS)))
def test_a_record_is_read_and_shown_by_everybody(key: bytes, value: bytes, given: Headers, form: Format) -> None:
    with fresh_cluster() as cluster:
        writer = cluster.writer()
        writer.append("prices", key, value, given).result(5)
        writer.append("prices", b"after", b"[1]").result(5)
        queue = LastValueQueue.open("prices", value=FORMS[form], cluster=cluster)
        with queue.browser(follow=False, undecodable="raw") as browser:
            events = list(browser)
    found = [event.key for event in events if isinstance(event, Entry)]
    assert found == [*dict.fromkeys((key_text(key), "after"))]
    screen = io.StringIO()
    console = Console(file=screen, width=100, color_system=None)
    table, board = ValueTable(console, key_header="ticker"), Board("prices")
    for event in events:
        table.add(event)
        board.apply(event, 0.0)
        written = event_line(event, form).decode()
        assert written.removesuffix("\n").isprintable()
        assert written == to_line(json.loads(written)).decode()
        assert len(repr(event)) < LONGEST
    console.print(board.picture(0.0, console.render_str("live"), 100, 20))
    assert screen.getvalue().replace("\n", "").isprintable()
    with errors_harmless():
        FORMS[form].decode_at(value, ("prices", 0, 0))


@settings(max_examples=25 * TIMES)
@given(commits())
@example((0, CommitMap(0, sequence=(1 << 62) - 1).encode()))
@example((0, CommitMap(0, sequence=(1 << 63) - 1).encode()))
def test_a_commit_is_taken_or_refused_by_all_alike_and_repair_mends_it(commit: tuple[int, str]) -> None:
    with fresh_cluster() as cluster:
        queue = LastValueQueue.open("prices", cluster=cluster)
        with queue.producer() as producer:
            for number in range(10):
                producer.put(f"k{number}", b"1")
        cluster.groups.commit(queue.definition.group, "prices", {0: Commit(*commit)})
        found = queue.repair(dry_run=True).found
        for damage in found:
            harmless(str(damage.error))
        assert _consume(queue) == (not found), found
        if not found:
            assert not queue.repair(dry_run=True).found
        assert not queue.repair(start="earliest").left
        assert _consume(queue)
        assert not queue.repair(dry_run=True).found
        queue.reset("earliest")
        with queue.consumer() as consumer:
            assert len(consumer.acquire_many(10, timeout=5)) == 10


def _consume(queue: LastValueQueue) -> bool:
    """Return whether the queue can be consumed."""
    with errors_harmless():
        with queue.consumer() as consumer:
            delivery = consumer.acquire(0.3)
            if delivery is not None:
                delivery.ack()
        return True
    return False


_log: list[MemoryCluster] = []


def _shared_log() -> MemoryCluster:
    if not _log:
        _log.append(MemoryCluster())
        LastValueQueue.declare("prices", key_header="ticker", cluster=_log[0])
    return _log[0]


WORDS = [
    *("a", '"b"', "'it''s'", "'%_!'", "5", "2.5e3", "0xF", "TRUE", "NULL", "(", ")", ",", "+", "-", "*", "/"),
    *("NOT", "AND", "OR", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "=", "<>", "<"),
]


@settings(max_examples=100 * TIMES, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join), st.text(max_size=60)), keys, headers)
def test_selectors(text: str, key: bytes, found: Headers) -> None:
    with errors_harmless():
        assert Selector(text, "prices").matches(Record(0, 0, 0, key, b"", found)) in (True, False)


@settings(max_examples=200 * TIMES, deadline=None)
@given(addresses())
@example("p;" + "{a:" * 20_000)
@example("p;{a:" + "[" * 60_000)
@example("p;{a:'" + "\\" * 60_000)
@example("p;{" + "a " * 30_000)
@example("'" * 65_536)
@example("/" * 65_536)
@example(":" * 65_536)
@example("p;{a:" + " " * 65_000)
@example("p " + " " * 65_000 + "x;{}")
@example("p?" + "%41=&" * 13_000)
@example("direct://" + "/" * 65_000)
@example("p" * 65_536 + ":")
@example("p/" + " " * 65_000 + "'")
@example("p?last-value-key=" + "1" * 65_000)
@example('{"name": "q", "lvqKey": "k", "maximumMessageTtl": ' + "1" * 60_000 + "}")
def test_an_address_is_refused_or_says_what_it_says_when_it_is_written_and_read_again(text: str) -> None:
    with errors_harmless():
        address = parse_address(text)
        assert parse_address(str(address)) == address
