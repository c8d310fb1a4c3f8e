"""R46 on a real broker: `lvq serve` as a process, and clients that know nothing but HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import TopicNotFound
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.event_parser import EventParser, ServerEvent
from tests.integration.guarantees.cluster import fold, read_raw
from tests.integration.guarantees.conftest import Declare
from tests.integration.guarantees.writing import put, ticking
from tests.waiting import eventually

DEADLINE = 60.0  # seconds for whatever makes progress


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Asks a server, whose address changes with each process, and follows the events of a queue as the page says."""

    def __init__(self, queue: str) -> None:
        self.port = 0
        self.place = f"/v1/queues/{queue}"
        self.held: dict[str, str] = {}
        self.last = ""
        self.seen: list[str] = []

    def get(self, path: str, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            response = self._ask(connection, path, headers)
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def value(self, key: str, **headers: str) -> Answer:
        return self.get(f"{self.place}/values/{quote(key, safe='')}", **headers)

    def _ask(self, connection: HTTPConnection, path: str, headers: dict[str, str]) -> HTTPResponse:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse()

    def follow(self, until: Callable[[ServerEvent], bool] = lambda _: False, *, most: int = sys.maxsize) -> None:
        """Follow the events from where it was, until one of them, or until it is cut off after some bytes."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            headers = {"Last-Event-ID": self.last} if self.last else {}
            response = self._ask(connection, f"{self.place}/events", headers)
            assert response.status == 200, response.read()
            parser = EventParser()
            while most > 0 and (data := response.read1(min(most, 65_536))):
                most -= len(data)
                for event in parser.feed(data):
                    self._apply(event)
                    if until(event):
                        return
        except (IncompleteRead, ConnectionError):  # the process was killed
            pass
        finally:
            connection.close()

    def _apply(self, event: ServerEvent) -> None:
        self.last = event.last_id or self.last
        self.seen.append(event.name)
        if event.name == "reset":
            self.held.clear()
        elif event.name == "value":
            self.held[event.json["key"]] = event.json["value"]
        elif event.name == "deleted":
            self.held.pop(event.json["key"], None)


class Serving:
    """The process of `lvq serve`, which may be killed and started again."""

    def __init__(self, servers: str, client: Client, queue: str, *options: str) -> None:
        self._command = [sys.executable, "-m", "lvq_kafka", "-b", servers, "serve", queue, "--port", "0", *options]
        self._client = client
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._client.port = urlsplit(json.loads(self.process.stdout.readline())["url"]).port or 0

    def kill(self) -> None:
        """Kill it, as kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def serving(servers: str, queue: str, *options: str) -> Iterator[tuple[Client, Serving]]:
    client = Client(queue)
    server = Serving(servers, client, queue, "--format", "text", *options)
    server.start()
    try:
        yield client, server
    finally:
        server.kill()


def ready(client: Client) -> None:
    eventually(lambda: client.get("/ready").status == 200, DEADLINE)


def state(client: Client, key: str) -> str:
    answer = client.value(key)
    assert answer.status == 200
    assert float(answer.headers["lvq-age"]) >= 0
    return answer.headers["lvq-state"]


def is_(name: str, **fields: Any) -> Callable[[ServerEvent], bool]:
    return lambda event: event.name == name and fields.items() <= event.json.items()


def is_gone(cluster: KafkaCluster, topic: str) -> bool:
    try:
        cluster.topics.describe(topic)
    except TopicNotFound:
        return True
    return False


def end_of_dump(event: ServerEvent) -> bool:
    return event.name == "end-of-dump"


def test_g3_r34_r46_a_client_converges_although_it_is_cut_off_and_the_server_is_killed(
    declare: Declare, servers: str, tmp_path: Path
) -> None:
    """It goes on from its last event with each new process, which goes on from its store."""
    queue, random = declare(2), Random(46)
    with (
        serving(servers, queue.name, "--store", str(tmp_path)) as (client, server),
        queue.producer() as deleting,
        ticking(queue, lambda number: f"k{number % 100:02}") as ticker,
    ):
        ready(client)
        client.follow(end_of_dump)
        since = len(client.seen)
        for turn in range(30):
            ticker.await_count(ticker.count + 20)
            deleting.delete(f"k{random.randrange(100):02}").result(DEADLINE)
            if turn % 10 == 9:
                server.kill()
                server.start()
                ready(client)
            client.follow(most=random.choice([100, 1000, 5000, 50_000]))
        ticker.stop()
        put(queue, last="1", k00=None)
        assert "reset" not in client.seen[since:], "the store knows what has changed"
        while client.held.get("last") != "1" or "k00" in client.held:
            client.follow(lambda _: client.held.get("last") == "1" and "k00" not in client.held)
        client.follow(end_of_dump)
        truth = {key: record.value for key, record in fold(read_raw(servers, queue.topic), 2).items()}
        assert client.held == truth
        assert "reset" not in client.seen[since:]
        rows, after = [], ""
        while not (page := json.loads(client.get(f"{client.place}/values?limit=40{after}").body))["last"]:
            rows, after = rows + page["values"], f"&after={page['token']}"
        assert {row["key"]: row["value"] for row in rows + page["values"]} == truth
        client.last, client.held = page["token"], dict(truth)
        put(queue, k01=None, new="1")
        client.follow(lambda _: client.held.get("new") == "1" and "k01" not in client.held)


def test_g5_r46_every_answer_says_that_the_broker_is_gone_and_values_are_still_served(
    private_broker: ProvidedBroker, private_queue: LastValueQueue[str]
) -> None:
    put(private_queue, IBM="118.50")
    with serving(private_broker.bootstrap_servers, "prices") as (client, server):
        ready(client)
        client.follow(end_of_dump)
        for stop, start in (
            (private_broker.pause, private_broker.resume),
            (private_broker.kill, private_broker.restart),
        ):
            stop()
            client.follow(is_("state", state="disconnected"))
            assert client.seen[-1] == "state"
            assert state(client, "IBM") == "disconnected"
            assert client.get("/ready").status == 503
            assert client.get("/live").status == 200
            assert client.value("MSFT").headers["lvq-state"] == "disconnected"
            assert client.held == {"IBM": "118.50"}
            start()
            client.follow(is_("state", state="caught-up"))
            eventually(lambda: state(client, "IBM") == "caught-up", DEADLINE)
            ready(client)
        put(private_queue, IBM="119.00")
        client.follow(is_("value", key="IBM", value="119.00"))
        assert client.value("IBM").body == b"119.00"
        assert server.process is not None
        assert server.process.poll() is None


def test_g1_r46_a_topic_that_was_created_again_has_other_tags_and_no_old_value(
    kafka_cluster: KafkaCluster, declare: Declare, servers: str
) -> None:
    queue = declare()
    put(queue, IBM="118.50", gone="1")
    with serving(servers, queue.name) as (client, _):
        ready(client)
        client.follow(end_of_dump)
        before = client.last
        tag = client.value("IBM").headers["etag"]
        known = client.value("IBM", If_None_Match=tag)
        assert (known.status, known.body) == (304, b"")
        kafka_cluster.topics.delete(queue.topic)
        eventually(lambda: is_gone(kafka_cluster, queue.topic), DEADLINE)
        answer = client.value("IBM", If_None_Match=tag)
        assert answer.status == 304, "it is the value that the client has, and the state says what happened"
        kafka_cluster.topics.create(queue.topic, partitions=1, config={"cleanup.policy": "compact"})
        put(queue, IBM="1")  # at the same position
        client.follow(lambda _: client.held == {"IBM": "1"})
        answer = client.value("IBM", If_None_Match=tag)
        assert (answer.status, answer.body) == (200, b"1")
        assert answer.headers["etag"] != tag
        assert client.value("gone").status == 404
        client.last, since = before, len(client.seen)
        client.follow(end_of_dump)
        assert "reset" in client.seen[since:]
        assert client.held == {"IBM": "1"}


def test_g1_r46_a_server_that_was_never_complete_answers_no_read(declare: Declare, servers: str) -> None:
    queue = declare()
    put(queue, IBM="118.50")
    with queue.producer(transactional_id=queue.name) as producer, producer.transaction(DEADLINE):
        producer.put("FB", "1").result(DEADLINE)  # it is in the log
        with serving(servers, queue.name) as (client, _):
            reads = [f"{client.place}/{path}" for path in ("values/IBM", "values/FB", "values", "events")]
            for answer in map(client.get, reads):
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            eventually(lambda: client.get(reads[0]).headers.get("lvq-state") == "blocked", DEADLINE)
            assert {client.get(path).status for path in reads} == {503}
            assert client.get("/ready").status == 503
    with serving(servers, queue.name) as (client, _):
        ready(client)
        assert client.value("FB").body == b"1"
        assert client.value("GE").status == 404


@pytest.mark.parametrize("path", ["/v1/queues/{}/values/IBM", "/v1/queues/{}/values/IBM?wait=60"])
def test_g7_r46_a_read_of_a_position_has_what_was_written(declare: Declare, servers: str, path: str) -> None:
    queue = declare(3)
    with serving(servers, queue.name) as (client, _), queue.producer() as producer:
        ready(client)
        for number in range(20):
            position = producer.put("IBM", str(number)).result(DEADLINE)
            mark = "&" if "?" in path else "?"
            answer = client.get(f"{path.format(queue.name)}{mark}at-least={position}")
            assert (answer.status, answer.body) == (200, b"%d" % number)
