"""Impossible requests to a real broker, in Python and in the shell.

Each case must end soon, with an error of the right type that names the cause and the fix, and no secret. Acknowledged
messages must still be there afterwards. Cases without a broker are in ``tests/unit/test_bad_input.py``, those of a
missing broker in ``test_lost_brokers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from lvq_kafka import JSON, LastValueQueue, Position, Producer, TopicSpec, queues
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.core.queue.rules import KeyRule, QueueRules
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    ConfigError,
    DecodeError,
    DeliveryFailed,
    KeyMismatch,
    MessageTooLarge,
    QueueMismatch,
    QueueNotDeclared,
    TopicMismatch,
    TopicNotFound,
    Unauthorized,
)
from lvq_kafka.kafka import ClientConfig
from tests.integration.bad_input import AT_ONCE, IN_TIME, enter, error_of, lvq, queue_of, send
from tests.integration.secure import PASSWORD, SecureBroker, secure_broker
from tests.rules import rules
from tests.waiting import eventually

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL

# The rights of each user. All users have the right password.
USERS: Mapping[str, list[tuple[ResourceType, str, AclOperation]]] = {
    "alice": [(TOPIC, "*", ALL), (GROUP, "*", ALL)],
    "nobody": [],
    "describer": [(TOPIC, "prices", DESCRIBE), (TOPIC, REGISTRY_TOPIC, READ)],
    "reader": [(TOPIC, "prices", READ), (TOPIC, REGISTRY_TOPIC, READ)],
    "elsewhere": [(TOPIC, "prices", READ), (TOPIC, REGISTRY_TOPIC, READ), (TOPIC, "another", WRITE)],
    "onlooker": [(TOPIC, "prices", READ), (TOPIC, REGISTRY_TOPIC, READ), (GROUP, "*", DESCRIBE)],
    "consumer": [(TOPIC, "prices", READ), (TOPIC, REGISTRY_TOPIC, READ), (GROUP, "*", ALL)],
    "visitor": [(TOPIC, "fresh", DESCRIBE), (TOPIC, REGISTRY_TOPIC, READ)],
    "promoted": [(TOPIC, "prices", READ), (TOPIC, REGISTRY_TOPIC, READ)],
}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Start a broker with the queue ``prices``, which holds IBM."""
    with secure_broker(tmp_path_factory.mktemp("tls"), list(USERS)) as broker:
        for user, rights in USERS.items():
            for kind, name, operation in rights:
                broker.allow(user, kind, name, operation)
        with LastValueQueue.declare("prices", key_header="ticker", bootstrap_servers=broker.plain) as queue:
            with queue.producer() as producer:
                producer.put("IBM", b"118.50")
            eventually(lambda: readable(broker, "consumer"))
        yield broker


def readable(broker: SecureBroker, user: str) -> bool:
    """Return whether the broker already applies the user's rights."""
    try:
        with LastValueQueue.open("prices", config=broker.config(user)) as queue:
            queue.cluster.groups.committed("lvq.prices", "prices")
    except Unauthorized:
        return False
    return True


@pytest.fixture
def plain(secure: SecureBroker) -> Iterator[str]:
    """Return the superuser's address. Afterwards, check that acknowledged values are there and a good call works."""
    yield secure.plain
    with LastValueQueue.open("prices", bootstrap_servers=secure.plain) as queue, queue.view() as view:
        assert view["IBM"] == b"118.50"


# -- refused --------------------------------------------------------------------------------------

# The broken configuration, the code, what the error names, and the fix.
REFUSALS: Mapping[str, tuple[Callable[[SecureBroker], ClientConfig], str, str, str]] = {
    "a wrong password": (
        lambda secure: secure.config(password=f"not {PASSWORD}"),
        *("_AUTHENTICATION", "Invalid username or password", "sasl.password"),
    ),
    "a mechanism that is not offered": (
        lambda secure: secure.config(sasl_mechanism="SCRAM-SHA-256"),
        *("_AUTHENTICATION", "SCRAM-SHA-256", "sasl.mechanism"),
    ),
    "an unknown authority": (
        lambda secure: secure.config(ssl_ca_location=secure.wrong_ca),
        *("_SSL", "certificate verify failed", "ssl.ca.location"),
    ),
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_refused_client_learns_it_at_once_from_every_call(secure: SecureBroker, wrong: str, tmp_path: Path) -> None:
    make, code, culprit, remedy = REFUSALS[wrong]
    config = make(secure)
    calls: list[Callable[[], object]] = [
        lambda: LastValueQueue.declare("prices", key_header="ticker", config=config),
        lambda: LastValueQueue.open("prices", config=config),
        lambda: queues(config=config),
        lambda: enter(queue_of(config).view()),
        lambda: enter(queue_of(config).browser()),
        lambda: queue_of(config).producer(transactional_id="feed"),
    ]
    for call in calls:
        error = error_of(call, AT_ONCE)
        assert type(error) is AuthenticationFailed
        assert isinstance(error, PermissionError)
        assert (error.code, error.retriable) == (code, False)
        assert secure.secure in str(error)
        assert culprit in str(error)
        assert remedy in error.hint
    status, line = lvq("get", "prices", "IBM", config=config, folder=tmp_path)
    assert status == 3
    assert culprit in line
    assert remedy in line


@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_message_of_who_is_refused_fails_when_its_time_is_up_with_the_refusal(
    secure: SecureBroker, wrong: str
) -> None:
    make, code, culprit, remedy = REFUSALS[wrong]
    config = make(secure)
    queue = queue_of(ClientConfig(secure.secure, config.properties | {"delivery.timeout.ms": 2000}))
    error = error_of(lambda: send(queue), IN_TIME)
    assert isinstance(error, DeliveryFailed)
    assert (error.code, error.retriable, error.key) == (code, False, b"IBM")
    assert isinstance(error.__cause__, AuthenticationFailed)
    assert culprit in str(error)
    assert remedy in error.hint


def test_a_client_and_a_port_that_disagree_about_tls_are_told_about_the_protocol(
    secure: SecureBroker, tmp_path: Path
) -> None:
    tls = {"security.protocol": "ssl", "ssl.ca.location": secure.ca}
    configs = {
        "closed by the other side": ClientConfig(secure.secure),
        "PLAINTEXT": ClientConfig(secure.plain, tls),
    }
    with ThreadPoolExecutor() as pool:
        shell = pool.submit(lvq, "queues", config=secure.secure, folder=tmp_path)
        tried = {
            why: pool.submit(error_of, lambda config=config: LastValueQueue.open("prices", config=config), IN_TIME)
            for why, config in configs.items()
        }
        for why, future in tried.items():
            error = future.result()
            assert type(error) is BrokerUnavailable
            assert configs[why].bootstrap_servers in str(error)
            assert why in str(error)
            assert "security.protocol" in error.hint
        code, line = shell.result()
    assert code == 3
    assert "security.protocol" in line


# -- not allowed ----------------------------------------------------------------------------------


def assert_forbidden(error: BaseException | None, resource: str, code: str = "TOPIC_AUTHORIZATION_FAILED") -> None:
    assert type(error) is Unauthorized
    assert isinstance(error, PermissionError)
    assert (error.code, error.retriable) == (code, False)
    assert resource in str(error)
    assert "ACL" in error.hint


@pytest.mark.usefixtures("plain")
class TestNotAllowed:
    def test_to_see_anything(self, secure: SecureBroker) -> None:
        config = secure.config("nobody")
        queue = queue_of(config)
        for call in (
            lambda: LastValueQueue.declare("prices", key_header="ticker", config=config),
            lambda: LastValueQueue.open("prices", config=config),
            lambda: queues(config=config),
        ):
            assert_forbidden(error_of(call, AT_ONCE), REGISTRY_TOPIC)
        for call in (lambda: enter(queue.view()), lambda: enter(queue.browser())):
            assert_forbidden(error_of(call, AT_ONCE), "'prices'")
        error = error_of(lambda: send(queue), AT_ONCE)
        assert isinstance(error, DeliveryFailed)
        assert_forbidden(error.__cause__, "'prices'")

    def test_to_read(self, secure: SecureBroker, tmp_path: Path) -> None:
        queue = LastValueQueue.open("prices", config=secure.config("describer"))
        assert_forbidden(error_of(lambda: enter(queue.view()), AT_ONCE), "'prices'")
        assert_forbidden(error_of(lambda: enter(queue.browser(hide_consumed=False)), AT_ONCE), "'prices'")
        code, line = lvq("get", "prices", "IBM", config=secure.config("describer"), folder=tmp_path)
        assert code == 3
        assert "Cannot read topic 'prices'" in line
        assert "lacks Read on Topic prices" in line
        assert "--operation Read --topic prices" in line

    @pytest.mark.parametrize("user", ["reader", "elsewhere"])
    def test_to_write(self, secure: SecureBroker, user: str, tmp_path: Path) -> None:
        config = secure.config(user)
        queue = LastValueQueue.open("prices", config=config)
        producer = queue.producer()
        error = error_of(lambda: producer.put("IBM", b"never").result(10), AT_ONCE)
        assert isinstance(error, DeliveryFailed)
        assert error.key == b"IBM"
        assert not error.retriable
        assert isinstance(error.__cause__, Unauthorized)
        assert str(error.__cause__.missing) == "Write on Topic prices"
        assert "--operation Write --topic prices" in error.hint
        producer.close()  # the caller has seen the failure
        assert isinstance(error_of(lambda: send(queue), AT_ONCE), DeliveryFailed)  # an unseen one is raised on close
        code, line = lvq("put", "prices", "IBM", "never", config=config, folder=tmp_path)
        assert code == 3
        assert "'IBM' in 'prices'" in line
        assert "ACL" in line

    def test_to_write_in_transactions(self, secure: SecureBroker) -> None:
        queue = LastValueQueue.open("prices", config=secure.config("reader"))
        error = error_of(lambda: queue.producer(transactional_id="feed"), AT_ONCE)
        assert_forbidden(error, "'feed'", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")

    def test_to_create_a_topic(self, secure: SecureBroker, tmp_path: Path) -> None:
        config = secure.config("visitor")
        error = error_of(lambda: LastValueQueue.declare("fresh", key_header="k", config=config), AT_ONCE)
        assert_forbidden(error, "create topic 'fresh'")
        code, line = lvq("declare", "fresh", "-k", "k", config=config, folder=tmp_path)
        assert code == 3
        assert "create topic 'fresh'" in line

    def test_to_see_the_group(self, secure: SecureBroker, tmp_path: Path) -> None:
        config = secure.config("reader")
        queue = LastValueQueue.open("prices", config=config)
        code = "GROUP_AUTHORIZATION_FAILED"
        for _ in range(2):  # a second request on the same connection gets the same answer
            error = error_of(lambda: enter(queue.browser()), AT_ONCE)
            assert_forbidden(error, "'lvq.prices'", code)
            assert any("hide_consumed=False" in note for note in error.__notes__)
            assert_forbidden(error_of(queue.consumer, AT_ONCE), "'lvq.prices'", code)
        assert_forbidden(error_of(queue.drop, AT_ONCE), f"Write on Topic {REGISTRY_TOPIC}")
        with queue.browser(hide_consumed=False, follow=False) as browser:
            assert browser.poll(10) is not None
        status, line = lvq("consume", "prices", "--timeout", "1", config=config, folder=tmp_path)
        assert status == 3
        assert "'lvq.prices'" in line

    def test_to_join_the_group(self, secure: SecureBroker) -> None:
        queue = LastValueQueue.open("prices", config=secure.config("onlooker"))
        with queue.browser(follow=False) as browser:
            assert browser.poll(10) is not None
        with queue.consumer() as consumer:
            error = error_of(lambda: consumer.acquire(30), AT_ONCE)
            assert_forbidden(error, "'prices'", "GROUP_AUTHORIZATION_FAILED")

    def test_to_declare_and_nothing_is_declared_by_half(self, secure: SecureBroker, plain: str) -> None:
        def declare(user: str, **options: Any) -> LastValueQueue[bytes]:
            return LastValueQueue.declare(
                f"of-{user}", topic="prices", key_header="ticker", config=secure.config(user), **options
            )

        group = error_of(lambda: declare("reader"), AT_ONCE)
        assert_forbidden(group, "'lvq.of-reader'", "GROUP_AUTHORIZATION_FAILED")
        for user, options in (("consumer", {}), ("reader", {"non_destructive": True})):
            error = error_of(lambda user=user, options=options: declare(user, **options), AT_ONCE)
            assert_forbidden(error, f"the queue of-{user} to {REGISTRY_TOPIC}", error.code)  # type: ignore[attr-defined]
            assert f"--operation Write --topic {REGISTRY_TOPIC}" in error.hint
        assert [definition.name for definition in queues(plain) if definition.name.startswith("of-")] == []

    def test_to_read_the_settings_which_does_not_matter(self, secure: SecureBroker) -> None:
        with LastValueQueue.declare("prices", key_header="ticker", config=secure.config("reader")) as queue:
            assert queue.declaration is not None
            assert queue.declaration.unchecked == ("the settings of prices: this user may not read them",)

    def test_until_it_is_allowed(self, secure: SecureBroker) -> None:
        queue = LastValueQueue.open("prices", config=secure.config("promoted"))
        assert isinstance(error_of(lambda: send(queue), AT_ONCE), DeliveryFailed)
        secure.allow("promoted", TOPIC, "prices", WRITE)

        def sent() -> Position | None:
            with queue.producer() as producer:
                receipt = producer.put("promoted", b"1")
                return None if receipt.exception(10) else receipt.result()

        position = eventually(sent)
        with queue.view() as view:
            view.wait_for(position)
            assert view["promoted"] == b"1"


# -- topics and queues ----------------------------------------------------------------------------


def test_a_missing_topic_is_named_by_every_reader_and_writer(plain: str, tmp_path: Path) -> None:
    config = ClientConfig(plain, {"topic.metadata.propagation.max.ms": 500})
    for call in (
        lambda: enter(queue_of(config, "nowhere").view()),
        lambda: enter(queue_of(config, "nowhere").browser()),
    ):
        error = error_of(call, AT_ONCE)
        assert isinstance(error, TopicNotFound)
        assert isinstance(error, LookupError)
        assert error.topic == "nowhere"
        assert "'nowhere'" in str(error)
        assert "declare a queue" in error.hint
    error = error_of(lambda: send(queue_of(config, "nowhere")), AT_ONCE)
    assert isinstance(error, DeliveryFailed)
    assert (error.key, error.retriable) == (b"IBM", False)
    assert isinstance(error.__cause__, TopicNotFound)
    assert error.__cause__.topic == "nowhere"
    gone = LastValueQueue.declare("gone", key_header="ticker", bootstrap_servers=plain)
    gone.cluster.topics.delete("gone")
    for call in (gone.consumer, lambda: enter(gone.view()), lambda: enter(gone.browser())):
        error = error_of(call, AT_ONCE)
        assert isinstance(error, TopicNotFound)
        assert error.topic == "gone"
    gone.drop()
    gone.close()
    code, line = lvq("put", "nowhere", "--bare", "IBM", "1", config=config, folder=tmp_path)
    assert code == 4
    assert "'nowhere'" in line


def test_declarations_that_cannot_be_are_told_apart(plain: str, tmp_path: Path) -> None:
    def declare(name: str, key_header: str = "ticker", **options: Any) -> Callable[[], object]:
        return lambda: LastValueQueue.declare(name, key_header=key_header, bootstrap_servers=plain, **options)

    with LastValueQueue.open("prices", bootstrap_servers=plain) as queue:
        queue.cluster.topics.create("plain", partitions=1, config={})
    mismatch = error_of(declare("plain"), AT_ONCE)
    assert isinstance(mismatch, TopicMismatch)
    assert mismatch.settings == {"cleanup.policy": ("compact", "delete")}
    second = error_of(declare("prices", "isin"), AT_ONCE)
    assert isinstance(second, QueueMismatch)
    assert second.differences == {"key_header": ("ticker", "isin")}
    sharing = error_of(declare("isins", "isin", topic="prices"), AT_ONCE)
    assert isinstance(sharing, QueueMismatch)
    assert sharing.queue == "isins"
    missing = error_of(lambda: LastValueQueue.open("nope", bootstrap_servers=plain), AT_ONCE)
    assert isinstance(missing, QueueNotDeclared)
    with pytest.raises(ConfigError, match=r"segment\.byte") as caught:
        declare("odd", spec=TopicSpec(config={"segment.byte": "1", "segment.bytes": "1000000"}))()
    assert caught.value.options == ("segment.byte",)
    code, line = lvq("declare", "prices", "-k", "isin", config=plain, folder=tmp_path)
    assert code == 4
    assert "'ticker'" in line
    declared = {definition.name for definition in queues(plain)}
    assert declared.isdisjoint({"plain", "isins", "nope", "odd"})


def test_r17_a_queue_whose_group_has_expired_is_not_begun_anew_in_silence(plain: str, tmp_path: Path) -> None:
    queue = LastValueQueue.declare("forgotten", topic="prices", key_header="ticker", bootstrap_servers=plain)
    assert queue.cluster.groups.delete("lvq.forgotten")
    again = LastValueQueue.declare("forgotten", topic="prices", key_header="ticker", bootstrap_servers=plain)
    for one in (queue, again):
        error = error_of(one.consumer, AT_ONCE)
        assert isinstance(error, QueueNotDeclared)
        assert isinstance(error, LookupError)
        assert error.queue == "forgotten"
        assert "'lvq.forgotten'" in str(error)
        assert "queue.repair(start=" in error.hint
    code, line = lvq("consume", "forgotten", "--timeout", "1", config=plain, folder=tmp_path)
    assert code == 4
    assert "'lvq.forgotten'" in line
    queue.drop()
    anew = LastValueQueue.declare("forgotten", topic="prices", key_header="ticker", bootstrap_servers=plain)
    with anew.consumer() as consumer:
        assert consumer.acquire(30) is not None
    for one in (queue, again, anew):
        one.close()


def test_a_definition_that_cannot_be_read_is_its_own_queues_trouble(plain: str, tmp_path: Path) -> None:
    queue = LastValueQueue.open("prices", bootstrap_servers=plain)
    with Producer(queue.cluster, QueueRules(keys=KeyRule(REGISTRY_TOPIC))) as registry:
        registry.put("newer", b'{"version": 3}')
        registry.put("broken", b"{")
    for name, culprit, remedy in (("newer", "version 3", "upgrade"), ("broken", "not readable", "lvq delete")):
        for call in (
            lambda name=name: LastValueQueue.open(name, bootstrap_servers=plain),
            lambda name=name: LastValueQueue.declare(name, key_header="k", bootstrap_servers=plain),
        ):
            error = error_of(call, AT_ONCE)
            assert isinstance(error, ConfigError)
            assert name in str(error)
            assert culprit in str(error)
            assert remedy in error.hint
    code, line = lvq("get", "newer", "a", config=plain, folder=tmp_path)
    assert code == 2
    assert "upgrade" in line
    assert "prices" in [definition.name for definition in queues(plain)]
    with Producer(queue.cluster, QueueRules(keys=KeyRule(REGISTRY_TOPIC))) as registry:
        registry.delete("newer")
        registry.delete("broken")
    queue.close()


# -- messages -------------------------------------------------------------------------------------


def test_a_message_that_is_too_large_is_refused_by_the_client_or_the_broker_and_others_pass(
    plain: str, tmp_path: Path
) -> None:
    patient = LastValueQueue.declare(
        "sizes", key_header="name", config=ClientConfig(plain, {"message.max.bytes": 5_000_000})
    )
    with LastValueQueue.open("sizes", bootstrap_servers=plain) as queue:
        for one, limit in ((queue, "the client accepts 1048588"), (patient, "max.message.bytes of the topic 'sizes'")):
            with one.producer() as producer:
                before = producer.put("small", b"1")
                error = error_of(lambda p=producer: p.put("large", bytes(2_000_000)).result(30), IN_TIME)  # type: ignore[misc]
                after = producer.put("small", b"2")
            assert isinstance(error, MessageTooLarge)
            assert isinstance(error, ValueError)
            assert (error.code, error.retriable) == ("MSG_SIZE_TOO_LARGE", False)
            assert "'large'" in str(error)
            assert limit in str(error)
            assert before.result(10).offset < after.result(10).offset
        with queue.view() as view:
            assert dict(view) == {"small": b"2"}
    patient.close()
    large = tmp_path / "large"
    large.write_text('{"key": "large", "value": "' + "x" * 2_000_000 + '"}\n')
    code, line = lvq("put", "sizes", "--from-jsonl", str(large), config=plain, folder=tmp_path)
    assert code == 5
    assert "'large'" in line


def test_an_unreadable_value_follows_the_policy_and_ends_no_reader(plain: str) -> None:
    queue = LastValueQueue.declare("numbers", key_header="name", value=JSON, bootstrap_servers=plain)
    with Producer(queue.cluster, rules(topic="numbers", key_header="name")) as producer:
        producer.put("good", b"1")
        producer.put("bad", b"{")
    with queue.view() as view:
        with pytest.raises(DecodeError, match="numbers/0/1") as caught:
            view["bad"]
        assert (caught.value.raw, view["good"], view.state) == (b"{", 1, "caught-up")
    with queue.view(undecodable="skip") as view:
        assert (dict(view), view.skipped) == ({"good": 1}, 1)
    with queue.view(undecodable="raw") as view:
        assert dict(view) == {"good": 1, "bad": b"{"}
    with queue.consumer(undecodable="skip") as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        assert delivery.value == 1
        eventually(lambda: consumer.acquire(0.1) is None and consumer.skipped == 1)
    queue.close()


def test_r16_a_record_whose_header_disagrees_with_its_key_fails_those_who_asked_for_it(plain: str) -> None:
    strict = LastValueQueue.declare("strict", key_header="ticker", key_mismatch="fail", bootstrap_servers=plain)
    with Producer(strict.cluster, rules(topic="strict", key_header=None)) as producer:
        position = producer.put("A", b"1", headers={"ticker": "B"}).result(20)

    def consume() -> None:
        with strict.consumer() as consumer:
            consumer.acquire(30)

    for call in (lambda: enter(strict.view()), lambda: enter(strict.browser()), consume):
        error = error_of(call, IN_TIME)
        assert type(error) is KeyMismatch
        assert error.position == position
        assert "b'A'" in str(error)
        assert "b'B'" in str(error)
        assert "Fix the writer" in error.hint
    with LastValueQueue("strict", key_header="ticker", bootstrap_servers=plain).view() as view:
        assert (dict(view), view.stats.mismatched) == ({"A": b"1"}, 1)
    strict.close()
