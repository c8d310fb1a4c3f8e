from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lvq_kafka import LastValueQueue
from lvq_kafka.cli import invocation as invocation_module
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.testing import MemoryCluster
from tests.lvqtest_sessions import LVQ, LVQ_NO_BROWSE, printed, with_numbered_tags
from tests.pages import blocks
from tests.unit.cli.conftest import Ran, Run
from tests.waiting import eventually

PASSWORD = "geheim-7"


def values(ran: Ran) -> list[str]:
    return [line.removeprefix("Receiving Data:").split(".")[0] for line in ran.text.splitlines()]


def session(run: Run, whole: str) -> str:
    def text(command: list[str]) -> str:
        ran = run(*command)
        assert ran.code == 0, ran.stderr
        return ran.text

    return with_numbered_tags(printed(whole, text))


def test_g6_the_session_of_lvq_no_browse_is_that_of_qpid_line_for_line(run: Run) -> None:
    assert session(run, LVQ_NO_BROWSE) == with_numbered_tags(LVQ_NO_BROWSE)


def test_g6_the_session_of_lvq_lacks_only_the_values_that_qpid_keeps_for_browsers(run: Run) -> None:
    expected = with_numbered_tags(LVQ).splitlines()
    kept = expected[-8:-4]
    assert kept == ["Receiving Data:key1.tag 1", "Receiving Data:key2.tag 1", "Receiving Data:key3.tag 1",
                    "Receiving Data:last"]  # fmt: skip
    assert session(run, LVQ).splitlines() == expected[:-8] + expected[-4:]


def test_both_sessions_follow_each_other_on_one_queue(run: Run) -> None:
    session(run, LVQ)
    assert session(run, LVQ_NO_BROWSE) == with_numbered_tags(LVQ_NO_BROWSE)


def test_g6_create_lvq_says_in_one_line_why_its_session_differs(run: Run) -> None:
    said = [line for line in run("lvqtest", "--mode", "create_lvq").stderr.splitlines() if "G6" in line]
    assert len(said) == 1
    assert said[0].startswith("lvq: warning: in Qpid's LVQ, a value that was browsed stays")
    assert "G6" not in run("lvqtest", "--mode", "create_lvq_no_browse").stderr


@pytest.mark.parametrize("mode", ["create_lvq", "create_lvq_no_browse"])
def test_the_queue_is_the_one_that_qpids_program_names(run: Run, memory_cluster: MemoryCluster, mode: str) -> None:
    assert run("lvqtest", "--mode", mode).stdout == b""
    assert LastValueQueue.open("LVQtester", cluster=memory_cluster).definition == QueueDefinition(
        name="LVQtester", topic="LVQtester", key_header="qpid.LVQ_key", order="in-place"
    )
    run("lvqtest", "--mode", "write")
    first, *_ = run("browse", "LVQtester").rows
    assert (first["key"], first["headers"]) == ("key1", {"qpid.LVQ_key": "key1"})


def test_a_queue_of_that_name_with_other_properties_is_an_error(run: Run) -> None:
    run("declare", "LVQtester", "--standard")
    for mode, code in (("create_lvq", 4), ("write", 2)):
        ran = run("lvqtest", "--mode", mode)
        assert (ran.code, ran.stdout) == (code, b"")
        assert "LVQtester" in ran.stderr


def test_each_write_has_a_tag_of_its_own_and_one_for_all_its_values(run: Run) -> None:
    run("lvqtest", "--mode", "create_lvq_no_browse")
    tags = [set(re.findall(r"\.(0x[0-9a-f]+)$", run("lvqtest", "--mode", "write").text, re.M)) for _ in range(3)]
    assert [len(each) for each in tags] == [1, 1, 1]
    assert len(set.union(*tags)) == 3


def test_the_mode_is_browse_unless_another_one_is_given(run: Run) -> None:
    run("lvqtest", "--mode", "create_lvq_no_browse")
    run("lvqtest", "--mode", "write")
    assert values(run("lvqtest")) == values(run("lvqtest", "--mode=browse")) == ["key1", "key2", "key3", "last"]


def test_an_empty_queue_ends_a_browser_and_a_consumer_without_a_line(run: Run) -> None:
    run("lvqtest", "--mode", "create_lvq_no_browse")
    for mode in ("browse", "consume"):
        ran = run("lvqtest", "--mode", mode)
        assert (ran.code, ran.stdout, ran.stderr) == (0, b"", "")
        assert run("lvqtest", "--mode", mode, person=True).stderr == "LVQtester is empty.\n"


def test_lines_are_the_same_for_a_person(run: Run) -> None:
    run("lvqtest", "--mode", "create_lvq_no_browse")
    written = run("lvqtest", "--mode", "write", person=True)
    assert written.text.startswith("Sending Data: key1=key1.0x")
    assert values(run("lvqtest", "--mode", "consume", person=True)) == ["key1", "key2", "key3", "last"]


def test_values_of_others_are_escaped_and_take_one_line_each(run: Run) -> None:
    run("lvqtest", "--mode", "create_lvq_no_browse")
    run("send", "LVQtester", "-", "-H", "qpid.LVQ_key=a", stdin=b"\x1b[2J\n\xff")
    run("send", "LVQtester", "", "-H", "qpid.LVQ_key=b")
    assert run("lvqtest").text == "Receiving Data:\\x1b[2J\\n\\xff\nReceiving Data:\n"


@pytest.mark.parametrize("mode", ["write", "browse", "consume"])
def test_without_the_queue_the_error_names_the_mode_that_creates_it(run: Run, mode: str) -> None:
    ran = run("lvqtest", "--mode", mode)
    assert (ran.code, ran.stdout) == (4, b"")
    assert ran.stderr == (
        "lvq: No queue LVQtester is declared. Create it: lvq lvqtest --mode create_lvq_no_browse, or create_lvq.\n"
    )


def test_a_value_that_could_not_be_written_is_not_consumed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", "stdout")

    run("lvqtest", "--mode", "create_lvq_no_browse")
    run("lvqtest", "--mode", "write")
    with monkeypatch.context() as patch:
        patch.setattr("lvq_kafka.cli.output.Output.flush", fail)
        assert run("lvqtest", "--mode", "consume").code == 2
    assert values(run("lvqtest")) == ["key1", "key2", "key3", "last"]


def test_a_consumer_waits_for_another_one_to_leave(run: Run, memory_cluster: MemoryCluster) -> None:
    run("lvqtest", "--mode", "create_lvq_no_browse")
    run("lvqtest", "--mode", "write")
    ran: list[Ran] = []
    waiting = threading.Thread(target=lambda: ran.append(run("lvqtest", "--mode", "consume")))
    with LastValueQueue.open("LVQtester", cluster=memory_cluster).consumer() as consumer:
        first = consumer.acquire(10)
        assert first is not None
        waiting.start()
        eventually(lambda: memory_cluster.groups.member_count("lvq.LVQtester") == 2)
        first.ack()
    waiting.join(20)
    assert [values(each) for each in ran] == [["key2", "key3", "last"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mode", "nope"], "'nope' is not one of 'create_lvq', 'create_lvq_no_browse', 'write', 'browse', 'consume'"),
        (["--mode"], "Option '--mode' requires an argument."),
        (["--mod", "write"], "No such option --mod. Did you mean --mode?"),
        (["write"], "Got unexpected extra argument (write)"),
        (["--json"], "--json does not go with lvqtest; lvq browse and lvq consume write JSON lines."),
        (["--port", "0"], "A port is a whole number from 1 to 65535."),
        (["--port", "65536"], "A port is a whole number from 1 to 65535."),
        (["-p", PASSWORD], "A port is a whole number from 1 to 65535."),
        (["--password"], "Option '--password' requires an argument."),
    ],
)
def test_a_slip_in_the_options_ends_with_2_and_is_named(run: Run, arguments: list[str], said: str) -> None:
    ran = run("lvqtest", *arguments)
    assert (ran.code, ran.stdout) == (2, b"")
    assert said in ran.stderr
    assert PASSWORD not in ran.stderr


# ---------------------------------------------------------------- the connection


class Connected:
    """The client properties of runs that connect to nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, before: tuple[str, ...] = (), **environment: str) -> tuple[dict[str, Any], str]:
        """Return the properties that result from a command line, and standard error."""
        found: dict[str, Any] = {}

        def connect(invocation: Invocation) -> MemoryCluster:
            found.update(invocation._client_config(os.environ).properties)
            return MemoryCluster()

        with self._monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("LVQ_")]:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(invocation_module, "_daemon_servers", lambda: None)
            patch.setattr(Invocation, "connect", connect)
            ran = CliRunner().invoke(lvq, [*before, "lvqtest", *arguments], obj=Invocation(), prog_name="lvq")
        *lines, last = ran.stderr.splitlines(keepends=True)
        assert PASSWORD not in ran.output
        return found, "".join(lines) if found else last


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Connected:
    return Connected(monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "servers"),
    [
        (["--broker", "kafka1"], "kafka1"),  # the client adds 9092
        (["-b", "kafka1"], "kafka1"),
        (["-bkafka1", "-p9093"], "kafka1:9093"),
        (["--port", "9093"], "localhost:9093"),
        (["--broker", "kafka1:9094"], "kafka1:9094"),
        (["--broker", "kafka1:9093", "--port", "9093"], "kafka1:9093"),
        (["--port", "9093", "--broker", "one,two:9094, three"], "one:9093,two:9094,three:9093"),
        (["--broker", "[::1]", "--port", "9093"], "[::1]:9093"),
        (["--broker", "one", "-b", "two"], "two"),
        (["-b", "two", "--broker", "one"], "one"),
        (["--bootstrap-servers", "one:1"], "one:1"),
    ],
)
def test_a_broker_without_a_port_has_the_one_that_is_given(
    connected: Connected, arguments: list[str], servers: str
) -> None:
    assert connected(*arguments)[0]["bootstrap.servers"] == servers


def test_the_broker_before_the_command_is_the_same_option_and_gives_way_to_a_later_one(connected: Connected) -> None:
    before = ("-b", "one")
    assert connected(before=before)[0]["bootstrap.servers"] == "one"
    assert connected("--port", "9093", before=before)[0]["bootstrap.servers"] == "one:9093"
    assert connected("--broker", "two", before=before)[0]["bootstrap.servers"] == "two"


def test_a_port_completes_brokers_of_the_environment_and_the_file_too(connected: Connected, tmp_path: Path) -> None:
    port = ("--port", "9093")
    assert connected(*port, LVQ_BOOTSTRAP_SERVERS="env")[0]["bootstrap.servers"] == "env:9093"
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=one,two:1\n")
    assert connected(*port, "--config", str(file))[0]["bootstrap.servers"] == "one:9093,two:1"


@pytest.mark.parametrize("servers", ["host:1", "a:1,b:3"])
def test_a_port_for_no_broker_is_an_error_wherever_they_are_named(connected: Connected, servers: str) -> None:
    said = f"--port is for brokers that are named without a port, unlike {servers.replace(',', ', ')}."
    for found, error in (
        connected("--port", "2", "-b", servers),
        connected("--port", "2", LVQ_BOOTSTRAP_SERVERS=servers),
    ):
        assert (found, error) == ({}, f"Error: {said}\n")


@pytest.mark.parametrize("port", [(), ("--port", "2")])
def test_a_broker_without_a_name_is_not_this_machine(connected: Connected, port: tuple[str, ...]) -> None:
    found, said = connected("--broker", ",", *port)
    assert found == {}
    assert said.startswith("lvq: No bootstrap servers are given.")


def test_options_go_over_the_environment(connected: Connected, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from-file\n")
    environment = {"LVQ_BOOTSTRAP_SERVERS": "env:1", "LVQ_SASL_USERNAME": "env", "LVQ_SASL_PASSWORD_FILE": str(file)}
    properties, _ = connected(**environment)
    assert properties == {"bootstrap.servers": "env:1", "sasl.username": "env", "sasl.password": "from-file"}
    properties, _ = connected("--broker", "option", "--username", "alice", "--password", PASSWORD, **environment)
    assert (properties["bootstrap.servers"], properties["sasl.username"]) == ("option", "alice")
    assert properties["sasl.password"] == PASSWORD
    properties, _ = connected("--username", "alice", **environment)
    assert (properties["sasl.username"], properties["sasl.password"]) == ("alice", "from-file")


def test_a_user_logs_in_without_encryption_unless_the_protocol_is_set(connected: Connected) -> None:
    login = ("-b", "host:1", "--username", "alice", "--password", PASSWORD)
    properties, said = connected(*login)
    assert properties == {
        "bootstrap.servers": "host:1",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "sasl.mechanism": "PLAIN",
        "security.protocol": "sasl_plaintext",
    }
    assert said == (
        "lvq: warning: the password goes to host:1 unencrypted. To encrypt the connection: "
        "LVQ_SECURITY_PROTOCOL=SASL_SSL.\n"
    )
    for protocol, chosen in (("SASL_SSL", "SASL_SSL"), ("ssl", "sasl_ssl"), ("SASL_PLAINTEXT", "SASL_PLAINTEXT")):
        properties, said = connected(*login, LVQ_SECURITY_PROTOCOL=protocol)
        assert (properties["security.protocol"], said) == (chosen, "")


def test_the_mechanism_replaces_another_one_by_either_name(connected: Connected, tmp_path: Path) -> None:
    login = ("--username", "alice", "--password", PASSWORD)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=host:1\nsecurity.protocol=SASL_SSL\nsasl.mechanisms=SCRAM-SHA-512\n")
    properties, said = connected(*login, "--config", str(file))
    assert (properties["sasl.mechanisms"], "sasl.mechanism" in properties) == ("SCRAM-SHA-512", False)
    properties, said = connected(*login, "--config", str(file), "--mechanism", "scram-sha-256")
    assert (properties["sasl.mechanism"], "sasl.mechanisms" in properties) == ("SCRAM-SHA-256", False)
    properties, said = connected(*login, "-b", "host:1", "--mechanism", "SCRAM-SHA-256")
    assert (properties["security.protocol"], said) == ("sasl_plaintext", "")  # it does not send the password


def test_a_login_that_lacks_a_part_names_the_variable_for_it(connected: Connected) -> None:
    properties, said = connected("-b", "host:1", "--username", "alice")
    assert (properties, said) == (
        {},
        "lvq: No password is given to log in with. Set LVQ_SASL_PASSWORD, or LVQ_SASL_PASSWORD_FILE to the name of a "
        "file that holds it.\n",
    )
    properties, said = connected("-b", "host:1", "--password", PASSWORD)
    assert (properties, said) == (
        {},
        "lvq: No user name is given to log in with. Set LVQ_SASL_USERNAME, or LVQ_SASL_USERNAME_FILE to the name of a "
        "file that holds it.\n",
    )


def test_tcp_nodelay_is_the_clients_own_property(connected: Connected) -> None:
    assert connected("-b", "host:1", "--tcp-nodelay")[0]["socket.nagle.disable"] is True


def test_a_password_is_in_no_repr_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    invocation = Invocation(cluster=MemoryCluster())
    CliRunner().invoke(lvq, ["lvqtest", "--username", "alice", "--password", PASSWORD], obj=invocation)
    assert invocation.amend is not None
    assert PASSWORD not in repr(invocation)


# ---------------------------------------------------------------- the page


def test_the_page_about_it_prints_what_it_shows(run: Run) -> None:
    (shown,) = (each for each in blocks("docs/how-to/lvqtest.md") if each.language == "sh" and each.output is not None)
    commands = [line.split()[1:] for line in shown.body.splitlines()]
    assert with_numbered_tags("".join(run(*command).text for command in commands)) == with_numbered_tags(
        shown.output or ""
    )
