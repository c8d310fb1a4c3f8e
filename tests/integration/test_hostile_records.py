"""Records as clients in other languages may write them, read by everything that reads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.records import UNREADABLE
from lvq_kafka.entries import Entry
from lvq_kafka.errors import KeyMismatch
from lvq_kafka.kafka import KafkaLog
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.raw_records import UNREADABLE_NAME, RawRecord, produce_raw
from tests.unit.managing import declare, drained, put


def lvq(broker: ProvidedBroker, *arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "lvq_kafka", "-b", broker.bootstrap_servers, *arguments]
    ran = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_r16_a_header_name_that_is_not_utf_8_stops_nobody(
    broker: ProvidedBroker, kafka_log: KafkaLog, topic_name: str
) -> None:
    queue = declare(kafka_log, topic_name)
    put(queue, "before=1")
    evil = RawRecord(b"evil", b"2", [(b"ticker", b"evil"), (UNREADABLE_NAME, b"x")])
    produce_raw(broker.bootstrap_servers, topic_name, evil, evil)
    put(queue, "after=3")
    with queue.view() as view:
        assert dict(view) == {"before": "1", "evil": "2", "after": "3"}
        assert (view.entry("evil").headers, view.counters.mismatched) == (UNREADABLE, 2)
    with queue.browser(follow=False) as browser:
        assert [event.key for event in browser if isinstance(event, Entry)] == ["before", "evil", "after"]
    strict = LastValueQueue(topic_name, key_header="ticker", key_mismatch="fail", log=kafka_log)
    with pytest.raises(KeyMismatch, match=f"{topic_name}/0/1"), strict.view():
        pass
    (status,) = lvq(broker, "status", topic_name)
    assert (status["values"], status["mismatched"]) == (3, 2)
    exported = lvq(broker, "browse", topic_name)
    assert [row["key"] for row in exported if "key" in row] == ["before", "evil", "after"]
    assert queue.stats().depth == 3
    assert drained(queue) == ["1", "2", "3"]
    queue.delete()
