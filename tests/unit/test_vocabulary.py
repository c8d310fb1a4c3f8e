"""The project's vocabulary: a name means one thing, and a function's name says what it does."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import lvq_kafka
from lvq_kafka import LastValueQueue, Producer
from lvq_kafka.cli.app import SECTIONS
from tests.pages import page

ROOT = Path(lvq_kafka.__file__).parent
SPARK = ROOT.parent / "spark" / "lvq_spark"
SOURCES = sorted([*ROOT.rglob("*.py"), *SPARK.rglob("*.py")])

VAGUE = ("take", "tell", "told", "look", "begin", "settle")
"""Verbs that used to mean a dozen things each. Only an application settles, and only a delivery."""

KAFKAS_OWN = {"begin", "begin_transaction"}
"""Kafka's own words: it begins transactions, as it commits and aborts them."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in SOURCES:
        root = ROOT if path.is_relative_to(ROOT) else SPARK
        yield ".".join((root.name, *path.relative_to(root).with_suffix("").parts)), ast.parse(path.read_text())


def doubled(names: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names used in several places, private or not."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, place in names:
        found[name.lstrip("_")].append(place)
    return {name: places for name, places in found.items() if len(places) > 1}


def modules() -> Iterator[tuple[str, str]]:
    for module, _ in trees():
        package, _, name = module.rpartition(".")
        # A module of commands is named after its command.
        if package != "lvq_kafka.cli.commands" and not name.startswith("__"):
            yield name, module


def classes(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, module


def vague_functions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in KAFKAS_OWN:
            verb, _, rest = node.name.lstrip("_").partition("_")
            if verb in VAGUE and rest != "up":  # "look up" is a separate verb
                yield node.name


def misnamed_loggers(tree: ast.Module) -> Iterator[str]:
    """Yield the variables that hold a logger under another name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("logging.getLogger(", "getLogger(")):
            yield from (name for target in node.targets if (name := ast.unparse(target)) != "logger")


def logs_that_are_clusters(tree: ast.Module) -> Iterator[str]:
    """Yield the parameters and attributes that hold a cluster but are called a log, which belongs to a partition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            if "Cluster" in ast.unparse(node.annotation) and "log" in name.rpartition(".")[2].split("_"):
                yield name


def test_no_two_modules_have_one_name() -> None:
    assert not doubled(modules())


def test_no_two_classes_have_one_name() -> None:
    assert not doubled(pair for module, tree in trees() for pair in classes(module, tree))


def test_a_function_says_what_it_does() -> None:
    assert not [(module, name) for module, tree in trees() for name in vague_functions(tree)]


def test_a_logger_is_called_logger() -> None:
    assert not [(module, name) for module, tree in trees() for name in misnamed_loggers(tree)]


def test_a_cluster_is_not_called_a_log() -> None:
    assert not [(module, name) for module, tree in trees() for name in logs_that_are_clusters(tree)]


def test_every_term_has_the_name_in_code_that_its_page_gives() -> None:
    rows = [line.split("|")[1:-1] for line in page("docs/terms.md").splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 15
    defined = {name for module, tree in trees() for name, _ in classes(module, tree)}
    for *_, code in rows:
        for name in code.replace("`", "").split(","):
            owner, _, member = name.strip().partition(".")
            assert owner in defined, name
            assert not member or hasattr(getattr(lvq_kafka, owner), member), name


def test_a_key_is_deleted_a_queue_is_dropped_and_stats_are_what_is_counted() -> None:
    commands = {command.name for section in SECTIONS.values() for command in section}
    assert commands >= {"delete", "drop", "stats"}
    assert "status" not in commands
    assert hasattr(Producer, "delete")
    assert hasattr(LastValueQueue, "drop")
    assert hasattr(LastValueQueue, "stats")
    assert not {"delete", "status", "counters"} & set(dir(LastValueQueue))
    for kept in (lvq_kafka.Consumer, lvq_kafka.View, lvq_kafka.Browser):
        assert hasattr(kept, "stats")


@pytest.mark.parametrize(
    ("check", "source", "found"),
    [
        (vague_functions, "def take(): ...\ndef _tell_all(): ...\ndef taken(): ...\ndef look_up(): ...", 2),
        (vague_functions, "class A:\n    async def _look(self): ...\n    def begin(self): ...", 1),
        (misnamed_loggers, "log = logging.getLogger('a')\nlogger = logging.getLogger('b')", 1),
        (logs_that_are_clusters, "def f(log: Cluster, target_log: 'KafkaCluster', log_path: str): ...", 2),
        (lambda tree: doubled(classes("m", tree)), "class Entry: ...\nclass _Entry: ...\nclass Other: ...", 1),
    ],
)
def test_each_of_these_rules_can_be_broken(check, source: str, found: int) -> None:  # type: ignore[no-untyped-def]
    assert len(list(check(ast.parse(source)))) == found
