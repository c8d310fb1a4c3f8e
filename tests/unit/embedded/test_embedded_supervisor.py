from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lvq_kafka.embedded.process import SupervisedProcess
from lvq_kafka.embedded.processes import ProcessIdentity
from tests.waiting import eventually

SLEEP = ["sleep", "300"]
# Catches SIGTERM and leaves a file, as the JVM leaves its archive. Prints when it is ready.
WRITES_ON_TERM = ["sh", "-c", "trap 'echo classes > \"$0\"; exit 143' TERM; echo ready; while :; do sleep 0.05; done"]

PROGRAM = """
import sys
from pathlib import Path
from lvq_kafka.embedded.process import SupervisedProcess
home = Path(sys.argv[1])
process = SupervisedProcess(log=home / "log", directory=home, remove=True, grace=5.0, promote=None)
process.run(["sleep", "300"])
print(process.supervisor_pid, process.pid, flush=True)
if sys.argv[2] == "detach":
    process.detach()
else:
    sys.stdin.read()
    if sys.argv[2] == "raise":
        raise SystemExit(3)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def process(home: Path) -> Iterator[SupervisedProcess]:
    process = SupervisedProcess(log=home / "log", directory=home, remove=True, grace=5.0, promote=None)
    yield process
    process.close()


def identity(pid: int | None) -> ProcessIdentity:
    found = ProcessIdentity.of(pid)
    assert found is not None
    return found


def test_a_child_runs_until_it_is_signalled(process: SupervisedProcess) -> None:
    process.run(SLEEP)
    child = identity(process.pid)
    assert child.alive
    assert not process.ended
    process.signal("TERM")
    assert process.wait(5)
    assert process.pid is None
    assert process.ending == "by SIGTERM"
    assert not child.alive


def test_a_child_can_be_run_again_after_it_was_killed(process: SupervisedProcess) -> None:
    process.run(SLEEP)
    first = process.pid
    process.signal("KILL")
    assert process.wait(5)
    process.run(SLEEP)
    assert process.pid not in (None, first)


def test_a_child_s_exit_code_and_output_are_kept(process: SupervisedProcess, home: Path) -> None:
    process.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert process.wait(5)
    assert process.ending == "exit code 7"
    assert (home / "log").read_text() == "out\nerr\n"


def test_a_command_that_cannot_be_started_ends_at_once_and_the_log_says_why(
    process: SupervisedProcess, home: Path
) -> None:
    process.run(["/does/not/exist"])
    assert process.wait(5)
    assert process.ending == "exit code 127"
    assert "/does/not/exist" in (home / "log").read_text()


def test_a_child_stands_still_once_it_was_sent_stop(process: SupervisedProcess) -> None:
    process.run(["sh", "-c", "while :; do :; done"])
    for _ in range(2):  # the second time it has already stopped
        process.signal("STOP")
        assert state(process) == "T"
    process.signal("CONT")
    assert not process.ended
    process.signal("STOP")
    assert state(process) == "T"


def state(process: SupervisedProcess) -> str:
    """Return the child's state, as the one letter of ps."""
    return subprocess.run(
        ["ps", "-o", "state=", "-p", str(process.pid)], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_signal_to_a_child_that_has_ended_or_was_left_does_nothing(process: SupervisedProcess) -> None:
    process.run(["true"])
    assert process.wait(5)
    process.signal("STOP")
    process.close()
    process.signal("STOP")
    assert process.ending == "exit code 0"


def test_a_stopped_child_still_obeys_sigterm(process: SupervisedProcess) -> None:
    process.run(SLEEP)
    process.signal("STOP")
    process.signal("TERM")
    assert process.wait(5)


def test_closing_ends_the_child_and_removes_its_directory(process: SupervisedProcess, home: Path) -> None:
    process.run(SLEEP)
    child = identity(process.pid)
    process.close()
    assert not child.alive
    assert not home.exists()


@pytest.mark.parametrize(("ending", "kept"), [("TERM", True), ("KILL", False)])
def test_the_file_written_at_an_orderly_end_is_promoted_and_only_then(
    tmp_path: Path, home: Path, ending: str, kept: bool
) -> None:
    new, final = tmp_path / "archive.tmp", tmp_path / "archive"
    process = SupervisedProcess(log=home / "log", directory=home, remove=True, grace=5.0, promote=(new, final))
    process.run([*WRITES_ON_TERM, str(new)])
    eventually(lambda: "ready" in (home / "log").read_text())
    process.signal(ending)
    assert process.wait(5)
    process.close()
    assert (final.exists(), new.exists()) == (kept, False)


@pytest.mark.parametrize("end", ["kill", "raise"])
def test_however_the_program_ends_the_child_and_the_directory_go(home: Path, end: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(home), end], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        supervisor, child = (identity(int(pid)) for pid in program.stdout.readline().split())
        assert child.alive
        if end == "kill":
            program.kill()
    assert child.wait(5)
    assert supervisor.wait(5)
    assert not home.exists()


def test_the_program_s_end_is_noticed_although_a_fork_of_it_holds_the_pipe(home: Path) -> None:
    fork = "import os, time\nforked = os.fork()\nif not forked:\n    os.close(1)\n    time.sleep(60)\n    os._exit(0)\n"
    source = PROGRAM.replace("print(", fork + "print(forked, ")
    with subprocess.Popen(
        [sys.executable, "-c", source, str(home), "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        forked, supervisor, child = (identity(int(pid)) for pid in program.stdout.readline().split())
        program.kill()
    assert child.wait(5)
    assert supervisor.wait(5)
    assert forked.alive
    forked.send(signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child when its parent is killed")
def test_the_child_goes_when_the_supervisor_itself_is_killed(process: SupervisedProcess) -> None:
    process.run(SLEEP)
    child = identity(process.pid)
    os.kill(process.supervisor_pid, signal.SIGKILL)
    assert child.wait(5)
    assert process.wait(5)
    assert process.ending == "by SIGKILL"


def test_a_detached_child_outlives_the_program_and_ends_in_order_on_sigterm_to_its_supervisor(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(home), "detach"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    supervisor, child = (identity(int(pid)) for pid in done.stdout.split())
    assert child.alive
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait(5)
    assert not child.alive
    assert not home.exists()


# The program detaches and ends just as the supervisor, which has heard nothing, checks whether it is still alive.
LAST_WORD = """
import os, sys
from pathlib import Path
from lvq_kafka.embedded import supervisor
home, command = Path(sys.argv[1]), '{"run": ["sh", "-c", "sleep 1; echo so > ../alive"]}'
source, tell = os.pipe()
os.dup2(source, 0)
os.write(tell, command.encode() + b"\\n")
serving = supervisor.Supervisor(log=home / "log", directory=home, remove=True, grace=5.0, promote=None)
ended = []
def getppid():
    if serving.child is not None and not ended:
        os.write(tell, b'{"detach": true}\\n')
        os.close(tell)
        ended.append(True)
    return -1 if ended else serving.parent
os.getppid = getppid
serving.serve()
"""


def test_a_program_that_detaches_and_ends_at_once_is_heard(home: Path) -> None:
    subprocess.run([sys.executable, "-c", LAST_WORD, str(home)], check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert (home.parent / "alive").exists()
    assert not home.exists()


def test_a_detached_supervisor_ends_with_its_child(home: Path) -> None:
    process = SupervisedProcess(log=home / "log", directory=home, remove=True, grace=5.0, promote=None)
    process.run(SLEEP)
    supervisor, child = identity(process.supervisor_pid), identity(process.pid)
    process.detach()
    child.send(signal.SIGKILL)
    assert supervisor.wait(5)
    assert not home.exists()


def test_a_later_process_with_the_same_id_is_not_taken_for_the_earlier_one() -> None:
    myself = identity(os.getpid())
    assert myself.alive
    impostor = ProcessIdentity(myself.pid, "another time")
    assert not impostor.alive
    impostor.send(signal.SIGKILL)  # would kill this test run
    assert myself.alive


def test_a_zombie_does_not_count_as_alive() -> None:
    with subprocess.Popen(["sleep", "300"]) as child:
        found = identity(child.pid)
        child.kill()
        eventually(lambda: not found.alive)  # not reaped yet, so the zombie remains
