"""The Docker engine for test containers: availability, image choice and cleanup."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.docker_client import DockerClient, get_docker_host

from lvq_kafka.embedded.jars import KAFKA_VERSION
from lvq_kafka.errors import BrokerStartFailed

__all__ = ["OFFICIAL_IMAGE", "STAND_IN_IMAGE", "docker_unavailable_reason", "kafka_image", "owner_labels", "prepare"]

OFFICIAL_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
STAND_IN_IMAGE = f"lvq-kafka/kafka:{KAFKA_VERSION}"

_SILENCE = 30.0
"""The longest time in seconds that a pull may go without progress.

A registry that swallows packets must not hang a test run.
"""
_PULL_LIMIT = 600.0
"""The longest time in seconds that a pull may take in all."""

_OWNER = "lvq-kafka.owner"  # label: host name and process id of the owner

logger = logging.getLogger("lvq_kafka.testing")


def docker_unavailable_reason() -> str | None:
    """Return in one sentence why Docker cannot run Kafka here, or None if it can."""
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
    """Raise OSError if nothing listens on a Unix socket.

    The client would report that as well, but leave its own socket open.
    """
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(host.removeprefix("unix://"))


@functools.cache
def kafka_image() -> str:
    """Return the image to use.

    ``LVQ_KAFKA_IMAGE`` wins if set. Otherwise use the official image if it is present or can be pulled, else the
    stand-in.

    Raises:
        BrokerStartFailed: no image is available.
    """
    if chosen := os.environ.get("LVQ_KAFKA_IMAGE"):
        return chosen
    with _engine() as engine:
        problem = _why_missing(engine, OFFICIAL_IMAGE)
        if problem is None:
            return OFFICIAL_IMAGE
        with contextlib.suppress(ImageNotFound):
            engine.images.get(STAND_IN_IMAGE)
            return STAND_IN_IMAGE
    raise BrokerStartFailed(
        f"The image {OFFICIAL_IMAGE} is missing and cannot be pulled ({problem}), and {STAND_IN_IMAGE} is missing as "
        "well.",
        hint="Build the second one, without a registry: docker/build-kafka-image.sh",
    )


@contextlib.contextmanager
def _engine() -> Iterator[Any]:
    client = DockerClient().client
    try:
        yield client
    finally:
        client.close()


def _why_missing(engine: Any, image: str) -> str | None:
    """Return why an image is missing and cannot be pulled, or None if it is present now."""
    try:
        engine.images.get(image)
    except ImageNotFound:
        problem = _pull(image)
        if problem is not None:
            logger.warning("the image %s cannot be pulled: %s", image, problem)
        return problem
    return None


def _pull(image: str) -> str | None:
    """Pull an image; return the reason if that failed, else None.

    The engine waits for a registry indefinitely, and so does its client. So both run in a thread that nobody joins: if
    the image arrives later, the next run has it.
    """
    steps: SimpleQueue[tuple[bool, str | None]] = SimpleQueue()  # whether the pull has ended, and its error if any

    def pull() -> None:
        problem = None
        try:
            with _engine() as engine:
                for step in engine.api.pull(image, stream=True, decode=True):
                    problem = step.get("error", problem)
                    steps.put((False, None))
        except Exception as error:  # noqa: BLE001 -- from three libraries; whichever it is, the image does not come
            problem = str(error)
        steps.put((True, problem))

    Thread(target=pull, name=f"pull {image}", daemon=True).start()
    give_up = time.monotonic() + _PULL_LIMIT
    ended, problem = False, None
    while not ended:
        try:
            ended, problem = steps.get(timeout=max(0.0, min(_SILENCE, give_up - time.monotonic())))
        except Empty:
            late = time.monotonic() >= give_up
            return f"not done within {_PULL_LIMIT:g} s" if late else f"the registry did not answer for {_SILENCE:g} s"
    return problem


def owner_labels() -> dict[str, str]:
    """Return labels for containers and networks that let a later process remove them."""
    return {_OWNER: f"{socket.gethostname()}:{os.getpid()}"}


@functools.cache
def prepare(at_exit: Callable[[], None]) -> None:
    """Make sure, once per process, that containers are removed with this process.

    testcontainers leaves that to a container of its own. If its image is not available, ours are removed when the
    interpreter exits (by ``at_exit``), and those of killed processes when the next process starts one.
    """
    atexit.register(at_exit)
    with _engine() as engine:
        if not testcontainers_config.ryuk_disabled and _why_missing(engine, testcontainers_config.ryuk_image):
            testcontainers_config.ryuk_disabled = True
        for container in engine.containers.list(all=True, filters={"label": _OWNER}, ignore_removed=True):
            if _is_abandoned(container.labels[_OWNER]):
                with contextlib.suppress(APIError):  # another process may be removing it too
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
    except PermissionError:  # another user's process
        return False
    return False
