"""The modules that a run of ``lvq`` loads before it does anything: few, so that it starts quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

_RUN = """
import os, runpy, sys
os.environ.update({environment!r})
sys.argv[1:] = {arguments!r}
try:
    from lvq_kafka.cli import main
    main()
except SystemExit:
    pass
names = {{".".join(name.split(".")[:3]) for name in sys.modules}}
print("LOADED", *sorted(names), file=sys.stderr)
"""

COMPLETING = {"_LVQ_COMPLETE": "bash_complete", "COMP_WORDS": "lvq ge", "COMP_CWORD": "1"}
OPTIONS = {"_LVQ_COMPLETE": "bash_complete", "COMP_WORDS": "lvq --conf", "COMP_CWORD": "1"}


def loaded_by(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Return what ``lvq`` prints, and the modules that it loads, of the library by their parts."""
    program = _RUN.format(arguments=list(arguments), environment=environment)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ran.stdout, set(ran.stderr.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    ("arguments", "environment", "printed"),
    [
        (["--version"], {}, "lvq "),
        (["--help"], {}, "Print the current values of keys."),
        ([], COMPLETING, "plain,get"),
        ([], OPTIONS, "plain,--config"),
    ],
    ids=["version", "help", "commands", "options"],
)
def test_the_help_and_completion_load_neither_a_command_nor_what_commands_do(
    arguments: list[str], environment: dict[str, str], printed: str
) -> None:
    said, names = loaded_by(*arguments, **environment)
    assert printed in said
    assert "lvq_kafka.cli.app" in names
    assert not [name for name in names if name.startswith("lvq_kafka.cli.commands")]
    ours = {name.split(".")[1] for name in names if name.startswith("lvq_kafka.")}
    assert ours <= {"_version", "cli", "codecs", "core", "errors", "runtime"}
    rooms = {name for name in names if name.startswith("lvq_kafka.core.")}
    assert rooms <= {"lvq_kafka.core.facts", "lvq_kafka.core.text"}
    heavy = {"asyncio", "confluent_kafka", "duckdb", "jsonschema", "lmdb", "mcp", "pyarrow", "uvicorn"}
    assert not heavy & names
    assert "rich.console" not in names


def test_a_command_is_loaded_alone() -> None:
    _, names = loaded_by("get", "--help")
    assert {name for name in names if name.startswith("lvq_kafka.cli.")} >= {"lvq_kafka.cli.commands"}
    assert not {"duckdb", "mcp", "uvicorn", "lvq_kafka.serve", "lvq_kafka.bridging"} & names


@pytest.mark.parametrize("name", ["alter", "browse", "consume", "drop", "export", "get", "put", "stats", "watch"])
def test_the_completion_of_queues_loads_no_more_than_the_list_of_them(name: str) -> None:
    words = {"_LVQ_COMPLETE": "bash_complete", "COMP_WORDS": f"lvq {name} --config /none pri", "COMP_CWORD": "4"}
    said, names = loaded_by(**words)
    assert said.strip() == ""
    assert "lvq_kafka.declared" in names
    assert not {"lvq_kafka.consuming.consumer", "lvq_kafka.queue", "lvq_kafka.reading.view"} & names
    assert not {name for name in names if name.startswith("lvq_kafka.managing.")}
