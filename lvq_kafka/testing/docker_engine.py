"""The Docker engine that the test containers run on: is it there, which image, and nothing stays behind."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.docker_client import DockerClient, get_docker_host

from lvq_kafka.embedded.jars import KAFKA_VERSION
from lvq_kafka.errors import BrokerStartFailed

__all__ = ["OFFICIAL_IMAGE", "STAND_IN_IMAGE", "docker_unavailable_reason", "kafka_image", "owner_labels", "prepare"]

OFFICIAL_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
STAND_IN_IMAGE = f"lvq-kafka/kafka:{KAFKA_VERSION}"

_OWNER = "lvq-kafka.owner"  # label: host name and process id of whoever started it


def docker_unavailable_reason() -> str | None:
    """Say in one sentence why no Kafka can be started in Docker here; None if one can."""
    host = get_docker_host() or "unix:///var/run/docker.sock"
    try:
        _knock(host)
        with _engine() as engine:
            engine.ping()
        kafka_image()
    except BrokerStartFailed as error:
        return str(error).removesuffix(".")
    except (DockerException, OSError) as error:
        return f"no Docker engine answers at {host} ({error}); docker/engine.sh up starts one"
    return None


def _knock(host: str) -> None:
    """Raise OSError if nobody listens on a Unix socket: the client would say so too, but leave its own socket open."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(host.removeprefix("unix://"))


@functools.cache
def kafka_image() -> str:
    """Return ``LVQ_KAFKA_IMAGE`` if set, else the official image if it is here or can be pulled, else the stand-in.

    Raises:
        BrokerStartFailed: there is none.
    """
    if chosen := os.environ.get("LVQ_KAFKA_IMAGE"):
        return chosen
    with _engine() as engine:
        if _have(engine, OFFICIAL_IMAGE):
            return OFFICIAL_IMAGE
        with contextlib.suppress(ImageNotFound):
            engine.images.get(STAND_IN_IMAGE)
            return STAND_IN_IMAGE
    raise BrokerStartFailed(
        f"The image {OFFICIAL_IMAGE} is not here and cannot be pulled, and {STAND_IN_IMAGE} is not here either.",
        hint="docker/build-kafka-image.sh builds the second one without a registry.",
    )


@contextlib.contextmanager
def _engine() -> Iterator[Any]:
    client = DockerClient().client
    try:
        yield client
    finally:
        client.close()


def _have(engine: Any, image: str) -> bool:
    try:
        engine.images.get(image)
    except ImageNotFound:
        try:
            engine.images.pull(image)
        except APIError:
            return False
    return True


def owner_labels() -> dict[str, str]:
    """Return what to label containers and networks with, so that they can be removed after this process."""
    return {_OWNER: f"{socket.gethostname()}:{os.getpid()}"}


@functools.cache
def prepare(at_exit: Callable[[], None]) -> None:
    """See to it, once per process, that containers go when this process does.

    testcontainers leaves that to a container of its own. Where its image cannot be had, ours go when the interpreter
    exits (``at_exit`` removes them), and those of killed processes when the next process starts one.
    """
    atexit.register(at_exit)
    with _engine() as engine:
        if not testcontainers_config.ryuk_disabled and not _have(engine, testcontainers_config.ryuk_image):
            testcontainers_config.ryuk_disabled = True
        for container in engine.containers.list(all=True, filters={"label": _OWNER}, ignore_removed=True):
            if _is_abandoned(container.labels[_OWNER]):
                with contextlib.suppress(APIError):  # another process may be at it too
                    container.remove(force=True, v=True)
        for network in engine.networks.list(filters={"label": _OWNER}):
            if _is_abandoned(network.attrs["Labels"][_OWNER]):
                with contextlib.suppress(APIError):
                    network.remove()


def _is_abandoned(owner: str) -> bool:
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's process
        return False
    return False
