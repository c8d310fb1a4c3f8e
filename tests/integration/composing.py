"""Compose on docker/compose.yaml for tests: projects, ports and data of their own, of which nothing stays behind."""

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
    """A project: call it with the arguments of Compose for what that writes to standard output."""

    command: list[str]
    environment: dict[str, str]
    ports: dict[str, str]

    def __call__(self, *arguments: str) -> str:
        return run([*self.command, *arguments], self.environment)

    def container(self, service: str) -> str:
        """The id of a service's container."""
        return self("ps", "--quiet", service).strip()

    def network(self, service: str) -> str:
        """The name of the network that a service is in."""
        form = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}"
        return docker("inspect", "--format", form, self.container(service))

    def wait_healthy(self, *services: str) -> None:
        ids = [self.container(service) for service in services]

        def healthy() -> bool:
            return set(docker("inspect", "--format", "{{.State.Health.Status}}", *ids).split()) == {"healthy"}

        eventually(healthy, 120.0, every=0.5)


def require_compose() -> list[str]:
    """The command of Compose; skips the test where there is none."""
    program = ["docker", "compose"]
    if subprocess.run([*program, "version"], capture_output=True, check=False).returncode != 0:
        program = ["docker-compose"]
        if shutil.which("docker-compose") is None:
            pytest.skip("neither docker compose nor docker-compose is installed")
    return program


@contextmanager
def composed(*profiles: str, images: Mapping[str, str] | None = None) -> Iterator[Compose]:
    """A project of whose services those in ``profiles`` go in the end, too; ``images`` by their variables."""
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
        compose(*with_profiles, "down", "--volumes", "--timeout", "0")  # nobody waits for an orderly end of what goes
    for listing in (["container", "ls", "--all"], ["volume", "ls"], ["network", "ls"]):
        assert docker(*listing, "--quiet", "--filter", f"label=com.docker.compose.project={project}") == ""


def answers(container: str) -> bool:
    """Return what a container's health check says, if it is asked now."""
    kind, *command = json.loads(docker("inspect", "--format", "{{json .Config.Healthcheck.Test}}", container))
    assert kind == "CMD"
    asked = subprocess.run(["docker", "exec", container, *command], capture_output=True, check=False, timeout=60)
    return asked.returncode == 0


@contextmanager
def stopped(container: str) -> Iterator[None]:
    """The program of a container stands still in the block; its kernel goes on, and accepts connections for it."""
    docker("kill", "--signal", "STOP", container)
    try:
        yield
    finally:
        docker("kill", "--signal", "CONT", container)


def docker(*arguments: str) -> str:
    return run(["docker", *arguments]).strip()


def run(command: list[str], environment: Mapping[str, str] | None = None, *, timeout: float = 200) -> str:
    """Return what a command has written to standard output.

    Raises:
        AssertionError: it failed; with all that it said.
    """
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
