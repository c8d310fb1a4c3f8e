"""The cluster that a run connects to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lvq_kafka.cli import invocation as session_module
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.declared.registry import Registry
from lvq_kafka.errors import ConfigError
from tests.unit.cli.terminal import terminal


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "LVQ_BOOTSTRAP_SERVERS",
        "LVQ_BOOTSTRAP_SERVERS_FILE",
        "LVQ_CONFIG",
        "LVQ_CONTEXT",
        "LVQ_SASL_PASSWORD",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(session_module, "_daemon_servers", lambda: None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=from-file:1\nclient.id=me\n")
    return str(path)


def properties(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """Return the client properties that result from a command line."""
    invocation = Invocation()

    def look(_: object) -> list[object]:
        found.update(invocation._client_config(session_module.os.environ).properties)
        return []

    found: dict[str, Any] = {}
    monkeypatch.setattr(Invocation, "connect", lambda self: self)
    monkeypatch.setattr(Invocation, "close", lambda self: None)
    monkeypatch.setattr(Registry, "all", look)
    result = CliRunner().invoke(lvq, arguments, obj=invocation)
    assert result.exit_code == 0, result.stderr
    return found


def test_options_stand_before_or_after_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert properties(monkeypatch, "-b", "host:1", "queues")["bootstrap.servers"] == "host:1"
    assert properties(monkeypatch, "queues", "-b", "host:1")["bootstrap.servers"] == "host:1"


def test_options_go_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    assert properties(monkeypatch, "queues", "--config", config)["bootstrap.servers"] == "from-file:1"
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", "from-env:1")
    found = properties(monkeypatch, "queues", "--config", config)
    assert (found["bootstrap.servers"], found["client.id"]) == ("from-env:1", "me")
    found = properties(monkeypatch, "queues", "--config", config, "-b", "option:1")
    assert (found["bootstrap.servers"], found["client.id"]) == ("option:1", "me")


def test_the_file_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    monkeypatch.setenv("LVQ_CONFIG", config)
    assert properties(monkeypatch, "queues")["client.id"] == "me"


def test_secrets_come_from_the_environment_beside_servers_from_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_SASL_PASSWORD", "geheim")
    assert properties(monkeypatch, "queues", "-b", "host:1")["sasl.password"] == "geheim"


@pytest.mark.parametrize(
    ("mode", "secret", "warns"),
    [(0o644, True, True), (0o604, True, True), (0o600, True, False), (0o640, True, False), (0o644, False, False)],
)
@pytest.mark.parametrize("named", ["option", "environment"])
def test_a_file_of_secrets_that_every_user_can_read_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    mode: int,
    secret: bool,
    warns: bool,
    named: str,
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=host:1\n" + ("sasl.password=geheim\n" if secret else ""))
    path.chmod(mode)
    if named == "environment":
        monkeypatch.setenv("LVQ_CONFIG", str(path))
    Invocation(config=str(path) if named == "option" else None)._client_config(session_module.os.environ)
    said = capsys.readouterr().err
    expected = f"{path} holds sasl.password, and every user of this machine can read it. Run: chmod 600 {path}"
    assert said == (f"lvq: warning: {expected}\n" if warns else "")
    assert "geheim" not in said


def test_a_running_broker_is_used_when_nothing_else_is_named(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    monkeypatch.setattr(session_module, "_daemon_servers", lambda: "daemon:1")
    assert properties(monkeypatch, "queues")["bootstrap.servers"] == "daemon:1"
    assert properties(monkeypatch, "queues", "-b", "host:1")["bootstrap.servers"] == "host:1"
    assert properties(monkeypatch, "queues", "--config", config)["bootstrap.servers"] == "from-file:1"


def test_without_any_cluster_the_error_says_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match="lvq broker start"):
        Invocation()._client_config({})
    result = CliRunner().invoke(lvq, ["queues"])
    assert result.exit_code == 2
    assert "lvq: No cluster is named." in result.stderr


def test_a_config_file_that_is_missing_or_bad_is_an_error_of_usage(tmp_path: Path) -> None:
    assert CliRunner().invoke(lvq, ["queues", "--config", str(tmp_path / "none")]).exit_code == 2
    bad = tmp_path / "bad"
    bad.write_text("bootstrap.servers=host:1\nenable.auto.commit=true\n")
    result = CliRunner().invoke(lvq, ["queues", "--config", str(bad)])
    assert result.exit_code == 2
    assert "enable.auto.commit" in result.stderr


@pytest.mark.parametrize("arguments", [["get", "prices", "1999"], ["browse", "prices", "--key", "1999"]])
def test_a_long_read_shows_how_far_it_is(arguments: list[str]) -> None:
    program = str(Path(__file__).with_name("slow_lvq.py"))
    with terminal([program, *arguments]) as screen:
        screen.read_until(r"reading prices +━+╺?━* +800 of 2,000")
        screen.type("\n")
        assert screen.wait() == 0
        _, _, after = screen.text.rpartition("800 of 2,000")
        assert re.search(r"\b1$|1999.*1", after.strip(), re.DOTALL)
