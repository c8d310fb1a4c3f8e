"""A broker that answers but knows of no live broker, as when the controllers have fenced it and all others.

The client aborts the process when `AdminClient.describe_cluster` gets such an answer, so each call has its own process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.kafka import KafkaCluster
from tests.fake_broker import FakeBroker

IN_PYTHON: Mapping[str, str] = {
    "declare": "LastValueQueue.declare('prices', key_header='ticker', bootstrap_servers=SERVERS)",
    "stats": "LastValueQueue('prices', key_header='ticker', bootstrap_servers=SERVERS).stats()",
    "members": "KafkaCluster(SERVERS).groups.member_count('lvq.prices', timeout=2)",
    "brokers": "KafkaCluster(SERVERS).broker_count(timeout=2)",
}
SCRIPT = """
import sys
from lvq_kafka import LastValueQueue
from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.kafka import KafkaCluster
SERVERS = sys.argv[1]
try:
    {call}
except BrokerUnavailable:
    sys.exit(3)
"""


def ending(command: list[str]) -> tuple[int, str]:
    with FakeBroker(alive=1) as broker:
        arguments = [broker.address if word == "SERVERS" else word for word in command]
        ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stderr


def test_nobody_is_aborted_and_all_are_told() -> None:
    commands = {name: ["-c", SCRIPT.format(call=call), "SERVERS"] for name, call in IN_PYTHON.items()}
    commands["shell"] = ["-m", "lvq_kafka", "-b", "SERVERS", "stats", "prices"]
    with ThreadPoolExecutor() as pool:
        endings = dict(zip(commands, pool.map(ending, commands.values())))
    assert {name: code for name, (code, _) in endings.items()} == dict.fromkeys(commands, 3), endings
    assert endings["shell"][1].startswith("lvq: ")


def test_the_error_tells_what_the_broker_that_answers_says() -> None:
    with FakeBroker(alive=1) as broker:
        cluster = KafkaCluster(broker.address)
        with pytest.raises(BrokerUnavailable) as caught:
            cluster.broker_count(timeout=1)
        cluster.close()
    assert (caught.value.retriable, bool(caught.value.hint)) == (True, True)
