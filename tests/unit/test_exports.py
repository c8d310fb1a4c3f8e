"""Exports: every type in a public signature can be imported from `lvq_kafka` itself."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

import lvq_kafka
from lvq_kafka import kafka

MADE_BY_USERS = {"Codec", "LastValueQueue", "Message", "Position", "QueueDefinition", "TopicSpec", "ClientConfig"}
"""Classes with a public constructor; the others come from methods."""

INNER = {"ConsumerStats.of", "Delivery.into"}
"""Names that are public only among the library's modules."""

MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(lvq_kafka.__path__, "lvq_kafka.")
    if info.name.split(".")[1] not in ("cli", "demo", "testing", "embedded", "__main__")
]
NAMES: dict[str, Any] = {}
for module in MODULES:
    NAMES |= vars(module)


def surface() -> Iterator[tuple[str, Any]]:
    """Yield all public functions and methods by name; for a property, its getter."""
    for name in lvq_kafka.__all__:
        exported = getattr(lvq_kafka, name)
        if inspect.isfunction(exported):
            yield name, exported
        if (
            not inspect.isclass(exported) or exported is lvq_kafka.Cluster
        ):  # authors of adapters know `lvq_kafka.cluster`
            continue
        for owner in exported.__mro__:
            if not owner.__module__.startswith("lvq_kafka"):
                continue
            for attribute, value in vars(owner).items():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                public = not attribute.startswith("_") or (attribute == "__init__" and name in MADE_BY_USERS)
                if public and inspect.isfunction(function) and f"{name}.{attribute}" not in INNER:
                    yield f"{name}.{attribute}", function
            if is_dataclass(owner):
                yield f"{name} (its fields)", owner


def hints(offered: Any) -> Iterator[str]:
    """Yield the annotations as written; for a dataclass, those of its public fields."""
    for name, hint in offered.__annotations__.items():
        if not (inspect.isclass(offered) and name.startswith("_")):
            yield str(hint)


def classes(hint: Any) -> Iterator[type]:
    """Yield the library's classes that a name in an annotation stands for: a class, or an alias for several."""
    if inspect.isclass(hint) and hint.__module__.startswith("lvq_kafka"):
        yield hint
    for part in typing.get_args(hint):
        yield from classes(part)


@pytest.mark.parametrize(("name", "offered"), [pytest.param(*one, id=one[0]) for one in surface()])
def test_the_types_that_it_takes_and_returns_can_be_imported_from_the_top(name: str, offered: Any) -> None:
    exported = [found for found in (getattr(lvq_kafka, one) for one in lvq_kafka.__all__) if inspect.isclass(found)]
    module = vars(inspect.getmodule(offered))
    for written in hints(offered):
        for word in re.findall(r"[A-Za-z_]\w*", written):
            for found in classes(module.get(word, NAMES.get(word))):
                # A function that takes a base class gets one of the library's subclasses.
                assert any(found in one.__mro__ for one in exported), f"{name}: {written}"


def test_every_name_is_there_and_the_client_is_imported_when_it_is_asked_for() -> None:
    for name in lvq_kafka.__all__:
        assert getattr(lvq_kafka, name) is not None
    from lvq_kafka import ClientConfig

    assert ClientConfig is kafka.ClientConfig
    assert set(dir(lvq_kafka)) >= set(lvq_kafka.__all__)
    with pytest.raises(AttributeError, match="Nonsense"):
        lvq_kafka.Nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_loggers_keep_their_names_wherever_their_modules_move() -> None:
    """Programs set levels by them."""
    root = Path(lvq_kafka.__file__).parents[1]
    sources = [*(root / "lvq_kafka").rglob("*.py"), *(root / "spark").rglob("*.py")]
    named = {name for path in sources for name in re.findall(r'getLogger\("([^"]+)"\)', path.read_text())}
    of_consumers = {"consumer", "reader", "follower", "view", "selection", "producer", "limits", "client"}
    of_queues = {"bridge", "durables", "feed", "registry", "settings", "topics", "management", "retrying", "testing"}
    ours = {f"lvq_kafka.{part}" for part in of_consumers | of_queues | {"store", "index", "serve", "telemetry"}}
    assert named == {"lvq_kafka", "lvq_spark", "lvq_spark.store", "lvq_spark.tasks", *ours}
