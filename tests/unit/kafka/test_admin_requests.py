"""Requests to an admin client: repeated ones, final ones, and their time limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from threading import Timer

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from lvq_kafka.cluster import Commit
from lvq_kafka.errors import AuthenticationFailed, BrokerUnavailable, Closed, ConfigError, TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.connect import Health
from lvq_kafka.kafka.kafka_groups import commit_of
from tests.unit.kafka.mock_cluster import METADATA, MockCluster


@pytest.fixture
def requests() -> Iterator[AdminRequests]:
    requests = AdminRequests(ClientConfig("127.0.0.1:1"))
    yield requests
    requests.close()


class Answers:
    """A request that gets these answers in turn: values, errors or their codes."""

    def __init__(self, *answers: str | int | KafkaError) -> None:
        self.left = list(answers)

    def __call__(self, client: AdminClient, timeout: float) -> list[Future[str]]:
        future: Future[str] = Future()
        answer = self.left.pop(0)
        if isinstance(answer, int | KafkaError):
            error = KafkaError(answer) if isinstance(answer, int) else answer
            future.set_exception(KafkaException(error))
        else:
            future.set_result(answer)
        return [future]


def soon(seconds: float = 10) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    ],
)
def test_a_request_is_repeated_after_a_failure_that_passes_by_itself(requests: AdminRequests, code: int) -> None:
    answers = Answers(code, code, "yes")
    assert requests.ask(answers, "ask", soon()) == ["yes"]


def test_a_broker_that_is_no_coordinator_any_more_is_not_asked_by_the_same_client_again(
    requests: AdminRequests,
) -> None:
    """The client (2.16.0) would ask it forever; in tests/integration/test_docker.py a coordinator dies."""
    asked: list[AdminClient] = []
    answers = Answers(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "yes")

    def ask(client: AdminClient, timeout: float) -> list[Future[str]]:
        asked.append(client)
        return answers(client, timeout)

    assert requests.ask(ask, "ask", soon()) == ["yes"]
    assert asked[0] is not asked[1] is asked[2]


def test_a_failure_that_does_not_pass_is_raised_at_once(requests: AdminRequests) -> None:
    answers = Answers(KafkaError.INVALID_CONFIG, "never asked")
    with pytest.raises(ConfigError):
        requests.ask(answers, "ask", soon())
    assert answers.left == ["never asked"]


def test_a_broker_that_is_fenced_for_now_is_waited_for(requests: AdminRequests) -> None:
    fenced = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    assert requests.ask(Answers(fenced, fenced, "yes"), "create a topic", soon()) == ["yes"]


def test_a_caller_can_name_what_passes(requests: AdminRequests) -> None:
    answers = Answers(KafkaError._NOENT, "yes")
    assert requests.ask(answers, "ask", soon(), passing=frozenset({KafkaError._NOENT})) == ["yes"]


def test_when_the_time_is_over_the_last_reason_is_raised_as_retriable(requests: AdminRequests) -> None:
    def busy(client: AdminClient, timeout: float) -> list[Future[str]]:
        return Answers(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)(client, timeout)

    with pytest.raises(TransportError) as caught:
        requests.ask(busy, "ask", soon(0.1))
    assert caught.value.code == "COORDINATOR_LOAD_IN_PROGRESS"
    assert caught.value.retriable


def test_an_answer_that_never_comes_ends_in_a_timeout_all_the_same(requests: AdminRequests) -> None:
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        requests.ask(lambda client, timeout: [Future[str]()], "ask", soon(0.1))
    assert time.monotonic() - started < 5


def test_an_answer_that_the_client_makes_up_when_none_comes_is_no_answer(requests: AdminRequests) -> None:
    with pytest.raises(BrokerUnavailable):
        requests.ask(Answers("yes", "never asked"), "ask", soon(), answered=lambda answer: answer != "yes")


class Refused:
    """A stand-in for an admin client; when polled, it reports a refusal if there was one."""

    was = False

    def __init__(self, config: ClientConfig, health: Health) -> None:
        self._health = health

    def poll(self, timeout: float) -> None:
        if Refused.was:
            Refused.was = False
            for code in (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN):
                self._health.report(KafkaError(code, "Invalid username or password"))


def late(client: AdminClient, timeout: float) -> list[Future[str]]:
    answer: Future[str] = Future()
    Timer(3 * AdminRequests._WATCH, answer.set_result, ["yes"]).start()
    return [answer]


def refused(client: AdminClient, timeout: float) -> list[Future[str]]:
    Refused.was = True
    return [Future()]


def test_a_refusal_that_is_over_fails_no_question_whose_answer_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow login, one refusal used to last forever, for everyone who shares the client."""
    monkeypatch.setattr("lvq_kafka.kafka.admin_requests.open_admin", Refused)
    config = ClientConfig("127.0.0.1:1")
    with closing(AdminRequests(config)) as one, closing(AdminRequests(config)) as other:
        with pytest.raises(AuthenticationFailed):
            one.ask(refused, "ask", soon(), harmless=True)
        assert other.ask(late, "ask", soon(), harmless=True) == ["yes"]
        Refused.was = True  # between two questions, when nobody notices
        assert one.ask(late, "ask", soon(), harmless=True) == ["yes"]


def test_a_question_that_changes_nothing_is_asked_anew_when_no_answer_came(
    requests: AdminRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may have died, as one does in tests/integration/test_docker.py."""
    monkeypatch.setattr(AdminRequests, "_ATTEMPT", 0.1)
    asked: list[AdminClient] = []

    def ask(client: AdminClient, timeout: float) -> list[Future[str]]:
        asked.append(client)
        return Answers("yes")(client, timeout) if len(asked) > 1 else [Future()]

    assert requests.ask(ask, "ask", soon(), harmless=True) == ["yes"]
    assert asked[0] is not asked[1]


LOST = [KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER, KafkaError.NETWORK_EXCEPTION]
"""Errors of a request whose broker dies: its connection breaks, or the cluster no longer lists it."""


@pytest.mark.parametrize("code", LOST)
def test_a_question_that_changes_nothing_is_asked_anew_when_its_broker_died(requests: AdminRequests, code: int) -> None:
    answers = Answers(code, code, "yes")
    assert requests.ask(answers, "ask", soon(), harmless=True) == ["yes"]


@pytest.mark.parametrize("code", LOST)
def test_a_request_that_changes_something_is_not_made_again_when_its_broker_died(
    requests: AdminRequests, code: int
) -> None:
    answers = Answers(code, "never asked")
    with pytest.raises(BrokerUnavailable) as caught:
        requests.ask(answers, "ask", soon())
    assert caught.value.retriable
    assert answers.left == ["never asked"]


def test_a_connection_that_breaks_while_an_answer_is_awaited_is_not_the_end() -> None:
    with closing(MockCluster()) as mock, closing(KafkaCluster(mock.bootstrap_servers)) as cluster:
        mock.create_topic("prices")
        assert cluster.topics.describe("prices").partitions == 1  # connected now
        mock.fail_next(METADATA, KafkaError._TRANSPORT)
        assert cluster.topics.describe("prices").partitions == 1


def test_arguments_that_the_client_refuses_are_a_configuration_error(requests: AdminRequests) -> None:
    def refuse(client: AdminClient, timeout: float) -> list[Future[str]]:
        raise ValueError("topic must not be empty")

    with pytest.raises(ConfigError, match="Cannot ask: topic must not be empty"):
        requests.ask(refuse, "ask", soon())


def test_nothing_is_asked_after_close(requests: AdminRequests) -> None:
    requests.close()
    with pytest.raises(Closed):
        requests.ask(Answers("yes"), "ask", soon())


class Overread:
    """A partition as the client returns it after reading another client's metadata past its end, into garbage."""

    offset = 7
    leader_epoch = None

    @property
    def metadata(self) -> str:
        return b"foreign\xb8\x01".decode("utf-8")


def test_metadata_that_ends_in_rubbish_is_cut_where_it_is_no_text() -> None:
    assert commit_of(Overread()) == Commit(7, "foreign")  # type: ignore[arg-type]
