"""Type hints of the public API: they can be resolved at run time, as frameworks and documentation tools do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest

import lvq_kafka
import lvq_kafka.testing
import lvq_spark
from lvq_kafka.compat import qpid_messaging


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in (lvq_kafka, qpid_messaging, lvq_kafka.testing, lvq_spark):
        for name in module.__all__:
            public = getattr(module, name)
            if callable(public) and public.__module__.startswith(("lvq_kafka", "lvq_spark")):
                yield f"{module.__name__}.{name}", public
            if inspect.isclass(public):
                yield from methods(f"{module.__name__}.{name}", public)


def methods(of: str, public: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in inspect.getmembers(public):
        method = inspect.unwrap(member.fget if isinstance(member, property) else getattr(member, "__func__", member))
        private = name.startswith("_") and not name.endswith("__")
        if inspect.isfunction(method) and not private and method.__module__.startswith(("lvq_kafka", "lvq_spark")):
            yield f"{of}.{name}", method


PUBLIC = dict(callables())


@pytest.mark.parametrize("name", PUBLIC)
def test_the_hints_of_a_public_callable_resolve(name: str) -> None:
    get_type_hints(PUBLIC[name])


def test_all_that_is_public_is_checked() -> None:
    assert len(PUBLIC) > 350
    assert {"lvq_kafka.connect", "lvq_kafka.LastValueQueue.declare", "lvq_kafka.Consumer.run", "lvq_spark.merge"} <= {
        *PUBLIC
    }
