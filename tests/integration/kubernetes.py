"""A one-node Kubernetes, small enough for a test: `kubernetes_api` in a container, and pods next to it."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from lvq_kafka.testing.docker_engine import owner_labels
from tests.integration import kubernetes_api
from tests.integration.composing import docker
from tests.waiting import eventually

__all__ = ["Kubernetes", "Pod", "kubernetes"]

_PORT = "8001"
_NAMESPACE = "/api/v1/namespaces/default"

Object = dict[str, Any]

_never = Event()


@dataclass
class Pod:
    """A running or finished pod. ``sandbox`` has its address, ``container`` its program."""

    name: str
    labels: dict[str, str]
    sandbox: str
    container: str
    exit_code: int | None = None
    out: str = ""
    err: str = ""


@dataclass
class Kubernetes:
    """Containers of ``image`` in a Docker network. Pods run as ``user``, whatever their image says."""

    image: str
    network: str
    user: str
    folder: Path
    port: str = ""
    containers: list[str] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)

    @property
    def master(self) -> str:
        """Return the API's address for Spark in this network."""
        return f"k8s://http://kubernetes:{_PORT}"

    def run(self, *arguments: str) -> str:
        """Start a container, and return its id."""
        labels = (f"--label={name}={value}" for name, value in owner_labels().items())
        container = docker("create", *labels, *arguments)
        self.containers.append(container)
        return docker("start", container) and container

    def ask(self, path: str, method: str = "GET", body: Object | None = None) -> Object:
        content = None if body is None else json.dumps(body).encode()
        url, form = f"http://127.0.0.1:{self.port}{_NAMESPACE}/{path}", {"Content-Type": "application/merge-patch+json"}
        request = Request(url, content, form, method=method)
        with urlopen(request, timeout=30) as answer:
            result: Object = json.load(answer)
        return result

    def run_until_all_have_ended(self, timeout: float) -> list[Pod]:
        """Start and stop containers to match the API's pods, until none runs. Return the pods in order."""
        deadline = time.monotonic() + timeout
        while not self.pods or any(pod.exit_code is None for pod in self.pods.values()):
            if time.monotonic() > deadline:
                said = [_logs(pod.container) for pod in self.pods.values()]
                raise AssertionError(f"not within {timeout:g} s; the pods say {said}")
            self._step()
            _never.wait(0.2)
        return list(self.pods.values())

    def _step(self) -> None:
        wanted = {pod["metadata"]["name"]: pod for pod in self.ask("pods")["items"]}
        for name, pod in wanted.items():
            if name not in self.pods:
                self.start(name, pod)
        for pod in self.pods.values():
            if pod.exit_code is None:
                self.look_after(pod, wanted=pod.name in wanted)

    def start(self, name: str, pod: Object) -> None:
        """Start a pod. As in a real cluster, it has its address before its program starts."""
        aliases = [word for alias in self.names(pod) for word in ("--network-alias", alias)]
        sandbox = self.run("--network", self.network, *aliases, "--hostname", name, self.image, "sleep", "infinity")
        address = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", sandbox)
        pod["status"] |= {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
        [program] = pod["spec"]["containers"]
        container = self.run(
            f"--network=container:{sandbox}",
            "--user",
            self.user,
            *(["--security-opt", "no-new-privileges"] if _confined(program) else []),
            *(f"--env={value['name']}={_value(value, pod)}" for value in program.get("env", [])),
            *self.mounts(pod, program),
            program["image"],
            *program.get("args", []),
        )
        self.pods[name] = Pod(name, pod["metadata"]["labels"], sandbox, container)
        self.tell(name, pod["status"])

    def names(self, pod: Object) -> Iterator[str]:
        """Yield the names of the services that lead to a pod."""
        for service in self.ask("services")["items"]:
            if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items():
                yield "{name}.{namespace}.svc".format(**service["metadata"])

    def mounts(self, pod: Object, program: Object) -> Iterator[str]:
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        for mount in program.get("volumeMounts", []):
            volume, path = volumes[mount["name"]], mount["mountPath"]
            if "emptyDir" in volume:
                yield f"--tmpfs={path}"
            else:  # Spark mounts only one other kind by itself
                yield f"--volume={self.written(volume['configMap'])}:{path}:ro"

    def written(self, source: Object) -> Path:
        folder = self.folder / str(uuid.uuid4())
        folder.mkdir(0o755)
        for name, content in self.ask(f"configmaps/{source['name']}")["data"].items():
            (folder / name).write_text(content)
        return folder

    def look_after(self, pod: Pod, *, wanted: bool) -> None:
        """End pods that are no longer wanted, and report finished ones to the API."""
        if not wanted:
            docker("stop", "--time", "30", pod.container)
        running, code = docker("inspect", "--format", "{{.State.Running}} {{.State.ExitCode}}", pod.container).split()
        if running == "true":
            return
        pod.exit_code = int(code)
        pod.out, pod.err = _logs(pod.container)
        if wanted:
            self.tell(pod.name, _ended(pod.exit_code))

    def tell(self, name: str, status: Object) -> None:
        """Report a pod's status, unless the pod has been deleted meanwhile."""
        try:
            self.ask(f"pods/{name}/status", "PATCH", {"status": status})
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise


def _logs(container: str) -> tuple[str, str]:
    """Return the standard output and standard error of a container's program."""
    logs = subprocess.run(["docker", "logs", container], capture_output=True, text=True, check=True)
    return logs.stdout, logs.stderr


def _confined(program: Object) -> bool:
    return program.get("securityContext", {}).get("allowPrivilegeEscalation") is False


def _value(variable: Object, pod: Object) -> str:
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    value: Any = pod
    for name in variable["valueFrom"]["fieldRef"]["fieldPath"].split("."):
        value = value[name]
    return str(value)


def _ended(code: int) -> Object:
    state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{"name": "spark", "state": state, "ready": False, "restartCount": 0}],
    }


@contextmanager
def kubernetes(image: str, network: str, *, user: str, folder: Path) -> Iterator[Kubernetes]:
    """Start a cluster. The image needs Python for the API; ``folder`` keeps what pods mount."""
    cluster = Kubernetes(image, network, user, folder)
    try:
        program = Path(kubernetes_api.__file__).read_text()
        api = cluster.run(
            *("--network", network, "--network-alias", "kubernetes", "--publish", f"127.0.0.1::{_PORT}"),
            *(image, "python3", "-c", program, _PORT),
        )
        cluster.port = docker("port", api, _PORT).rpartition(":")[2]
        eventually(lambda: _answers(cluster), 60.0, every=0.1)
        yield cluster
    finally:
        if cluster.containers:
            docker("rm", "--force", "--volumes", *cluster.containers)


def _answers(cluster: Kubernetes) -> bool:
    try:
        return cluster.ask("pods")["items"] == []
    except OSError:
        return False
