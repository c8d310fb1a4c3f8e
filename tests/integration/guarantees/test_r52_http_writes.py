"""R52 on a real broker: `lvq serve --writable` as a process, which is killed, and so is the broker."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote

from lvq_kafka import LastValueQueue
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.guarantees.cluster import read_raw
from tests.integration.guarantees.conftest import Declare
from tests.integration.guarantees.test_r46_serve import DEADLINE, Answer, Client, Serving, ready, serving, state
from tests.waiting import eventually


def write(client: Client, key: str, value: str | None, **headers: str) -> Answer:
    """Put a value, or delete it, and return the answer; the status is 0 if there is none."""
    connection = HTTPConnection("127.0.0.1", client.port, timeout=DEADLINE)
    named = {name.replace("_", "-"): said for name, said in headers.items()}
    try:
        method, body = ("DELETE", None) if value is None else ("PUT", value.encode())
        connection.request(method, f"{client.place}/values/{quote(key, safe='')}", body, named)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    except (OSError, HTTPException):
        return Answer(0, {}, b"")
    finally:
        connection.close()


def test_g7_g14_r52_a_client_reads_what_it_has_written(declare: Declare, servers: str) -> None:
    queue = declare(3)
    with serving(servers, queue.name, "--writable") as (client, _):
        ready(client)
        for number in range(20):
            key = f"k{number % 4}/ü"
            written = write(client, key, str(number))
            assert (written.status, written.body) == (204, b"")
            path = f"{client.place}/values/{quote(key, safe='')}?at-least={written.headers['lvq-position']}"
            read = client.get(path)
            assert (read.status, read.body) == (200, b"%d" % number)
        gone = write(client, "k0/ü", None)
        assert gone.status == 204
        assert (
            client.get(f"{client.place}/values/{quote('k0/ü', safe='')}?at-least={gone.headers['lvq-position']}").status
            == 404
        )
        raw = read_raw(servers, queue.topic)
        assert [record.value for record in raw if record.key == "k1/ü"] == ["1", "5", "9", "13", "17"]
        with ThreadPoolExecutor(8) as clients:
            at_once = list(clients.map(lambda number: write(client, f"c{number}", "1").status, range(64)))
        assert at_once == [204] * 64


def test_r52_a_write_while_the_broker_is_gone_has_an_unknown_outcome_and_is_done_once(
    private_broker: ProvidedBroker, private_queue: LastValueQueue[str]
) -> None:
    with serving(private_broker.bootstrap_servers, "prices", "--writable") as (client, _):
        ready(client)
        first = write(client, "IBM", "118.50")
        assert first.status == 204
        assert client.get(f"{client.place}/values/IBM?at-least={first.headers['lvq-position']}").status == 200
        private_broker.kill()
        with ThreadPoolExecutor(3) as clients:
            named = [clients.submit(write, client, "IBM", "119.00", idempotency_key="a") for _ in range(2)]
            unnamed = clients.submit(write, client, "FB", "27.78")
            answers = [write.result() for write in (*named, unnamed)]
        for answer in answers:
            assert (answer.status, json.loads(answer.body)["error"]) == (504, "OutcomeUnknown")
            assert "It may have been, or may still be" in json.loads(answer.body)["detail"]
        assert state(client, "IBM") == "disconnected"
        private_broker.restart()
        eventually(lambda: write(client, "IBM", "119.00", idempotency_key="a").status == 204, DEADLINE)
        known = write(client, "IBM", "119.00", idempotency_key="a")
        assert client.get(f"{client.place}/values/IBM?at-least={known.headers['lvq-position']}").body == b"119.00"
        assert write(client, "IBM", "120.00", idempotency_key="a").status == 422
        last = write(client, "last", "1")
        assert last.status == 204
        raw = read_raw(private_broker.bootstrap_servers, "prices")
        assert sorted((record.key, record.value) for record in raw) == [
            ("FB", "27.78"),
            ("IBM", "118.50"),
            ("IBM", "119.00"),
            ("last", "1"),
        ]


def write_until_it_is_killed(client: Client, server: Serving, turn: int) -> list[str]:
    """Write values of their own keys, kill the server meanwhile, and return the keys that were acknowledged."""
    keys = [f"{turn}-{number}" for number in range(200)]
    with ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(write, client, key, key) for key in keys]
        eventually(lambda: sum(answer.done() for answer in answers) > 20, DEADLINE)
        server.kill()
    statuses = [answer.result().status for answer in answers]
    assert set(statuses) == {0, 204}
    return [key for key, status in zip(keys, statuses) if status == 204]


def test_g14_r52_a_server_that_is_killed_loses_no_write_that_it_has_acknowledged(
    declare: Declare, servers: str
) -> None:
    queue = declare()
    with serving(servers, queue.name, "--writable") as (client, server):
        acknowledged: list[str] = []
        for turn in range(3):
            ready(client)
            acknowledged += write_until_it_is_killed(client, server, turn)
            server.start()
        stored = {record.key for record in read_raw(servers, queue.topic)}
        assert set(acknowledged) <= stored
        assert len(acknowledged) > 60
