"""Repeated removal from the front of a plain dict or list, which takes quadratic time: the source has none.

A dict skips everything that was removed before to find its first item; a list moves all the others. An `OrderedDict`, a
`deque` and `lvq_kafka.core.latest.pending_keys.ConflatedKeys` do it in constant time. The cost shows only with many
keys, and then under some lock, so the check reads the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_imports import SOURCES, name_of


def fronts(source: str) -> Iterator[str]:
    """Yield the places that remove from the front of what may be a plain dict or list."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            firsts = {
                ast.unparse(target): found
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and (found := _first_of(node.value))
                for target in node.targets
            }
            for node in ast.walk(function):
                for holder, key in _taken(node):
                    if firsts.get(ast.unparse(key), _first_of(key)) == holder or _is_zero(key):
                        yield f"line {node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]


def _first_of(node: ast.expr) -> str | None:
    """Return ``x`` if this is ``next(iter(x))``."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[ast.Call(func=ast.Name(id="iter"), args=[holder])]):
            return ast.unparse(holder)
    return None


def _taken(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield each holder and the key removed from it: ``del holder[key]``, ``holder.pop(key)``."""
    match node:
        case ast.Delete(targets=targets):
            for target in targets:
                if isinstance(target, ast.Subscript):
                    yield ast.unparse(target.value), target.slice
        case ast.Call(func=ast.Attribute(value=holder, attr="pop"), args=[key, *_]):
            yield ast.unparse(holder), key


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_taken_out_of_the_front_of_a_dict_or_list(path: Path) -> None:
    assert list(fronts(path.read_text())) == []


@pytest.mark.parametrize(
    "line",
    [
        "key = next(iter(keys))\n    del keys[key]",
        "key = next(iter(self.keys))\n    self.keys.pop(key, None)",
        "del self.keys[next(iter(self.keys))]",
        "keys.pop(0)",
        "del keys[0]",
    ],
)
def test_it_is_found_however_it_is_written(line: str) -> None:
    assert len(list(fronts(f"def take(self, keys):\n    {line}"))) == 1
