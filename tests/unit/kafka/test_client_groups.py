"""Asking what groups have committed. No broker answers here."""

from __future__ import annotations

from contextlib import closing

import pytest

from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.kafka import KafkaLog
from lvq_kafka.ports import TopicDescription


def test_who_asks_behind_others_that_get_no_answer_waits_no_longer_than_asked_to() -> None:
    with closing(KafkaLog("127.0.0.1:1")) as log:
        log._groups._admin.describe_topic = lambda topic, timeout: TopicDescription(topic, "id", 1, 1)  # type: ignore[method-assign]
        with log._groups._lock, pytest.raises(BrokerUnavailable, match="others still wait") as caught:
            log.committed("g", "t", timeout=0.05)
        assert caught.value.retriable
