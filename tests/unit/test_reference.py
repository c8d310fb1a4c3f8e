"""The reference: it has every public name, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

import lvq_kafka
import lvq_kafka.testing
from lvq_kafka import errors
from lvq_kafka.compat import qpid_messaging
from tests.pages import ROOT, page

REFERENCE = "docs/reference/"


def spark_names() -> list[str]:
    """Return the public names of ``lvq_spark``, also where pyspark is not installed."""
    tree = ast.parse((ROOT / "spark/lvq_spark/__init__.py").read_text())
    (names,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    return list(ast.literal_eval(names))


def entries(name: str) -> Iterator[str]:
    yield from re.findall(r"^::: ([\w.]+)$", page(REFERENCE + name), re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "package", "public", "elsewhere"),
    [
        ("lvq_kafka.md", "lvq_kafka", lvq_kafka.__all__, {"LVQError", "__version__"}),
        ("testing.md", "lvq_kafka.testing", lvq_kafka.testing.__all__, set()),
        (
            "qpid_messaging.md",
            "lvq_kafka.compat.qpid_messaging",
            [*qpid_messaging.__all__, "exceptions"],
            {
                "AMQPS_PORT",
                "AMQP_PORT",
                "REJECTED",
                "RELEASED",
                "UNLIMITED",
                "uuid4",
                *qpid_messaging.exceptions.__all__,
            },
        ),
        ("lvq_spark.md", "lvq_spark", spark_names(), set()),
    ],
)
def test_every_public_name_has_one_entry(name: str, package: str, public: list[str], elsewhere: set[str]) -> None:
    expected = {f"{package}.{each}" for each in public if each not in elsewhere}
    found = [entry for entry in entries(name) if not entry.endswith(".plugin")]
    assert sorted(found) == sorted(expected)


def test_the_errors_and_the_commands_are_there_as_a_whole() -> None:
    assert list(entries("errors.md")) == ["lvq_kafka.errors"]
    assert "<!-- commands -->" in page(REFERENCE + "command-line.md")


def test_every_error_of_the_tree_is_in_the_tree() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        assert re.search(rf"\b{name}\b", errors.__doc__), f"{name} is missing from the picture in errors.py"
