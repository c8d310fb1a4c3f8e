"""Contexts: what is stored, who can read it, and how it goes with options and environment."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka import ClientConfig
from lvq_kafka.cli import invocation as invocation_module
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.saved_contexts import SavedContexts
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka.client import properties_text
from tests.unit.cli.conftest import Run

SECRET = "geheim"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the configuration directory of a user without contexts, whose environment names no cluster."""
    for name in ("LVQ_BOOTSTRAP_SERVERS", "LVQ_BOOTSTRAP_SERVERS_FILE", "LVQ_CONFIG", "LVQ_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(invocation_module, "_daemon_servers", lambda: "daemon:1")
    return tmp_path / "config" / "lvq-kafka"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers=kafka:9093\nsecurity.protocol=SASL_SSL\nsasl.password={SECRET}\n")
    path.chmod(0o600)
    return str(path)


def servers(*, environ: dict[str, str] | None = None, **named: Any) -> str:
    return Invocation(**named)._client_config(environ or {}).bootstrap_servers


def test_a_context_is_saved_listed_used_and_removed(run: Run, home: Path) -> None:
    assert run("context", "list").rows == []
    saved = run("context", "set", "test", "-b", "localhost:9092").row
    path = str(home / "contexts" / "test.properties")
    assert saved == {"name": "test", "replaced": False, "path": path, "bootstrap_servers": "localhost:9092"}
    assert run("context", "set", "test", "-b", "localhost:9093").row["replaced"]
    assert run("context", "use", "test").row == {"current": "test"}
    assert run("context", "list").rows == [{"name": "test", "current": True, "bootstrap_servers": "localhost:9093"}]
    assert "✓" in run("context", "list", person=True).text
    assert run("context", "use", "--none").row == {"current": None}
    assert not run("context", "list").rows[0]["current"]
    run("context", "use", "test")
    assert run("context", "remove", "test").row == {"removed": "test", "was_current": True}
    assert run("context", "list").rows == []
    assert run("context", "show").code == 1


def test_secrets_come_from_a_file_are_for_the_user_alone_and_are_never_shown(run: Run, home: Path, file: str) -> None:
    os.umask(os.umask(0))  # whatever it is, it takes nothing away that matters here
    run("context", "set", "production", "--config", file, "-o", "client.id=me")
    path = home / "contexts" / "production.properties"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
    assert ClientConfig.from_file(path).properties["sasl.password"] == SECRET
    run("context", "set", "copy", "--context", "production", "-b", "other:9093")
    assert ClientConfig.from_file(home / "contexts" / "copy.properties").properties["client.id"] == "me"
    assert run("context", "show", "production").row["properties"]["sasl.password"] == "***"
    for person in (False, True):
        for arguments in (["show", "production"], ["list"], ["use", "production"], ["show"]):
            ran = run("context", *arguments, person=person)
            assert ran.code == 0
            assert SECRET not in ran.text + ran.stderr


def test_a_secret_on_the_command_line_is_refused(run: Run) -> None:
    ran = run("context", "set", "test", "-b", "a:1", "-o", f"sasl.password={SECRET}")
    assert (ran.code, SECRET in ran.stderr) == (2, False)
    assert "sasl.password is a secret" in ran.stderr
    assert run("context", "list").rows == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["set", "test"], 2, "Name the brokers"),
        (["set", "../test", "-b", "a:1"], 2, "cannot be the name of a context"),
        (["set", "test", "-b", "a:1", "-o", "group.id=g"], 2, "group.id cannot be set"),
        (["use"], 2, "Name a context, or give --none."),
        (["use", "nope"], 2, "There is no context nope."),
        (["show", "nope"], 2, "There is no context nope."),
        (["remove", "produktion"], 2, "Did you mean production?"),
        (["show"], 1, "No context is in use."),
    ],
)
def test_a_context_that_cannot_be_is_an_error_with_its_remedy(
    run: Run, arguments: list[str], code: int, said: str
) -> None:
    run("context", "set", "production", "-b", "a:1")
    ran = run("context", *arguments)
    assert ran.code == code
    assert said in ran.stderr


def test_options_go_over_the_environment_and_that_over_the_context_in_use(run: Run, file: str) -> None:
    assert servers() == "daemon:1"
    run("context", "set", "test", "-b", "of-test:1")
    run("context", "set", "used", "-b", "of-used:1")
    assert servers() == "daemon:1", "a context counts once it is used or named"
    run("context", "use", "used")
    assert servers() == "of-used:1"
    assert servers(environ={"LVQ_CONTEXT": "test"}) == "of-test:1"
    assert servers(environ={"LVQ_CONTEXT": "used"}, context="test") == "of-test:1"
    assert servers(environ={"LVQ_CONFIG": file}, context="test") == "of-test:1"
    assert servers(environ={"LVQ_CONTEXT": "test"}, config=file) == "kafka:9093"
    assert servers(environ={"LVQ_BOOTSTRAP_SERVERS": "env:1"}) == "env:1"
    assert servers(environ={"LVQ_BOOTSTRAP_SERVERS": "env:1"}, context="test") == "env:1", "as over a file"
    assert servers(context="test", bootstrap_servers="option:1") == "option:1"
    assert servers(default_servers="localhost") == "localhost", "lvqtest writes, and goes nowhere by chance"


@pytest.mark.parametrize("named", ["option", "environment"])
def test_the_password_of_the_context_in_use_never_goes_to_other_brokers(run: Run, file: str, named: str) -> None:
    run("context", "set", "production", "--config", file)
    run("context", "use", "production")
    if named == "option":
        config = Invocation(bootstrap_servers="other:1")._client_config({})
    else:
        config = Invocation()._client_config({"LVQ_BOOTSTRAP_SERVERS": "other:1"})
    assert config.properties == {"bootstrap.servers": "other:1"}


def test_a_file_and_a_context_are_one_too_many(run: Run, file: str) -> None:
    run("context", "set", "test", "-b", "of-test:1")
    with pytest.raises(ConfigError, match="LVQ_CONFIG and LVQ_CONTEXT are both given"):
        servers(environ={"LVQ_CONFIG": file, "LVQ_CONTEXT": "test"})
    both = CliRunner().invoke(lvq, ["queues", "--config", file, "--context", "test"], prog_name="lvq")
    assert both.exit_code == 2
    assert "--config and --context are both given" in both.stderr


def test_a_context_whose_file_is_gone_is_an_error_and_not_another_cluster(run: Run, home: Path) -> None:
    run("context", "set", "test", "-b", "of-test:1")
    run("context", "use", "test")
    (home / "contexts" / "test.properties").unlink()
    with pytest.raises(ConfigError, match="There is no context test"):
        servers()


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_every_value_comes_back_from_a_file(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    path = tmp_path_factory.getbasetemp() / "value.properties"
    config = ClientConfig("a:1", {"sasl.password": value})
    path.write_text(properties_text(config.properties), "utf-8", newline="")
    assert ClientConfig.from_file(path) == config


def test_a_write_that_fails_leaves_the_context_as_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = SavedContexts()
    path = saved.save("test", "bootstrap.servers=a:1\n")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        saved.save("test", "bootstrap.servers=b:1\n")
    assert path.read_text() == "bootstrap.servers=a:1\n"
    assert os.listdir(path.parent) == ["test.properties"]
