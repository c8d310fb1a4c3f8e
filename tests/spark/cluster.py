"""A small standalone Spark cluster on this machine, and what a user ships to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

from lvq_spark.session.local_session import _choose_java
from tests.running import ROOT
from tests.spark import starting
from tests.waiting import eventually

__all__ = ["JOBS", "QUICK", "Cluster", "Done", "standalone_cluster"]

JOBS = ROOT / "spark" / "jobs"

QUICK = {
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",  # compiling costs more than the few rows are worth
    "spark.task.maxFailures": "1",
    "spark.driver.extraJavaOptions": starting.SMALL,
    "spark.executor.extraJavaOptions": starting.SMALL,
}
"""For jobs on a few rows, which begin once all the executors of ``spark.cores.max`` are there."""

_HERE = {
    "spark.executor.extraJavaOptions": starting.SUBMIT,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}
_OFFERS = ("--cores", "4", "--memory", "4g")


@dataclass(frozen=True)
class Done:
    """The result of a submitted job."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Cluster:
    """A cluster, and the way to submit jobs.

    ``python`` is the executors' Python; it has what Spark needs, and nothing of this library. ``package`` is an archive
    of this library and its dependency, as ``pip install --target`` lays them out, and ``content`` is the folder it was
    made from. ``workers`` are the workers' folders: each has one for every application with executors there.
    """

    master: str
    workers: tuple[Path, ...]
    home: Path
    python: Path
    package: Path
    content: Path
    environment: Mapping[str, str]

    def shared(self) -> dict[str, list[str]]:
        """Return the executors' logs of the applications that had some on every worker, by application."""
        names = set.intersection(*({path.name for path in worker.glob("app-*")} for worker in self.workers))
        return {
            name: ["".join(log.read_text() for log in worker.glob(f"{name}/*/stderr")) for worker in self.workers]
            for name in names
        }

    def submit(self, job: str, *arguments: str, shipped: bool = True, executors: int = 1) -> Done:
        """Run one of the jobs with ``spark-submit``, its driver in the Python of these tests.

        Its executors have one core each, and the master spreads them over the workers.
        """
        properties, driver = {**QUICK, **_HERE}, dict(self.environment)
        properties["spark.cores.max"] = str(executors)
        if shipped:
            properties |= {"spark.archives": f"{self.package}#lvq", "spark.executorEnv.PYTHONPATH": "lvq"}
            # Even on the driver's machine, Spark plans Python data sources in the executors' Python.
            driver["PYTHONPATH"] = str(self.content)
        command = [str(self.home / "bin" / "spark-submit"), "--master", self.master]
        for name, value in properties.items():
            command += ["--conf", f"{name}={value}"]
        run = subprocess.run(
            [*command, str(JOBS / job), *arguments],
            env=driver,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return Done(run.returncode, run.stdout, run.stderr)


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a master and two workers, each in its own process, on loopback."""
    _choose_java()
    home = Path(__import__("pyspark").__file__).parent
    python = _python(folder / "python")
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},  # as users have it
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {starting.SUBMIT}",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": str(python),
    }
    with ExitStack() as running:
        master = running.enter_context(_daemon("master", folder, environment))
        address = "spark://127.0.0.1:" + _said(master, r"'sparkMaster' on port (\d+)")
        workers = tuple(folder / f"worker-{number}" for number in (1, 2))
        logs = [
            running.enter_context(_daemon("worker", each, environment, *_OFFERS, "--work-dir", str(each), address))
            for each in workers
        ]
        package, content = _package(folder)
        for log in logs:
            _said(log, r"Successfully registered with master (\S+)")
        yield Cluster(address, workers, home, python, package, content, environment)


@contextmanager
def _daemon(name: str, folder: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[Path]:
    """Run a process of the cluster in a folder, and yield its log."""
    folder.mkdir(exist_ok=True)
    log = folder / f"{name}.log"
    kind = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
    command = [f"{environment['SPARK_HOME']}/bin/spark-class", kind, "--host", "127.0.0.1", "--port", "0"]
    with log.open("w") as to:
        process = subprocess.Popen([*command, "--webui-port", "0", *arguments], env=environment, stdout=to, stderr=to)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


def _said(log: Path, pattern: str) -> str:
    found = eventually(lambda: re.search(pattern, log.read_text()), 60, every=0.05)
    assert found is not None
    return found[1]


def _python(folder: Path) -> Path:
    """Create a Python with pyarrow and pandas, as clusters have it, without this library and confluent-kafka."""
    venv.create(folder, symlinks=True)
    (there,) = folder.glob("lib/python*/site-packages")
    for name in ("pyarrow", "pandas", "numpy", "python-dateutil", "pytz", "tzdata"):
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files if ".." not in file.parts}:
            if not (there / top).exists():
                (there / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder / "bin" / "python"


def _package(folder: Path) -> tuple[Path, Path]:
    """Pack the wheel, built as it is published, and confluent-kafka into one archive; return it and its folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=True)
    (wheel,) = folder.glob("*.whl")
    content = folder / "content"
    with ZipFile(wheel) as archive:
        archive.extractall(content)
    client = distribution("confluent-kafka")
    for top in {file.parts[0] for file in client.files or [] if ".." not in file.parts}:
        shutil.copytree(str(client.locate_file(top)), content / top)
    with tarfile.open(folder / "lvq.tar", "w") as archive:
        for each in content.iterdir():  # one by one: Hadoop refuses to unpack an entry for the folder itself
            archive.add(each, arcname=each.name)
    return folder / "lvq.tar", content
