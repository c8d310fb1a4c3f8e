"""The project's vocabulary: a name means one thing, and a function's name says what it does.

Read are functions, classes, variables that hold loggers or clusters, aliases of types, and the words of modules.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import lvq_kafka
from lvq_kafka import LastValueQueue, Producer
from lvq_kafka.cli.command_list import SECTIONS
from tests.pages import page

ROOT = Path(lvq_kafka.__file__).parent
SPARK = ROOT.parent / "spark" / "lvq_spark"
SOURCES = sorted([*ROOT.rglob("*.py"), *SPARK.rglob("*.py")])

VAGUE = ("take", "tell", "told", "look", "begin", "settle")
"""Verbs that used to mean a dozen things each. Only an application settles, and only a delivery."""

EMPTY = ("util", "helper", "misc", "stuff")
"""Words of modules that say nothing."""

KAFKAS_OWN = {"begin", "begin_transaction"}
"""Kafka's own words: it begins transactions, as it commits and aborts them."""

KAFKAS_GROUPS = ("declared", "kafka", "testing", "consuming.group_monitor")
"""The parts of the library in which a *group* is Kafka's, of consumers. In all others it is one of messages (R36)."""

SENSES = {
    "group": r"R36|[Mm]essage groups?\b|[Cc]onsumer groups?\b",
    "session": r"R36|Spark sessions?\b|session timeout",
}
"""Words with more than one sense, and how a module that is named after one says which it means."""


def name_of(path: Path) -> str:
    root = ROOT if path.is_relative_to(ROOT) else SPARK
    return ".".join((root.name, *path.relative_to(root).with_suffix("").parts))


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(name_of(path), ast.parse(path.read_text())) for path in SOURCES]


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


def aliases(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the aliases of types in a module, with its name. A type variable is none: each module has its own."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and not isinstance(node.value, ast.Call):
            targets = map(ast.unparse, node.targets if isinstance(node, ast.Assign) else [node.target])
            yield from ((name, module) for name in targets if re.fullmatch(r"_*[A-Z]\w*[a-z]\w*", name))


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters and without a plural."""
    return [word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def vague_aliases(tree: ast.Module) -> Iterator[str]:
    for name, _ in aliases("", tree):
        if set(words(name)) & set(VAGUE):
            yield name


def vague_modules(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if set(words(name)) & {*VAGUE, *EMPTY}:
            yield name


def of_two_senses(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the words in a module's name of which its docstring does not say the sense, or says that of other parts."""
    said = ast.get_docstring(tree) or ""
    package, _, name = module.rpartition(".")
    for word, senses in SENSES.items():
        if word in words(name.replace("__init__", package.rpartition(".")[2])):
            part = module.partition(".")[2]
            is_kafkas = "consumer group" in said.lower() and "message group" not in said.lower()
            if not re.search(senses, said) or (is_kafkas and not part.startswith(KAFKAS_GROUPS)):
                yield word


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
    """Yield the parameters, attributes and aliases of a cluster that are called a log, which belongs to a partition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            if "Cluster" in ast.unparse(node.annotation) and "log" in name.rpartition(".")[2].split("_"):
                yield name
    for node in tree.body:
        if isinstance(node, ast.Assign) and re.fullmatch(r"\w*Cluster", ast.unparse(node.value)):
            yield from (name for target in node.targets if "log" in words(name := ast.unparse(target)))


def test_no_two_modules_have_one_name() -> None:
    assert not doubled(modules())


def test_no_two_classes_or_aliases_have_one_name() -> None:
    """Classes of `compat` have the names that other systems gave them."""
    own = [(module, tree) for module, tree in trees() if not module.startswith("lvq_kafka.compat.")]
    assert len(own) < len(trees())
    assert not doubled(pair for module, tree in own for pair in (*classes(module, tree), *aliases(module, tree)))


def test_a_function_says_what_it_does() -> None:
    assert not [(module, name) for module, tree in trees() for name in vague_functions(tree)]


def test_an_alias_and_a_module_say_what_they_hold() -> None:
    assert not [(module, name) for module, tree in trees() for name in vague_aliases(tree)]
    assert not list(vague_modules(module for module, _ in trees()))


def test_a_module_of_groups_or_sessions_says_of_which() -> None:
    assert not [(module, word) for module, tree in trees() for word in of_two_senses(module, tree)]


def test_a_logger_is_called_logger() -> None:
    assert not [(module, name) for module, tree in trees() for name in misnamed_loggers(tree)]


def test_a_cluster_is_not_called_a_log() -> None:
    assert not [(module, name) for module, tree in trees() for name in logs_that_are_clusters(tree)]


def test_every_term_has_the_name_in_code_that_its_page_gives() -> None:
    rows = [line.split("|")[1:-1] for line in page("docs/terms.md").splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 15
    defined = {name for module, tree in trees() for name, _ in (*classes(module, tree), *aliases(module, tree))}
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
        (logs_that_are_clusters, "Log = KafkaCluster\nLogs = list[str]\nBoard = Cluster", 1),
        (vague_aliases, "Look = int\n_ToTake = Callable[[], int]\nTaken = int\nTELL = 1\nBegin = TypeVar('Begin')", 2),
        (lambda tree: doubled(aliases("m", tree)), "Key = str\n_Key = bytes\nT = TypeVar('T')\n_T = TypeVar('T')", 1),
        (lambda tree: vague_modules([tree.body[0].value.value]), "'lvq_kafka.cli.look_at'", 1),
        (lambda tree: vague_modules([tree.body[0].value.value]), "'lvq_kafka.core.utils'", 1),
        (lambda tree: of_two_senses("lvq_kafka.core.ledger.group_list", tree), "'Lists of groups.'", 1),
        (lambda tree: of_two_senses("lvq_kafka.core.ledger.group_list", tree), "'The consumer group.'", 1),
        (lambda tree: of_two_senses("lvq_kafka.core.ledger.group_list", tree), "'Message groups.'", 0),
        (lambda tree: of_two_senses("lvq_kafka.kafka.group_list", tree), "'Consumer groups.'", 0),
        (lambda tree: of_two_senses("lvq_spark.session.__init__", tree), "'Sessions.'", 1),
        (lambda tree: doubled(classes("m", tree)), "class Entry: ...\nclass _Entry: ...\nclass Other: ...", 1),
    ],
)
def test_each_of_these_rules_can_be_broken(check, source: str, found: int) -> None:  # type: ignore[no-untyped-def]
    assert len(list(check(ast.parse(source)))) == found
