"""``lvq lvqtest`` as a process on a real broker: the sessions of Qpid's documentation, and logging in."""

from __future__ import annotations

import pytest

from lvq_kafka.embedded import EmbeddedBroker, Listener
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.secure import PASSWORD
from tests.integration.test_cli import Shell
from tests.lvqtest_sessions import LVQ, LVQ_NO_BROWSE, printed, with_numbered_tags


def session(shell: Shell, whole: str) -> str:
    return with_numbered_tags(printed(whole, lambda command: shell.run(*command).stdout.decode()))


@pytest.fixture
def shell(broker: ProvidedBroker) -> Shell:
    return Shell(broker.bootstrap_servers)


def test_g6_the_sessions_of_qpids_documentation_come_out_but_for_what_browsers_keep_there(shell: Shell) -> None:
    expected = with_numbered_tags(LVQ).splitlines()
    try:
        assert session(shell, LVQ_NO_BROWSE) == with_numbered_tags(LVQ_NO_BROWSE)
        assert session(shell, LVQ).splitlines() == expected[:-8] + expected[-4:]
        assert shell.run("lvqtest", "--mode", "consume").stdout == b""
    finally:
        shell.run("drop", "LVQtester", "--with-topic", "--yes")
    assert b"create_lvq_no_browse" in shell.run("lvqtest", code=4).stderr


def test_a_user_logs_in_by_options_or_by_the_environment_and_no_output_has_the_password() -> None:
    with EmbeddedBroker(listeners={"LOGIN": Listener.sasl({"alice": PASSWORD})}) as broker:
        host, port = broker.address("LOGIN").rsplit(":", 1)
        shell = Shell(None)
        from_environment = Shell(None, LVQ_SASL_PASSWORD=PASSWORD)
        at = ("--broker", host, "--port", port, "--username", "alice")
        login = (*at, "--password", PASSWORD, "--mechanism", "PLAIN", "--tcp-nodelay")
        shell.run("lvqtest", *login, "--mode", "create_lvq_no_browse")
        runs = [
            shell.run("lvqtest", *login, "--mode", "write", "--debug"),
            from_environment.run("lvqtest", *at),
            shell.run("lvqtest", *at, "--password", f"{PASSWORD}-not", code=3),
            shell.run("lvqtest", *at, code=2),
        ]
        assert runs[1].stdout.count(b"Receiving Data:") == 4
        assert b"Check sasl.username, sasl.password" in runs[2].stderr
        assert not [run for run in runs if PASSWORD.encode() in run.stdout + run.stderr]
