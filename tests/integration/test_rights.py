"""The roles of docs/how-to/access.md, with the page's rights, and without each right in turn.

Spark's roles are in ``tests/spark/test_rights.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lvq_kafka import AddressSettings, Entry, LastValueQueue, Producer, Ttl, durables, queues
from lvq_kafka.cli.agent_tools import AgentTools
from lvq_kafka.core.facts import Right
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.core.queue.settings_by_pattern import SETTINGS_TOPIC
from lvq_kafka.errors import DynamicDurablesDisabled, LVQError, QueueNotDeclared, TopicNotFound, Unauthorized
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.serve import app
from lvq_kafka.telemetry.queue_survey import QueueSurvey
from tests.integration.rights import ROLES, grant, names, needs_each
from tests.integration.secure import SecureBroker, secure_broker
from tests.unit.serve.asgi_client import AsgiClient
from tests.waiting import eventually

OUTPUT = "output"
USERS = {role: f"user-{number}" for number, role in enumerate(ROLES)}

SUBSCRIBER = "subscriber"
HALFWAY = [f"halfway-{number}" for number in range(3)]  # each lacks one right


@dataclass(frozen=True)
class Stage:
    """A role's own queue, and the user with the role."""

    name: str
    """The queue's name; on the page it is ``prices``."""
    admin: KafkaCluster
    config: ClientConfig
    producer: Producer[bytes]
    """The administrator's producer."""

    def open(self, name: str = "") -> LastValueQueue[bytes]:
        return LastValueQueue.open(name or self.name, config=self.config)

    def declare(self, **options: Any) -> LastValueQueue[bytes]:
        return LastValueQueue.declare(self.name, key_header="ticker", config=self.config, **options)

    def put(self) -> None:
        """Put a message to consume."""
        self.producer.put("IBM", b"119.00").result(20)

    def there(self) -> None:
        """Restore the queue as at the beginning."""
        # Use new connections: those that created a topic assume for a while that it still exists.
        LastValueQueue.declare(self.name, key_header="ticker", config=self.admin.config).close()

    def gone(self, *, topic: bool = True) -> None:
        """Remove the queue and its topic, or the queue alone."""
        with suppress(QueueNotDeclared):
            LastValueQueue.open(self.name, cluster=self.admin).drop()
        if topic:
            with suppress(TopicNotFound):
                self.admin.topics.delete(self.name)


def declare(stage: Stage) -> None:
    stage.gone()
    with stage.declare() as queue:
        assert queue.declaration is not None
        assert queue.declaration.created_topic


def declare_on_a_topic(stage: Stage) -> None:
    stage.gone(topic=False)
    with stage.declare() as queue:
        assert queue.declaration is not None
        assert queue.declaration.created_queue


def declare_the_first(stage: Stage) -> None:
    with suppress(TopicNotFound):
        stage.admin.topics.delete(REGISTRY_TOPIC)
    with suppress(TopicNotFound):
        stage.admin.topics.delete(stage.name)
    stage.admin.groups.delete(f"lvq.{stage.name}")
    stage.declare().close()


def verify(stage: Stage) -> None:
    with stage.declare() as queue:
        assert queue.declaration is not None
        assert not queue.declaration.created_queue


def alter(stage: Stage) -> None:
    """Alter the queue, each time to another TTL."""
    with stage.open() as queue:
        queue.alter(ttl=Ttl(maximum=1000.0 + next(_ANOTHER)))


_ANOTHER = count()


def drop(stage: Stage, *, delete_topic: bool = False) -> None:
    stage.there()
    with stage.open() as queue:
        queue.drop(delete_topic=delete_topic)


def send(stage: Stage) -> None:
    with stage.open() as queue, queue.producer() as producer:
        producer.put("IBM", b"119.00").result(20)


def send_in_transactions(stage: Stage) -> None:
    with stage.open() as queue, queue.producer(transactional_id="feed") as producer, producer.transaction():
        producer.put("IBM", b"119.00")


def read(stage: Stage) -> None:
    with stage.open() as queue, queue.view() as view:
        assert view["IBM"] == b"119.00"


def serve(stage: Stage) -> None:
    with stage.open() as queue, queue.view(undecodable="raw") as view:
        reply = asyncio.run(AsgiClient(app(view)).get(f"/v1/queues/{stage.name}/values/IBM"))
        assert (reply.status, reply.body) == (200, b"119.00")


def serve_and_write(stage: Stage) -> None:
    asyncio.run(_write(stage))


async def _write(stage: Stage) -> None:
    with stage.open() as queue, queue.view(undecodable="raw") as view:
        async with app(view, writable=[queue]) as served:
            client, place = AsgiClient(served), f"/v1/queues/{stage.name}/values/IBM"
            reply = await client.put(place, b"119.00")
            if reply.status != 204:  # it says so in the words of the library
                right = Right("Write", "Topic", stage.name)
                lacks = f"this user lacks Write on Topic {stage.name}" in reply.json["detail"]
                raise Unauthorized(reply.json["detail"], code="", missing=right if lacks else None)
            assert (await client.get(f"{place}?at-least={reply.headers['lvq-position']}")).body == b"119.00"


def answer_agents(stage: Stage) -> None:
    with closing(KafkaCluster(stage.config)) as cluster, closing(AgentTools(cluster, timeout=20)) as tools:
        assert stage.name in {row["name"] for row in tools.call("list_queues", {})["queues"]}
        answer = tools.call("get_values", {"queue": stage.name, "keys": ["IBM"]})
        assert [row["value"] for row in answer["values"]] == ["119.00"]
        assert tools.call("find_values", {"queue": stage.name})["values"]
        assert tools.call("describe_queue", {"queue": stage.name})["keys"] == 1


def browse(stage: Stage) -> None:
    with stage.open() as queue, queue.browser(follow=False) as browser:
        assert browser.poll(10) is not None


def consume(stage: Stage) -> None:
    stage.put()
    with stage.open() as queue, queue.consumer() as consumer:
        delivery = consumer.acquire(20)
        assert delivery is not None
        delivery.ack(wait=True)


def consume_and_reclaim(stage: Stage) -> None:
    before = stage.admin.logs.start_offsets(stage.name)
    with stage.open() as queue, queue.consumer(auto_reclaim=0.05) as consumer:
        stage.put()
        delivery = consumer.acquire(20)
        assert delivery is not None
        delivery.ack(wait=True)
        eventually(lambda: stage.admin.logs.start_offsets(stage.name) != before or consumer.stats.trouble != "", 20)
        if consumer.stats.trouble:
            queue.reclaim()  # raises what the consumer reports


def bury(stage: Stage) -> None:
    stage.put()
    stage.admin.topics.create(f"{stage.name}.dlq", partitions=1, config={})
    with stage.open() as queue, queue.consumer(dead_letters=f"{stage.name}.dlq") as consumer:
        delivery = consumer.acquire(20)
        assert delivery is not None
        delivery.reject("bad")


def let_expire(stage: Stage) -> None:
    topic = f"{stage.name}.expired"
    stage.gone(topic=False)
    with LastValueQueue.declare(topic, key_header=None, config=stage.admin.config) as expired, expired.view() as view:
        options: dict[str, Any] = {"ttl": Ttl(), "expiry_topic": topic, "on_mismatch": "reconcile"}
        LastValueQueue.declare(stage.name, key_header="ticker", config=stage.admin.config, **options).close()
        with LastValueQueue.open(stage.name, cluster=stage.admin).producer() as producer:
            position = producer.put("IBM", b"119.00", ttl=0.001).result(20)
        with stage.open() as queue, queue.consumer():
            eventually(lambda: "IBM" in view and _source(view.entry("IBM")) == str(position), 20)


def _source(letter: Entry[bytes]) -> str:
    return (dict(letter.headers)["lvq-dlq-source"] or b"").decode()


def transform(stage: Stage) -> None:
    stage.put()
    output = LastValueQueue(OUTPUT, key_header="ticker", config=stage.config)
    with (
        stage.open() as queue,
        output,
        output.producer(transactional_id="feed") as producer,
        queue.consumer() as consumer,
        consumer.transaction(producer) as transaction,
    ):
        for delivery in transaction.acquire_many(1, timeout=20):
            producer.put(delivery.key, delivery.value)
            delivery.ack()


def look(stage: Stage) -> None:
    with stage.open() as queue:
        assert queue.repair(dry_run=True).found == ()
        assert queue.stats().members == 0


def list_queues(stage: Stage) -> None:
    assert stage.name in {definition.name for definition in queues(config=stage.config)}


def measure(stage: Stage) -> None:
    """Measure the queue as `lvq exporter` does, and raise what it logs of it.

    It measures all others as well, on which the user has no rights.
    """
    logged = LoggedErrors(stage.name)
    logger = logging.getLogger("lvq_kafka.telemetry")
    logger.addHandler(logged)
    try:
        with closing(KafkaCluster(stage.config)) as cluster:
            registry = CollectorRegistry()
            survey = QueueSurvey(cluster, timeout=20)
            survey.metrics.to_prometheus(registry)
            survey.measure()
    finally:
        logger.removeHandler(logged)
    up = registry.get_sample_value("lvq_queue_up", {"lvq_queue": stage.name, "messaging_destination_name": stage.name})
    if logged.errors:
        assert up in (0.0, None)  # none, if it may not even read which queues there are
        raise logged.errors[0]
    assert up == 1.0


class LoggedErrors(logging.Handler):
    """Keeps the errors in the log that are about one queue, or about all."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.errors: list[LVQError] = []
        self._name = name

    def emit(self, record: logging.LogRecord) -> None:
        *of, error = record.args if isinstance(record.args, tuple) else ()
        if isinstance(error, LVQError) and of in ([], [self._name]):
            self.errors.append(error)


def measure_with_letters(stage: Stage) -> None:
    letters = f"{stage.name}.dlq"
    if stage.admin.topics.create(letters, partitions=1, config={}):
        stage.gone(topic=False)
        options: dict[str, Any] = {"key_header": "ticker", "dead_letters": letters}
        LastValueQueue.declare(stage.name, config=stage.admin.config, **options).close()
    measure(stage)


def manage(stage: Stage) -> None:
    with stage.open() as queue:
        queue.purge()
        queue.expire(1.0)
        queue.reset("earliest")


def keep_alive(stage: Stage) -> None:
    with stage.open() as queue:
        assert queue.keep_alive()


def move(stage: Stage) -> None:
    stage.put()
    with stage.open() as queue, LastValueQueue(OUTPUT, key_header="ticker", config=stage.config) as output:
        assert queue.move(output).messages


def feed(stage: Stage) -> None:
    with closing(stage.admin.writer()) as publisher:
        publisher.append("trades", None, b"119.00", [("ticker", b"IBM")]).result(20)
    with stage.open() as queue, queue.feed("trades", start="earliest") as feeding:
        assert feeding.run(until_end=True).fed


def reclaim(stage: Stage) -> None:
    stage.put()
    LastValueQueue.open(stage.name, cluster=stage.admin).purge()
    with stage.open() as queue:
        assert queue.reclaim().offsets


WORK: Mapping[str, Callable[[Stage], None]] = {
    "declares the queue and its topic": declare,
    "declares it on a topic that is there": declare_on_a_topic,
    "declares it again, which verifies it": verify,
    "alters it": alter,
    "drops the queue": drop,
    "drops the queue and its topic": lambda stage: drop(stage, delete_topic=True),
    "sends": send,
    "sends in transactions": send_in_transactions,
    "reads: view, snapshot, `get`, `watch`, `sql`, `export`, `hold`": read,
    "serves it over HTTP: `lvq serve`": serve,
    "serves it over HTTP, and writes: `lvq serve --writable`": serve_and_write,
    "lets agents read it: `lvq mcp`": answer_agents,
    "browses": browse,
    "consumes": consume,
    "consumes with dead letters": bury,
    "consumes, with an expiry topic": let_expire,
    "consumes with `auto_reclaim`": consume_and_reclaim,
    "consumes in transactions of a producer for `output`": transform,
    "lists queues: `queues --definitions`, completion in the shell": list_queues,
    "looks at it: `stats`, `queues`, a dry run of `repair`": look,
    "shows Prometheus what waits: `lvq exporter`": measure,
    "shows Prometheus also its dead letters: `lvq exporter`": measure_with_letters,
    "manages it: `purge`, `expire`, `reset`, `repair`": manage,
    "keeps what it has consumed: `keep-alive`": keep_alive,
    "moves messages to the queue `output`": move,
    "feeds it from the topic `trades`": feed,
    "reclaims what is consumed": reclaim,
    "declares the first queue of a cluster": declare_the_first,  # comes last: it removes the definitions of others
}


def test_each_role_of_the_page_is_tried() -> None:
    assert set(ROLES) == set(WORK) | {role for role in ROLES if "Spark" in role}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("tls"), [*USERS.values(), *HALFWAY, SUBSCRIBER]) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(secure: SecureBroker) -> Iterator[KafkaCluster]:
    with closing(KafkaCluster(secure.plain)) as cluster:
        LastValueQueue.declare(OUTPUT, key_header="ticker", cluster=cluster)
        cluster.topics.create("trades", partitions=1, config={})
        yield cluster


@contextmanager
def stage_for(user: str, name: str, secure: SecureBroker, admin: KafkaCluster) -> Iterator[Stage]:
    with LastValueQueue(name, key_header="ticker", cluster=admin).producer() as producer:
        yield Stage(name, admin, secure.config(user), producer)


@pytest.fixture
def stage(request: pytest.FixtureRequest, secure: SecureBroker, admin: KafkaCluster) -> Iterator[Stage]:
    user = USERS[request.param]
    policy = {"cleanup.policy": "compact,delete" if "reclaim" in request.param else "compact"}
    admin.topics.create(f"prices-{user}", partitions=1, config=policy)
    with stage_for(user, f"prices-{user}", secure, admin) as stage:
        if "declares" not in request.param or "verifies" in request.param:
            stage.there()
            stage.put()
        yield stage


@pytest.mark.parametrize(("stage", "role"), [(role, role) for role in WORK], indirect=["stage"], ids=list(WORK))
def test_a_role_needs_the_rights_of_the_page_and_no_others(secure: SecureBroker, stage: Stage, role: str) -> None:
    rights = [right._replace(name=right.name.replace("prices", stage.name)) for right in ROLES[role]]
    needs_each(secure, USERS[role], rights, lambda: WORK[role](stage))


def test_r21_dynamic_durables_need_the_rights_to_declare_a_queue_beside_the_setting(
    secure: SecureBroker, admin: KafkaCluster
) -> None:
    LastValueQueue.declare("another", key_header="ticker", cluster=admin)  # now there is a registry
    AddressSettings(cluster=admin).set("trades", {"dynamic-durables": True})

    def subscribe() -> durables.Subscription[bytes]:
        matcher = {"Symbol": "IBM"}
        return durables.subscribe("trades", "dynamic", matcher, "Symbol", config=secure.config(SUBSCRIBER))

    def is_refused() -> bool:
        with pytest.raises(DynamicDurablesDisabled) as caught:
            subscribe()
        return isinstance(caught.value.__cause__, Unauthorized)

    def is_subscribed() -> bool:
        with suppress(DynamicDurablesDisabled):
            subscribe().close()
            return True
        return False

    grant(secure, SUBSCRIBER, Right("Read", "Topic", REGISTRY_TOPIC))
    with suppress(Unauthorized):  # until the broker applies that
        eventually(is_refused, 20)
    grant(secure, SUBSCRIBER, Right("Read", "Topic", SETTINGS_TOPIC))
    eventually(is_refused, 20)
    with pytest.raises(TopicNotFound):
        admin.topics.describe("dynamic")
    grant(secure, SUBSCRIBER, Right("Create", "Topic", "dynamic"))
    grant(secure, SUBSCRIBER, Right("Read", "Topic", "dynamic"))
    grant(secure, SUBSCRIBER, Right("Write", "Topic", REGISTRY_TOPIC))
    eventually(is_subscribed, 30)


@pytest.mark.parametrize("name", HALFWAY)
def test_declare_leaves_nothing_behind_where_a_later_right_is_missing(
    secure: SecureBroker, admin: KafkaCluster, name: str
) -> None:
    rights = [
        Right("Read", "Group", f"lvq.{name}"),
        Right("Write", "Topic", REGISTRY_TOPIC),
        Right("Read", "Topic", name),
        Right("Create", "Topic", name),
    ]
    LastValueQueue.declare("another", key_header="ticker", cluster=admin)  # now there is a registry
    missing = rights.pop(HALFWAY.index(name))
    for right in [*rights, Right("Read", "Topic", REGISTRY_TOPIC)]:
        grant(secure, name, right)

    def names_it() -> bool:
        with pytest.raises(Unauthorized) as caught:
            LastValueQueue.declare(name, key_header="ticker", config=secure.config(name))
        return names(caught.value, missing)

    eventually(names_it, 20)
    with pytest.raises(TopicNotFound):
        admin.topics.describe(name)
    assert admin.groups.committed(f"lvq.{name}", name) == {}
