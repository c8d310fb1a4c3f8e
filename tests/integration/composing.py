"""Compose with docker/compose.yaml for tests: separate projects, ports and data, all removed afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.testing.docker_engine import kafka_image
from tests.running import ROOT
from tests.waiting import eventually

__all__ = ["Compose", "answers", "composed", "docker", "require_compose", "run", "stopped"]


_PORTS = ("KAFKA_PORT", "KAFKA_1_PORT", "KAFKA_2_PORT", "KAFKA_3_PORT", "SPARK_UI_PORT")


@dataclass(frozen=True)
class Compose:
    """A Compose project. Call it with Compose's arguments to get the standard output."""

    command: list[str]
    environment: dict[str, str]
    ports: dict[str, str]

    def __call__(self, *arguments: str) -> str:
        return run([*self.command, *arguments], self.environment)

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        return self("ps", "--quiet", service).strip()

    def network(self, service: str) -> str:
        """Return the name of a service's network."""
        form = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}"
        return docker("inspect", "--format", form, self.container(service))

    def wait_healthy(self, *services: str) -> None:
        ids = [self.container(service) for service in services]

        def healthy() -> bool:
            return set(docker("inspect", "--format", "{{.State.Health.Status}}", *ids).split()) == {"healthy"}

        eventually(healthy, 120.0, every=0.5)


def require_compose() -> list[str]:
    """Return the Compose command, or skip the test if there is none."""
    program = ["docker", "compose"]
    if subprocess.run([*program, "version"], capture_output=True, check=False).returncode != 0:
        program = ["docker-compose"]
        if shutil.which("docker-compose") is None:
            pytest.skip("neither docker compose nor docker-compose is installed")
    return program


@contextmanager
def composed(*profiles: str, images: Mapping[str, str] | None = None) -> Iterator[Compose]:
    """Start a project, and remove it at the end, with the services in ``profiles``. ``images`` has image variables."""
    program = require_compose()
    project = f"lvq-kafka-test-{uuid.uuid4().hex[:12]}"
    ports = {name: str(port) for name, port in zip(_PORTS, free_ports(len(_PORTS)), strict=True)}
    compose = Compose(
        [*program, "-p", project, "-f", str(ROOT / "docker" / "compose.yaml")],
        os.environ | ports | {"KAFKA_IMAGE": kafka_image(), **(images or {})},
        ports,
    )
    with_profiles = [word for name in profiles for word in ("--profile", name)]
    try:
        yield compose
    finally:
        compose(*with_profiles, "down", "--volumes", "--timeout", "0")  # there is no need for an orderly end
    for listing in (["container", "ls", "--all"], ["volume", "ls"], ["network", "ls"]):
        assert docker(*listing, "--quiet", "--filter", f"label=com.docker.compose.project={project}") == ""


def answers(container: str) -> bool:
    """Return the current result of a container's health check."""
    kind, *command = json.loads(docker("inspect", "--format", "{{json .Config.Healthcheck.Test}}", container))
    assert kind == "CMD"
    asked = subprocess.run(["docker", "exec", container, *command], capture_output=True, check=False, timeout=60)
    return asked.returncode == 0


@contextmanager
def stopped(container: str) -> Iterator[None]:
    """Freeze a container's program in the block. Its kernel still accepts connections."""
    docker("kill", "--signal", "STOP", container)
    try:
        yield
    finally:
        docker("kill", "--signal", "CONT", container)


def docker(*arguments: str) -> str:
    return run(["docker", *arguments]).strip()


def run(command: list[str], environment: Mapping[str, str] | None = None, *, timeout: float = 200) -> str:
    """Return the standard output of a command.

    Raises:
        AssertionError: it failed; the message has its output.
    """
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
