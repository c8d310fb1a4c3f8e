"""The entry point of the Spark image, called as Spark's Kubernetes backend does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).parents[2] / "docker" / "spark" / "entrypoint"

POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@job-driver-svc.default.svc:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.3",
    "SPARK_EXECUTOR_POD_NAME": "job-exec-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}
"""The minimum that an executor's pod has."""


@pytest.fixture
def image(tmp_path: Path) -> dict[str, str]:
    """Return the variables of an image whose programs only print their arguments, directory and process id."""
    teller = f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv, os.getcwd(), os.getpid()]))\n"
    for name in ("java", "spark-submit"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(teller)
        program.chmod(0o755)
    (tmp_path / "local").mkdir()
    here = {"JAVA_HOME": str(tmp_path), "SPARK_HOME": str(tmp_path), "SPARK_LOCAL_DIRS": f"{tmp_path}/local,/nowhere"}
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **here}


def started(environment: dict[str, str], *arguments: str) -> tuple[list[str], Path]:
    """Return the command that a container becomes, and its working directory."""
    process = subprocess.Popen([str(ENTRYPOINT), *arguments], env=environment, stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    command, folder, number = json.loads(out)
    assert number == process.pid, "signals would reach a shell"
    return command, Path(folder)


def test_an_executor_is_the_one_that_the_variables_of_its_pod_describe(image: dict[str, str], tmp_path: Path) -> None:
    [_, *command], folder = started(image | POD, "executor")

    jars = command.index("-cp")
    assert command[:jars] == ["-Xms1024m", "-Xmx1024m"]
    assert command[jars + 1 : jars + 3] == [
        f"/opt/spark/conf:{tmp_path}/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ]
    said = command[jars + 3 :]
    assert dict(zip(said[::2], said[1::2], strict=True)) == {
        "--driver-url": POD["SPARK_DRIVER_URL"],
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.1.2.3",
        "--podName": "job-exec-7",
        "--resourceProfileId": "0",
    }
    assert folder.parent == tmp_path / "local", "the files of a job go there"


def test_an_executor_has_the_options_for_java_in_their_order_and_as_they_are(image: dict[str, str]) -> None:
    options = [f"-Dn={number}" for number in range(9)] + ["-Dtext=two words", "-Dtext=*\n$HOME"]
    named = {f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)}

    [_, *command], _ = started(image | POD | named, "executor")

    assert command[: len(options)] == options


def test_an_executor_finds_configurations_first_then_what_was_added_then_spark(image: dict[str, str]) -> None:
    added = {"HADOOP_CONF_DIR": "/hadoop", "SPARK_CLASSPATH": "/a.jar:/b.jar", "SPARK_DIST_CLASSPATH": "/dist/*"}

    command, _ = started(image | POD | added, "executor")

    classpath = command[command.index("-cp") + 1]
    assert classpath == f"/opt/spark/conf:/hadoop:/a.jar:/b.jar:/dist/*:{image['SPARK_HOME']}/jars/*"


def test_an_executor_that_nobody_has_described_says_what_is_missing(image: dict[str, str]) -> None:
    some = {name: value for name, value in POD.items() if name not in ("SPARK_DRIVER_URL", "SPARK_EXECUTOR_ID")}

    done = subprocess.run(
        [str(ENTRYPOINT), "executor"], env=image | some, capture_output=True, text=True, check=False, timeout=20
    )

    assert done.returncode == 2
    assert "SPARK_DRIVER_URL SPARK_EXECUTOR_ID not set" in done.stderr


def test_a_driver_is_spark_submit_in_client_mode_bound_to_its_pods_address(
    image: dict[str, str], tmp_path: Path
) -> None:
    given = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/lvq/jobs/refresh.py", "two words"]

    [program, *options], folder = started(image | {"SPARK_DRIVER_BIND_ADDRESS": "10.1.2.3"}, "driver", *given)
    [_, *without], _ = started(image, "driver", *given)

    assert program == f"{tmp_path}/bin/spark-submit"
    assert options == [
        *("--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.1.2.3"),
        *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.1.2.3"),
        *given,
    ]
    assert without == ["--deploy-mode", "client", *given]
    assert folder.parent == tmp_path / "local"


def test_every_other_command_is_run_where_it_was_called(image: dict[str, str], tmp_path: Path) -> None:
    command, folder = started(image, str(tmp_path / "bin" / "spark-submit"), "two words", "")

    assert command[1:] == ["two words", ""]
    assert folder == Path.cwd()
