"""Unknown keyword arguments of public calls: errors that name the nearest known one (R3)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from typing import Any, TypeVar

from lvq_kafka.core.text.nearest import folded, nearest
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.errors import ConfigError

__all__ = ["check_known", "refuse_unknown"]

F = TypeVar("F", bound=Callable[..., Any])

_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def refuse_unknown(
    *, passes: Collection[str] = (), hints: Mapping[str, str] | None = None, more: str = ""
) -> Callable[[F], F]:
    """Return a decorator that refuses unknown keyword arguments with a `ConfigError`.

    Python's own error does not name the nearest one; and a function that takes ``**options`` would ignore the argument,
    or pass it on to something that the caller does not know. Type checkers see the function as it was.

    Args:
        passes: arguments that the function refuses by itself, since it knows more about them.
        hints: names that are no arguments, in any case and with any separators, each with what to do instead.
        more: a sentence on where all these names are, for one that is none of them.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            if keywords:
                check_known(function, keywords, passes=passes, hints=hints, more=more)
            return function(*args, **keywords)

        return checked  # type: ignore[return-value]  # of the same signature

    return decorate


def check_known(
    function: Callable[..., Any],
    keywords: Mapping[str, object],
    *,
    passes: Collection[str] = (),
    hints: Mapping[str, str] | None = None,
    more: str = "",
) -> None:
    """Check the keyword arguments of a call; see `refuse_unknown`.

    Raises:
        ConfigError: one is unknown; names the nearest.
    """
    if not keywords.keys() <= _known(function):
        for name in keywords:
            if name not in _known(function) and name not in passes:
                raise _unknown(function, name, hints or {}, more)


@cache
def _known(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a function's keyword arguments, those of `Unpack` included."""
    known: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _NAMED:
            known.add(parameter.name)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options = str(parameter.annotation).removeprefix("Unpack[").partition("[")[0].rstrip("]")
            known |= function.__globals__[options].__annotations__.keys()
    return frozenset(known) - {"self", "cls"}


def _unknown(function: Callable[..., Any], name: str, hints: Mapping[str, str], more: str) -> ConfigError:
    known = sorted(_known(function))
    near = nearest(name, [*known, *hints])
    if not near:
        hint = f"It takes {', '.join(known)}. {more}"
    elif near[0] in known:
        hint = f"Did you mean {near[0]}?"
    elif folded(near[0]) == folded(name):
        hint = hints[near[0]]
    else:
        hint = f"Did you mean {near[0]}? {hints[near[0]]} {more}"
    called = function.__qualname__.removesuffix(".__init__")
    return ConfigError(f"{called} takes no argument {brief(name)}.", options=[name], hint=hint.rstrip())
