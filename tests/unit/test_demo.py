"""The tour, on an in-memory cluster: it fails if a claim does not hold, and leaves nothing behind."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from lvq_kafka import TEXT, LastValueQueue, queues
from lvq_kafka.demo import __main__ as demo
from lvq_kafka.demo import spark_process
from lvq_kafka.demo.price_board import play
from lvq_kafka.demo.spark_process import SparkProcess
from lvq_kafka.demo.stage import Stage
from lvq_kafka.demo.ticks import Tick
from lvq_kafka.errors import StateError, TransportError
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.waiting import eventually


@pytest.fixture
def stage() -> Stage:
    return Stage(Console(file=io.StringIO()))


def test_a_check_that_fails_makes_the_tour_end_with_1(stage: Stage) -> None:
    stage.check(True, "one thing holds")
    stage.check(False, "another one does not")
    stage.check(True, "and a third one does")
    assert stage.failed == ["another one does not"]
    assert stage.finish() == 1
    assert isinstance(stage.console.file, io.StringIO)
    shown = stage.console.file.getvalue()
    assert "✗ another one does not" in shown
    assert "1 of 3 checks failed." in shown


def test_when_all_checks_hold_it_ends_with_0(stage: Stage) -> None:
    stage.check(True, "it holds")
    assert stage.finish() == 0


def run_as_spark(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let this program run in place of the tour's Spark."""
    monkeypatch.setattr(spark_process, "_COMMAND", (sys.executable, "-c", program))


@pytest.fixture
def given(memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Return a user's own cluster, for a tour without Java and without processes."""

    @contextmanager
    def provide() -> Iterator[ProvidedBroker]:
        yield ProvidedBroker("broker:9092", "given")

    monkeypatch.setattr(demo, "provide_broker", provide)
    monkeypatch.setattr("lvq_kafka.kafka.KafkaCluster", lambda config: memory_cluster)
    monkeypatch.setattr(demo, "BOARD_SECONDS", 0.2)
    run_as_spark(monkeypatch, "input()")
    monkeypatch.setattr(demo, "share", lambda stage, queue, servers, closes: None)
    monkeypatch.setattr(memory_cluster, "close", lambda: None)
    return memory_cluster


def test_a_scene_whose_claim_does_not_hold_makes_the_run_end_with_1(
    given: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def snapshot(stage: Stage, *_: object) -> None:
        stage.check(False, "row for row the same as the view")

    monkeypatch.setattr(demo, "_snapshot", snapshot)
    assert demo.main() == 1
    assert "✗ row for row the same as the view" in capsys.readouterr().out
    assert queues(cluster=given) == []


@pytest.mark.parametrize("scene", ["_tick", "share", "_delete", "_snapshot"])
def test_a_scene_that_fails_leaves_nothing_on_a_cluster_that_is_yours(
    given: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scene: str
) -> None:
    def fail(*_: object) -> None:
        made.extend(definition.topic for definition in queues(cluster=given))
        raise StateError("It went wrong.")

    made: list[str] = []
    monkeypatch.setattr(demo, scene, fail)
    assert demo.main() == 1
    assert "StateError: It went wrong." in capsys.readouterr().out
    assert all(topic.startswith("demo-") for topic in made)
    assert any(topic.endswith("-prices") for topic in made)
    assert queues(cluster=given) == []
    assert given._state.topics.keys() <= {"_lvq_queues"}


def test_ctrl_c_ends_it_in_one_line_and_leaves_nothing(
    given: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "share", interrupted)
    assert demo.main() == 130
    assert capsys.readouterr().out.splitlines()[-1] == "stopped; its queues and topics are gone"
    assert queues(cluster=given) == []
    monkeypatch.setattr(demo, "provide_broker", interrupted)
    assert demo.main() == 130
    assert capsys.readouterr().out.splitlines()[-1] == "stopped; broker and data are gone"


def test_ctrl_c_that_the_client_hides_behind_an_error_of_its_own_ends_it_just_so(
    given: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise TypeError("expected header key to be unicode string")

    monkeypatch.setattr(demo, "share", interrupted)
    with pytest.raises(TypeError):
        demo.main()
    monkeypatch.setattr(demo, "ended_by", lambda: signal.SIGINT)
    assert demo.main() == 130
    assert capsys.readouterr().out.splitlines()[-1] == "stopped; its queues and topics are gone"
    assert queues(cluster=given) == []


def test_ctrl_c_does_not_wait_for_spark_to_start_and_ends_its_processes(
    given: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = f"""
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
sys.stderr.write("what Java says while it starts")
pathlib.Path({str(tmp_path)!r}, "jvm").write_text(f"{{jvm.pid}}\\n")
time.sleep(600)
"""
    run_as_spark(monkeypatch, program)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    jvm = tmp_path / "jvm"

    def interrupted(*_: object) -> None:
        eventually(lambda: jvm.exists() and jvm.read_text().endswith("\n"), 30)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "share", interrupted)
    assert demo.main() == 130
    said = capfd.readouterr()
    assert said.out.splitlines()[-1] == "stopped; its queues and topics are gone"
    assert said.err == ""
    eventually(lambda: not runs(int(jvm.read_text())), 30)


def runs(process: int) -> bool:
    """Return whether a process runs. A zombie, which waits to be read, does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_spark_answers_with_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_spark(monkeypatch, "import json; print(json.dumps([json.loads(input())]))")
    with SparkProcess() as spark:
        (asked,) = spark.rows("broker:9092", "prices", {0: 7})
    assert asked == {"bootstrap_servers": "broker:9092", "queue": "prices", "end": {"0": 7}}


def test_the_output_of_spark_is_shown_when_it_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run_as_spark(monkeypatch, "import sys; sys.exit('There is no Java.')")
    with SparkProcess() as spark, pytest.raises(StateError, match="ended with status 1"):
        spark.rows("broker:9092", "prices", {0: 7})
    assert capfd.readouterr().err == "There is no Java.\n"


def test_a_worker_that_was_killed_delays_the_cleaning_up_and_does_not_prevent_it(
    given: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(stage: Stage, queue: object, servers: str, closes: object) -> None:
        given.fail_next("groups.delete", TransportError("It has members.", code="NON_EMPTY_GROUP"))
        raise StateError("It went wrong.")

    monkeypatch.setattr(demo, "share", fail)
    assert demo.main() == 1
    assert "StateError: It went wrong." in capsys.readouterr().out
    assert queues(cluster=given) == []


def test_in_a_file_the_board_is_a_table_of_its_own(stage: Stage, memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=memory_cluster)
    ticks = [Tick("2000-03-01", "IBM", "102.0"), Tick("2000-03-02", "FB", "20.5")]
    with ExitStack() as opened:
        producer = opened.enter_context(queue.producer())
        play(stage, opened, queue, producer, ticks, seconds=0.0)
        stage.check(True, "what comes next")
    assert isinstance(stage.console.file, io.StringIO)
    lines = stage.console.file.getvalue().splitlines()
    assert lines[-1] == " ✓ what comes next"
    assert [line.split()[1] for line in lines if "prices/0/" in line] == ["FB", "IBM"]
    assert sum("prices · caught-up · lag 0" in line for line in lines) == 1
