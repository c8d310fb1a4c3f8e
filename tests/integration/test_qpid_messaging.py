"""Programs for ``qpid.messaging`` as processes on a real broker, with their import line changed and nothing else."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.kafka import KafkaCluster
from tests.integration.named_queues import forget
from tests.qpid_programs import LVQ, changed, running
from tests.waiting import eventually

DEADLINE = 120.0  # seconds

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a program. There is no queue ``prices`` before the test."""
    started: list[subprocess.Popen[str]] = []

    def program(name: str, *arguments: str, source: str | None = None) -> subprocess.Popen[str]:
        path = tmp_path / f"{name}.py"
        if source is None:
            path = changed(name, tmp_path)
        else:
            path.write_text(source)
        started.append(running(path, *arguments, servers=kafka_cluster.config.bootstrap_servers))
        return started[-1]

    forget(kafka_cluster, "prices")
    yield program
    for one in started:
        one.kill()
        one.communicate()
    forget(kafka_cluster, "prices")


def ended(process: subprocess.Popen[str]) -> list[str]:
    """Wait for a program that ends well, and return its lines."""
    out, errors = process.communicate(timeout=DEADLINE)
    assert (errors, process.returncode) == ("", 0)
    return out.splitlines()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """Return the next lines that a program writes."""
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


def acknowledged(cluster: KafkaCluster) -> None:
    """Wait until nothing is left in the queue: an interrupt would meet Python within an acknowledgement."""
    queue = LastValueQueue.open("prices", cluster=cluster)
    eventually(lambda: queue.stats().depth == 0, DEADLINE)


def test_the_example_in_the_document_of_qpid_cpp_leaves_the_newest_message_of_each_key(start: Start) -> None:
    """For browsers, which take nothing, and for a consumer, which gets each once."""
    assert ended(start("quotes")) == []
    newest = ["key3 Content", "key4 Content", "key2 Content", "key1 Content"]
    show = ("--print", "{0.properties[ticker]} {0.content}")
    browsers = [start("drain", "prices; {mode: browse}", *show) for _ in range(2)]
    assert [ended(browser) for browser in browsers] == [newest, newest]
    assert ended(start("drain", "prices", *show)) == newest
    assert ended(start("drain", "prices", *show)) == []
    assert ended(start("quotes")) == []
    assert ended(start("drain", "prices", *show, "--count", "1")) == newest[:1]
    assert ended(start("drain", "prices", *show)) == newest[1:]


def test_the_two_programs_pass_on_contents_properties_and_fields(start: Start) -> None:
    sent = ended(start("spout", LVQ, "the", "content", "-c", "2", "-i", "s", "-s", "subject", "-p", "ticker=IBM"))
    assert sent == [
        f"Message(subject='subject', properties={{'spout-id': 's:{number}', 'ticker': 'IBM'}}, content='the content')"
        for number in range(2)
    ]
    ended(start("spout", "prices", "-m", "bid=1", "-m", "ask=2", "-p", "ticker=MSFT", "-r", "answers", "-d"))
    shown = "{0.subject} {0.properties[ticker]} {0.properties[spout-id]:.3} {0.reply_to} {0.content}"
    received = ended(start("drain", "prices", "--print", shown))
    assert received[0] == "subject IBM s:1 None the content"
    assert received[1].startswith("None MSFT ")
    assert received[1].endswith(" answers {'bid': '1', 'ask': '2'}")
    (refused,) = ended(start("spout", "prices", "-p", "ticker=IBM", "--ttl", "5"))
    assert "ttl: true among the arguments of x-declare" in refused


def test_a_program_that_waits_gets_messages_as_they_come_and_ends_at_an_interrupt(
    start: Start, kafka_cluster: KafkaCluster
) -> None:
    ended(start("spout", LVQ, "first", "-p", "ticker=a"))
    browser = start("drain", "prices; {mode: browse}", "--forever", "--print", "{0.content}")
    assert lines(browser, 1) == ["first"]
    ended(start("spout", "prices", "second", "-p", "ticker=b"))
    assert lines(browser, 1) == ["second"]
    browser.send_signal(signal.SIGINT)
    assert ended(browser) == []
    consumer = start("drain", "prices", "--forever", "--print", "{0.content}")
    assert lines(consumer, 2) == ["first", "second"]
    ended(start("spout", "prices", "third", "-p", "ticker=c"))
    assert lines(consumer, 1) == ["third"]
    acknowledged(kafka_cluster)
    consumer.send_signal(signal.SIGINT)
    assert ended(consumer) == []


UNACKNOWLEDGED = """
from lvq_kafka.compat.qpid_messaging import Connection
connection = Connection.establish("localhost")
session = connection.session()
receiver = session.receiver("prices")
messages = [receiver.fetch(60) for _ in range(3)]
session.acknowledge(messages[0], sync=False)
print(*(message.properties["ticker"] for message in messages), flush=True)
"""


@pytest.mark.parametrize("end", ["connection.close()", "", "raise SystemExit", "session.close()"])
def test_g11_a_program_that_ends_loses_no_acknowledgement_and_keeps_no_message(start: Start, end: str) -> None:
    ended(start("quotes"))
    process = start("ends", source=UNACKNOWLEDGED + end)
    out, _ = process.communicate(timeout=DEADLINE)
    assert (out, process.returncode) == ("key3 key4 key2\n", 0)
    rest = ended(start("drain", "prices", "--print", "{0.properties[ticker]} {0.redelivered}"))
    assert rest == ["key4 True", "key2 True", "key1 False"]


@pytest.mark.parametrize("end", ["connection.close()", "", "session.sync()"])
def test_g14_a_program_that_ends_has_stored_what_it_sent_without_waiting(
    start: Start, kafka_cluster: KafkaCluster, end: str
) -> None:
    program = f"""
from lvq_kafka.compat.qpid_messaging import Connection, Message
connection = Connection.establish("localhost")
session = connection.session()
sender = session.sender({LVQ!r}, capacity=100)
for number in range(1000):
    sender.send(Message(str(number), properties={{"ticker": str(number)}}), sync=False)
{end}
"""
    process = start("sends", source=program)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    with LastValueQueue.open("prices", cluster=kafka_cluster).view() as view:
        assert len(view) == 1000


def test_g10_a_program_that_is_killed_loses_no_message(start: Start) -> None:
    ended(start("quotes"))
    process = start("dies", source=UNACKNOWLEDGED + "import threading; threading.Event().wait()")
    assert process.stdout is not None
    assert process.stdout.readline() == "key3 key4 key2\n"
    process.kill()
    process.communicate()
    waiting = start("drain", "prices", "--forever", "--print", "{0.properties[ticker]}")
    keys = lines(waiting, 1)
    while keys[-1] not in ("key1", ""):
        keys += lines(waiting, 1)
    assert keys[-3:] == ["key4", "key2", "key1"]
    assert keys[:-3] in ([], ["key3"]), "its acknowledgement may have been under way"
