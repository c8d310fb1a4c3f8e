"""All declared queues, measured from outside (R48): what waits, how old it is, and what is damaged."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lvq_kafka import Groups, LastValueQueue, Limits
from lvq_kafka.errors import ConfigError
from lvq_kafka.telemetry import Metrics, QueueSurvey
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.unit.managing import consume, declare, put
from tests.waiting import eventually


def values(survey: QueueSurvey, queue: str = "prices") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for instrument, samples in survey.metrics.collect():
        for sample in samples:
            if sample.attributes["lvq.queue"] == queue:
                own = [value for name, value in sample.attributes.items() if name in instrument.attributes and value]
                found[" ".join([instrument.name.removeprefix("lvq.queue."), *own])] = sample.value
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> MemoryCluster:
    return MemoryCluster(clock=clock)


def test_r48_depth_age_and_lag_of_a_queue_are_those_of_its_stats(cluster: MemoryCluster, clock: Clock) -> None:
    queue, survey = declare(cluster), QueueSurvey(cluster)
    put(queue, "a=1", "b=1")
    clock.now += 60
    put(queue, "c=1", "a=2")
    survey.measure()
    found, stats = values(survey), queue.stats()
    assert (found["depth"], found["lag"], found["up"]) == (stats.depth, stats.lag, 1) == (3, 4, 1)
    assert found["oldest.age"] == pytest.approx(60, abs=1)
    assert {name: number for name, number in found.items() if name.startswith("damage")} == dict.fromkeys(
        [f"damage {kind}" for kind in DAMAGE], 0
    )
    assert not [name for name in found if name.startswith(("group", "limit", "size", "dead"))]
    assert cluster.groups.member_count(queue.definition.group) == 0


DAMAGE = ("topic-recreated", "group-gone", "commits-expired", "partitions-added", "offsets-lost", "commit-refused")


def test_r20_r48_a_queue_with_priorities_has_depth_and_age_of_each(cluster: MemoryCluster, clock: Clock) -> None:
    queue, survey = declare(cluster, order="priority"), QueueSurvey(cluster)
    with queue.producer() as producer:
        producer.put("a", "1", priority=9)
        producer.put("b", "1")
    clock.now += 10
    survey.measure()
    found = values(survey)
    assert (found["depth 9"], found["depth 4"], found["depth 0"]) == (1, 1, 0)
    assert found["oldest.age 9"] == pytest.approx(10, abs=1)
    assert ("depth" in found, "oldest.age 0" in found) == (False, False)


def test_r12_r36_r48_groups_limits_and_dead_letters_are_measured(cluster: MemoryCluster, clock: Clock) -> None:
    cluster.topics.create("letters", partitions=1, config={})
    queue = declare(
        cluster,
        groups=Groups(),
        limits=Limits(messages=10, bytes=1000, policy="none"),
        dead_letters="letters",
        max_deliveries=3,
    )
    survey = QueueSurvey(cluster)
    with queue.producer() as producer:
        producer.put("a", "1", group="x")
        producer.put("b", "1", group="y")
        producer.put("c", "1")
    with queue.consumer() as consumer:
        delivery = consumer.acquire(10)
        assert delivery is not None
        delivery.reject("bad").result(10)
    clock.now += 5
    survey.measure()
    found = values(survey)
    assert (found["limit.messages"], found["limit.size"], found["dead_letters"]) == (10, 1000, 1)
    assert (found["group.count"], found["depth"]) == (queue.stats().groups, 2)
    assert found["group.oldest.age"] == pytest.approx(5, abs=1)
    assert 0 < found["size"] < 1000


def test_r48_damage_is_shown_by_kind_and_takes_the_place_of_numbers(cluster: MemoryCluster) -> None:
    queue, survey = declare(cluster), QueueSurvey(cluster)
    put(queue, "a=1")
    cluster.groups.delete(queue.definition.group)
    survey.measure()
    found = values(survey)
    assert (found["damage group-gone"], found["up"], "depth" in found) == (1, 1, False)


def test_r48_a_queue_that_is_never_consumed_has_no_age(cluster: MemoryCluster, clock: Clock) -> None:
    queue, survey = declare(cluster, non_destructive=True), QueueSurvey(cluster)
    put(queue, "a=1")
    survey.measure()
    found = values(survey)
    assert (found["depth"], "oldest.age" in found, "lag" in found) == (1, False, False)


def test_r48_one_queue_that_cannot_be_measured_costs_the_others_nothing(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = declare(cluster, "one"), declare(cluster, "two")
    survey = QueueSurvey(cluster, every=0.001)
    put(one, "a=1")
    put(two, "a=1")
    survey.measure()
    cluster.topics.delete("one")
    with caplog.at_level(logging.WARNING, "lvq_kafka.telemetry"):
        eventually(lambda: survey.measure() >= 0 and values(survey, "one")["up"] == 0)
        tried = survey._found["one", "one"]
        eventually(lambda: survey.measure() >= 0 and survey._found["one", "one"] is not tried)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the queue one cannot be measured"]
    gone = values(survey, "one")
    assert (gone["up"], "depth" in gone, gone["measured.age"] > 0) == (0, False, True)
    assert values(survey, "two")["depth"] == 1


def test_r48_a_cluster_that_does_not_answer_is_said_once_and_all_its_queues_are_down(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    declare(cluster, "one")
    declare(cluster, "two")
    survey = QueueSurvey(cluster)
    survey.measure()
    cluster.disconnect()
    with caplog.at_level(logging.INFO, "lvq_kafka.telemetry"):
        survey.measure()
        assert survey.measure() <= 5
        assert {values(survey, name)["up"] for name in ("one", "two")} == {0}
        cluster.reconnect()
        survey.measure()
    assert {values(survey, name)["up"] for name in ("one", "two")} == {1}
    first, last = [record.message for record in caplog.records]
    assert first.startswith("the queues cannot be measured")
    assert last == "the list of queues can be read again"


def test_r48_a_fault_while_one_queue_is_measured_costs_the_others_nothing(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, faulty = LastValueQueue.stats, {"two"}

    def stats(self: LastValueQueue[Any], **options: Any) -> Any:
        if self.definition.name in faulty:
            raise KeyError
        return measured(self, **options)

    monkeypatch.setattr(LastValueQueue, "stats", stats)
    for name in ("one", "two", "three"):
        declare(cluster, name)
    survey = QueueSurvey(cluster, every=0.001)
    with caplog.at_level(logging.INFO, "lvq_kafka.telemetry"):
        assert survey.measure() >= 0
        tried = survey._found["two", "two"]
        assert {name: values(survey, name)["up"] for name in ("one", "two", "three")} == {
            "one": 1,
            "two": 0,
            "three": 1,
        }
        eventually(lambda: survey.measure() >= 0 and survey._found["two", "two"] is not tried)
        faulty.clear()
        eventually(lambda: survey.measure() >= 0 and values(survey, "two")["up"] == 1)
    first, last = caplog.records
    assert (first.message, first.levelname) == ("the queue two cannot be measured: KeyError()", "ERROR")
    assert first.exc_info is not None
    assert last.message == "the queue two can be measured again"


def test_r48_a_fault_while_the_queues_are_listed_is_said_once_and_all_are_down(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(cluster)
    survey = QueueSurvey(cluster)
    survey.measure()

    def queues(**_: Any) -> Any:
        raise KeyError("a fault of this library")

    with caplog.at_level(logging.WARNING, "lvq_kafka.telemetry"), monkeypatch.context() as patched:
        patched.setattr("lvq_kafka.telemetry.queue_survey.queues", queues)
        assert survey.measure() <= 5
        assert survey.measure() <= 5
    assert values(survey)["up"] == 0
    assert [(record.levelname, bool(record.exc_info)) for record in caplog.records] == [("ERROR", True)]
    survey.measure()
    assert values(survey)["up"] == 1


def test_r48_queues_that_are_declared_or_dropped_come_and_go(cluster: MemoryCluster) -> None:
    survey = QueueSurvey(cluster, metrics=Metrics())
    assert survey.measure() > 0
    assert survey.metrics.collect() == []
    queue = declare(cluster)
    survey.measure()
    assert values(survey)["depth"] == 0
    queue.drop()
    survey.measure()
    assert values(survey) == {}
    declare(cluster)
    survey.measure()
    assert values(survey)["depth"] == 0


def test_r48_a_queue_that_is_dropped_and_declared_again_between_two_scrapes_counts_once(cluster: MemoryCluster) -> None:
    survey = QueueSurvey(cluster)
    for _ in range(3):
        queue = declare(cluster)
        survey.measure()
        queue.drop(delete_topic=True)
        survey.measure()
    put(declare(cluster), "a=1")
    survey.measure()
    assert values(survey)["depth"] == 1


def test_r48_a_survey_measures_in_the_background_until_it_is_closed(cluster: MemoryCluster) -> None:
    queue = declare(cluster)
    with QueueSurvey(cluster, every=0.01) as survey:
        eventually(lambda: values(survey).get("depth") == 0)
        put(queue, "a=1", "b=1")
        eventually(lambda: values(survey).get("depth") == 2)
        consume(queue, "a")
        eventually(lambda: values(survey).get("depth") == 1)
        assert LastValueQueue.open("prices", cluster=cluster).stats().members == 0
    thread = survey._thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("bad", [{"every": 0.0}, {"timeout": -1.0}, {"every": "soon"}])
def test_an_option_of_a_survey_that_is_no_duration_is_refused(cluster: MemoryCluster, bad: Any) -> None:
    with pytest.raises(ConfigError):
        QueueSurvey(cluster, **bad)
