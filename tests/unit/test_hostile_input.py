"""Hostile data (definitions, keys, headers, values, commits), and its handling on the way out.

It may stop only its own queue. It must not control a terminal or fill a log. These tests use the in-memory cluster;
``tests/integration/test_hostile_records.py`` has those that need a broker, and ``tests/fuzz`` generates thousands.
"""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lvq_kafka import JSON, Entry, LastValueQueue, Message, Position, Producer, QueueDefinition, queues
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.output import Output
from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.packing import uvarints
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.errors import (
    CommitMapRefused,
    ConfigError,
    DecodeError,
    KeyMismatch,
    LVQError,
    MessageTooLarge,
    QueueNotDeclared,
    UnencodableKey,
)
from lvq_kafka.reading.entries import Deleted
from lvq_kafka.testing import MemoryCluster
from tests.rules import rules

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2028\x00"
"""An operating system command, a control sequence, C1, an override of the text direction, and a line separator."""

HUGE = "k" * 900_000
LONGEST = 5_000
"""The length in characters that no error, log line or repr exceeds."""


def definition(**changes: Any) -> bytes:
    fields = {"version": 1, "name": "evil", "topic": "evil", "key_header": "ticker", **changes}
    return json.dumps(fields).encode()


POISON: dict[str, tuple[str, bytes]] = {
    "nested too deeply": ("evil", b"[" * 100_000),
    "nested too deeply in a field": ("evil", b'{"version":' + b"[" * 100_000),
    "with an order that is nested": ("evil", definition(order=json.loads("[" * 400 + "]" * 400))),
    "with a name that steers": (f"evil{ESCAPES}", definition()),
    "with fields that steer": ("evil", definition(**{ESCAPES: 1})),
    "with 20,000 fields": ("evil", definition(**{f"field{number}": 1 for number in range(20_000)})),
    "of a long version": ("evil", definition(version=HUGE)),
    "with a long name": (HUGE, definition()),
    "that names another": ("evil", definition(name=HUGE)),
    "with a long choice": ("evil", definition(order=HUGE + ESCAPES)),
    "with half a character in its header": ("evil", definition(key_header="\udcff")),
    "with a NUL in its header": ("evil", definition(key_header="a\0b")),
    "on Kafka's offsets": ("evil", definition(topic="__consumer_offsets")),
    "on the registry": ("evil", definition(topic=REGISTRY_TOPIC)),
    "with a name like an option": ("--yes", definition(name="--yes")),
    "with a number that has no end": ("evil", b'{"version": ' + b"1" * 10_000 + b"}"),
}


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    cluster = MemoryCluster()
    LastValueQueue.declare("prices", key_header="ticker", cluster=cluster)
    yield cluster
    cluster.close()


def poison(cluster: MemoryCluster, key: str | bytes, value: bytes | None) -> None:
    with Producer(cluster, rules(topic=REGISTRY_TOPIC, key_header=None)) as registry:
        if value is None:
            registry.delete(key)
        else:
            registry.put(key, value).result(5)


def run(cluster: MemoryCluster, *arguments: str, stdin: bytes | None = None, person: bool = False) -> Result:
    invocation = Invocation(cluster=cluster, out=Output(person))
    return CliRunner().invoke(lvq, arguments, input=stdin, obj=invocation, prog_name="lvq", env={"COLUMNS": "100"})


def assert_harmless(text: str) -> None:
    """Check that a text fits on a screen and cannot control a terminal."""
    assert len(text) < LONGEST
    assert not [character for character in text if not character.isprintable() and character != "\n"]


# -- the registry ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "stored"), POISON.values(), ids=POISON)
def test_a_definition_is_the_trouble_of_its_own_queue_only(
    cluster: MemoryCluster, name: str, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    poison(cluster, name, stored)
    assert [one.name for one in queues(cluster=cluster)] == ["prices"]
    assert "left out" in caplog.text
    assert all(len(message) < LONGEST and message.isprintable() for message in caplog.messages)
    LastValueQueue.declare("fresh", key_header="k", cluster=cluster)
    LastValueQueue.open("prices", cluster=cluster)
    with pytest.raises(ConfigError) as caught:
        LastValueQueue.open(name, cluster=cluster)
    assert_harmless(str(caught.value))
    for arguments in (["queues"], ["declare", "new", "-k", "k"], ["stats", "prices"], ["stats", "--", name]):
        ran = run(cluster, *arguments)
        assert ran.exit_code == (2 if name in arguments else 0), ran.stderr
        assert_harmless(ran.stderr)


def test_of_many_definitions_that_cannot_be_read_the_first_are_told(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(cluster, rules(topic=REGISTRY_TOPIC, key_header=None)) as registry:
        for number in range(1_000):
            registry.put(f"evil{number}", b"{")
    assert [one.name for one in queues(cluster=cluster)] == ["prices"]
    assert len(caplog.messages) == 11
    assert "990 more" in caplog.messages[-1]


@pytest.mark.parametrize("name", ["evil", "--yes", "two words; rm -r ~", f"evil{ESCAPES}", b"\xff\xfe", "it's"])
def test_the_way_out_that_an_error_names_can_be_pasted_into_a_shell(
    cluster: MemoryCluster, name: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    poison(cluster, name, b"{")
    queues(cluster=cluster)
    command = caplog.text.partition("Remove it (")[2].partition("), and")[0]
    told = subprocess.run(
        ["bash", "-c", f"lvq() {{ printf '%s\\0' \"$@\"; }}; {command}"], capture_output=True, check=True
    ).stdout
    arguments = [word.decode("utf-8", "surrogateescape") for word in told.split(b"\0")[:-1]]
    key = name if isinstance(name, bytes) else name.encode()
    if b"\0" not in key:  # no command line can hold it
        assert run(cluster, *arguments).exit_code == 0
        caplog.clear()
        queues(cluster=cluster)
        assert not caplog.messages


@pytest.mark.parametrize("name", ["\ud800", "a b", HUGE, 5])
def test_a_name_that_no_queue_can_have_is_refused_wherever_it_is_given(cluster: MemoryCluster, name: Any) -> None:
    for call in (
        lambda: LastValueQueue.open(name, cluster=cluster),
        lambda: LastValueQueue.declare(name, key_header="k", cluster=cluster),
        lambda: LastValueQueue(name, key_header="k", cluster=cluster),
    ):
        with pytest.raises(ConfigError, match="cannot be the name of a") as caught:
            call()
        assert_harmless(str(caught.value))


def test_no_similar_name_is_offered_that_nobody_can_open(cluster: MemoryCluster) -> None:
    poison(cluster, f"price{ESCAPES}", b"{}")
    with pytest.raises(QueueNotDeclared) as caught:
        LastValueQueue.open("price", cluster=cluster)
    assert "Did you mean prices?" in str(caught.value)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", REGISTRY_TOPIC])
def test_no_queue_and_no_dead_letter_comes_to_lie_on_a_topic_of_kafkas_or_the_registry(
    cluster: MemoryCluster, topic: str
) -> None:
    cluster.topics.create(topic, partitions=1, config={"cleanup.policy": "compact"})
    for call in (
        lambda: LastValueQueue.declare("evil", key_header="k", topic=topic, cluster=cluster),
        lambda: LastValueQueue.open("prices", cluster=cluster).consumer(dead_letters=topic),
    ):
        with pytest.raises(ConfigError, match=topic):
            call()
    with LastValueQueue(topic, key_header=None, cluster=cluster).view() as view:  # anybody may read it
        assert "nothing" not in view


def test_a_name_like_an_option_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match="'-x' cannot be the name of a queue"):
        LastValueQueue.declare("-x", key_header="k", topic="x", cluster=cluster)
    cluster.topics.create("-x", partitions=1, config={"cleanup.policy": "compact"})
    LastValueQueue("-x", key_header=None, cluster=cluster)  # Kafka accepts such a topic, and the queue x may use it
    LastValueQueue.declare("x", key_header="k", topic="-x", cluster=cluster)


# -- keys, headers, values ------------------------------------------------------------------------


def refused_by(call: Callable[[], object]) -> LVQError:
    with pytest.raises(LVQError) as caught:
        call()
    return caught.value


def test_a_key_is_shown_by_its_beginning_wherever_it_is_shown(cluster: MemoryCluster) -> None:
    queue = LastValueQueue.open("prices", cluster=cluster)
    key = HUGE[:400_000] + ESCAPES
    with queue.producer() as producer:
        told = [
            refused_by(lambda: producer.put(key, b"x" * 2_000_000).result(5)),
            refused_by(lambda: producer.send(Message(b"1", {"ticker": key}, key=key + "!"))),
            refused_by(lambda: producer.put("\ud800" * 100_000, b"1")),
            refused_by(lambda: producer.put("k", b"1", {key: 1.5})),  # type: ignore[dict-item]
            refused_by(lambda: producer.put("k", b"1", {key + "\ud800": "1"})),
            refused_by(lambda: producer.put([key], b"1")),  # type: ignore[arg-type]
        ]
        assert [type(error) for error in told[:3]] == [MessageTooLarge, ConfigError, UnencodableKey]
        for error in told:
            assert_harmless(str(error))
        producer.put(key, b"1").result(5)
    strict = LastValueQueue("prices", key_header="other", key_mismatch="fail", cluster=cluster)
    with strict.producer() as producer:
        producer.put(key, b"1").result(5)
        producer.writer.append("prices", b"k", b"1", [("other", key.encode())]).result(5)
    mismatch = refused_by(lambda: strict.view().__enter__())
    assert isinstance(mismatch, KeyMismatch) or isinstance(mismatch.__cause__, KeyMismatch)
    assert_harmless(str(mismatch))
    entry = Entry(key, key.encode(), Position("prices", 0, 1), 0.0, [(key, key.encode())])
    with queue.consumer() as consumer:
        delivery = consumer.acquire(5)
        odd = LastValueQueue("prices", key_header=key.replace("\0", ""), cluster=cluster)
        for shown in (delivery, entry, Deleted(key), Message(b"1", {key: key}, key=key), odd, odd.definition):
            assert_harmless(repr(shown))


def test_short_values_are_shown_as_they_always_were() -> None:
    entry = Entry("IBM", b"1", Position("prices", 0, 1), 0.0, (("ticker", b"IBM"),))
    assert repr(entry) == (
        "Entry(key='IBM', value=b'1', position=Position(topic='prices', partition=0, offset=1), timestamp=0.0, "
        "headers=(('ticker', b'IBM'),))"
    )
    assert (
        repr(Deleted("IBM", consumed=True))
        == "Deleted(key='IBM', consumed=True, left=False, expired=False, previous=None)"
    )
    assert repr(Message(b"1", {"ticker": "IBM"}, key="IBM")) == "Message(b'1', headers={'ticker': 'IBM'}, key='IBM')"


def test_a_reason_for_a_rejection_does_not_fill_the_log(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = LastValueQueue.open("prices", cluster=cluster)
    with queue.producer() as producer:
        producer.put("k", b"1").result(5)
    with queue.consumer() as consumer:
        delivery = consumer.acquire(5)
        assert delivery is not None
        delivery.reject(ESCAPES + HUGE)
    (line,) = [record.getMessage() for record in caplog.records if "was rejected" in record.getMessage()]
    assert len(line) < LONGEST
    assert line.isprintable()


@pytest.mark.parametrize("name", ["a\0b", "\0"])
def test_a_header_whose_name_the_client_would_cut_off_is_refused(cluster: MemoryCluster, name: str) -> None:
    with (
        LastValueQueue.open("prices", cluster=cluster).producer() as producer,
        pytest.raises(UnencodableKey, match="NUL"),
    ):
        producer.put("k", b"1", {name: "x"})
    with pytest.raises(ConfigError, match="NUL"):
        QueueDefinition(name="q", topic="q", key_header=name)


@pytest.mark.parametrize("depth", [501, 100_000])
def test_a_value_that_is_nested_too_deeply_is_one_that_cannot_be_read(cluster: MemoryCluster, depth: int) -> None:
    queue = LastValueQueue.open("prices", value=JSON, cluster=cluster)
    with LastValueQueue.open("prices", cluster=cluster).producer() as producer:
        producer.put("deep", b"[" * depth + b"]" * depth)
        producer.put("bad", b"[" * depth)
        producer.put("good", b"[[1]]").result(5)
    with queue.view() as view:
        assert view["good"] == [[1]]
        for key in ("deep", "bad"):
            with pytest.raises(DecodeError):
                view[key]
    for arguments, person in ((["browse", "prices"], True), (["get", "prices", "deep", "bad", "good"], False)):
        ran = run(cluster, *arguments, "--format", "json", person=person)
        assert ran.exit_code == 5, ran.stderr
        assert "good" in ran.stdout
        assert_harmless(ran.stderr)


def test_a_value_that_is_nested_as_deeply_as_may_be_is_read_and_written_by_all(cluster: MemoryCluster) -> None:
    deep = json.loads("[" * 500 + "]" * 500)
    with LastValueQueue.open("prices", value=JSON, cluster=cluster).producer() as producer:
        producer.put("deep", deep).result(5)
        with pytest.raises(LVQError, match="nested"):
            producer.put("deeper", [deep])
    for arguments in (["browse", "prices"], ["get", "prices", "deep"]):
        assert run(cluster, *arguments, "--format", "json", person=True).exit_code == 0
    lines = run(cluster, "browse", "prices", "--format", "json").stdout_bytes
    assert run(cluster, "put", "prices", "--from-jsonl", "-", "--format", "json", stdin=lines).exit_code == 0


@pytest.mark.parametrize("depth", [1_100, 100_000])
@pytest.mark.parametrize("command", ["put", "send"])
@pytest.mark.parametrize("before", ['{"key": "IBM", "headers": {"ticker": "IBM"}, "value": ', ""])
def test_a_line_that_is_nested_too_deeply_is_named(
    cluster: MemoryCluster, command: str, depth: int, before: str
) -> None:
    lines = b'{"key": "a", "headers": {"ticker": "a"}, "value": "1"}\n' + f"{before}{'[' * depth}\n".encode()
    ran = run(cluster, command, "prices", "--from-jsonl", "-", stdin=lines)
    assert ran.exit_code == 5
    assert "Line 2" in ran.stderr
    assert_harmless(ran.stderr)
    given = run(cluster, "put", "prices", "k", "[" * depth, "--format", "json")
    assert (given.exit_code, "nested" in given.stderr) == (5, True)


def test_a_line_for_a_program_steers_no_terminal_either(cluster: MemoryCluster) -> None:
    text = ESCAPES.replace("\0", "") + "株\u00e9\U0001f600\U000e0041"
    with LastValueQueue.open("prices", cluster=cluster).producer() as producer:
        producer.put(text, text.encode(), {text: text}).result(5)
    for arguments in (["browse", "prices"], ["get", "prices", text], ["export", "prices"]):
        out = run(cluster, *arguments).stdout
        assert out.replace("\n", "").isprintable()
        assert "株é😀" in out  # readable text stays
        rows = [json.loads(line) for line in out.splitlines()]
        assert [(row["key"], row["value"], row["headers"][text]) for row in rows if "key" in row] == [(text,) * 3]


def test_nothing_that_others_have_named_steers_a_persons_terminal(cluster: MemoryCluster) -> None:
    named = LastValueQueue.declare("named", key_header=ESCAPES.replace("\0", "[red]"), value=JSON, cluster=cluster)
    with named.producer() as producer:
        producer.put("k", {ESCAPES: [ESCAPES, "[red]"], "h": HUGE[:3000]}).result(5)
    for arguments in (
        ["queues"],
        ["stats", "named"],
        ["declare", "named", "-k", named.key_header or ""],
        ["get", "named", "k", "--format", "json"],
        ["browse", "named", "--format", "json"],
        ["consume", "named", "-n", "1", "--exec", "exit 3"],
    ):
        ran = run(cluster, *arguments, person=True)
        assert ran.exit_code in (0, 6), ran.stderr
        assert_harmless(ran.stdout + ran.stderr)
        assert ran.exit_code == 6 or "\\x1b" in ran.stdout or "\\u001b" in ran.stdout or arguments[0] == "stats"


def test_an_error_of_anybodys_is_harmless_when_it_becomes_one_of_ours() -> None:
    error = LVQError(f"The codec cannot read it: {ESCAPES}{HUGE}", hint=f"Ask {ESCAPES}.")
    assert_harmless(str(error))
    assert str(error).endswith(error.hint)
    assert str(LVQError("two\nlines\twith tabs")) == "two\nlines\twith tabs"


def test_the_log_that_debug_shows_steers_no_terminal(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(*_: object, **__: object) -> object:
        logging.getLogger("lvq_kafka.client").error("the broker said %s", ESCAPES)
        raise ValueError(ESCAPES)

    monkeypatch.setattr(cluster.topics, "describe", describe)
    ran = run(cluster, "--debug", "stats", "prices")
    assert ran.exit_code == 70
    assert "the broker said" in ran.stderr
    assert "Traceback" in ran.stderr
    assert ran.stderr.replace("\n", "").isprintable()


@pytest.mark.parametrize("arguments", [["queues", f"--no{ESCAPES}"], ["watch", "prices", "--by", ESCAPES], [ESCAPES]])
def test_a_complaint_about_the_command_line_steers_no_terminal(cluster: MemoryCluster, arguments: list[str]) -> None:
    ran = run(cluster, *arguments)
    assert ran.exit_code == 2
    assert_harmless(ran.stderr)


# -- commits --------------------------------------------------------------------------------------


def text(flags: int, *fields: bytes) -> str:
    wire = b"".join((bytes((flags,)), bytes(8), *fields))
    wire += zlib.crc32(wire).to_bytes(4, "big")
    return "lvq1." + base64.urlsafe_b64encode(wire).rstrip(b"=").decode()


def numbered(sequence: int) -> str:
    return text(0, uvarints((1, sequence, 0)))


def bomb(body: bytes, runs: int) -> str:
    deflated = zlib.compress(body, 9, wbits=-15)
    return text(1, uvarints((1, 1, runs, len(deflated))), deflated)


COMMITS = {
    "the first sequence that is refused": (2, numbered(1 << 62)),
    "a sequence near the end": (2, numbered((1 << 63) - 2)),
    "the last sequence": (2, numbered((1 << 63) - 1)),
    "a bomb of noughts": (2, bomb(bytes(1_000_000), 65_536)),
    "a bomb of runs": (2, bomb(b"\x01" * 2_900_000, 65_536)),
    "65,536 runs": (2, bomb(b"\x01" * 65_536, 65_536)),
    "runs beyond all numbers": (2, bomb((b"\xff" * 8 + b"\x3f") * 3_000, 3_000)),
    "as many runs as a number can say": (2, text(0, uvarints((1, 1, 1 << 62)))),
    "all done to 2**40": (2, text(0, uvarints((1, 1, 2, 1, 1 << 40)))),
    "a mark at 2**61": (2, text(4, uvarints((1, 1, 0, 1 << 61)))),
    "a count of 2**62": (2, text(2, uvarints((1, 1, 0, 1, 0, 1 << 62)))),
    "an offset beyond the log": ((1 << 63) - 1, numbered(1)),
    "an offset beyond the log, and a foreign text": ((1 << 63) - 1, "x"),
    "somebody's text": (2, ESCAPES),
    "a newer format": (2, "lvq9.AAAA"),
    "a much newer format": (2, f"lvq{'9' * 4000}."),
}


@pytest.mark.parametrize(("offset", "said"), COMMITS.values(), ids=COMMITS)
def test_a_commit_ends_in_a_typed_error_that_status_tells_and_repair_mends(
    cluster: MemoryCluster, offset: int, said: str
) -> None:
    queue = LastValueQueue.open("prices", cluster=cluster)
    with queue.producer() as producer:
        for number in range(10):
            producer.put(f"k{number}", b"1")
    cluster.groups.commit(queue.definition.group, "prices", {0: Commit(offset, said)})
    try:
        with queue.consumer() as consumer:
            delivery = consumer.acquire(5)
            assert delivery is not None
            delivery.ack()
    except LVQError as error:
        assert_harmless(str(error))
        status = run(cluster, "stats", "prices")
        assert (status.exit_code, status.stderr != "") == (4, True)
        assert_harmless(status.stderr)
        with suppress(LVQError), queue.browser(follow=False) as browser:  # the known part of a cut log can be browsed
            list(browser)
        with pytest.raises(LVQError):
            queue.purge()
        assert not queue.repair().left
    assert run(cluster, "stats", "prices").exit_code == 0
    with (
        queue.producer(transactional_id="t") as producer,
        queue.consumer() as consumer,
        consumer.transaction(producer) as transaction,
    ):
        for delivery in transaction.acquire_many(100, timeout=0.5):
            delivery.ack()
    assert run(cluster, "stats", "prices").exit_code == 0


def test_the_last_sequence_that_is_taken_is_followed_by_others(cluster: MemoryCluster) -> None:
    """Anyone who may write to the group can leave any number there."""
    queue = LastValueQueue.open("prices", cluster=cluster)
    with queue.producer() as producer:
        for number in range(3):
            producer.put(f"k{number}", b"1")
    cluster.groups.commit(queue.definition.group, "prices", {0: Commit(0, numbered((1 << 62) - 1))})
    for _ in range(3):
        with queue.consumer() as consumer:
            delivery = consumer.acquire(5)
            assert delivery is not None
            delivery.ack()
    assert run(cluster, "stats", "prices").exit_code == 0
    cluster.groups.commit(queue.definition.group, "prices", {0: Commit(0, numbered((1 << 62) - 1))})
    queue.purge()
    queue.reset("earliest")
    assert run(cluster, "stats", "prices").exit_code == 0


def test_a_refusal_shows_the_beginning_of_a_text(cluster: MemoryCluster) -> None:
    for said in (f"lvq{'9' * 4000}.", ESCAPES * 50):
        cluster.groups.commit("lvq.prices", "prices", {0: Commit(0, said)})
        with pytest.raises(CommitMapRefused) as caught:
            LastValueQueue.open("prices", cluster=cluster).consumer()
        assert len(str(caught.value)) < 1_000
